// Half precision: one number at a time, two at a time, and to and from float and
// integers. Operations that round carry _rn, so that none is fused.
#include <cuda_fp16.h>

// y = a·x + y, fused, on pairs.
extern "C" __global__ void half_axpy(const __half2 *x, __half2 *y, __half a, int pairs) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < pairs)
        y[i] = __hfma2(__half2half2(a), x[i], y[i]);
}

// One row of n results an operation.
extern "C" __global__ void half_ops(const __half *x, const __half *y, __half *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    __half a = x[i], b = y[i];
    out[0 * n + i] = __hadd_rn(a, b);
    out[1 * n + i] = __hsub_rn(a, b);
    out[2 * n + i] = __hmul_rn(a, b);
    out[3 * n + i] = __hfma(a, b, b);
    out[4 * n + i] = __hneg(a);
    out[5 * n + i] = __habs(a);
    out[6 * n + i] = __hmin(a, b);
    out[7 * n + i] = __hmax(a, b);
    out[8 * n + i] = __hlt(a, b) ? __float2half_rn(1.0f) : __float2half_rn(0.0f);
    out[9 * n + i] = __float2half_rn(sqrtf(fabsf(__half2float(a))));
    out[10 * n + i] = __int2half_rn(__half2int_rn(__hmul_rn(b, __float2half_rn(100.0f))));
    out[11 * n + i] = __hadd_sat(__habs(a), b);
}
