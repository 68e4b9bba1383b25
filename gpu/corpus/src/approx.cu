// The hardware's approximations, and library functions that rest on them.
extern "C" __global__ void approx_fast(const float *x, float *sines, float *cosines, float *exponentials,
                                       float *logarithms, float *roots, float *inverse_roots, float *reciprocals,
                                       float *quotients, float *tangents, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    float v = x[i], positive = fabsf(v) + 0.5f;
    sines[i] = __sinf(v);
    cosines[i] = __cosf(v);
    exponentials[i] = __expf(v);
    logarithms[i] = __logf(positive);
    asm("sqrt.approx.f32 %0, %1;" : "=f"(roots[i]) : "f"(positive));
    inverse_roots[i] = rsqrtf(positive);
    asm("rcp.approx.f32 %0, %1;" : "=f"(reciprocals[i]) : "f"(positive));
    quotients[i] = __fdividef(v, positive);
    asm("tanh.approx.f32 %0, %1;" : "=f"(tangents[i]) : "f"(v));
}

// The library's own reduce their argument first, for large ones through a table
// and a local array.
extern "C" __global__ void approx_library(const float *x, float *sines, float *powers, double *exponentials,
                                          double *roots, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    float v = x[i];
    sines[i] = sinf(v * 40000.0f);
    powers[i] = powf(fabsf(v) + 0.5f, 1.7f);
    exponentials[i] = exp(double(v));
    roots[i] = cbrt(double(v));
}
