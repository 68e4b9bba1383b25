#ifndef VGPU_CRT_NV_MATHF_H
#define VGPU_CRT_NV_MATHF_H

/* Elementary functions of floats. The frequent ones have algorithms of their own, within 3 units in
 * the last place; the others round a double's result. */

NV float __nv_ldexpf(float a, int n) { return (float)__nv_ldexp((double)a, n); }
NV float __nv_scalbnf(float a, int n) { return __nv_ldexpf(a, n); }
NV float __nv_frexpf(float a, int *e) { return (float)__nv_frexp((double)a, e); }
NV int __nv_ilogbf(float a) { return __nv_ilogb((double)a); }
NV float __nv_logbf(float a) { return (float)__nv_logb((double)a); }

NV float __nv_modff(float a, float *whole)
{
    *whole = __nv_truncf(a);
    return __nv_copysignf(__nv_fabsf(a) == __builtin_inff() ? 0 : a - *whole, a);
}
NV float __nv_nextafterf(float a, float b)
{
    if (a != a || b != b)
        return a + b;
    if (a == b)
        return b;
    if (a == 0)
        return __nv_copysignf(0x1p-149f, b);
    return __nv_int_as_float(__nv_float_as_int(a) + ((a < b) == (a > 0) ? 1 : -1));
}

/* nv_scalef is a times 2^n for n from -252 to 254. */
NV float nv_scalef(float a, int n)
{
    int half = n >> 1;
    return a * __nv_int_as_float((half + 127) << 23) * __nv_int_as_float((n - half + 127) << 23);
}

/* nv_exp_rf is exp(r) for |r| at most ln(2)/2. */
NV float nv_exp_rf(float r)
{
    float p = 1.0f / 5040;
    p = __nv_fmaf(p, r, 1.0f / 720);
    p = __nv_fmaf(p, r, 1.0f / 120);
    p = __nv_fmaf(p, r, 1.0f / 24);
    p = __nv_fmaf(p, r, 1.0f / 6);
    p = __nv_fmaf(p, r, 0.5f);
    p = __nv_fmaf(p, r, 1.0f);
    return __nv_fmaf(p, r, 1.0f);
}

NV float __nv_expf(float x)
{
#ifdef __CLANG_GPU_APPROX_TRANSCENDENTALS__
    return __nv_fast_expf(x);
#else
    if (x != x)
        return x;
    x = __nv_fminf(__nv_fmaxf(x, -105.0f), 90.0f);
    float n = __nv_rintf(x * 0x1.715476p+0f);
    float r = __nv_fmaf(n, -0x1.62e4p-1f, x);
    r = __nv_fmaf(n, -0x1.7f7d1cp-20f, r);
    return nv_scalef(nv_exp_rf(r), (int)n);
#endif
}
NV float __nv_exp2f(float x)
{
    if (x != x)
        return x;
    x = __nv_fminf(__nv_fmaxf(x, -152.0f), 130.0f);
    float n = __nv_rintf(x);
    return nv_scalef(nv_exp_rf((x - n) * 0x1.62e43p-1f), (int)n);
}
NV float __nv_exp10f(float x)
{
#ifdef __CLANG_GPU_APPROX_TRANSCENDENTALS__
    return __nv_fast_exp10f(x);
#else
    return (float)__nv_exp10((double)x);
#endif
}

NV float __nv_logf(float x)
{
#ifdef __CLANG_GPU_APPROX_TRANSCENDENTALS__
    return __nv_fast_logf(x);
#else
    if (!(x > 0) || x == __builtin_inff())
        return x == 0 ? -__builtin_inff() : x < 0 ? __builtin_nanf("") : x;
    float e = 0;
    if (x < 0x1p-126f) {
        x *= 0x1p24f;
        e = -24;
    }
    int bits = __nv_float_as_int(x), k = (bits - 0x3f3504f3) >> 23;
    float m = __nv_int_as_float(bits - (k << 23)); /* from sqrt(1/2) to sqrt(2) */
    e += k;
    float f = m - 1, s = f / (2 + f), z = s * s, half = 0.5f * f * f;
    float p = 2.0f / 9;
    p = __nv_fmaf(p, z, 2.0f / 7);
    p = __nv_fmaf(p, z, 2.0f / 5);
    p = __nv_fmaf(p, z, 2.0f / 3);
    float l = f - (half - s * (half + p * z));
    return __nv_fmaf(e, 0x1.62e4p-1f, __nv_fmaf(e, 0x1.7f7d1cp-20f, l));
#endif
}
NV float __nv_log2f(float x)
{
#ifdef __CLANG_GPU_APPROX_TRANSCENDENTALS__
    return __nv_fast_log2f(x);
#else
    return (float)__nv_log2((double)x);
#endif
}
NV float __nv_log10f(float x)
{
#ifdef __CLANG_GPU_APPROX_TRANSCENDENTALS__
    return __nv_fast_log10f(x);
#else
    return (float)__nv_log10((double)x);
#endif
}

/* Angles: a float's reduction in floats to 2^13, else in doubles. */

NV int nv_reducef(float x, float *r)
{
    if (__nv_fabsf(x) >= 0x1p13f) {
        double d;
        int q = nv_reduce((double)x, &d);
        *r = (float)d;
        return q;
    }
    float n = __nv_rintf(x * 0x1.45f306p-1f);
    float t = __nv_fmaf(n, -0x1.921fb4p+0f, x);
    t = __nv_fmaf(n, -0x1.4442d0p-24f, t);
    *r = __nv_fmaf(n, -0x1.846988p-48f, t);
    return (int)n & 3;
}
NV float nv_quadrantf(int q, float r)
{
    float z = r * r, v;
    if (q & 1) {
        v = -1.0f / 3628800;
        v = __nv_fmaf(v, z, 1.0f / 40320);
        v = __nv_fmaf(v, z, -1.0f / 720);
        v = __nv_fmaf(v, z, 1.0f / 24);
        v = __nv_fmaf(v, z, -0.5f);
        v = __nv_fmaf(v, z, 1.0f);
    } else {
        v = 1.0f / 362880;
        v = __nv_fmaf(v, z, -1.0f / 5040);
        v = __nv_fmaf(v, z, 1.0f / 120);
        v = __nv_fmaf(v, z, -1.0f / 6);
        v = __nv_fmaf(v * z, r, r);
    }
    return q & 2 ? -v : v;
}
NV void __nv_sincosf(float x, float *s, float *c)
{
#ifdef __CLANG_GPU_APPROX_TRANSCENDENTALS__
    __nv_fast_sincosf(x, s, c);
#else
    float r;
    if (!(__nv_fabsf(x) < __builtin_inff())) {
        *s = *c = __builtin_nanf("");
        return;
    }
    int q = nv_reducef(x, &r);
    *s = x == 0 ? x : nv_quadrantf(q, r);
    *c = nv_quadrantf(q + 1, r);
#endif
}
NV float __nv_sinf(float x)
{
    float s, c;
    __nv_sincosf(x, &s, &c);
    return s;
}
NV float __nv_cosf(float x)
{
    float s, c;
    __nv_sincosf(x, &s, &c);
    return c;
}
NV float __nv_tanf(float x)
{
#ifdef __CLANG_GPU_APPROX_TRANSCENDENTALS__
    return __nv_fast_tanf(x);
#else
    float s, c;
    __nv_sincosf(x, &s, &c);
    return s / c;
#endif
}

NV float __nv_powf(float x, float y)
{
#ifdef __CLANG_GPU_APPROX_TRANSCENDENTALS__
    return __nv_fast_powf(x, y);
#else
    if (y == 0 || x == 1)
        return 1;
    if (x != x || y != y)
        return x + y;
    bool whole = __nv_truncf(y) == y, odd = whole && __nv_fabsf(y) < 0x1p24f && ((int)y & 1);
    float sign = odd && __nv_signbitf(x) ? -1.0f : 1.0f, a = __nv_fabsf(x);
    if (__nv_fabsf(y) == __builtin_inff())
        return a == 1 ? 1 : (a > 1) == (y > 0) ? __builtin_inff() : 0;
    if (a == 0 || a == __builtin_inff())
        return sign * ((a == 0) == (y < 0) ? __builtin_inff() : 0);
    if (x < 0 && !whole)
        return __builtin_nanf("");
    return sign * (float)__nv_exp((double)y * __nv_log((double)a));
#endif
}
NV float __nv_powif(float x, int n) { return __nv_powf(x, (float)n); }

/* The rest round a double's result. */

#define NV_FROM_DOUBLE(name) NV float __nv_##name##f(float a) { return (float)__nv_##name((double)a); }
#define NV_FROM_DOUBLE2(name)                                                                      \
    NV float __nv_##name##f(float a, float b) { return (float)__nv_##name((double)a, (double)b); }
NV_FROM_DOUBLE(acos)
NV_FROM_DOUBLE(acosh)
NV_FROM_DOUBLE(asin)
NV_FROM_DOUBLE(asinh)
NV_FROM_DOUBLE(atan)
NV_FROM_DOUBLE(atanh)
NV_FROM_DOUBLE(cbrt)
NV_FROM_DOUBLE(cosh)
NV_FROM_DOUBLE(cospi)
NV_FROM_DOUBLE(expm1)
NV_FROM_DOUBLE(log1p)
NV_FROM_DOUBLE(rcbrt)
NV_FROM_DOUBLE(sinh)
NV_FROM_DOUBLE(sinpi)
NV_FROM_DOUBLE(tanh)
NV_FROM_DOUBLE2(atan2)
NV_FROM_DOUBLE2(fmod)
NV_FROM_DOUBLE2(remainder)

NV void __nv_sincospif(float x, float *s, float *c)
{
    *s = __nv_sinpif(x);
    *c = __nv_cospif(x);
}
NV float __nv_remquof(float x, float y, int *q) { return (float)__nv_remquo((double)x, (double)y, q); }

/* A double has room for the squares of floats. */
NV float __nv_hypotf(float a, float b) { return (float)__nv_sqrt((double)a * a + (double)b * b); }
NV float __nv_rhypotf(float a, float b) { return (float)(1 / __nv_sqrt((double)a * a + (double)b * b)); }
NV double nv_squaresf(float a, float b, float c, float d)
{
    return __nv_sqrt((double)a * a + (double)b * b + (double)c * c + (double)d * d);
}
NV float __nv_norm3df(float a, float b, float c) { return (float)nv_squaresf(a, b, c, 0); }
NV float __nv_rnorm3df(float a, float b, float c) { return (float)(1 / nv_squaresf(a, b, c, 0)); }
NV float __nv_norm4df(float a, float b, float c, float d) { return (float)nv_squaresf(a, b, c, d); }
NV float __nv_rnorm4df(float a, float b, float c, float d) { return (float)(1 / nv_squaresf(a, b, c, d)); }
NV float __nv_normf(int n, const float *p)
{
    double v = 0;
    for (int i = 0; i < n; i++)
        v += (double)p[i] * p[i];
    return (float)__nv_sqrt(v);
}
NV float __nv_rnormf(int n, const float *p) { return 1 / __nv_normf(n, p); }

#endif
