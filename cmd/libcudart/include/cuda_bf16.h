/* Numbers of 16 bits with the range of a float (bfloat16), one at a time (__nv_bfloat16) and two
 * (__nv_bfloat162), for clang. A float has more than twice their precision, so what is calculated
 * in floats and rounded once is the nearest result; a fused product and sum is PTX's own. */
#ifndef VGPU_CUDA_BF16_H
#define VGPU_CUDA_BF16_H
#define __CUDA_BF16_H__

#include "cuda_fp16.h"

#define VGPU_BF16 static inline __host__ __device__ __attribute__((always_inline))
#define VGPU_DEVICE static inline __device__ __attribute__((always_inline))

struct __nv_bfloat16_raw {
    unsigned short x;
};
struct __nv_bfloat162_raw {
    unsigned short x, y;
};

/* The nearest number, of two the even one. */
VGPU_BF16 unsigned short vgpu_bf16_bits(float f)
{
    unsigned u;
    __builtin_memcpy(&u, &f, 4);
    if ((u & 0x7fffffff) > 0x7f800000)
        return 0x7fff;
    return (unsigned short)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

struct __attribute__((aligned(2))) __nv_bfloat16 {
    union {
        unsigned short bits;
        unsigned short __x; /* the name that libraries of templates know */
    };

    __nv_bfloat16() = default;
    __host__ __device__ __nv_bfloat16(__nv_bfloat16_raw r) : bits(r.x) {}
    __host__ __device__ __nv_bfloat16(float f) : bits(vgpu_bf16_bits(f)) {}
    /* A float of a double that it can't hold is made odd, so that its rounding is the only one. */
    __host__ __device__ __nv_bfloat16(double d)
    {
        float f = (float)d;
        unsigned u;
        __builtin_memcpy(&u, &f, 4);
        if ((double)f != d && d == d && (u & 0x7f800000) != 0x7f800000) {
            if ((d < 0 ? -(double)f : (double)f) > (d < 0 ? -d : d))
                u--;
            u |= 1;
            __builtin_memcpy(&f, &u, 4);
        }
        bits = vgpu_bf16_bits(f);
    }
    __host__ __device__ __nv_bfloat16(int i) : __nv_bfloat16((double)i) {}
    __host__ __device__ __nv_bfloat16(unsigned i) : __nv_bfloat16((double)i) {}
    __host__ __device__ explicit __nv_bfloat16(__half h) : __nv_bfloat16((float)h) {}
    __host__ __device__ operator float() const
    {
        unsigned u = (unsigned)bits << 16;
        float f;
        __builtin_memcpy(&f, &u, 4);
        return f;
    }
    __host__ __device__ operator __nv_bfloat16_raw() const { return __nv_bfloat16_raw{bits}; }
};

struct __attribute__((aligned(4))) __nv_bfloat162 {
    __nv_bfloat16 x, y;

    __nv_bfloat162() = default;
    __host__ __device__ __nv_bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) : x(a), y(b) {}
    __host__ __device__ __nv_bfloat162(__nv_bfloat162_raw r) { __builtin_memcpy(this, &r, 4); }
};

typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

VGPU_BF16 float vgpu_value(__nv_bfloat16 a) { return (float)a; }

/* Conversions. */
VGPU_BF16 __nv_bfloat16 __ushort_as_bfloat16(unsigned short x) { return __nv_bfloat16(__nv_bfloat16_raw{x}); }
VGPU_BF16 __nv_bfloat16 __short_as_bfloat16(short x) { return __ushort_as_bfloat16((unsigned short)x); }
VGPU_BF16 unsigned short __bfloat16_as_ushort(__nv_bfloat16 b) { return b.bits; }
VGPU_BF16 short __bfloat16_as_short(__nv_bfloat16 b) { return (short)b.bits; }
VGPU_BF16 __nv_bfloat16 __float2bfloat16(float f) { return __nv_bfloat16(f); }
VGPU_BF16 __nv_bfloat16 __float2bfloat16_rn(float f) { return __nv_bfloat16(f); }
VGPU_BF16 __nv_bfloat16 __float2bfloat16_rz(float f)
{
    unsigned u;
    __builtin_memcpy(&u, &f, 4);
    return __ushort_as_bfloat16((u & 0x7fffffff) > 0x7f800000 ? 0x7fff : (unsigned short)(u >> 16));
}
VGPU_BF16 __nv_bfloat16 __double2bfloat16(double d) { return __nv_bfloat16(d); }
VGPU_BF16 float __bfloat162float(__nv_bfloat16 b) { return (float)b; }
VGPU_BF16 __nv_bfloat16 __int2bfloat16_rn(int i) { return __nv_bfloat16(i); }
VGPU_BF16 __nv_bfloat16 __uint2bfloat16_rn(unsigned i) { return __nv_bfloat16(i); }
VGPU_BF16 __nv_bfloat16 __short2bfloat16_rn(short i) { return __nv_bfloat16((int)i); }
VGPU_BF16 __nv_bfloat16 __ushort2bfloat16_rn(unsigned short i) { return __nv_bfloat16((int)i); }
VGPU_BF16 int __bfloat162int_rz(__nv_bfloat16 b) { return (int)(float)b; }
VGPU_DEVICE int __bfloat162int_rn(__nv_bfloat16 b) { return __float2int_rn((float)b); }
VGPU_DEVICE int __bfloat162int_rd(__nv_bfloat16 b) { return __float2int_rd((float)b); }
VGPU_DEVICE int __bfloat162int_ru(__nv_bfloat16 b) { return __float2int_ru((float)b); }
VGPU_DEVICE unsigned __bfloat162uint_rn(__nv_bfloat16 b) { return __float2uint_rn((float)b); }
VGPU_DEVICE unsigned __bfloat162uint_rz(__nv_bfloat16 b) { return __float2uint_rz((float)b); }

VGPU_BF16 __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 a) { return __nv_bfloat162(a, a); }
VGPU_BF16 __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) { return __nv_bfloat162(a, b); }
VGPU_BF16 __nv_bfloat162 make_bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) { return __nv_bfloat162(a, b); }
VGPU_BF16 __nv_bfloat162 __float2bfloat162_rn(float f) { return __nv_bfloat162(__nv_bfloat16(f), __nv_bfloat16(f)); }
VGPU_BF16 __nv_bfloat162 __floats2bfloat162_rn(float a, float b)
{
    return __nv_bfloat162(__nv_bfloat16(a), __nv_bfloat16(b));
}
VGPU_BF16 __nv_bfloat162 __float22bfloat162_rn(float2 f) { return __floats2bfloat162_rn(f.x, f.y); }
VGPU_BF16 float2 __bfloat1622float2(__nv_bfloat162 b) { return make_float2((float)b.x, (float)b.y); }
VGPU_BF16 __nv_bfloat16 __low2bfloat16(__nv_bfloat162 b) { return b.x; }
VGPU_BF16 __nv_bfloat16 __high2bfloat16(__nv_bfloat162 b) { return b.y; }
VGPU_BF16 __nv_bfloat162 __low2bfloat162(__nv_bfloat162 b) { return __nv_bfloat162(b.x, b.x); }
VGPU_BF16 __nv_bfloat162 __high2bfloat162(__nv_bfloat162 b) { return __nv_bfloat162(b.y, b.y); }
VGPU_BF16 __nv_bfloat162 __lows2bfloat162(__nv_bfloat162 a, __nv_bfloat162 b) { return __nv_bfloat162(a.x, b.x); }
VGPU_BF16 __nv_bfloat162 __highs2bfloat162(__nv_bfloat162 a, __nv_bfloat162 b) { return __nv_bfloat162(a.y, b.y); }

/* Arithmetic and comparison, and the operators. */
#define VGPU_PAIR(name)                                                                            \
    VGPU_BF16 __nv_bfloat162 __h##name##2(__nv_bfloat162 a, __nv_bfloat162 b)                      \
    {                                                                                              \
        return __nv_bfloat162(__h##name(a.x, b.x), __h##name(a.y, b.y));                           \
    }
#define VGPU_OPERATION(name, op, pair)                                                             \
    VGPU_BF16 __nv_bfloat16 __h##name(__nv_bfloat16 a, __nv_bfloat16 b)                            \
    {                                                                                              \
        return __nv_bfloat16((float)a op (float)b);                                                \
    }                                                                                              \
    VGPU_BF16 __nv_bfloat162 pair(__nv_bfloat162 a, __nv_bfloat162 b)                              \
    {                                                                                              \
        return __nv_bfloat162(__h##name(a.x, b.x), __h##name(a.y, b.y));                           \
    }                                                                                              \
    VGPU_BF16 __nv_bfloat16 operator op(__nv_bfloat16 a, __nv_bfloat16 b) { return __h##name(a, b); } \
    VGPU_BF16 __nv_bfloat16 &operator op##=(__nv_bfloat16 &a, __nv_bfloat16 b) { return a = __h##name(a, b); } \
    VGPU_BF16 __nv_bfloat162 operator op(__nv_bfloat162 a, __nv_bfloat162 b) { return pair(a, b); } \
    VGPU_BF16 __nv_bfloat162 &operator op##=(__nv_bfloat162 &a, __nv_bfloat162 b) { return a = pair(a, b); }
VGPU_OPERATION(add, +, __hadd2)
VGPU_OPERATION(sub, -, __hsub2)
VGPU_OPERATION(mul, *, __hmul2)
VGPU_OPERATION(div, /, __h2div)
#undef VGPU_OPERATION
VGPU_BF16 __nv_bfloat16 __hneg(__nv_bfloat16 a) { return __ushort_as_bfloat16(a.bits ^ 0x8000); }
VGPU_BF16 __nv_bfloat16 __habs(__nv_bfloat16 a) { return __ushort_as_bfloat16(a.bits & 0x7fff); }
VGPU_BF16 __nv_bfloat162 __hneg2(__nv_bfloat162 a) { return __nv_bfloat162(__hneg(a.x), __hneg(a.y)); }
VGPU_BF16 __nv_bfloat162 __habs2(__nv_bfloat162 a) { return __nv_bfloat162(__habs(a.x), __habs(a.y)); }
VGPU_BF16 __nv_bfloat16 operator-(__nv_bfloat16 a) { return __hneg(a); }
VGPU_BF16 __nv_bfloat162 operator-(__nv_bfloat162 a) { return __hneg2(a); }
VGPU_BF16 __nv_bfloat16 __hmin(__nv_bfloat16 a, __nv_bfloat16 b) { return __nv_bfloat16(__builtin_fminf(a, b)); }
VGPU_BF16 __nv_bfloat16 __hmax(__nv_bfloat16 a, __nv_bfloat16 b) { return __nv_bfloat16(__builtin_fmaxf(a, b)); }
VGPU_PAIR(min)
VGPU_PAIR(max)
#undef VGPU_PAIR

VGPU_DEVICE __nv_bfloat16 __hfma(__nv_bfloat16 a, __nv_bfloat16 b, __nv_bfloat16 c)
{
    unsigned short r;
    __asm__("fma.rn.bf16 %0, %1, %2, %3;" : "=h"(r) : "h"(a.bits), "h"(b.bits), "h"(c.bits));
    return __ushort_as_bfloat16(r);
}
VGPU_DEVICE __nv_bfloat162 __hfma2(__nv_bfloat162 a, __nv_bfloat162 b, __nv_bfloat162 c)
{
    return __nv_bfloat162(__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y));
}

VGPU_BF16 bool __hisnan(__nv_bfloat16 a) { return (a.bits & 0x7fff) > 0x7f80; }
VGPU_BF16 int __hisinf(__nv_bfloat16 a) { return (a.bits & 0x7fff) != 0x7f80 ? 0 : (a.bits & 0x8000) ? -1 : 1; }

#define VGPU_ONE __nv_bfloat16
#define VGPU_TWO __nv_bfloat162
#include "crt/sixteen_bits.h"

#undef VGPU_DEVICE
#undef VGPU_BF16

#endif
