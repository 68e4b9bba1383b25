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

struct Rounded {
    __half z[6], d[6], u[6];
    long long down[4], up[4];
};

__global__ void rounded(const int *v, Rounded *r)
{
    int i = v[threadIdx.x];
    Rounded &x = r[threadIdx.x];
    unsigned p = abs(i);
    short s = (short)i;
    unsigned short t = (unsigned short)p;
    x.z[0] = __int2half_rz(i), x.d[0] = __int2half_rd(i), x.u[0] = __int2half_ru(i);
    x.z[1] = __uint2half_rz(p), x.d[1] = __uint2half_rd(p), x.u[1] = __uint2half_ru(p);
    x.z[2] = __short2half_rz(s), x.d[2] = __short2half_rd(s), x.u[2] = __short2half_ru(s);
    x.z[3] = __ushort2half_rz(t), x.d[3] = __ushort2half_rd(t), x.u[3] = __ushort2half_ru(t);
    x.z[4] = __ll2half_rz(i), x.d[4] = __ll2half_rd(i), x.u[4] = __ll2half_ru(i);
    x.z[5] = __ull2half_rz(p), x.d[5] = __ull2half_rd(p), x.u[5] = __ull2half_ru(p);
    __half h = __float2half(s / 256.0f), g = __habs(h);
    x.down[0] = __half2short_rd(h), x.down[1] = __half2ushort_rd(g), x.down[2] = __half2ll_rd(h), x.down[3] = __half2ull_rd(g);
    x.up[0] = __half2short_ru(h), x.up[1] = __half2ushort_ru(g), x.up[2] = __half2ll_ru(h), x.up[3] = __half2ull_ru(g);
}

// The half next to h, above it or below.
static __half next(__half h, bool above)
{
    int x = __half_as_short(h);
    if (x == 0)
        return __short_as_half(above ? 1 : (short)0x8001);
    return __short_as_half((short)(x + ((x > 0) == above ? 1 : -1)));
}

static void checkRounded(void)
{
    std::vector<int> v;
    for (int i = -32; i < 32; i++)
        v.push_back(i * i * i * 3 + i);
    std::vector<Rounded> r(v.size());
    int *dv;
    Rounded *dr;
    OK(cudaMalloc(&dv, v.size() * sizeof(int)));
    OK(cudaMalloc(&dr, r.size() * sizeof(Rounded)));
    OK(cudaMemcpy(dv, v.data(), v.size() * sizeof(int), cudaMemcpyHostToDevice));
    rounded<<<1, (unsigned)v.size()>>>(dv, dr);
    OK(cudaMemcpy(r.data(), dr, r.size() * sizeof(Rounded), cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < v.size(); i++) {
        int p = v[i] < 0 ? -v[i] : v[i];
        int of[6] = {v[i], p, (short)v[i], (unsigned short)p, v[i], p};
        for (int k = 0; k < 6; k++) {
            __half near = __float2half((float)of[k]), down = near, up = near;
            if (__half2float(near) > (float)of[k])
                down = next(near, false);
            if (__half2float(near) < (float)of[k])
                up = next(near, true);
            TRUE(__half_as_ushort(r[i].d[k]) == __half_as_ushort(down));
            TRUE(__half_as_ushort(r[i].u[k]) == __half_as_ushort(up));
            TRUE(__half_as_ushort(r[i].z[k]) == __half_as_ushort(of[k] < 0 ? up : down));
        }
        float h = __half2float(__float2half((short)v[i] / 256.0f)), g = fabsf(h);
        float from[4] = {h, g, h, g};
        for (int k = 0; k < 4; k++) {
            TRUE(r[i].down[k] == (long long)floorf(from[k]));
            TRUE(r[i].up[k] == (long long)ceilf(from[k]));
        }
    }
}

int main()
{
    checkRounded();
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
