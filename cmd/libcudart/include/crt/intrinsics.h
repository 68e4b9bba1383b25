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
/* Vectors, by words. */
#define VGPU_LOAD(name, T)                                                                         \
    VGPU_DEVICE T name(const T *p)                                                                 \
    {                                                                                              \
        unsigned w[sizeof(T) / 4];                                                                 \
        T v;                                                                                       \
        for (unsigned i = 0; i < sizeof(T) / 4; i++)                                               \
            w[i] = name((const unsigned *)(const void *)p + i);                                    \
        __builtin_memcpy(&v, w, sizeof v);                                                         \
        return v;                                                                                  \
    }
#define VGPU_STORE(name, T)                                                                        \
    VGPU_DEVICE void name(T *p, T v)                                                               \
    {                                                                                              \
        unsigned w[sizeof(T) / 4];                                                                 \
        __builtin_memcpy(w, &v, sizeof v);                                                         \
        for (unsigned i = 0; i < sizeof(T) / 4; i++)                                               \
            name((unsigned *)(void *)p + i, w[i]);                                                 \
    }
#define VGPU_VECTOR(T)                                                                             \
    VGPU_LOAD(__ldcg, T)                                                                           \
    VGPU_LOAD(__ldca, T)                                                                           \
    VGPU_LOAD(__ldcs, T)                                                                           \
    VGPU_LOAD(__ldlu, T)                                                                           \
    VGPU_LOAD(__ldcv, T)                                                                           \
    VGPU_STORE(__stcg, T)                                                                          \
    VGPU_STORE(__stwb, T)                                                                          \
    VGPU_STORE(__stcs, T)                                                                          \
    VGPU_STORE(__stwt, T)
VGPU_VECTOR(int2)
VGPU_VECTOR(int4)
VGPU_VECTOR(uint2)
VGPU_VECTOR(uint4)
VGPU_VECTOR(float2)
VGPU_VECTOR(float4)
VGPU_VECTOR(double2)
VGPU_VECTOR(longlong2)
VGPU_VECTOR(ulonglong2)
VGPU_VECTOR(char4)
VGPU_VECTOR(uchar4)
VGPU_VECTOR(short2)
VGPU_VECTOR(short4)
VGPU_VECTOR(ushort2)
VGPU_VECTOR(ushort4)
#undef VGPU_VECTOR
#undef VGPU_LOAD
#undef VGPU_STORE
VGPU_DEVICE long __ldcg(const long *p) { return (long)__ldcg((const long long *)(const void *)p); }
VGPU_DEVICE unsigned long __ldcg(const unsigned long *p) { return (unsigned long)__ldcg((const long long *)(const void *)p); }

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

/* Votes and shuffles as programs before CUDA 9 have them, without a mask: among the lanes that are
 * there. */
VGPU_DEVICE int __all(int p) { return __all_sync(__activemask(), p); }
VGPU_DEVICE int __any(int p) { return __any_sync(__activemask(), p); }
VGPU_DEVICE unsigned __ballot(int p) { return __ballot_sync(__activemask(), p); }
#define VGPU_SHUFFLE(name, T, lane_t)                                                              \
    VGPU_DEVICE T name(T v, lane_t lane, int width = warpSize)                                     \
    {                                                                                              \
        return name##_sync(__activemask(), v, lane, width);                                        \
    }
#define VGPU_SHUFFLES(T)                                                                           \
    VGPU_SHUFFLE(__shfl, T, int)                                                                   \
    VGPU_SHUFFLE(__shfl_up, T, unsigned)                                                           \
    VGPU_SHUFFLE(__shfl_down, T, unsigned)                                                         \
    VGPU_SHUFFLE(__shfl_xor, T, int)
VGPU_SHUFFLES(int)
VGPU_SHUFFLES(unsigned)
VGPU_SHUFFLES(long)
VGPU_SHUFFLES(unsigned long)
VGPU_SHUFFLES(long long)
VGPU_SHUFFLES(unsigned long long)
VGPU_SHUFFLES(float)
VGPU_SHUFFLES(double)
#undef VGPU_SHUFFLES
#undef VGPU_SHUFFLE

#undef VGPU_DEVICE

#endif
