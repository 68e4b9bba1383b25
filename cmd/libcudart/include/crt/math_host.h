#ifndef VGPU_CRT_MATH_HOST_H
#define VGPU_CRT_MATH_HOST_H

/* CUDA's own mathematical functions in host code, by those of the C library. */

#include <features.h>

#define VGPU_HOST static inline __host__

VGPU_HOST double rsqrt(double x) { return 1 / __builtin_sqrt(x); }
VGPU_HOST float rsqrtf(float x) { return 1 / __builtin_sqrtf(x); }
VGPU_HOST double rcbrt(double x) { return 1 / __builtin_cbrt(x); }
VGPU_HOST double normcdf(double x) { return 0.5 * __builtin_erfc(-x * 0x1.6a09e667f3bcdp-1); }
VGPU_HOST float __saturatef(float x) { return x > 0 ? x < 1 ? x : 1 : 0; }

/* vgpu_sinpi is sin(pi (x + quarters / 2)). */
VGPU_HOST double vgpu_sinpi(double x, int quarters)
{
    x -= 2 * __builtin_rint(0.5 * x); /* exact, as the next line is */
    double n = __builtin_rint(2 * x), f = (x - 0.5 * n) * 0x1.921fb54442d18p+1;
    int q = (x == x ? (int)n : 0) + quarters;
    double v = q & 1 ? __builtin_cos(f) : __builtin_sin(f);
    return q & 2 ? -v : v;
}
#if !defined(__GLIBC_PREREQ) || !__GLIBC_PREREQ(2, 41) /* from then on the C library has them */
VGPU_HOST double sinpi(double x)
{
    return x == __builtin_trunc(x) && x - x == 0 ? __builtin_copysign(0, x) : vgpu_sinpi(x, 0);
}
VGPU_HOST double cospi(double x)
{
    double v = vgpu_sinpi(x, 1);
    return v == 0 ? 0 : v;
}
VGPU_HOST float sinpif(float x) { return (float)sinpi((double)x); }
VGPU_HOST float cospif(float x) { return (float)cospi((double)x); }
#endif
VGPU_HOST void sincospi(double x, double *s, double *c) { *s = sinpi(x), *c = cospi(x); }
VGPU_HOST void sincospif(float x, float *s, float *c) { *s = sinpif(x), *c = cospif(x); }

VGPU_HOST double erfcx(double x)
{
    double h = x * x;
    if (x < -26.7)
        return __builtin_inf();
    if (x < 26) /* what h lost matters: it is rounded at a size of up to 676 */
        return __builtin_exp(h) * (1 + __builtin_fma(x, x, -h)) * __builtin_erfc(x);
    double s = 1; /* Abramowitz and Stegun, 7.1.23 */
    for (int k = 6; k > 0; k--)
        s = 1 - (k - 0.5) / h * s;
    return s / (x * 0x1.c5bf891b4ef6bp+0);
}

/* vgpu_tail_inv solves erfc(x) = q for q at most 1 by Halley's steps from 26.2.23. */
VGPU_HOST double vgpu_tail_inv(double q)
{
    double t = __builtin_sqrt(-2 * __builtin_log(0.5 * q));
    double x = t - (2.515517 + t * (0.802853 + t * 0.010328)) /
                       (1 + t * (1.432788 + t * (0.189269 + t * 0.001308)));
    x *= 0x1.6a09e667f3bcdp-1;
    for (int i = 0; i < 4; i++) {
        double h = x * x, e = __builtin_exp(h) * (1 + __builtin_fma(x, x, -h));
        double step = (erfcx(x) - q * e) * 0x1.c5bf891b4ef6bp-1;
        x += step / (1 + x * step);
    }
    return x;
}
VGPU_HOST double erfinv(double p)
{
    double a = __builtin_fabs(p), x = a * 0x1.c5bf891b4ef6bp-1;
    if (!(a <= 1))
        return __builtin_nan("");
    if (a == 1)
        return __builtin_copysign(__builtin_inf(), p);
    if (a > 0.5)
        return __builtin_copysign(vgpu_tail_inv(1 - a), p);
    for (int i = 0; i < 5 && a != 0; i++)
        x -= (__builtin_erf(x) - a) * 0x1.c5bf891b4ef6bp-1 * __builtin_exp(x * x);
    return __builtin_copysign(x, p);
}
VGPU_HOST double erfcinv(double q)
{
    if (!(q >= 0 && q <= 2))
        return __builtin_nan("");
    if (q == 0 || q == 2)
        return q == 0 ? __builtin_inf() : -__builtin_inf();
    if (q > 0.5 && q < 1.5)
        return erfinv(1 - q); /* exact */
    return q <= 1 ? vgpu_tail_inv(q) : -vgpu_tail_inv(2 - q);
}
VGPU_HOST double normcdfinv(double p) { return -0x1.6a09e667f3bcdp+0 * erfcinv(2 * p); }

#define VGPU_FROM_DOUBLE(name)                                                                     \
    VGPU_HOST float name##f(float x) { return (float)name((double)x); }
VGPU_FROM_DOUBLE(rcbrt)
VGPU_FROM_DOUBLE(normcdf)
VGPU_FROM_DOUBLE(normcdfinv)
VGPU_FROM_DOUBLE(erfcx)
VGPU_FROM_DOUBLE(erfinv)
VGPU_FROM_DOUBLE(erfcinv)
#undef VGPU_FROM_DOUBLE

#ifdef __cplusplus
#define VGPU_FLOAT_TOO(name)                                                                       \
    VGPU_HOST float name(float x) { return name##f(x); }
VGPU_FLOAT_TOO(rsqrt)
VGPU_FLOAT_TOO(rcbrt)
VGPU_FLOAT_TOO(sinpi)
VGPU_FLOAT_TOO(cospi)
VGPU_FLOAT_TOO(normcdf)
VGPU_FLOAT_TOO(normcdfinv)
VGPU_FLOAT_TOO(erfcx)
VGPU_FLOAT_TOO(erfinv)
VGPU_FLOAT_TOO(erfcinv)
#undef VGPU_FLOAT_TOO
#endif
#undef VGPU_HOST

#endif
