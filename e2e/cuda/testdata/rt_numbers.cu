// Numbers that headers of their own bring: bfloat16, complex numbers, functions for dynamic programming,
// and atomic operations on halves.
#include "rt.h"

#include <cuComplex.h>
#include <cuda_bf16.h>

struct results {
    __nv_bfloat16 sum[64], fused[64], root[64];
    __nv_bfloat162 pair, pairs;
    __half half;
    __half2 halves;
    __nv_bfloat16 one;
    cuComplex quotient;
    cuDoubleComplex product;
    double magnitude;
    int words[8];
    unsigned parts[8];
    bool first, high, low;
};

__global__ void compute(results *r, const __nv_bfloat16 *a, const __nv_bfloat16 *b)
{
    int i = threadIdx.x;
    r->sum[i] = a[i] + b[i] * __nv_bfloat16(2.0f);
    r->fused[i] = __hfma(a[i], b[i], __ldg(&a[i]));
    r->root[i] = hsqrt(__habs(a[i]));
    atomicAdd(&r->pairs, __floats2bfloat162_rn(1.0f, 2.0f));
    atomicAdd(&r->one, __nv_bfloat16(1.0f));
    atomicAdd(&r->half, __half(0.5f));
    atomicAdd(&r->halves, __floats2half2_rn(1.0f, -0.5f));
    if (i)
        return;
    r->pair = __hmax2(__halves2bfloat162(a[0], b[0]), __halves2bfloat162(b[0], a[0]));
    r->quotient = cuCdivf(make_cuComplex(3e30f, 4e30f), make_cuComplex(1e30f, -2e30f));
    r->product = cuCmul(make_cuDoubleComplex(1, 2), make_cuDoubleComplex(3, -1));
    r->magnitude = cuCabs(make_cuDoubleComplex(3e200, 4e200));
    int big = 0x7fffffff;
    const int words[] = {__vimax3_s32(-5, 2, 1), __vimin3_s32_relu(-5, 2, 1), __viaddmax_s32(big, 1, -9), __viaddmin_s32(4, 5, 8),
        __viaddmin_s32_relu(-4, -5, 8), (int)__viaddmax_u32(0xffffffffu, 3, 1), __vimax_s32_relu(-1, -2), (int)__vimin3_u32(9, 7, 8)};
    const unsigned parts[] = {__vimax3_s16x2(0x0001ffff, 0xfffe0002, 0x00000001), __vimin3_u16x2(0x0001ffff, 0xfffe0002, 0x00050003),
        __viaddmax_s16x2(0x7fff0001, 0x00010002, 0x80010004), __viaddmin_u16x2(0xffff0001, 0x00030002, 0x00010004),
        __viaddmax_s16x2_relu(0xfffe0001, 0xffff0002, 0xfff00000), __vimin_s16x2_relu(0x0005fffe, 0x00070001),
        __vibmax_s16x2(0x0001ffff, 0xffff0000, &r->high, &r->low), __vibmin_u32(7, 7, &r->first)};
    for (int k = 0; k < 8; k++)
        r->words[k] = words[k], r->parts[k] = parts[k];
}

// The nearest number with 8 bits, of two the even one.
static float nearest(double v)
{
    int e;
    return (float)ldexp(nearbyint(ldexp(frexp(v, &e), 8)), e - 8);
}

int main()
{
    const int n = 64;
    std::vector<__nv_bfloat16> a(n), b(n);
    for (int i = 0; i < n; i++) {
        a[i] = __float2bfloat16((i - 30) * 0.37f), b[i] = __double2bfloat16(3.0 - i * 0.011);
        TRUE((float)b[i] == nearest(3.0 - i * 0.011));
    }
    // A double between two halfway points, which is one of them as a float.
    TRUE((float)__double2bfloat16(1 + 0x1p-8 + 0x1p-40) == 1 + 0x1p-7f && (float)__double2bfloat16(1 + 0x1p-8 - 0x1p-40) == 1);
    TRUE((float)__float2bfloat16(1 + 0x1p-8f) == 1 && __bfloat16_as_ushort(__float2bfloat16(NAN)) == 0x7fff);
    results *dr, r = {};
    __nv_bfloat16 *da, *db;
    OK(cudaMalloc(&dr, sizeof r));
    OK(cudaMemset(dr, 0, sizeof r));
    OK(cudaMalloc(&da, n * 2));
    OK(cudaMalloc(&db, n * 2));
    OK(cudaMemcpy(da, a.data(), n * 2, cudaMemcpyHostToDevice));
    OK(cudaMemcpy(db, b.data(), n * 2, cudaMemcpyHostToDevice));
    compute<<<1, n>>>(dr, da, db);
    OK(cudaMemcpy(&r, dr, sizeof r, cudaMemcpyDeviceToHost));
    for (int i = 0; i < n; i++) {
        double x = (float)a[i], y = (float)b[i];
        TRUE((float)r.sum[i] == nearest(x + 2 * y) && (float)r.fused[i] == nearest(x * y + x) && (float)r.root[i] == nearest(sqrt(fabs(x))));
    }
    float most = fmaxf(a[0], b[0]);
    TRUE((float)r.pair.x == most && (float)r.pair.y == most);
    TRUE((float)r.pairs.x == 64 && (float)r.pairs.y == 128 && (float)r.one == 64);
    TRUE((float)r.half == 32 && (float)r.halves.x == 64 && (float)r.halves.y == -32);
    TRUE(fabsf(r.quotient.x + 1) < 1e-6f && fabsf(r.quotient.y - 2) < 1e-6f);
    TRUE(r.product.x == 5 && r.product.y == 5 && fabs(r.magnitude / 5e200 - 1) < 1e-12);
    const int words[] = {2, 0, -9, 8, 0, 2, 0, 7};
    const unsigned parts[] = {0x00010002, 0x00010002, 0x80010004, 0x00010003, 0x00000003, 0x00050000, 0x00010000, 7};
    for (int k = 0; k < 8; k++)
        TRUE(r.words[k] == words[k] && r.parts[k] == parts[k]);
    TRUE(r.first && r.high && !r.low);
    return right();
}
