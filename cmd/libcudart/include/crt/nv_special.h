#ifndef VGPU_CRT_NV_SPECIAL_H
#define VGPU_CRT_NV_SPECIAL_H

/* Special functions: the error function and its kin, gamma, and Bessel functions. They are series,
 * continued fractions and recurrences (Abramowitz and Stegun, Handbook of Mathematical Functions,
 * chapters 6, 7 and 9), so they are slower than the elementary functions, and are not inlined. */

#define NV_LOOP static __device__ __attribute__((noinline))

#define NV_SQRT_PI 0x1.c5bf891b4ef6bp+0

/* nv_exp_square is exp(-x^2) also where a double does not hold x^2 exactly. */
NV double nv_exp_square(double x)
{
    double s = x * x;
    return nv_exp_sum(-s, -__nv_fma(x, x, -s));
}

/* nv_erf_series is 7.1.6, whose terms have one sign. */
NV_LOOP double nv_erf_series(double x)
{
    double z = 2 * x * x, term = x, sum = x;
    for (int n = 3; n < 200 && term > sum * 0x1p-56; n += 2) {
        term *= z / n;
        sum += term;
    }
    return 2 / NV_SQRT_PI * nv_exp_square(x) * sum;
}

/* nv_erfcx_fraction is exp(x^2) erfc(x) by 7.1.14, from its end, for x from 1/2. */
NV_LOOP double nv_erfcx_fraction(double x)
{
    int n = 30 + (x < 8 ? (int)(220 / (x * x)) : 0);
    double f = x;
    for (; n > 0; n--)
        f = x + 0.5 * n / f;
    return 1 / (NV_SQRT_PI * f);
}

NV double __nv_erf(double x)
{
    double a = __nv_fabs(x);
    if (x != x || x == 0)
        return x;
    if (a < 2)
        return __nv_copysign(nv_erf_series(a), x);
    return __nv_copysign(a > 6 ? 1 : 1 - nv_exp_square(a) * nv_erfcx_fraction(a), x);
}
NV double __nv_erfc(double x)
{
    if (x != x)
        return x;
    if (x < 0.5)
        return 1 - __nv_erf(x);
    return x > 28 ? 0 : nv_exp_square(x) * nv_erfcx_fraction(x);
}
NV double __nv_erfcx(double x)
{
    if (x != x)
        return x;
    if (x < -26.7)
        return NV_INF;
    if (x < 0.5)
        return __nv_exp(x * x) * __nv_erfc(x);
    return x > 1e8 ? 1 / (NV_SQRT_PI * x) : nv_erfcx_fraction(x);
}

/* nv_tail_inv solves erfc(x) = q for q at most 1 by Newton's steps from 26.2.23. */
NV_LOOP double nv_tail_inv(double q)
{
    double t = __nv_sqrt(-2 * __nv_log(0.5 * q));
    double x = t - (2.515517 + t * (0.802853 + t * 0.010328)) /
                       (1 + t * (1.432788 + t * (0.189269 + t * 0.001308)));
    x *= 0x1.6a09e667f3bcdp-1;
    for (int i = 0; i < 4; i++) {
        /* With erfcx the step has no small numbers. Halley's correction is 1 + x times it. */
        double d = __nv_erfcx(x) - q * __nv_exp(x * x);
        double step = d * (0.5 * NV_SQRT_PI);
        x += step / (1 + x * step);
    }
    return x;
}
NV double __nv_erfinv(double p)
{
    double a = __nv_fabs(p);
    if (!(a <= 1))
        return NV_NAN;
    if (a == 1)
        return __nv_copysign(NV_INF, p);
    if (a > 0.5)
        return __nv_copysign(nv_tail_inv(1 - a), p);
    double x = 0.5 * NV_SQRT_PI * a;
    for (int i = 0; i < 5 && a; i++)
        x -= (__nv_erf(x) - a) * (0.5 * NV_SQRT_PI) * __nv_exp(x * x);
    return __nv_copysign(x, p);
}
NV double __nv_erfcinv(double q)
{
    if (!(q >= 0 && q <= 2))
        return NV_NAN;
    if (q == 0 || q == 2)
        return q == 0 ? NV_INF : -NV_INF;
    if (q > 0.5 && q < 1.5)
        return __nv_erfinv(1 - q); /* exact */
    return q <= 1 ? nv_tail_inv(q) : -nv_tail_inv(2 - q);
}
NV double __nv_normcdf(double x) { return 0.5 * __nv_erfc(-0x1.6a09e667f3bcdp-1 * x); }
NV double __nv_normcdfinv(double p) { return -0x1.6a09e667f3bcdp+0 * __nv_erfcinv(2 * p); }

/* Gamma */

/* nv_stirling is lgamma(x) - ((x - 1/2) log(x) - x) by 6.1.41, for x from 16. */
NV double nv_stirling(double x)
{
    double r = 1 / x, z = r * r, p = -3617.0 / 122400;
    p = __nv_fma(p, z, 1.0 / 156);
    p = __nv_fma(p, z, -691.0 / 360360);
    p = __nv_fma(p, z, 1.0 / 1188);
    p = __nv_fma(p, z, -1.0 / 1680);
    p = __nv_fma(p, z, 1.0 / 1260);
    p = __nv_fma(p, z, -1.0 / 360);
    p = __nv_fma(p, z, 1.0 / 12);
    return 0x1.d67f1c864beb5p-1 + p * r; /* log(2 pi) / 2 */
}

NV_LOOP double nv_gamma_positive(double x)
{
    double product = 1;
    for (; x < 16; x += 1)
        product *= x;
    /* The power in halves, as it overflows before gamma does. */
    double half = __nv_pow(x, 0.5 * x - 0.25);
    return half * (__nv_exp(-x) * __nv_exp(nv_stirling(x))) * half / product;
}
NV_LOOP double nv_gamma(double x)
{
    if (x != x || x == NV_INF)
        return x;
    if (x == 0)
        return __nv_copysign(NV_INF, x);
    if (x < 0 && x == __nv_trunc(x))
        return NV_NAN;
    if (x > 172)
        return NV_INF;
    if (x == __nv_trunc(x) && x < 24) { /* exact */
        double p = 1;
        for (double k = 2; k < x; k += 1)
            p *= k;
        return p;
    }
    if (x >= 0.5)
        return nv_gamma_positive(x);
    if (x < -185)
        return 0;
    return NV_PI / (__nv_sinpi(x) * nv_gamma_positive(1 - x)); /* 6.1.17 */
}
NV double __nv_tgamma(double x) { return nv_gamma(x); }

/* nv_lgamma_near is lgamma(1 + e) for |e| at most 1/4, by 6.1.33. The coefficients are (zeta(k) - 1) / k. */
NV_LOOP double nv_lgamma_near(double e)
{
    double p = 0x1.c76bbb3f07a4dp-23;
    p = __nv_fma(p, e, -0x1.e2600d93cfd2fp-22);
    p = __nv_fma(p, e, 0x1.0064cdeb22f0fp-20);
    p = __nv_fma(p, e, -0x1.11b2eb7679541p-19);
    p = __nv_fma(p, e, 0x1.2597a39f34aacp-18);
    p = __nv_fma(p, e, -0x1.3cbc963ce2243p-17);
    p = __nv_fma(p, e, 0x1.580dcee66eb02p-16);
    p = __nv_fma(p, e, -0x1.78de5bd7c81efp-15);
    p = __nv_fma(p, e, 0x1.a127b0f17d65ap-14);
    p = __nv_fma(p, e, -0x1.d3fd4c76d2fc8p-13);
    p = __nv_fma(p, e, 0x1.0b36af86396e9p-11);
    p = __nv_fma(p, e, -0x1.38ac5c2bf8e08p-10);
    p = __nv_fma(p, e, 0x1.7add6eadb6c30p-9);
    p = __nv_fma(p, e, -0x1.e404fc218f5f2p-8);
    p = __nv_fma(p, e, 0x1.51322ac7d8483p-6);
    p = __nv_fma(p, e, -0x1.13e001a557607p-4);
    p = __nv_fma(p, e, 0x1.4a34cc4a60fa6p-2);
    return -__nv_log1p(e) + e * __nv_fma(p, e, 0x1.b0ee6072093cep-2); /* 1 - Euler's constant */
}
NV_LOOP double nv_lgamma(double x)
{
    if (x != x)
        return x;
    if (__nv_fabs(x) == NV_INF || (x <= 0 && x == __nv_trunc(x)))
        return NV_INF;
    if (x < 0.5) {
        double s = __nv_fabs(__nv_sinpi(x));
        return __nv_log(NV_PI / s) - nv_lgamma(1 - x);
    }
    if (__nv_fabs(x - 1) <= 0.25)
        return nv_lgamma_near(x - 1);
    if (__nv_fabs(x - 2) <= 0.25)
        return nv_lgamma_near(x - 2) + __nv_log1p(x - 2);
    double product = 1;
    for (; x < 16; x += 1)
        product *= x;
    return (x - 0.5) * __nv_log(x) - x + nv_stirling(x) - __nv_log(product);
}
NV double __nv_lgamma(double x) { return nv_lgamma(x); }

/* Bessel functions */

/* nv_bessel_small gives J0, J1, Y0 and Y1 at x of at most 25 by Miller's recurrence (9.12), Neumann's
 * series (9.1.89) and the Wronskian (9.1.16). */
NV_LOOP void nv_bessel_small(double x, double *j0, double *j1, double *y0, double *y1)
{
    double above = 0, now = 1e-290, sum = 0, neumann = 0;
    int n = 2 * (int)(15 + 0.75 * x + 4 * __nv_sqrt(x));
    for (; n > 0; n--) {
        double below = 2 * n / x * now - above;
        above = now;
        now = below;
        int k = n - 1; /* now is J of order k */
        if (k > 0 && !(k & 1)) {
            sum += 2 * now;
            neumann += (k & 2 ? 2.0 : -2.0) * now / k;
        }
        if (__nv_fabs(now) > 1e200) {
            now *= 1e-200, above *= 1e-200, sum *= 1e-200, neumann *= 1e-200;
        }
    }
    sum += now;
    *j0 = now / sum;
    *j1 = above / sum;
    *y0 = 2 / NV_PI * (__nv_log(0.5 * x) + 0x1.2788cfc6fb619p-1) * *j0 + 4 / NV_PI * neumann / sum;
    *y1 = __nv_fabs(*j0) > 0.05 ? (*j1 * *y0 - 2 / (NV_PI * x)) / *j0 : NV_NAN;
    if (*y1 != *y1) { /* near a zero of J0, from the derivative of the series: 9.1.89 with J of odd order */
        double a = 0, b = 1e-290, s = 0, odd = 0;
        for (n = 2 * (int)(15 + 0.75 * x + 4 * __nv_sqrt(x)); n > 0; n--) {
            double c = 2 * n / x * b - a;
            a = b;
            b = c;
            int k = n - 1;
            if (k > 0 && !(k & 1))
                s += 2 * b;
            if (k > 1 && k & 1) {
                int m = (k - 1) / 2; /* J of order 2m + 1 */
                odd += (m & 1 ? -1.0 : 1.0) * (2 * m + 1.0) / (m * (m + 1.0)) * b;
            }
            if (__nv_fabs(b) > 1e200)
                b *= 1e-200, a *= 1e-200, s *= 1e-200, odd *= 1e-200;
        }
        s += b;
        /* Y1 = -2/(pi x) J0 ... + 2/pi (log(x/2) + gamma - 1) J1 - 4/pi sum (-1)^m ... */
        *y1 = -2 / (NV_PI * x) * *j0 + 2 / NV_PI * (__nv_log(0.5 * x) + 0x1.2788cfc6fb619p-1 - 1) * *j1 -
              2 / NV_PI * odd / s;
    }
}

/* nv_bessel_large gives J and Y of order 0 or 1 by 9.2.5 to 9.2.10, for x from 25. */
NV_LOOP void nv_bessel_large(int order, double x, double *j, double *y)
{
    double mu = 4.0 * order * order, term = 1, p = 1, q = 0;
    for (int k = 1; k < 40; k++) {
        double next = term * (mu - (2.0 * k - 1) * (2.0 * k - 1)) / (8.0 * x * k);
        if (__nv_fabs(next) > __nv_fabs(term) || next == 0)
            break;
        term = next;
        switch (k & 3) {
        case 0: p += term; break;
        case 1: q += term; break;
        case 2: p -= term; break;
        default: q -= term; break;
        }
    }
    /* The angle is x - pi/4 or x - 3 pi/4. */
    double s, c;
    __nv_sincos(x, &s, &c);
    double r = 0x1.6a09e667f3bcdp-1;
    double cc = order ? r * (s - c) : r * (c + s), ss = order ? -r * (s + c) : r * (s - c);
    double scale = __nv_sqrt(2 / (NV_PI * x));
    *j = scale * (p * cc - q * ss);
    *y = scale * (p * ss + q * cc);
}

NV_LOOP double nv_bessel(int order, bool second, double x)
{
    double a = __nv_fabs(x), v[4];
    if (x != x)
        return x;
    if (second && x <= 0)
        return x == 0 ? -NV_INF : NV_NAN;
    if (a == NV_INF)
        return 0;
    if (a < 1e-150)
        return second ? order ? -2 / (NV_PI * a) : 2 / NV_PI * (__nv_log(0.5 * a) + 0x1.2788cfc6fb619p-1)
                      : order ? 0.5 * x : 1;
    if (a <= 25)
        nv_bessel_small(a, &v[0], &v[1], &v[2], &v[3]);
    else
        nv_bessel_large(order, a, &v[order], &v[2 + order]);
    double r = v[order + (second ? 2 : 0)];
    return order && x < 0 ? -r : r;
}
NV double __nv_j0(double x) { return nv_bessel(0, false, x); }
NV double __nv_j1(double x) { return nv_bessel(1, false, x); }
NV double __nv_y0(double x) { return nv_bessel(0, true, x); }
NV double __nv_y1(double x) { return nv_bessel(1, true, x); }

NV_LOOP double nv_jn(int n, double x)
{
    double a = __nv_fabs(x);
    if (x != x)
        return x;
    double sign = n < 0 && n & 1 ? -1 : 1;
    n = __nv_abs(n);
    if (x < 0 && n & 1)
        sign = -sign;
    if (n < 2)
        return sign * nv_bessel(n, false, a);
    if (a == 0 || a == NV_INF)
        return 0;
    if (a > n) { /* forward is stable */
        double below = nv_bessel(0, false, a), now = nv_bessel(1, false, a);
        for (int k = 1; k < n; k++) {
            double next = 2 * k / a * now - below;
            below = now;
            now = next;
        }
        return sign * now;
    }
    double above = 0, now = 1e-290, sum = 0, want = 0;
    int start = 2 * ((n + 20 + (int)(4 * __nv_sqrt((double)n) + a)) / 2);
    for (int k = start; k > 0; k--) {
        double below = 2 * k / a * now - above;
        above = now;
        now = below;
        if (k - 1 == n)
            want = now;
        if (k > 1 && k & 1)
            sum += 2 * now;
        if (__nv_fabs(now) > 1e200)
            now *= 1e-200, above *= 1e-200, sum *= 1e-200, want *= 1e-200;
    }
    return sign * want / (sum + now);
}
NV double __nv_jn(int n, double x) { return nv_jn(n, x); }

NV_LOOP double nv_yn(int n, double x)
{
    double sign = n < 0 && n & 1 ? -1 : 1;
    n = __nv_abs(n);
    if (n < 2 || !(x > 0) || x == NV_INF)
        return sign * nv_bessel(n == 0 ? 0 : 1, true, x);
    double below = nv_bessel(0, true, x), now = nv_bessel(1, true, x);
    for (int k = 1; k < n && now > -NV_INF; k++) {
        double next = 2 * k / x * now - below;
        below = now;
        now = next;
    }
    return sign * now;
}
NV double __nv_yn(int n, double x) { return nv_yn(n, x); }

/* nv_bessel_i is the modified function of order 0 or 1: its series (9.6.10), and from 30 the
 * asymptotic one (9.7.1). */
NV_LOOP double nv_bessel_i(int order, double x)
{
    double a = __nv_fabs(x), sum = 1, term = 1;
    if (!(a < NV_INF))
        return order ? x : a;
    if (a < 30) {
        double z = 0.25 * a * a;
        for (int k = 1; k < 200 && term > sum * 0x1p-56; k++) {
            term *= z / ((double)k * (k + order));
            sum += term;
        }
        return order ? 0.5 * x * sum : sum;
    }
    double mu = 4.0 * order * order;
    for (int k = 1; k < 40; k++) {
        double next = -term * (mu - (2.0 * k - 1) * (2.0 * k - 1)) / (8.0 * a * k);
        if (__nv_fabs(next) > __nv_fabs(term))
            break;
        term = next;
        sum += term;
    }
    double half = __nv_exp(0.5 * a), r = half * (sum / __nv_sqrt(2 * NV_PI * a)) * half;
    return order ? __nv_copysign(r, x) : r;
}
NV double __nv_cyl_bessel_i0(double x) { return nv_bessel_i(0, x); }
NV double __nv_cyl_bessel_i1(double x) { return nv_bessel_i(1, x); }

NV_FROM_DOUBLE(erf)
NV_FROM_DOUBLE(erfc)
NV_FROM_DOUBLE(erfcinv)
NV_FROM_DOUBLE(erfcx)
NV_FROM_DOUBLE(erfinv)
NV_FROM_DOUBLE(normcdf)
NV_FROM_DOUBLE(normcdfinv)
NV_FROM_DOUBLE(lgamma)
NV_FROM_DOUBLE(tgamma)
NV_FROM_DOUBLE(j0)
NV_FROM_DOUBLE(j1)
NV_FROM_DOUBLE(y0)
NV_FROM_DOUBLE(y1)
NV float __nv_jnf(int n, float x) { return (float)nv_jn(n, (double)x); }
NV float __nv_ynf(int n, float x) { return (float)nv_yn(n, (double)x); }
NV float __nv_cyl_bessel_i0f(float x) { return (float)nv_bessel_i(0, (double)x); }
NV float __nv_cyl_bessel_i1f(float x) { return (float)nv_bessel_i(1, (double)x); }

#undef NV_FROM_DOUBLE
#undef NV_FROM_DOUBLE2

#endif
