// CUDA's own mathematical functions in host code, against long doubles and the device's.
#include "rt.h"

#include <initializer_list>

static void close(int line, double got, long double want, double ulps)
{
    long double most = ulps * 0x1p-53L * fabsl(want);
    if (!(fabsl(got - want) <= most)) {
        fprintf(stderr, "line %d: got %.17g, want %.17Lg\n", line, got, want);
        exit(1);
    }
}
#define CLOSE(got, want, ulps) close(__LINE__, got, want, ulps)

static __host__ __device__ void all(double q, double *out)
{
    out[0] = sinpi(q), out[1] = cospi(q), out[2] = erfcx(q), out[3] = erfcinv(q), out[4] = erfinv(1 - q);
    out[5] = normcdfinv(q / 2);
}

static __global__ void device(const double *q, double *out) { all(q[threadIdx.x], out + 6 * threadIdx.x); }

// The device's are the same but for rounding, also around their zeros.
static void compare(void)
{
    const double q[] = {1, 1 + 0x1p-30, 1 - 0x1p-30, 0.5, 1.5, 0.51, 1.49, 0.3, 1.9, 1e-3, 1e-9, 1e-200};
    const int n = sizeof(q) / sizeof(*q);
    double *in, *out, got[6 * n], want[6];
    OK(cudaMalloc(&in, sizeof(q)));
    OK(cudaMalloc(&out, sizeof(got)));
    OK(cudaMemcpy(in, q, sizeof(q), cudaMemcpyHostToDevice));
    device<<<1, n>>>(in, out);
    OK(cudaMemcpy(got, out, sizeof(got), cudaMemcpyDeviceToHost));
    for (int i = 0; i < n; i++) {
        all(q[i], want);
        for (int k = 0; k < 6; k++)
            if (got[6 * i + k] != want[k]) // infinite ones, too
                CLOSE(got[6 * i + k], want[k], 16);
    }
}

int main(void)
{
    compare();
    const long double pi = 3.14159265358979323846264338327950288L, root = 1.77245385090551602729816748334114518L;
    for (double x = -2.25; x < 2.25; x += 0.0173) {
        CLOSE(sinpi(x), sinl(pi * x), 4 + 1e-3 / fabs(sinpi(x)));
        CLOSE(cospi(x), cosl(pi * x), 4 + 1e-3 / fabs(cospi(x)));
        double s, c;
        sincospi(x, &s, &c);
        TRUE(s == sinpi(x) && c == cospi(x) && sinpi((float)x) == sinpif((float)x));
    }
    // Where sin(pi x) would have nothing left of x.
    TRUE(sinpi(1e15 + 0.5) == 1 && cospi(1e15) == 1 && sinpi(1e15 + 1.5) == -1 && cospi(1e15 + 0.5) == 0);
    TRUE(sinpi(3.0) == 0 && !signbit(sinpi(3.0)) && signbit(sinpi(-3.0)) && sinpi(1e300) == 0 && cospi(1e300) == 1);
    TRUE(isnan(sinpi(INFINITY)) && isnan(cospi(NAN)) && sinpif(0.5f) == 1 && cospif(1) == -1);
    for (double x = -26; x < 100; x += 0.37)
        CLOSE(erfcx(x), expl((long double)x * x) * erfcl(x), 16);
    CLOSE(erfcx(1e10), 1 / (1e10L * root), 4);
    TRUE(erfcx(-30.0) == INFINITY && isnan(erfcx(NAN)) && erfcxf(0) == 1);
    // The inverse's error shows in the function's value by its slope.
    for (double q = 1.999; q > 1e-300; q *= q > 1e-3 ? 0.97 : 1e-3) {
        long double x = erfcinv(q), slope = 2 / root * expl(-x * x) * fabsl(x);
        TRUE(fabsl(erfcl(x) - q) <= 0x1p-53L * (6 * slope + 2 * (q > 1 ? 1 : q)));
        TRUE(fabs(normcdf(normcdfinv(q / 2)) - q / 2) <= 1e-12 * q);
    }
    for (double p = -0.9999; p < 1; p += 0.0133) {
        long double x = erfinv(p), slope = 2 / root * expl(-x * x) * fabsl(x);
        TRUE(fabsl(erfl(x) - p) <= 0x1p-53L * (6 * slope + 1 * fabs(p)));
        TRUE(erfinv((float)p) == (float)erfinv((double)(float)p));
    }
    TRUE(erfinv(0.0) == 0 && erfinv(1.0) == INFINITY && erfinv(-1.0) == -INFINITY && isnan(erfinv(1.1)));
    TRUE(erfcinv(1.0) == 0 && erfcinv(2.0) == -INFINITY && isnan(erfcinv(-0.1)) && normcdfinv(0.5) == 0);
    TRUE(rsqrt(4.0) == 0.5 && rsqrt(4.0f) == 0.5f && rcbrt(8.0) == 0.5 && rcbrtf(8) == 0.5f && __saturatef(2) == 1);
    return right();
}
