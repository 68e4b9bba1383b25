/* What numbers of 16 bits have alike, halves and bfloat16: VGPU_ONE is the type of one, with a
 * vgpu_value that is calculated with, and VGPU_TWO that of a pair. Each header of such a type includes
 * this at its end. */
#define VGPU_BOTH static inline __host__ __device__ __attribute__((always_inline))
#define VGPU_GPU static inline __device__ __attribute__((always_inline))

VGPU_BOTH float __low2float(VGPU_TWO a) { return (float)a.x; }
VGPU_BOTH float __high2float(VGPU_TWO a) { return (float)a.y; }
VGPU_BOTH VGPU_TWO __lowhigh2highlow(VGPU_TWO a) { return VGPU_TWO(a.y, a.x); }

/* Comparison: the plain ones are false, and those with u true, if an operand is not a number. */
#define VGPU_COMPARE(name, expression)                                                             \
    VGPU_BOTH bool __h##name(VGPU_ONE p, VGPU_ONE q)                                               \
    {                                                                                              \
        auto a = vgpu_value(p), b = vgpu_value(q);                                                 \
        return expression;                                                                         \
    }                                                                                              \
    VGPU_BOTH bool __hb##name##2(VGPU_TWO a, VGPU_TWO b) { return __h##name(a.x, b.x) && __h##name(a.y, b.y); } \
    VGPU_BOTH VGPU_TWO __h##name##2(VGPU_TWO a, VGPU_TWO b)                                        \
    {                                                                                              \
        return VGPU_TWO(VGPU_ONE(__h##name(a.x, b.x) ? 1.0f : 0.0f), VGPU_ONE(__h##name(a.y, b.y) ? 1.0f : 0.0f)); \
    }
VGPU_COMPARE(eq, a == b)
VGPU_COMPARE(ne, a < b || a > b)
VGPU_COMPARE(lt, a < b)
VGPU_COMPARE(le, a <= b)
VGPU_COMPARE(gt, a > b)
VGPU_COMPARE(ge, a >= b)
VGPU_COMPARE(equ, !(a < b || a > b))
VGPU_COMPARE(neu, a != b)
VGPU_COMPARE(ltu, !(a >= b))
VGPU_COMPARE(leu, !(a > b))
VGPU_COMPARE(gtu, !(a <= b))
VGPU_COMPARE(geu, !(a < b))
#undef VGPU_COMPARE
VGPU_BOTH bool operator==(VGPU_ONE a, VGPU_ONE b) { return __heq(a, b); }
VGPU_BOTH bool operator!=(VGPU_ONE a, VGPU_ONE b) { return __hneu(a, b); }
VGPU_BOTH bool operator<(VGPU_ONE a, VGPU_ONE b) { return __hlt(a, b); }
VGPU_BOTH bool operator<=(VGPU_ONE a, VGPU_ONE b) { return __hle(a, b); }
VGPU_BOTH bool operator>(VGPU_ONE a, VGPU_ONE b) { return __hgt(a, b); }
VGPU_BOTH bool operator>=(VGPU_ONE a, VGPU_ONE b) { return __hge(a, b); }

/* Mathematical functions, by way of float, whose results round to the nearest number. */
#define VGPU_MATH(name, call)                                                                      \
    VGPU_GPU VGPU_ONE h##name(VGPU_ONE a) { return VGPU_ONE(call((float)a)); }                     \
    VGPU_GPU VGPU_TWO h2##name(VGPU_TWO a) { return VGPU_TWO(h##name(a.x), h##name(a.y)); }
VGPU_MATH(sqrt, sqrtf)
VGPU_MATH(rsqrt, rsqrtf)
VGPU_MATH(rcp, 1.0f /)
VGPU_MATH(exp, expf)
VGPU_MATH(exp2, exp2f)
VGPU_MATH(exp10, exp10f)
VGPU_MATH(log, logf)
VGPU_MATH(log2, log2f)
VGPU_MATH(log10, log10f)
VGPU_MATH(sin, sinf)
VGPU_MATH(cos, cosf)
VGPU_MATH(tanh, tanhf)
VGPU_MATH(floor, floorf)
VGPU_MATH(ceil, ceilf)
VGPU_MATH(trunc, truncf)
VGPU_MATH(rint, rintf)
#undef VGPU_MATH

/* Exchanges between the lanes of a warp. */
#define VGPU_SHUFFLE(name, type)                                                                   \
    VGPU_GPU VGPU_ONE name(unsigned mask, VGPU_ONE a, type b, int width = 32)                      \
    {                                                                                              \
        unsigned short bits;                                                                       \
        __builtin_memcpy(&bits, &a, 2);                                                            \
        bits = (unsigned short)name(mask, (int)bits, b, width);                                    \
        __builtin_memcpy(&a, &bits, 2);                                                            \
        return a;                                                                                  \
    }                                                                                              \
    VGPU_GPU VGPU_TWO name(unsigned mask, VGPU_TWO a, type b, int width = 32)                      \
    {                                                                                              \
        int bits;                                                                                  \
        __builtin_memcpy(&bits, &a, 4);                                                            \
        bits = name(mask, bits, b, width);                                                         \
        __builtin_memcpy(&a, &bits, 4);                                                            \
        return a;                                                                                  \
    }
VGPU_SHUFFLE(__shfl_sync, int)
VGPU_SHUFFLE(__shfl_up_sync, unsigned)
VGPU_SHUFFLE(__shfl_down_sync, unsigned)
VGPU_SHUFFLE(__shfl_xor_sync, int)
#undef VGPU_SHUFFLE

/* Each number of a pair is added on its own, as CUDA documents. */
VGPU_GPU VGPU_TWO atomicAdd(VGPU_TWO *p, VGPU_TWO v)
{
    return vgpu_atomic_pair(p, [v](VGPU_TWO was) { return __hadd2(was, v); });
}
VGPU_GPU VGPU_ONE atomicAdd(VGPU_ONE *p, VGPU_ONE v)
{
    return vgpu_atomic_half(p, [v](VGPU_ONE was) { return __hadd(was, v); });
}
VGPU_GPU VGPU_ONE __ldg(const VGPU_ONE *p)
{
    unsigned short bits = __ldg((const unsigned short *)(const void *)p);
    VGPU_ONE a;
    __builtin_memcpy(&a, &bits, 2);
    return a;
}
VGPU_GPU VGPU_TWO __ldg(const VGPU_TWO *p)
{
    unsigned bits = __ldg((const unsigned *)(const void *)p);
    VGPU_TWO a;
    __builtin_memcpy(&a, &bits, 4);
    return a;
}

#undef VGPU_GPU
#undef VGPU_BOTH
#undef VGPU_ONE
#undef VGPU_TWO
