/* Numbers of 8 bits (CUDA Math API, FP8 Intrinsics): __nv_fp8_e4m3, which has no infinity and one NaN of
 * each sign, and __nv_fp8_e5m2; one, two and four at a time. */
#ifndef VGPU_CUDA_FP8_H
#define VGPU_CUDA_FP8_H
#define __CUDA_FP8_H__

#include "cuda_bf16.h"
#include "cuda_fp16.h"

#define VGPU_FP8 static inline __host__ __device__ __attribute__((always_inline))

typedef unsigned char __nv_fp8_storage_t;
typedef unsigned short __nv_fp8x2_storage_t;
typedef unsigned int __nv_fp8x4_storage_t;
typedef enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE } __nv_saturation_t;
typedef enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 } __nv_fp8_interpretation_t;

/* The nearest number, of two the even one. What is too large becomes the largest, or else infinity or,
 * where there is none, no number. */
VGPU_FP8 __nv_fp8_storage_t __nv_cvt_double_to_fp8(double x, __nv_saturation_t saturate, __nv_fp8_interpretation_t kind)
{
    const int fraction = kind == __NV_E4M3 ? 3 : 2, least = kind == __NV_E4M3 ? -6 : -14;
    const unsigned largest = kind == __NV_E4M3 ? 0x7e : 0x7b, beyond = kind == __NV_E4M3 ? 0x7f : 0x7c;
    unsigned long long bits;
    __builtin_memcpy(&bits, &x, 8);
    unsigned sign = (unsigned)(bits >> 56) & 0x80, result = 0;
    bits &= ~0ull >> 1;
    if (bits > 0x7ffull << 52)
        return 0x7f;
    int e = (int)(bits >> 52) - 1023, from = e < least ? least : e;
    int shift = 52 - fraction + from - e; /* bits that are rounded away */
    if (e == 1024) {
        result = 0x100;
    } else if (shift < 55 && e > -1023) {
        unsigned long long significand = (bits & ~0ull >> 12) | 1ull << 52, half = 1ull << (shift - 1);
        unsigned long long n = significand >> shift, rest = significand & (2 * half - 1);
        n += rest > half || (rest == half && (n & 1));
        result = ((unsigned)(from - least) << fraction) + (unsigned)n;
    }
    if (result > largest)
        result = saturate == __NV_SATFINITE ? largest : beyond;
    return (__nv_fp8_storage_t)(sign | result);
}
VGPU_FP8 __nv_fp8_storage_t __nv_cvt_float_to_fp8(float x, __nv_saturation_t s, __nv_fp8_interpretation_t k)
{
    return __nv_cvt_double_to_fp8((double)x, s, k);
}
VGPU_FP8 __nv_fp8_storage_t __nv_cvt_halfraw_to_fp8(__half_raw x, __nv_saturation_t s, __nv_fp8_interpretation_t k)
{
    return __nv_cvt_float_to_fp8((float)__half(x), s, k);
}
VGPU_FP8 __nv_fp8_storage_t __nv_cvt_bfloat16raw_to_fp8(__nv_bfloat16_raw x, __nv_saturation_t s, __nv_fp8_interpretation_t k)
{
    return __nv_cvt_float_to_fp8((float)__nv_bfloat16(x), s, k);
}

#define VGPU_TWO(name, type)                                                                       \
    VGPU_FP8 __nv_fp8x2_storage_t __nv_cvt_##name##2_to_fp8x2(type x, __nv_saturation_t s, __nv_fp8_interpretation_t k) \
    {                                                                                              \
        return (__nv_fp8x2_storage_t)(__nv_cvt_##name##_to_fp8(x.x, s, k) | __nv_cvt_##name##_to_fp8(x.y, s, k) << 8); \
    }
VGPU_TWO(double, double2)
VGPU_TWO(float, float2)
#undef VGPU_TWO
VGPU_FP8 __nv_fp8x2_storage_t __nv_cvt_halfraw2_to_fp8x2(__half2_raw x, __nv_saturation_t s, __nv_fp8_interpretation_t k)
{
    return (__nv_fp8x2_storage_t)(__nv_cvt_halfraw_to_fp8(__half_raw{x.x}, s, k) | __nv_cvt_halfraw_to_fp8(__half_raw{x.y}, s, k) << 8);
}
VGPU_FP8 __nv_fp8x2_storage_t __nv_cvt_bfloat16raw2_to_fp8x2(__nv_bfloat162_raw x, __nv_saturation_t s, __nv_fp8_interpretation_t k)
{
    return (__nv_fp8x2_storage_t)(__nv_cvt_bfloat16raw_to_fp8(__nv_bfloat16_raw{x.x}, s, k) |
                                  __nv_cvt_bfloat16raw_to_fp8(__nv_bfloat16_raw{x.y}, s, k) << 8);
}

/* A half holds all of them. */
VGPU_FP8 __half_raw __nv_cvt_fp8_to_halfraw(__nv_fp8_storage_t x, __nv_fp8_interpretation_t kind)
{
    if (kind == __NV_E5M2)
        return __half_raw{(unsigned short)((x & 0x7f) > 0x7c ? 0x7fff : x << 8)};
    unsigned sign = (x & 0x80u) << 8, e = x >> 3 & 15, f = x & 7;
    if ((x & 0x7f) == 0x7f)
        return __half_raw{0x7fff};
    if (e == 0) { /* f * 2^-9, which halves have as normal numbers */
        if (f == 0)
            return __half_raw{(unsigned short)sign};
        for (e = 1; !(f & 8); e--)
            f <<= 1;
        f &= 7;
    }
    return __half_raw{(unsigned short)(sign | ((e + 8) << 10) | f << 7)};
}
VGPU_FP8 __half2_raw __nv_cvt_fp8x2_to_halfraw2(__nv_fp8x2_storage_t x, __nv_fp8_interpretation_t k)
{
    return __half2_raw{__nv_cvt_fp8_to_halfraw((__nv_fp8_storage_t)x, k).x,
        __nv_cvt_fp8_to_halfraw((__nv_fp8_storage_t)(x >> 8), k).x};
}

#define VGPU_METHOD inline __host__ __device__ __attribute__((always_inline))
#define VGPU_FROM(type) explicit VGPU_METHOD VGPU_NAME(type v) : __x(__nv_cvt_double_to_fp8((double)v, __NV_SATFINITE, VGPU_KIND)) {}
#define VGPU_TO(type) explicit VGPU_METHOD operator type() const { return (type)(float)*this; }
/* As of halves, numbers outside of an integer's range become its least or greatest, and no number 0. */
#define VGPU_TO_INTEGER(type, least, most)                                                         \
    explicit VGPU_METHOD operator type() const                                                     \
    {                                                                                              \
        double v = (double)(float)*this;                                                           \
        return v != v ? (type)0 : v <= (double)(least) ? (type)(least) : v >= (double)(most) ? (type)(most) : (type)v; \
    }
#define VGPU_TYPES(suffix, kind)                                                                   \
    struct __attribute__((aligned(1))) __nv_fp8_##suffix {                                         \
        __nv_fp8_storage_t __x;                                                                    \
        __nv_fp8_##suffix() = default;                                                             \
        explicit VGPU_METHOD __nv_fp8_##suffix(__half v)                                           \
            : __x(__nv_cvt_halfraw_to_fp8((__half_raw)v, __NV_SATFINITE, kind)) {}                 \
        explicit VGPU_METHOD __nv_fp8_##suffix(__nv_bfloat16 v)                                    \
            : __x(__nv_cvt_bfloat16raw_to_fp8((__nv_bfloat16_raw)v, __NV_SATFINITE, kind)) {}      \
        VGPU_FROM(float) VGPU_FROM(double) VGPU_FROM(short) VGPU_FROM(unsigned short) VGPU_FROM(int) \
        VGPU_FROM(unsigned) VGPU_FROM(long) VGPU_FROM(unsigned long) VGPU_FROM(long long) VGPU_FROM(unsigned long long) \
        explicit VGPU_METHOD operator __half() const { return __half(__nv_cvt_fp8_to_halfraw(__x, kind)); } \
        explicit VGPU_METHOD operator float() const { return (float)__half(__nv_cvt_fp8_to_halfraw(__x, kind)); } \
        explicit VGPU_METHOD operator __nv_bfloat16() const { return __nv_bfloat16((float)*this); } \
        explicit VGPU_METHOD operator bool() const { return (__x & 0x7f) != 0; }                   \
        VGPU_TO(double)                                                                            \
        VGPU_TO_INTEGER(signed char, -128, 127) VGPU_TO_INTEGER(unsigned char, 0, 255)             \
        VGPU_TO_INTEGER(char, -128, 127) VGPU_TO_INTEGER(short, -32768, 32767)                     \
        VGPU_TO_INTEGER(unsigned short, 0, 65535) VGPU_TO_INTEGER(int, -2147483647 - 1, 2147483647) \
        VGPU_TO_INTEGER(unsigned, 0, 4294967295u)                                                  \
        VGPU_TO_INTEGER(long long, -9223372036854775807ll - 1, 9223372036854775807ll)              \
        VGPU_TO_INTEGER(unsigned long long, 0, 18446744073709551615ull)                            \
    };                                                                                             \
    struct __attribute__((aligned(2))) __nv_fp8x2_##suffix {                                       \
        __nv_fp8x2_storage_t __x;                                                                  \
        __nv_fp8x2_##suffix() = default;                                                           \
        explicit VGPU_METHOD __nv_fp8x2_##suffix(__half2 v)                                        \
            : __x(__nv_cvt_halfraw2_to_fp8x2(__half2_raw{((__half_raw)v.x).x, ((__half_raw)v.y).x}, __NV_SATFINITE, kind)) {} \
        explicit VGPU_METHOD __nv_fp8x2_##suffix(__nv_bfloat162 v)                                 \
            : __x(__nv_cvt_bfloat16raw2_to_fp8x2(__nv_bfloat162_raw{v.x.bits, v.y.bits}, __NV_SATFINITE, kind)) {} \
        explicit VGPU_METHOD __nv_fp8x2_##suffix(float2 v) : __x(__nv_cvt_float2_to_fp8x2(v, __NV_SATFINITE, kind)) {} \
        explicit VGPU_METHOD __nv_fp8x2_##suffix(double2 v) : __x(__nv_cvt_double2_to_fp8x2(v, __NV_SATFINITE, kind)) {} \
        explicit VGPU_METHOD operator __half2() const { return __half2(__nv_cvt_fp8x2_to_halfraw2(__x, kind)); } \
        explicit VGPU_METHOD operator float2() const { return __half22float2((__half2) * this); }  \
    };                                                                                             \
    struct __attribute__((aligned(4))) __nv_fp8x4_##suffix {                                       \
        __nv_fp8x4_storage_t __x;                                                                  \
        __nv_fp8x4_##suffix() = default;                                                           \
        explicit VGPU_METHOD __nv_fp8x4_##suffix(__half2 low, __half2 high)                        \
            : __x(__nv_fp8x2_##suffix(low).__x | (unsigned)__nv_fp8x2_##suffix(high).__x << 16) {} \
        explicit VGPU_METHOD __nv_fp8x4_##suffix(__nv_bfloat162 low, __nv_bfloat162 high)          \
            : __x(__nv_fp8x2_##suffix(low).__x | (unsigned)__nv_fp8x2_##suffix(high).__x << 16) {} \
        explicit VGPU_METHOD __nv_fp8x4_##suffix(float4 v)                                         \
            : __x(__nv_fp8x2_##suffix(make_float2(v.x, v.y)).__x |                                 \
                  (unsigned)__nv_fp8x2_##suffix(make_float2(v.z, v.w)).__x << 16) {}               \
        explicit VGPU_METHOD __nv_fp8x4_##suffix(double4 v)                                        \
            : __x(__nv_fp8x2_##suffix(make_double2(v.x, v.y)).__x |                                \
                  (unsigned)__nv_fp8x2_##suffix(make_double2(v.z, v.w)).__x << 16) {}              \
        explicit VGPU_METHOD operator float4() const                                               \
        {                                                                                          \
            float2 low = __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2((__nv_fp8x2_storage_t)__x, kind))); \
            float2 high = __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2((__nv_fp8x2_storage_t)(__x >> 16), kind))); \
            return make_float4(low.x, low.y, high.x, high.y);                                      \
        }                                                                                          \
    };

#define VGPU_NAME __nv_fp8_e4m3
#define VGPU_KIND __NV_E4M3
VGPU_TYPES(e4m3, __NV_E4M3)
#undef VGPU_NAME
#undef VGPU_KIND
#define VGPU_NAME __nv_fp8_e5m2
#define VGPU_KIND __NV_E5M2
VGPU_TYPES(e5m2, __NV_E5M2)
#undef VGPU_NAME
#undef VGPU_KIND
#undef VGPU_TYPES
#undef VGPU_FROM
#undef VGPU_TO
#undef VGPU_TO_INTEGER
#undef VGPU_METHOD
#undef VGPU_FP8

#endif
