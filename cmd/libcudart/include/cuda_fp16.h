/* Half-precision numbers, one at a time (__half) and two (__half2), for clang. Functions with _rn
 * are never fused with others. */
#ifndef CUDA_FP16_H
#define CUDA_FP16_H
#define __CUDA_FP16_H__

#include "cuda_runtime.h"

#define VGPU_HALF static inline __host__ __device__ __attribute__((always_inline))
#define VGPU_UNFUSED _Pragma("clang fp contract(off)")

typedef _Float16 vgpu_half2_t __attribute__((ext_vector_type(2)));

struct __half_raw {
    unsigned short x;
};
struct __half2_raw {
    unsigned short x, y;
};

struct __attribute__((aligned(2))) __half {
    union {
        _Float16 v;
        unsigned short __x; /* the name that libraries of templates know */
    };

    __half() = default;
    static inline __host__ __device__ __half from(_Float16 f);
    __host__ __device__ __half(__half_raw r) { __builtin_memcpy(&v, &r, 2); }
    __host__ __device__ __half(float f) : v((_Float16)f) {}
    __host__ __device__ __half(double f) : v((_Float16)f) {}
    __host__ __device__ __half(int i) : v((_Float16)i) {}
    __host__ __device__ __half(unsigned i) : v((_Float16)i) {}
    __host__ __device__ __half(short i) : v((_Float16)i) {}
    __host__ __device__ __half(unsigned short i) : v((_Float16)i) {}
    __host__ __device__ __half(long i) : v((_Float16)i) {}
    __host__ __device__ __half(unsigned long i) : v((_Float16)i) {}
    __host__ __device__ __half(long long i) : v((_Float16)i) {}
    __host__ __device__ __half(unsigned long long i) : v((_Float16)i) {}
    __host__ __device__ operator float() const { return (float)v; }
    __host__ __device__ operator __half_raw() const
    {
        __half_raw r;
        __builtin_memcpy(&r, &v, 2);
        return r;
    }
};

inline __host__ __device__ __half __half::from(_Float16 f)
{
    __half h;
    h.v = f;
    return h;
}

struct __attribute__((aligned(4))) __half2 {
    __half x, y;

    __half2() = default;
    __host__ __device__ __half2(__half a, __half b) : x(a), y(b) {}
    __host__ __device__ __half2(__half2_raw r) { __builtin_memcpy(this, &r, 4); }
};

typedef __half half;
typedef __half2 half2;
typedef __half nv_half;
typedef __half2 nv_half2;

VGPU_HALF vgpu_half2_t vgpu_pair(__half2 a) { return vgpu_half2_t{a.x.v, a.y.v}; }
VGPU_HALF _Float16 vgpu_value(__half a) { return a.v; }
VGPU_HALF __half2 vgpu_halves(vgpu_half2_t v) { return __half2(__half::from(v.x), __half::from(v.y)); }

/* Conversions. */
VGPU_HALF __half __float2half(float f) { return __half(f); }
VGPU_HALF __half __float2half_rn(float f) { return __half(f); }
VGPU_HALF __half __double2half(double f) { return __half(f); }
VGPU_HALF float __half2float(__half h) { return (float)h.v; }
VGPU_HALF __half __ushort_as_half(unsigned short x) { return __half(__half_raw{x}); }
VGPU_HALF __half __short_as_half(short x) { return __half(__half_raw{(unsigned short)x}); }
VGPU_HALF unsigned short __half_as_ushort(__half h) { return ((__half_raw)h).x; }
VGPU_HALF short __half_as_short(__half h) { return (short)((__half_raw)h).x; }
VGPU_HALF __half __int2half_rn(int i) { return __half::from((_Float16)i); }
VGPU_HALF __half __uint2half_rn(unsigned i) { return __half::from((_Float16)i); }
VGPU_HALF __half __short2half_rn(short i) { return __half::from((_Float16)i); }
VGPU_HALF __half __ushort2half_rn(unsigned short i) { return __half::from((_Float16)i); }
VGPU_HALF __half __ll2half_rn(long long i) { return __half::from((_Float16)i); }
VGPU_HALF __half __ull2half_rn(unsigned long long i) { return __half::from((_Float16)i); }

VGPU_HALF __half2 __half2half2(__half a) { return __half2(a, a); }
VGPU_HALF __half2 __halves2half2(__half a, __half b) { return __half2(a, b); }
VGPU_HALF __half2 make_half2(__half a, __half b) { return __half2(a, b); }
VGPU_HALF __half2 __float2half2_rn(float f) { return __half2(__half(f), __half(f)); }
VGPU_HALF __half2 __floats2half2_rn(float a, float b) { return __half2(__half(a), __half(b)); }
VGPU_HALF __half2 __float22half2_rn(float2 f) { return __half2(__half(f.x), __half(f.y)); }
VGPU_HALF float2 __half22float2(__half2 h) { return make_float2(__half2float(h.x), __half2float(h.y)); }
VGPU_HALF __half __low2half(__half2 h) { return h.x; }
VGPU_HALF __half __high2half(__half2 h) { return h.y; }
VGPU_HALF __half2 __low2half2(__half2 h) { return __half2(h.x, h.x); }
VGPU_HALF __half2 __high2half2(__half2 h) { return __half2(h.y, h.y); }
VGPU_HALF __half2 __lows2half2(__half2 a, __half2 b) { return __half2(a.x, b.x); }
VGPU_HALF __half2 __highs2half2(__half2 a, __half2 b) { return __half2(a.y, b.y); }

/* Those whose rounding PTX alone has. */
#define VGPU_DEVICE static inline __device__ __attribute__((always_inline))
#define VGPU_INTEGERS(f)                                                                           \
    f(int, "s32", int, "r")                                                                        \
    f(uint, "u32", unsigned, "r")                                                                  \
    f(short, "s16", short, "h")                                                                    \
    f(ushort, "u16", unsigned short, "h")                                                          \
    f(ll, "s64", long long, "l")                                                                   \
    f(ull, "u64", unsigned long long, "l")
#define VGPU_TO_INTEGER(name, type, form, constraint)                                              \
    VGPU_DEVICE type name(__half h)                                                                \
    {                                                                                              \
        type r;                                                                                    \
        __asm__("cvt." form ".f16 %0, %1;" : "=" constraint(r) : "h"(__half_as_ushort(h)));        \
        return r;                                                                                  \
    }
#define VGPU_TO_INTEGERS(to, form, type, constraint)                                               \
    VGPU_TO_INTEGER(__half2##to##_rn, type, "rni." form, constraint)                               \
    VGPU_TO_INTEGER(__half2##to##_rz, type, "rzi." form, constraint)                               \
    VGPU_TO_INTEGER(__half2##to##_rd, type, "rmi." form, constraint)                               \
    VGPU_TO_INTEGER(__half2##to##_ru, type, "rpi." form, constraint)
VGPU_INTEGERS(VGPU_TO_INTEGERS)
#undef VGPU_TO_INTEGERS
#undef VGPU_TO_INTEGER
#define VGPU_ROUNDED(name, form, type, constraint)                                                 \
    VGPU_DEVICE __half name(type v)                                                                \
    {                                                                                              \
        unsigned short r;                                                                          \
        __asm__("cvt." form " %0, %1;" : "=h"(r) : constraint(v));                                 \
        return __ushort_as_half(r);                                                                \
    }
#define VGPU_DIRECTED(from, form, type, constraint)                                                \
    VGPU_ROUNDED(__##from##2half_rz, "rz.f16." form, type, constraint)                             \
    VGPU_ROUNDED(__##from##2half_rd, "rm.f16." form, type, constraint)                             \
    VGPU_ROUNDED(__##from##2half_ru, "rp.f16." form, type, constraint)
VGPU_INTEGERS(VGPU_DIRECTED)
#undef VGPU_DIRECTED
#undef VGPU_INTEGERS
#undef VGPU_ROUNDED

#define VGPU_ROUND(name, mode)                                                                     \
    VGPU_DEVICE __half name(float f)                                                               \
    {                                                                                              \
        unsigned short r;                                                                          \
        __asm__("cvt." mode ".f16.f32 %0, %1;" : "=h"(r) : "f"(f));                                \
        return __ushort_as_half(r);                                                                \
    }
VGPU_ROUND(__float2half_rz, "rz")
VGPU_ROUND(__float2half_rd, "rm")
VGPU_ROUND(__float2half_ru, "rp")
#undef VGPU_ROUND

/* Arithmetic. */
#define VGPU_OPERATION(name, op)                                                                   \
    VGPU_HALF __half __h##name(__half a, __half b) { return __half::from(a.v op b.v); }            \
    VGPU_HALF __half __h##name##_rn(__half a, __half b)                                            \
    {                                                                                              \
        VGPU_UNFUSED return __half::from(a.v op b.v);                                              \
    }                                                                                              \
    VGPU_HALF __half2 __h##name##2(__half2 a, __half2 b)                                           \
    {                                                                                              \
        return vgpu_halves(vgpu_pair(a) op vgpu_pair(b));                                          \
    }                                                                                              \
    VGPU_HALF __half2 __h##name##2_rn(__half2 a, __half2 b)                                        \
    {                                                                                              \
        VGPU_UNFUSED return vgpu_halves(vgpu_pair(a) op vgpu_pair(b));                             \
    }
VGPU_OPERATION(add, +)
VGPU_OPERATION(sub, -)
VGPU_OPERATION(mul, *)
#undef VGPU_OPERATION
VGPU_HALF __half __hdiv(__half a, __half b) { return __half((float)a.v / (float)b.v); }
VGPU_HALF __half2 __h2div(__half2 a, __half2 b) { return __half2(__hdiv(a.x, b.x), __hdiv(a.y, b.y)); }
VGPU_HALF __half __hneg(__half a) { return __half::from(-a.v); }
VGPU_HALF __half2 __hneg2(__half2 a) { return vgpu_halves(-vgpu_pair(a)); }
VGPU_HALF __half __habs(__half a) { return __ushort_as_half(__half_as_ushort(a) & 0x7fff); }
VGPU_HALF __half2 __habs2(__half2 a) { return __half2(__habs(a.x), __habs(a.y)); }

#define VGPU_PTX2(name, form)                                                                      \
    VGPU_DEVICE __half __h##name(__half a, __half b)                                               \
    {                                                                                              \
        unsigned short r;                                                                          \
        __asm__(form ".f16 %0, %1, %2;" : "=h"(r) : "h"(__half_as_ushort(a)), "h"(__half_as_ushort(b))); \
        return __ushort_as_half(r);                                                                \
    }                                                                                              \
    VGPU_DEVICE __half2 vgpu_##name##2(__half2 a, __half2 b)                                       \
    {                                                                                              \
        return __half2(__h##name(a.x, b.x), __h##name(a.y, b.y));                                  \
    }
VGPU_PTX2(add_sat, "add.rn.sat")
VGPU_PTX2(sub_sat, "sub.rn.sat")
VGPU_PTX2(mul_sat, "mul.rn.sat")
VGPU_PTX2(min, "min")
VGPU_PTX2(max, "max")
VGPU_PTX2(min_nan, "min.NaN")
VGPU_PTX2(max_nan, "max.NaN")
#undef VGPU_PTX2
VGPU_DEVICE __half2 __hadd2_sat(__half2 a, __half2 b) { return vgpu_add_sat2(a, b); }
VGPU_DEVICE __half2 __hsub2_sat(__half2 a, __half2 b) { return vgpu_sub_sat2(a, b); }
VGPU_DEVICE __half2 __hmul2_sat(__half2 a, __half2 b) { return vgpu_mul_sat2(a, b); }
VGPU_DEVICE __half2 __hmin2(__half2 a, __half2 b) { return vgpu_min2(a, b); }
VGPU_DEVICE __half2 __hmax2(__half2 a, __half2 b) { return vgpu_max2(a, b); }

VGPU_DEVICE __half __hfma(__half a, __half b, __half c)
{
    return __half::from(__builtin_elementwise_fma(a.v, b.v, c.v));
}
VGPU_DEVICE __half2 __hfma2(__half2 a, __half2 b, __half2 c)
{
    return vgpu_halves(__builtin_elementwise_fma(vgpu_pair(a), vgpu_pair(b), vgpu_pair(c)));
}
VGPU_DEVICE __half __hfma_sat(__half a, __half b, __half c)
{
    unsigned short r;
    __asm__("fma.rn.sat.f16 %0, %1, %2, %3;"
            : "=h"(r)
            : "h"(__half_as_ushort(a)), "h"(__half_as_ushort(b)), "h"(__half_as_ushort(c)));
    return __ushort_as_half(r);
}

VGPU_HALF bool __hisnan(__half a) { return a.v != a.v; }
VGPU_HALF int __hisinf(__half a)
{
    return (__half_as_ushort(a) & 0x7fff) != 0x7c00 ? 0 : (__half_as_ushort(a) & 0x8000) ? -1 : 1;
}

/* Operators. */
#define VGPU_OPERATOR(op, one, two)                                                                \
    VGPU_HALF __half operator op(__half a, __half b) { return one(a, b); }                         \
    VGPU_HALF __half &operator op##=(__half &a, __half b) { return a = one(a, b); }                \
    VGPU_HALF __half2 operator op(__half2 a, __half2 b) { return two(a, b); }                      \
    VGPU_HALF __half2 &operator op##=(__half2 &a, __half2 b) { return a = two(a, b); }
VGPU_OPERATOR(+, __hadd, __hadd2)
VGPU_OPERATOR(-, __hsub, __hsub2)
VGPU_OPERATOR(*, __hmul, __hmul2)
VGPU_OPERATOR(/, __hdiv, __h2div)
#undef VGPU_OPERATOR
VGPU_HALF __half operator-(__half a) { return __hneg(a); }
VGPU_HALF __half2 operator-(__half2 a) { return __hneg2(a); }

/* Atomic operations on numbers of 16 bits, also of cuda_bf16.h, and on pairs of them. */
template <class T, class F> VGPU_DEVICE T vgpu_atomic_half(T *p, F f)
{
    unsigned short *word = (unsigned short *)(void *)p, was = *(volatile unsigned short *)word, old, bits;
    T v;
    do {
        old = was;
        __builtin_memcpy(&v, &old, 2);
        v = f(v);
        __builtin_memcpy(&bits, &v, 2);
        was = atomicCAS(word, old, bits);
    } while (was != old);
    __builtin_memcpy(&v, &old, 2);
    return v;
}
template <class T, class F> VGPU_DEVICE T vgpu_atomic_pair(T *p, F f)
{
    unsigned *word = (unsigned *)(void *)p, was = *(volatile unsigned *)word, old, bits;
    T v;
    do {
        old = was;
        __builtin_memcpy(&v, &old, 4);
        v = f(v);
        __builtin_memcpy(&bits, &v, 4);
        was = atomicCAS(word, old, bits);
    } while (was != old);
    __builtin_memcpy(&v, &old, 4);
    return v;
}

#define VGPU_ONE __half
#define VGPU_TWO __half2
#include "crt/sixteen_bits.h"

#undef VGPU_DEVICE
#undef VGPU_UNFUSED
#undef VGPU_HALF
#endif
