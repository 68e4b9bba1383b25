// Compares device code's mathematical functions with the C library's, on the host: the functions are
// plain C++ but for the arithmetic of nv_arith.h, for which the compiler's operations stand in.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

#define __device__
#define __inline__ inline
#define VGPU_CRT_NV_ARITH_H
#define NV static inline
NV double __nv_fma(double a, double b, double c) { return fma(a, b, c); }
NV float __nv_fmaf(float a, float b, float c) { return fmaf(a, b, c); }
NV double __nv_fabs(double a) { return fabs(a); }
NV float __nv_fabsf(float a) { return fabsf(a); }
NV double __nv_rint(double a) { return rint(a); }
NV float __nv_rintf(float a) { return rintf(a); }
NV double __nv_trunc(double a) { return trunc(a); }
NV float __nv_truncf(float a) { return truncf(a); }
NV double __nv_sqrt(double a) { return sqrt(a); }
NV double __nv_fmin(double a, double b) { return fmin(a, b); }
NV double __nv_fmax(double a, double b) { return fmax(a, b); }
NV float __nv_fminf(float a, float b) { return fminf(a, b); }
NV float __nv_fmaxf(float a, float b) { return fmaxf(a, b); }
NV int __nv_min(int a, int b) { return a < b ? a : b; }
NV int __nv_max(int a, int b) { return a > b ? a : b; }
NV int __nv_abs(int a) { return a < 0 ? -a : a; }
NV double __nv_copysign(double a, double b) { return copysign(a, b); }
NV float __nv_copysignf(float a, float b) { return copysignf(a, b); }
NV int __nv_signbitd(double a) { return std::signbit(a); }
NV int __nv_signbitf(float a) { return std::signbit(a); }
NV long long __nv_double_as_longlong(double a) { long long v; memcpy(&v, &a, 8); return v; }
NV double __nv_longlong_as_double(long long a) { double v; memcpy(&v, &a, 8); return v; }
NV int __nv_float_as_int(float a) { int v; memcpy(&v, &a, 4); return v; }
NV float __nv_int_as_float(int a) { float v; memcpy(&v, &a, 4); return v; }
NV unsigned long long __nv_umul64hi(unsigned long long a, unsigned long long b)
{
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
#include "crt/nv_math.h"
#include "crt/nv_mathf.h"
#include "crt/nv_special.h"

static int failures;

// distance is how many numbers of the type lie between a and b.
template <class T> static double distance(T got, long double want)
{
    T w = (T)want;
    if (std::isnan(got) || std::isnan(w))
        return std::isnan(got) && std::isnan(w) ? 0 : INFINITY;
    if (got == w)
        return 0;
    if (std::isinf(got) || std::isinf(w))
        return INFINITY;
    T ulp = std::nextafter(std::fabs(w), (T)INFINITY) - std::fabs(w);
    return (double)(std::fabs((long double)got - want) / ulp);
}

template <class T, class F, class G> static void check(const char *name, F f, G want, T from, T to, double bound)
{
    std::mt19937_64 rng(1);
    double worst = 0;
    T at = 0;
    auto one = [&](T x) {
        double d = distance<T>(f(x), want((long double)x));
        if (!(d <= worst))
            worst = d, at = x;
    };
    bool wide = from > 0 && std::log((double)to) - std::log((double)from) > 14;
    for (int i = 0; i < 40000; i++) {
        double u = std::uniform_real_distribution<double>(0, 1)(rng);
        one(wide ? (T)std::exp(std::log((double)from) + u * (std::log((double)to) - std::log((double)from))) : (T)(from + (to - from) * u));
    }
    printf("%-12s %9.3g to %9.3g: %.3g\n", name, (double)from, (double)to, worst);
    if (!(worst <= bound)) {
        printf("  FAILED: want at most %g; at %.17g got %.17g, want %.17Lg\n", bound, (double)at, (double)f(at), want((long double)at));
        failures++;
    }
}

template <class T, class F, class G> static void check2(const char *name, F f, G want, T from, T to, T yfrom, T yto, double bound)
{
    std::mt19937_64 rng(2);
    double worst = 0;
    T ax = 0, ay = 0;
    for (int i = 0; i < 40000; i++) {
        T x = (T)std::uniform_real_distribution<double>(from, to)(rng);
        T y = (T)std::uniform_real_distribution<double>(yfrom, yto)(rng);
        double d = distance<T>(f(x, y), want((long double)x, (long double)y));
        if (!(d <= worst))
            worst = d, ax = x, ay = y;
    }
    printf("%-12s: %.3g\n", name, worst);
    if (!(worst <= bound)) {
        printf("  FAILED: want at most %g; at %.17g, %.17g got %.17g, want %.17Lg\n", bound, (double)ax, (double)ay, (double)f(ax, ay), want((long double)ax, (long double)ay));
        failures++;
    }
}

template <class T> static void same(const char *name, T got, T want)
{
    if (memcmp(&got, &want, sizeof got) == 0 || (std::isnan(got) && std::isnan(want)))
        return;
    printf("  FAILED: %s: got %g, want %g\n", name, (double)got, (double)want);
    failures++;
}

#define D(name, from, to, bound)                                                                   \
    check<double>(#name, [](double x) { return __nv_##name(x); }, [](long double x) { return name##l(x); }, from, to, bound)
#define S(name, from, to, bound)                                                                   \
    check<float>(#name "f", [](float x) { return __nv_##name##f(x); }, [](long double x) { return name##l(x); }, from, to, bound)

int main()
{
    D(exp, -745, 709.7, 1.2);
    D(exp2, -1074, 1023.9, 1.2);
    D(exp10, -323, 308, 1.5);
    D(expm1, -40, 700, 2);
    D(expm1, -0.5, 0.5, 2);
    D(log, 1e-320, 1e308, 1.2);
    D(log, 0.5, 2, 1.5);
    D(log2, 1e-320, 1e308, 1.2);
    D(log2, 0.5, 2, 2.5);
    D(log10, 1e-320, 1e308, 2);
    D(log10, 0.5, 2, 2.5);
    D(log1p, -0.9, 10, 2);
    D(log1p, 1e-20, 1e10, 2);
    D(sin, -100, 100, 1.5);
    D(cos, -100, 100, 1.5);
    D(tan, -100, 100, 3);
    D(sin, 1e5, 1e300, 2.5);
    D(cos, 1e5, 1e300, 2.5);
    D(atan, -10, 10, 2);
    D(atan, 1e-10, 1e10, 2);
    D(asin, -1, 1, 3);
    D(acos, -1, 1, 3);
    D(sinh, -700, 700, 3);
    D(sinh, -1, 1, 3);
    D(cosh, -700, 700, 3);
    D(tanh, -3, 3, 3);
    D(asinh, -10, 10, 3);
    D(acosh, 1, 100, 3);
    D(atanh, -0.99, 0.99, 3);
    D(cbrt, 1e-320, 1e308, 1);
    D(cbrt, -10, 10, 1);
    D(erf, -6, 6, 12);
    D(erfc, -5, 26, 6);
    D(tgamma, 0.01, 170, 80);
    D(tgamma, -20, -0.01, 80);
    D(lgamma, 2.5, 1e6, 4);
    D(lgamma, 0.01, 3, 2000);
    check2<double>("pow", [](double x, double y) { return __nv_pow(x, y); }, [](long double x, long double y) { return powl(x, y); }, 0, 100.0, -150.0, 150.0, 3);
    check2<double>("pow", [](double x, double y) { return __nv_pow(x, y); }, [](long double x, long double y) { return powl(x, y); }, 0.9, 1.1, -6000.0, 6000.0, 3);
    check2<double>("atan2", [](double y, double x) { return __nv_atan2(y, x); }, [](long double y, long double x) { return atan2l(y, x); }, -10, 10, -10, 10, 2.5);
    check2<double>("hypot", [](double y, double x) { return __nv_hypot(y, x); }, [](long double y, long double x) { return hypotl(y, x); }, -10, 10, -10, 10, 2);
    check2<double>("fmod", [](double y, double x) { return __nv_fmod(y, x); }, [](long double y, long double x) { return fmodl(y, x); }, -1e9, 1e9, -10, 10, 0);
    check2<double>("remainder", [](double y, double x) { return __nv_remainder(y, x); }, [](long double y, long double x) { return remainderl(y, x); }, -1e9, 1e9, -10, 10, 0);
    S(exp, -100, 88, 2);
    S(exp2, -149, 127, 2);
    S(log, 1e-44f, 1e38f, 2);
    S(log, 0.5f, 2, 2);
    S(sin, -8000, 8000, 2.5);
    S(cos, -8000, 8000, 2.5);
    S(sin, 1e4f, 1e38f, 2.5);
    S(tan, -100, 100, 4);
    S(tanh, -3, 3, 1);
    S(erf, -4, 4, 1);
    S(atan, -10, 10, 1);
    check2<float>("powf", [](float x, float y) { return __nv_powf(x, y); }, [](long double x, long double y) { return powl(x, y); }, 0, 10, -30, 30, 1);

    // Bessel functions near their zeros are right only absolutely.
    double worst = 0;
    for (double x = 0.01; x < 200; x += 0.013) {
        for (int n = 0; n < 4; n++) {
            worst = std::fmax(worst, std::fabs(__nv_jn(n, x) - jn(n, x)));
            double y = yn(n, x);
            worst = std::fmax(worst, std::fabs(__nv_yn(n, x) - y) / std::fmax(1, std::fabs(y)));
        }
    }
    printf("bessel: %.3g\n", worst);
    if (!(worst < 2e-14))
        printf("  FAILED: Bessel functions\n"), failures++;

    for (double p = 1e-300; p < 1; p = p < 0.001 ? p * 3 : p + 0.0007) {
        double x = __nv_erfcinv(p), back = erfc(x);
        if (!(std::fabs(back - p) <= p * 1e-12 * (1 + x * x)))
            printf("  FAILED: erfcinv(%g) = %.17g\n", p, x), failures++;
        x = __nv_erfinv(p);
        if (!(std::fabs(erf(x) - p) <= 4e-16 * (p + 1e-3) + p * 4e-16))
            printf("  FAILED: erfinv(%g) = %.17g\n", p, x), failures++;
    }
    same("cyl_bessel_i0(0)", __nv_cyl_bessel_i0(0), 1.0);
    if (std::fabs(__nv_cyl_bessel_i0(40) / 1.4894774793419899e16 - 1) > 1e-14 || std::fabs(__nv_cyl_bessel_i1(3) / 3.9533702174026093965 - 1) > 1e-15)
        printf("  FAILED: modified Bessel functions\n"), failures++;

    const double inf = INFINITY, nan = NAN;
    same("exp(-inf)", __nv_exp(-inf), 0.0);
    same("exp(1000)", __nv_exp(1000), inf);
    same("log(0)", __nv_log(0), -inf);
    same("log(-1)", __nv_log(-1), nan);
    same("sin(inf)", __nv_sin(inf), nan);
    same("sin(-0)", __nv_sin(-0.0), -0.0);
    same("pow(-2, 3)", __nv_pow(-2, 3), -8.0);
    same("pow(-2, 0.5)", __nv_pow(-2, 0.5), nan);
    same("pow(0, -1)", __nv_pow(0, -1), inf);
    same("pow(nan, 0)", __nv_pow(nan, 0), 1.0);
    same("pow(2, 1024)", __nv_pow(2, 1024), inf);
    same("atan2(0, -1)", __nv_atan2(0, -1), M_PI);
    same("atan2(-0, -1)", __nv_atan2(-0.0, -1), -M_PI);
    same("ldexp(1, -1074)", __nv_ldexp(1, -1074), 0x1p-1074);
    same("ldexp(3, -1075)", __nv_ldexp(3, -1075), 0x1p-1073);
    same("nextafter(0, 1)", __nv_nextafter(0, 1), 0x1p-1074);
    same("nextafter(1, 0)", __nv_nextafter(1, 0), std::nextafter(1.0, 0.0));
    same("tgamma(5)", __nv_tgamma(5), 24.0);
    same("tgamma(-1)", __nv_tgamma(-1), nan);
    same("expf(200)", __nv_expf(200), INFINITY);
    same("expf(-200)", __nv_expf(-200), 0.0f);
    same("logf(0)", __nv_logf(0), -INFINITY);
    same("powf(-2, 3)", __nv_powf(-2, 3), -8.0f);
    int e, q;
    same("frexp", __nv_frexp(0x1p-1074, &e), 0.5);
    same("frexp's exponent", (double)e, -1073.0);
    double r = remquo(1e10, 3.0, &q);
    int got;
    same("remquo", __nv_remquo(1e10, 3.0, &got), r);
    same("remquo's quotient", (double)(got & 7), (double)(q & 7));
    puts(failures ? "wrong" : "right");
    return failures != 0;
}
