#ifndef VGPU_CRT_NV_MATH_H
#define VGPU_CRT_NV_MATH_H

/* Elementary functions of doubles, within 2 units in the last place: argument reduction, then
 * Taylor's polynomial of the remainder. Angles beyond 2^17 are reduced by the digits of 2/pi
 * (Payne and Hanek, "Radian Reduction for Trigonometric Functions", 1983). */

#define NV_INF __builtin_inf()
#define NV_NAN __builtin_nan("")
#define NV_LN2_HI 0x1.62e42fefa38p-1 /* with trailing zeros, so that n times it is exact */
#define NV_LN2_LO 0x1.ef35793c7673p-45
#define NV_PI 0x1.921fb54442d18p+1
#define NV_PI_LO 0x1.1a62633145c07p-53

/* Exponents */

NV double nv_pow2(int n) { return __nv_longlong_as_double((long long)(n + 1023) << 52); }

NV double __nv_ldexp(double a, int n)
{
    n = __nv_max(-2300, __nv_min(2300, n));
    while (n > 1023) {
        a *= 0x1p1023;
        n -= 1023;
    }
    /* 53 bits stay above the least exponent until the last step, so that it alone rounds. */
    while (n < -1022) {
        a *= 0x1p-969;
        n += 969;
    }
    return a * nv_pow2(n);
}
NV double __nv_scalbn(double a, int n) { return __nv_ldexp(a, n); }

NV double __nv_frexp(double a, int *e)
{
    *e = 0;
    if (a == 0 || !(__nv_fabs(a) < NV_INF))
        return a;
    int extra = 0;
    if (__nv_fabs(a) < 0x1p-1022) {
        a *= 0x1p54;
        extra = -54;
    }
    long long b = __nv_double_as_longlong(a);
    *e = (int)(b >> 52 & 0x7ff) - 1022 + extra;
    return __nv_longlong_as_double((b & ~(0x7ffll << 52)) | 0x3fell << 52);
}

NV int __nv_ilogb(double a)
{
    int e;
    if (a == 0 || a != a)
        return -2147483647 - 1;
    if (__nv_fabs(a) == NV_INF)
        return 2147483647;
    __nv_frexp(a, &e);
    return e - 1;
}
NV double __nv_logb(double a)
{
    return a == 0 ? -NV_INF : __nv_fabs(a) < NV_INF ? (double)__nv_ilogb(a) : a * a;
}

NV double __nv_modf(double a, double *whole)
{
    *whole = __nv_trunc(a);
    return __nv_copysign(__nv_fabs(a) == NV_INF ? 0 : a - *whole, a);
}

NV double __nv_nextafter(double a, double b)
{
    if (a != a || b != b)
        return a + b;
    if (a == b)
        return b;
    if (a == 0)
        return __nv_copysign(0x1p-1074, b);
    long long bits = __nv_double_as_longlong(a);
    return __nv_longlong_as_double(bits + ((a < b) == (a > 0) ? 1 : -1));
}

/* Exponentials */

/* nv_expm1_r is exp(r) - 1 for |r| at most ln(2)/2. */
NV double nv_expm1_r(double r)
{
    double p = 1.0 / 6227020800;
    p = __nv_fma(p, r, 1.0 / 479001600);
    p = __nv_fma(p, r, 1.0 / 39916800);
    p = __nv_fma(p, r, 1.0 / 3628800);
    p = __nv_fma(p, r, 1.0 / 362880);
    p = __nv_fma(p, r, 1.0 / 40320);
    p = __nv_fma(p, r, 1.0 / 5040);
    p = __nv_fma(p, r, 1.0 / 720);
    p = __nv_fma(p, r, 1.0 / 120);
    p = __nv_fma(p, r, 1.0 / 24);
    p = __nv_fma(p, r, 1.0 / 6);
    p = __nv_fma(p, r, 0.5);
    return __nv_fma(p * r, r, r);
}

NV double nv_exp_sum(double x, double low)
{
    double n = __nv_rint(x * 0x1.71547652b82fep+0);
    double r = __nv_fma(n, -NV_LN2_LO, __nv_fma(n, -NV_LN2_HI, x)) + low;
    return __nv_ldexp(1 + nv_expm1_r(r), (int)n);
}

NV double __nv_exp(double x)
{
    if (x > 709.8)
        return NV_INF;
    if (x < -746)
        return 0;
    return x != x ? x : nv_exp_sum(x, 0);
}

NV double __nv_exp2(double x)
{
    if (x >= 1024)
        return NV_INF;
    if (x < -1076)
        return 0;
    if (x != x)
        return x;
    double n = __nv_rint(x), f = x - n;
    double r = __nv_fma(f, 0x1.abc9e3b39803fp-56, f * 0x1.62e42fefa39efp-1);
    return __nv_ldexp(1 + nv_expm1_r(r), (int)n);
}

NV double __nv_exp10(double x)
{
    if (x > 308.3)
        return NV_INF;
    if (x < -324)
        return 0;
    if (x != x)
        return x;
    double n = __nv_rint(x * 0x1.a934f0979a371p+1); /* log2(10) */
    double f = __nv_fma(n, -0x1.34413509f79ffp-2, x);
    f = __nv_fma(n, 0x1.9dc1da994fd21p-59, f); /* log10(2), in two parts */
    double r = __nv_fma(f, -0x1.f48ad494ea3e9p-53, f * 0x1.26bb1bbb55516p+1);
    return __nv_ldexp(1 + nv_expm1_r(r), (int)n);
}

NV double __nv_expm1(double x)
{
    if (x > 709.8)
        return NV_INF;
    if (x < -50)
        return -1;
    if (x != x || x == 0)
        return x;
    double n = __nv_rint(x * 0x1.71547652b82fep+0);
    double r = __nv_fma(n, -NV_LN2_LO, __nv_fma(n, -NV_LN2_HI, x));
    double e = nv_expm1_r(r);
    if (n == 0)
        return e;
    if (n > 1000)
        return __nv_ldexp(1 + e, (int)n);
    double s = nv_pow2((int)n);
    return __nv_fma(s, e, s - 1);
}

/* Logarithms */

/* nv_log_parts takes x into 2^e times m, with m from sqrt(1/2) to sqrt(2). */
NV double nv_log_parts(double x, double *e)
{
    int k;
    double m = __nv_frexp(x, &k);
    if (m < 0x1.6a09e667f3bcdp-1) {
        m *= 2;
        k--;
    }
    *e = k;
    return m;
}

/* nv_atanh_tail is (2 atanh(s) - 2 s) / s for z = s^2 at most 0.03. */
NV double nv_atanh_tail(double z)
{
    double p = 2.0 / 23;
    p = __nv_fma(p, z, 2.0 / 21);
    p = __nv_fma(p, z, 2.0 / 19);
    p = __nv_fma(p, z, 2.0 / 17);
    p = __nv_fma(p, z, 2.0 / 15);
    p = __nv_fma(p, z, 2.0 / 13);
    p = __nv_fma(p, z, 2.0 / 11);
    p = __nv_fma(p, z, 2.0 / 9);
    p = __nv_fma(p, z, 2.0 / 7);
    p = __nv_fma(p, z, 2.0 / 5);
    p = __nv_fma(p, z, 2.0 / 3);
    return p * z;
}

NV double nv_log_m(double m)
{
    double f = m - 1, s = f / (2 + f), half = 0.5 * f * f;
    return f - (half - s * (half + nv_atanh_tail(s * s)));
}

NV bool nv_log_special(double x, double *r)
{
    if (x > 0 && x < NV_INF)
        return false;
    *r = x == 0 ? -NV_INF : x < 0 ? NV_NAN : x;
    return true;
}

NV double __nv_log(double x)
{
    double e, r;
    if (nv_log_special(x, &r))
        return r;
    double l = nv_log_m(nv_log_parts(x, &e));
    return __nv_fma(e, NV_LN2_HI, __nv_fma(e, NV_LN2_LO, l));
}
NV double __nv_log2(double x)
{
    double e, r;
    if (nv_log_special(x, &r))
        return r;
    double l = nv_log_m(nv_log_parts(x, &e));
    return e + __nv_fma(l, 0x1.71547652b82fep+0, l * 0x1.777d0ffda0d24p-56);
}
NV double __nv_log10(double x)
{
    double e, r;
    if (nv_log_special(x, &r))
        return r;
    double l = nv_log_m(nv_log_parts(x, &e));
    return __nv_fma(e, 0x1.34413509f6p-2, __nv_fma(e, 0x1.9fef311f12b36p-42, l * 0x1.bcb7b1526e50ep-2));
}
NV double __nv_log1p(double x)
{
    double e;
    if (!(x > -1) || x == NV_INF)
        return x == -1 ? -NV_INF : x < -1 ? NV_NAN : x;
    double u = 1 + x;
    if (u == 1)
        return x;
    double lost = x > 1 ? 1 - (u - x) : x - (u - 1);
    double l = nv_log_m(nv_log_parts(u, &e)) + lost / u;
    return __nv_fma(e, NV_LN2_HI, __nv_fma(e, NV_LN2_LO, l));
}

/* Powers: the logarithm has a second part, so that y times it is exact enough. */

NV double __nv_pow(double x, double y)
{
    if (y == 0 || x == 1)
        return 1;
    if (x != x || y != y)
        return x + y;
    bool whole = __nv_trunc(y) == y, odd = whole && __nv_fabs(y) < 0x1p53 && ((long long)y & 1);
    double a = __nv_fabs(x);
    double sign = odd && __nv_signbitd(x) ? -1.0 : 1.0;
    if (__nv_fabs(y) == NV_INF)
        return a == 1 ? 1 : (a > 1) == (y > 0) ? NV_INF : 0;
    if (a == 0 || a == NV_INF)
        return sign * ((a == 0) == (y < 0) ? NV_INF : 0);
    if (x < 0 && !whole)
        return NV_NAN;
    double e;
    double m = nv_log_parts(a, &e);
    double f = m - 1, g = m + 1, glow = m - (g - 1);
    double s = f / g, slow = __nv_fma(-s, g, f) - s * glow;
    slow /= g;
    double low = __nv_fma(2, slow, s * nv_atanh_tail(s * s));
    double hi = 2 * s;
    double top = e * NV_LN2_HI;
    double sum = top + hi;
    double err = __nv_fabs(top) > __nv_fabs(hi) ? top - sum + hi : hi - sum + top;
    low += err + e * NV_LN2_LO;
    double lhi = sum + low;
    double llow = sum - lhi + low;
    double p = y * lhi;
    double plow = __nv_fma(y, lhi, -p) + y * llow;
    if (p > 710)
        return sign * NV_INF;
    if (p < -746)
        return sign * 0;
    return sign * nv_exp_sum(p, plow);
}
NV double __nv_powi(double x, int n) { return __nv_pow(x, (double)n); }

/* Angles */

/* nv_reduce_large is nv_reduce for |x| of 2^17 and more. */
static __device__ __attribute__((noinline)) int nv_reduce_large(double x, double *r)
{
    /* The digits of 2/pi. */
    const unsigned long long digits[] = {0xa2f9836e4e441529, 0xfc2757d1f534ddc0, 0xdb6295993c439041,
        0xfe5163abdebbc561, 0xb7246e3a424dd2e0, 0x06492eea09d1921c, 0xfe1deb1cb129a73e,
        0xe88235f52ebb4484, 0xe99c7026b45f7e41, 0x3991d639835339f4, 0x9c845f8bbdf9283b,
        0x1ff897ffde05980f, 0xef2f118b5a0a6d1f, 0x6d367ecf27cb09b7, 0x4f463f669e5fea2d,
        0x7527bac7ebe5f17b, 0x3d0739f78a5292ea, 0x6bfb5fb11f8d5d08, 0x56033046fc7b6bab,
        0xf0cfbc209af4361d};
    unsigned long long bits = (unsigned long long)__nv_double_as_longlong(x);
    int e = (int)(bits >> 52 & 0x7ff) - 1075; /* |x| is m times 2^e */
    unsigned long long m = (bits & 0xfffffffffffffull) | 0x10000000000000ull;
    /* Digits before position e - 2 make multiples of 4 quadrants. */
    int first = e - 2 > 0 ? e - 2 : 0, word = first >> 6, shift = first & 63;
    int spare = first - (e - 2); /* where there are none */
    unsigned long long d[3];
    for (int i = 0; i < 3; i++)
        d[i] = shift ? digits[word + i] << shift | digits[word + i + 1] >> (64 - shift) : digits[word + i];
    unsigned long long p0 = m * d[2], p1 = __nv_umul64hi(m, d[2]), t = m * d[1], p2;
    p1 += t;
    p2 = __nv_umul64hi(m, d[1]) + (p1 < t) + m * d[0];
    if (spare) { /* only e of -36 to 1: the product's top is below the word's */
        unsigned long long p3 = __nv_umul64hi(m, d[0]);
        t = m * d[0];
        p3 += p2 < t;
        p0 = p0 >> spare | p1 << (64 - spare);
        p1 = p1 >> spare | p2 << (64 - spare);
        p2 = p2 >> spare | p3 << (64 - spare);
    }
    int quadrant = (int)(p2 >> 62);
    long long hi = (long long)(p2 << 2 | p1 >> 62);
    unsigned long long lo = p1 << 2 | p0 >> 62;
    if (hi < 0)
        quadrant++; /* the fraction is its distance to the next, as two's complement already has it */
    double f = (double)hi * 0x1p-64 + (double)lo * 0x1p-128;
    *r = __nv_fma(f, 0x1.921fb54442d18p+0, f * 0x1.1a62633145c07p-54);
    if (bits >> 63) {
        *r = -*r;
        quadrant = -quadrant;
    }
    return quadrant & 3;
}

/* nv_reduce gives x's distance from the nearest multiple of pi/2, and which multiple. */
NV int nv_reduce(double x, double *r)
{
    if (__nv_fabs(x) >= 0x1p17)
        return nv_reduce_large(x, r);
    double n = __nv_rint(x * 0x1.45f306dc9c883p-1);
    double t = __nv_fma(n, -0x1.921fb54442d18p+0, x);
    t = __nv_fma(n, -0x1.1a62633145c07p-54, t);
    *r = __nv_fma(n, 0x1.f1976b7ed8fbcp-110, t);
    return (int)n & 3;
}

NV double nv_sin_r(double r)
{
    double z = r * r, p = -1.0 / 121645100408832000;
    p = __nv_fma(p, z, 1.0 / 355687428096000);
    p = __nv_fma(p, z, -1.0 / 1307674368000);
    p = __nv_fma(p, z, 1.0 / 6227020800);
    p = __nv_fma(p, z, -1.0 / 39916800);
    p = __nv_fma(p, z, 1.0 / 362880);
    p = __nv_fma(p, z, -1.0 / 5040);
    p = __nv_fma(p, z, 1.0 / 120);
    p = __nv_fma(p, z, -1.0 / 6);
    return __nv_fma(p * z, r, r);
}
NV double nv_cos_r(double r)
{
    double z = r * r, p = 1.0 / 2432902008176640000;
    p = __nv_fma(p, z, -1.0 / 6402373705728000);
    p = __nv_fma(p, z, 1.0 / 20922789888000);
    p = __nv_fma(p, z, -1.0 / 87178291200);
    p = __nv_fma(p, z, 1.0 / 479001600);
    p = __nv_fma(p, z, -1.0 / 3628800);
    p = __nv_fma(p, z, 1.0 / 40320);
    p = __nv_fma(p, z, -1.0 / 720);
    p = __nv_fma(p, z, 1.0 / 24);
    double h = 0.5 * z, w = 1 - h;
    return w + (1 - w - h + z * z * p);
}
NV double nv_quadrant(int q, double r)
{
    double v = q & 1 ? nv_cos_r(r) : nv_sin_r(r);
    return q & 2 ? -v : v;
}

NV double __nv_sin(double x)
{
    double r;
    if (!(__nv_fabs(x) < NV_INF) || x == 0)
        return x == 0 ? x : NV_NAN;
    int q = nv_reduce(x, &r);
    return nv_quadrant(q, r);
}
NV double __nv_cos(double x)
{
    double r;
    if (!(__nv_fabs(x) < NV_INF))
        return NV_NAN;
    int q = nv_reduce(x, &r);
    return nv_quadrant(q + 1, r);
}
NV void __nv_sincos(double x, double *s, double *c)
{
    double r;
    if (!(__nv_fabs(x) < NV_INF)) {
        *s = *c = NV_NAN;
        return;
    }
    int q = nv_reduce(x, &r);
    *s = x == 0 ? x : nv_quadrant(q, r);
    *c = nv_quadrant(q + 1, r);
}
NV double __nv_tan(double x)
{
    double s, c;
    __nv_sincos(x, &s, &c);
    return s / c;
}

NV int nv_reduce_pi(double x, double *r)
{
    x -= 2 * __nv_rint(0.5 * x);
    double n = __nv_rint(2 * x), f = x - 0.5 * n;
    *r = __nv_fma(f, NV_PI, f * NV_PI_LO);
    return (int)n & 3;
}
NV double __nv_sinpi(double x)
{
    double r;
    if (!(__nv_fabs(x) < NV_INF))
        return NV_NAN;
    if (x == __nv_trunc(x))
        return __nv_copysign(0, x);
    int q = nv_reduce_pi(x, &r);
    return nv_quadrant(q, r);
}
NV double __nv_cospi(double x)
{
    double r;
    if (!(__nv_fabs(x) < NV_INF))
        return NV_NAN;
    int q = nv_reduce_pi(x, &r);
    double v = nv_quadrant(q + 1, r);
    return v == 0 ? 0 : v;
}
NV void __nv_sincospi(double x, double *s, double *c)
{
    *s = __nv_sinpi(x);
    *c = __nv_cospi(x);
}

/* nv_atan_r is atan(t) for |t| at most 1/16. */
NV double nv_atan_r(double t)
{
    double z = t * t, p = 1.0 / 13;
    p = __nv_fma(p, z, -1.0 / 11);
    p = __nv_fma(p, z, 1.0 / 9);
    p = __nv_fma(p, z, -1.0 / 7);
    p = __nv_fma(p, z, 1.0 / 5);
    p = __nv_fma(p, z, -1.0 / 3);
    return __nv_fma(p * z, t, t);
}

/* nv_atan_8 is atan(k/8), in two parts. */
NV double nv_atan_8(int k, double *low)
{
    switch (k) {
    case 0: *low = 0; return 0;
    case 1: *low = -0x1.cd37686760c17p-59; return 0x1.fd5ba9aac2f6ep-4;
    case 2: *low = 0x1.8ab6e3cf7afbdp-57; return 0x1.f5b75f92c80ddp-3;
    case 3: *low = -0x1.c63aae6f6e918p-56; return 0x1.6f61941e4def1p-2;
    case 4: *low = 0x1.a2b7f222f65e2p-56; return 0x1.dac670561bb4fp-2;
    case 5: *low = -0x1.928df287a668fp-58; return 0x1.1e00babdefeb4p-1;
    case 6: *low = 0x1.2419a87f2a458p-56; return 0x1.4978fa3269ee1p-1;
    case 7: *low = -0x1.8c34d25aadef6p-56; return 0x1.700a7c5784634p-1;
    default: *low = 0x1.1a62633145c07p-55; return 0x1.921fb54442d18p-1;
    }
}

NV double __nv_atan(double x)
{
    double a = __nv_fabs(x), low, base = 0, base_low = 0;
    if (x != x)
        return x;
    bool inverse = a > 1;
    if (inverse) {
        a = 1 / a;
        base = 0x1.921fb54442d18p+0;
        base_low = 0x1.1a62633145c07p-54;
    }
    int k = (int)__nv_rint(8 * a);
    double c = 0.125 * k, hi = nv_atan_8(k, &low);
    double t = nv_atan_r(__nv_fma(a, 1, -c) / __nv_fma(a, c, 1));
    double v = inverse ? base - (hi - (base_low - low - t)) : hi + (low + t);
    return __nv_copysign(v, x);
}

NV double __nv_atan2(double y, double x)
{
    if (x != x || y != y)
        return x + y;
    double ax = __nv_fabs(x), ay = __nv_fabs(y), v;
    if (ay == 0)
        v = 0;
    else if (ax == NV_INF && ay == NV_INF)
        v = NV_PI / 4;
    else if (ax == 0)
        v = NV_PI / 2;
    else
        v = __nv_atan(ay / ax);
    if (__nv_signbitd(x))
        v = NV_PI - (v - NV_PI_LO);
    return __nv_copysign(v, y);
}

NV double __nv_asin(double x)
{
    double a = __nv_fabs(x);
    if (!(a <= 1))
        return NV_NAN;
    if (a < 0.5)
        return __nv_copysign(__nv_atan(a / __nv_sqrt((1 - a) * (1 + a))), x);
    /* asin(a) = pi/2 - 2 asin(sqrt((1 - a) / 2)) */
    double h = 0.5 * (1 - a), s = __nv_sqrt(h);
    double half = __nv_atan(s / __nv_sqrt(1 - h));
    return __nv_copysign(0x1.921fb54442d18p+0 - (2 * half - 0x1.1a62633145c07p-54), x);
}
NV double __nv_acos(double x)
{
    if (!(__nv_fabs(x) <= 1))
        return NV_NAN;
    if (__nv_fabs(x) < 0.5)
        return 0x1.921fb54442d18p+0 - (__nv_asin(x) - 0x1.1a62633145c07p-54);
    double h = 0.5 * (1 - __nv_fabs(x)), s = __nv_sqrt(h);
    double v = 2 * __nv_atan(s / __nv_sqrt(1 - h));
    return x > 0 ? v : NV_PI - (v - 2 * 0x1.1a62633145c07p-54);
}

/* Hyperbolic functions */

NV double __nv_sinh(double x)
{
    double a = __nv_fabs(x);
    if (a > 709) {
        double h = __nv_exp(0.5 * a);
        return __nv_copysign(0.5 * h * h, x);
    }
    double e = __nv_expm1(a);
    return __nv_copysign(0.5 * (e + e / (e + 1)), x);
}
NV double __nv_cosh(double x)
{
    double a = __nv_fabs(x);
    if (a > 709) {
        double h = __nv_exp(0.5 * a);
        return 0.5 * h * h;
    }
    double e = __nv_exp(a);
    return 0.5 * e + 0.5 / e;
}
NV double __nv_tanh(double x)
{
    double a = __nv_fabs(x);
    if (a > 22)
        return __nv_copysign(1, x);
    double e = __nv_expm1(2 * a);
    return x != x ? x : __nv_copysign(e / (e + 2), x);
}
NV double __nv_asinh(double x)
{
    double a = __nv_fabs(x);
    if (!(a < NV_INF))
        return x;
    double v = a > 0x1p28 ? __nv_log(a) + 0x1.62e42fefa39efp-1
                          : __nv_log1p(a + a * a / (1 + __nv_sqrt(__nv_fma(a, a, 1))));
    return __nv_copysign(v, x);
}
NV double __nv_acosh(double x)
{
    if (!(x >= 1))
        return NV_NAN;
    double t = x - 1;
    return x > 0x1p28 ? __nv_log(x) + 0x1.62e42fefa39efp-1 : __nv_log1p(t + __nv_sqrt(__nv_fma(t, t, 2 * t)));
}
NV double __nv_atanh(double x)
{
    double a = __nv_fabs(x);
    if (!(a <= 1))
        return NV_NAN;
    return __nv_copysign(0.5 * __nv_log1p(2 * a / (1 - a)), x);
}

/* Roots */

NV double __nv_cbrt(double x)
{
    int e;
    if (x == 0 || !(__nv_fabs(x) < NV_INF))
        return x;
    double m = __nv_frexp(__nv_fabs(x), &e);
    int third = (e + 3000) / 3 - 1000; /* rounds down */
    m = nv_pow2(e - 3 * third) * m;    /* from 1/2 to 4 */
    double t = 0.6 + 0.3 * m;
    /* Halley's iteration triples the digits. */
    for (int i = 0; i < 4; i++) {
        double c = t * t * t;
        t *= (c + 2 * m) / (2 * c + m);
    }
    /* The last step, from the remainder. */
    double c = t * t;
    t += __nv_fma(-c, t, m) / (3 * c);
    return __nv_copysign(__nv_ldexp(t, third), x);
}
NV double __nv_rcbrt(double x) { return 1 / __nv_cbrt(x); }

/* nv_norm is the root of a sum of squares, scaled so that none overflows. */
NV double nv_norm(double a, double b, double c, double d)
{
    a = __nv_fabs(a), b = __nv_fabs(b), c = __nv_fabs(c), d = __nv_fabs(d);
    if (a == NV_INF || b == NV_INF || c == NV_INF || d == NV_INF)
        return NV_INF;
    double most = __nv_fmax(__nv_fmax(a, b), __nv_fmax(c, d));
    if (most == 0)
        return a + b + c + d;
    int e = __nv_ilogb(most);
    a = __nv_ldexp(a, -e), b = __nv_ldexp(b, -e), c = __nv_ldexp(c, -e), d = __nv_ldexp(d, -e);
    return __nv_ldexp(__nv_sqrt(__nv_fma(a, a, __nv_fma(b, b, __nv_fma(c, c, d * d)))), e);
}
NV double __nv_hypot(double a, double b) { return nv_norm(a, b, 0, 0); }
NV double __nv_rhypot(double a, double b) { return 1 / nv_norm(a, b, 0, 0); }
NV double __nv_norm3d(double a, double b, double c) { return nv_norm(a, b, c, 0); }
NV double __nv_rnorm3d(double a, double b, double c) { return 1 / nv_norm(a, b, c, 0); }
NV double __nv_norm4d(double a, double b, double c, double d) { return nv_norm(a, b, c, d); }
NV double __nv_rnorm4d(double a, double b, double c, double d) { return 1 / nv_norm(a, b, c, d); }
NV double __nv_norm(int n, const double *p)
{
    double v = 0;
    for (int i = 0; i < n; i++)
        v = nv_norm(v, p[i], 0, 0);
    return v;
}
NV double __nv_rnorm(int n, const double *p) { return 1 / __nv_norm(n, p); }

/* Remainders, exact: the quotient's bits are taken off eleven at a time. */

NV double __nv_fmod(double x, double y)
{
    double a = __nv_fabs(x), b = __nv_fabs(y);
    if (!(a < NV_INF) || b == 0 || b != b)
        return NV_NAN;
    if (a < b || b == NV_INF)
        return x;
    int ea = __nv_ilogb(a), eb = __nv_ilogb(b);
    eb = __nv_max(eb, -1022);
    ea = __nv_max(ea, -1022);
    unsigned long long m = (unsigned long long)__nv_ldexp(a, 52 - ea);
    unsigned long long d = (unsigned long long)__nv_ldexp(b, 52 - eb);
    m %= d;
    for (int n = ea - eb; n > 0 && m;) {
        int step = __nv_min(n, 11);
        m = (m << step) % d;
        n -= step;
    }
    return __nv_copysign(__nv_ldexp((double)m, eb - 52), x);
}
NV double __nv_remquo(double x, double y, int *quotient)
{
    double a = __nv_fabs(x), b = __nv_fabs(y);
    *quotient = 0;
    if (!(a < NV_INF) || b == 0 || b != b)
        return NV_NAN;
    if (b == NV_INF)
        return x;
    int q = 0;
    if (b < 0x1p1020)
        a = __nv_fmod(a, 8 * b);
    for (int k = 4; k >= 1; k >>= 1)
        if (a >= k * b && k * b < NV_INF) {
            a -= k * b;
            q += k;
        }
    /* To the nearest, ties to even. Half of b may be too small to have. */
    bool above = b < 0x1p-1021 ? a + a > b || (a + a == b && q & 1) : a > 0.5 * b || (a == 0.5 * b && q & 1);
    if (above) {
        a -= b;
        q++;
    }
    *quotient = __nv_signbitd(x) != __nv_signbitd(y) ? -(q & 7) : q & 7;
    double r = __nv_signbitd(x) ? -a : a;
    return r == 0 ? __nv_copysign(0, x) : r;
}
NV double __nv_remainder(double x, double y)
{
    int q;
    return __nv_remquo(x, y, &q);
}

#endif
