#ifndef VGPU_CRT_MATH_OVERLOADS_H
#define VGPU_CRT_MATH_OVERLOADS_H

/* min and max for all numbers in device and host code, and float overloads of CUDA's own functions. */

#define VGPU_BOTH static __host__ __device__ __inline__ __attribute__((always_inline))

#define VGPU_MINMAX(T)                                                                             \
    VGPU_BOTH T min(T a, T b) { return b < a ? b : a; }                                            \
    VGPU_BOTH T max(T a, T b) { return a < b ? b : a; }
#define VGPU_MIXED(A, B, T)                                                                        \
    VGPU_BOTH T min(A a, B b) { return min((T)a, (T)b); }                                          \
    VGPU_BOTH T max(A a, B b) { return max((T)a, (T)b); }                                          \
    VGPU_BOTH T min(B a, A b) { return min((T)a, (T)b); }                                          \
    VGPU_BOTH T max(B a, A b) { return max((T)a, (T)b); }
VGPU_MINMAX(unsigned)
VGPU_MINMAX(long)
VGPU_MINMAX(unsigned long)
VGPU_MINMAX(long long)
VGPU_MINMAX(unsigned long long)
VGPU_MIXED(int, unsigned, unsigned)
VGPU_MIXED(long, unsigned long, unsigned long)
VGPU_MIXED(long long, unsigned long long, unsigned long long)
#undef VGPU_MINMAX
#undef VGPU_MIXED

/* The compiler's headers have these for device code. */
static inline __host__ int min(int a, int b) { return b < a ? b : a; }
static inline __host__ int max(int a, int b) { return a < b ? b : a; }

/* A number that is not a NaN wins, as in fmin. */
#define VGPU_FLOATS(A, B, T, f)                                                                    \
    VGPU_BOTH T min(A a, B b) { return __builtin_fmin##f(a, b); }                                  \
    VGPU_BOTH T max(A a, B b) { return __builtin_fmax##f(a, b); }
VGPU_FLOATS(float, float, float, f)
VGPU_FLOATS(double, double, double, )
VGPU_FLOATS(float, double, double, )
VGPU_FLOATS(double, float, double, )
#undef VGPU_FLOATS

#define VGPU_FLOAT(name) static __device__ __inline__ float name(float x) { return name##f(x); }
VGPU_FLOAT(rsqrt)
VGPU_FLOAT(rcbrt)
VGPU_FLOAT(sinpi)
VGPU_FLOAT(cospi)
VGPU_FLOAT(erfinv)
VGPU_FLOAT(erfcinv)
VGPU_FLOAT(erfcx)
VGPU_FLOAT(normcdf)
VGPU_FLOAT(normcdfinv)
VGPU_FLOAT(exp10)
/* The compiler's headers declare these for floats and leave them to CUDA's. */
VGPU_FLOAT(acosh)
VGPU_FLOAT(asinh)
VGPU_FLOAT(atanh)
VGPU_FLOAT(cbrt)
VGPU_FLOAT(erf)
VGPU_FLOAT(erfc)
VGPU_FLOAT(exp2)
VGPU_FLOAT(expm1)
VGPU_FLOAT(lgamma)
VGPU_FLOAT(log1p)
VGPU_FLOAT(log2)
VGPU_FLOAT(logb)
VGPU_FLOAT(nearbyint)
VGPU_FLOAT(rint)
VGPU_FLOAT(round)
VGPU_FLOAT(tgamma)
VGPU_FLOAT(trunc)
#undef VGPU_FLOAT
#define VGPU_FLOAT2(name) static __device__ __inline__ float name(float x, float y) { return name##f(x, y); }
VGPU_FLOAT2(copysign)
VGPU_FLOAT2(fdim)
VGPU_FLOAT2(fmax)
VGPU_FLOAT2(fmin)
VGPU_FLOAT2(hypot)
VGPU_FLOAT2(nextafter)
VGPU_FLOAT2(remainder)
#undef VGPU_FLOAT2
#define VGPU_INTEGER(T, name) static __device__ __inline__ T name(float x) { return name##f(x); }
VGPU_INTEGER(int, ilogb)
VGPU_INTEGER(long, lrint)
VGPU_INTEGER(long, lround)
VGPU_INTEGER(long long, llrint)
VGPU_INTEGER(long long, llround)
#undef VGPU_INTEGER
static __device__ __inline__ float fma(float x, float y, float z) { return fmaf(x, y, z); }
static __device__ __inline__ float remquo(float x, float y, int *q) { return remquof(x, y, q); }
static __device__ __inline__ float scalbn(float x, int n) { return scalbnf(x, n); }
static __device__ __inline__ float scalbln(float x, long n) { return scalblnf(x, n); }
static __device__ __inline__ double nan(const char *) { return __builtin_nan(""); }
static __device__ __inline__ float nanf(const char *) { return __builtin_nanf(""); }
static __device__ __inline__ void sincospi(float x, float *s, float *c) { sincospif(x, s, c); }
static __device__ __inline__ void sincos(float x, float *s, float *c) { sincosf(x, s, c); }

#include <crt/math_host.h>

#undef VGPU_BOTH

#endif
