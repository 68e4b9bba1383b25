// Half precision against the host's.
#include "rt.h"

#include <cuda_fp16.h>

__global__ void compute(const __half *a, const __half *b, __half *o, float *f, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    __half2 p = __halves2half2(a[i], b[i]), q = __hfma2(p, p, __float2half2_rn(0.5f));
    o[i * 6] = a[i] + b[i] * __half(2.0f);
    o[i * 6 + 1] = __hfma(a[i], b[i], a[i]);
    o[i * 6 + 2] = __hmax(a[i], b[i]);
    o[i * 6 + 3] = __high2half(q);
    o[i * 6 + 4] = hsqrt(__habs(a[i]));
    o[i * 6 + 5] = __shfl_xor_sync(0xffffffff, a[i], 1);
    f[i] = __half2float(a[i]) + (a[i] < b[i] ? 1.0f : 0.0f);
}

int main()
{
    const int n = 256;
    std::vector<__half> a(n), b(n), o(n * 6);
    std::vector<float> f(n);
    for (int i = 0; i < n; i++)
        a[i] = __float2half((i - 100) * 0.37f), b[i] = __float2half(3.0f - i * 0.011f);
    __half *da, *db, *dout;
    float *df;
    OK(cudaMalloc(&da, n * 2));
    OK(cudaMalloc(&db, n * 2));
    OK(cudaMalloc(&dout, n * 12));
    OK(cudaMalloc(&df, n * 4));
    OK(cudaMemcpy(da, a.data(), n * 2, cudaMemcpyHostToDevice));
    OK(cudaMemcpy(db, b.data(), n * 2, cudaMemcpyHostToDevice));
    compute<<<2, 128>>>(da, db, dout, df, n);
    OK(cudaMemcpy(o.data(), dout, n * 12, cudaMemcpyDeviceToHost));
    OK(cudaMemcpy(f.data(), df, n * 4, cudaMemcpyDeviceToHost));
    for (int i = 0; i < n; i++) {
        double x = __half2float(a[i]), y = __half2float(b[i]);
        // Twice b is exact, so the sum rounds once whether or not it is fused.
        const double want[] = {x + 2 * y, x * y + x, x > y ? x : y, y * y + 0.5, sqrt(fabs(x)), __half2float(a[i ^ 1])};
        for (int k = 0; k < 6; k++)
            TRUE(fabs(__half2float(o[i * 6 + k]) - want[k]) <= fabs(want[k]) * 0x1p-11 + 0x1p-25);
        TRUE(f[i] == (float)x + (x < y ? 1 : 0));
    }
    return right();
}
