#ifndef VGPU_CRT_ATOMICS_H
#define VGPU_CRT_ATOMICS_H

/* atomicAdd and the like (CUDA C++ Programming Guide, Atomic Functions), over the compiler's
 * functions for each type. */

#define VGPU_DEVICE static __device__ __inline__ __attribute__((always_inline))

/* Each operation has a form for the block and one for the system. */
#define VGPU_ATOMIC(name, T, f)                                                                    \
    VGPU_DEVICE T name(T *p, T v) { return f(p, v); }                                              \
    VGPU_DEVICE T name##_block(T *p, T v) { return f##_block(p, v); }                              \
    VGPU_DEVICE T name##_system(T *p, T v) { return f##_system(p, v); }

VGPU_ATOMIC(atomicAdd, int, __iAtomicAdd)
VGPU_ATOMIC(atomicAdd, unsigned int, __uAtomicAdd)
VGPU_ATOMIC(atomicAdd, unsigned long long, __ullAtomicAdd)
VGPU_ATOMIC(atomicAdd, float, __fAtomicAdd)
VGPU_ATOMIC(atomicAdd, double, __dAtomicAdd)
VGPU_ATOMIC(atomicExch, int, __iAtomicExch)
VGPU_ATOMIC(atomicExch, unsigned int, __uAtomicExch)
VGPU_ATOMIC(atomicExch, unsigned long long, __ullAtomicExch)
VGPU_ATOMIC(atomicExch, float, __fAtomicExch)
VGPU_ATOMIC(atomicMin, int, __iAtomicMin)
VGPU_ATOMIC(atomicMin, unsigned int, __uAtomicMin)
VGPU_ATOMIC(atomicMin, long long, __illAtomicMin)
VGPU_ATOMIC(atomicMin, unsigned long long, __ullAtomicMin)
VGPU_ATOMIC(atomicMax, int, __iAtomicMax)
VGPU_ATOMIC(atomicMax, unsigned int, __uAtomicMax)
VGPU_ATOMIC(atomicMax, long long, __illAtomicMax)
VGPU_ATOMIC(atomicMax, unsigned long long, __ullAtomicMax)
VGPU_ATOMIC(atomicInc, unsigned int, __uAtomicInc)
VGPU_ATOMIC(atomicDec, unsigned int, __uAtomicDec)
VGPU_ATOMIC(atomicAnd, int, __iAtomicAnd)
VGPU_ATOMIC(atomicAnd, unsigned int, __uAtomicAnd)
VGPU_ATOMIC(atomicAnd, long long, __llAtomicAnd)
VGPU_ATOMIC(atomicAnd, unsigned long long, __ullAtomicAnd)
VGPU_ATOMIC(atomicOr, int, __iAtomicOr)
VGPU_ATOMIC(atomicOr, unsigned int, __uAtomicOr)
VGPU_ATOMIC(atomicOr, long long, __llAtomicOr)
VGPU_ATOMIC(atomicOr, unsigned long long, __ullAtomicOr)
VGPU_ATOMIC(atomicXor, int, __iAtomicXor)
VGPU_ATOMIC(atomicXor, unsigned int, __uAtomicXor)
VGPU_ATOMIC(atomicXor, long long, __llAtomicXor)
VGPU_ATOMIC(atomicXor, unsigned long long, __ullAtomicXor)
#undef VGPU_ATOMIC

#define VGPU_ATOMIC_SUB(form)                                                                      \
    VGPU_DEVICE int atomicSub##form(int *p, int v) { return __iAtomicAdd##form(p, -v); }           \
    VGPU_DEVICE unsigned atomicSub##form(unsigned *p, unsigned v) { return __uAtomicAdd##form(p, -v); }
VGPU_ATOMIC_SUB()
VGPU_ATOMIC_SUB(_block)
VGPU_ATOMIC_SUB(_system)
#undef VGPU_ATOMIC_SUB

#define VGPU_ATOMIC_CAS(T, f)                                                                      \
    VGPU_DEVICE T atomicCAS(T *p, T old, T v) { return f(p, old, v); }                             \
    VGPU_DEVICE T atomicCAS_block(T *p, T old, T v) { return f##_block(p, old, v); }               \
    VGPU_DEVICE T atomicCAS_system(T *p, T old, T v) { return f##_system(p, old, v); }
VGPU_ATOMIC_CAS(int, __iAtomicCAS)
VGPU_ATOMIC_CAS(unsigned int, __uAtomicCAS)
VGPU_ATOMIC_CAS(unsigned long long, __ullAtomicCAS)
#undef VGPU_ATOMIC_CAS

VGPU_DEVICE unsigned short atomicCAS(unsigned short *p, unsigned short old, unsigned short v)
{
    unsigned short was;
    __asm__ __volatile__("atom.cas.b16 %0, [%1], %2, %3;"
                         : "=h"(was)
                         : "l"(p), "h"(old), "h"(v)
                         : "memory");
    return was;
}

#undef VGPU_DEVICE

#endif
