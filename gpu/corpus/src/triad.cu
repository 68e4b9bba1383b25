// The triad of the STREAM benchmark, a = b + s·c, with one fused multiply-add:
// four floats a thread through 128-bit loads and stores, and in double precision.
extern "C" __global__ void triad(float4 *a, const float4 *b, const float4 *c, float s, int quads) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= quads)
        return;
    float4 x = b[i], y = c[i];
    a[i] = make_float4(fmaf(s, y.x, x.x), fmaf(s, y.y, x.y), fmaf(s, y.z, x.z), fmaf(s, y.w, x.w));
}

extern "C" __global__ void triad_f64(double *a, const double *b, const double *c, double s, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        a[i] = fma(s, c[i], b[i]);
}
