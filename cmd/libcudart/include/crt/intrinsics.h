#ifndef VGPU_CRT_INTRINSICS_H
#define VGPU_CRT_INTRINSICS_H

/* Intrinsics that the compiler's headers lack. */

#define VGPU_DEVICE static __device__ __inline__ __attribute__((always_inline))

VGPU_DEVICE void __nanosleep(unsigned ns) { __asm__ __volatile__("nanosleep.u32 %0;" ::"r"(ns)); }

VGPU_DEVICE long long int globaltimer(void)
{
    long long t;
    __asm__ __volatile__("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 610
VGPU_DEVICE int __dp4a(int a, int b, int c)
{
    int d;
    __asm__("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}
VGPU_DEVICE unsigned __dp4a(unsigned a, unsigned b, unsigned c)
{
    unsigned d;
    __asm__("dp4a.u32.u32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}
VGPU_DEVICE int __dp2a_lo(int a, int b, int c)
{
    int d;
    __asm__("dp2a.lo.s32.s32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}
VGPU_DEVICE int __dp2a_hi(int a, int b, int c)
{
    int d;
    __asm__("dp2a.hi.s32.s32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}
#endif

/* Loads and stores with a cache operator (CUDA C++ Programming Guide, Load Functions Using Cache
 * Hints). */
#define VGPU_LOAD(name, op, T, type, reg)                                                          \
    VGPU_DEVICE T name(const T *p)                                                                 \
    {                                                                                              \
        T v;                                                                                       \
        __asm__ __volatile__("ld.global." op "." type " %0, [%1];" : reg(v) : "l"(p) : "memory");  \
        return v;                                                                                  \
    }
#define VGPU_STORE(name, op, T, type, reg)                                                         \
    VGPU_DEVICE void name(T *p, T v)                                                               \
    {                                                                                              \
        __asm__ __volatile__("st.global." op "." type " [%0], %1;" ::"l"(p), reg(v) : "memory");   \
    }
#define VGPU_EACH(op)                                                                              \
    op(int, "s32", "r") op(unsigned, "u32", "r") op(long long, "s64", "l")                         \
        op(unsigned long long, "u64", "l") op(float, "f32", "f") op(double, "f64", "d")
#define VGPU_LOADS(T, type, reg)                                                                   \
    VGPU_LOAD(__ldcg, "cg", T, type, "=" reg)                                                      \
    VGPU_LOAD(__ldca, "ca", T, type, "=" reg)                                                      \
    VGPU_LOAD(__ldcs, "cs", T, type, "=" reg)                                                      \
    VGPU_LOAD(__ldlu, "lu", T, type, "=" reg)                                                      \
    VGPU_LOAD(__ldcv, "cv", T, type, "=" reg)                                                      \
    VGPU_STORE(__stcg, "cg", T, type, reg)                                                         \
    VGPU_STORE(__stwb, "wb", T, type, reg)                                                         \
    VGPU_STORE(__stcs, "cs", T, type, reg)                                                         \
    VGPU_STORE(__stwt, "wt", T, type, reg)
VGPU_EACH(VGPU_LOADS)
#undef VGPU_EACH
#undef VGPU_LOADS
#undef VGPU_LOAD
#undef VGPU_STORE

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
#define VGPU_REDUCE(op, T, type)                                                                   \
    VGPU_DEVICE T __reduce_##op##_sync(unsigned mask, T v)                                         \
    {                                                                                              \
        T r;                                                                                       \
        __asm__ __volatile__("redux.sync." #op "." type " %0, %1, %2;" : "=r"(r) : "r"(v), "r"(mask)); \
        return r;                                                                                  \
    }
VGPU_REDUCE(add, unsigned, "u32")
VGPU_REDUCE(min, unsigned, "u32")
VGPU_REDUCE(max, unsigned, "u32")
VGPU_REDUCE(add, int, "s32")
VGPU_REDUCE(min, int, "s32")
VGPU_REDUCE(max, int, "s32")
VGPU_REDUCE(and, unsigned, "b32")
VGPU_REDUCE(or, unsigned, "b32")
VGPU_REDUCE(xor, unsigned, "b32")
#undef VGPU_REDUCE
#endif

#undef VGPU_DEVICE

#endif
