#ifndef VGPU_CRT_ADDRESS_SPACES_H
#define VGPU_CRT_ADDRESS_SPACES_H

/* Which space a generic address is in, and its address there (CUDA C++ Programming Guide, Address
 * Space Predicate and Conversion Functions). The compiler's headers use these. */

#define VGPU_DEVICE static __device__ __inline__ __attribute__((always_inline))

#define VGPU_SPACE(space, Name, builtin)                                                           \
    VGPU_DEVICE unsigned __is##Name(const void *p) { return builtin(p); }                          \
    VGPU_DEVICE size_t __cvta_generic_to_##space(const void *p)                                    \
    {                                                                                              \
        size_t a;                                                                                  \
        __asm__("cvta.to." #space ".u64 %0, %1;" : "=l"(a) : "l"(p));                              \
        return a;                                                                                  \
    }                                                                                              \
    VGPU_DEVICE void *__cvta_##space##_to_generic(size_t a)                                        \
    {                                                                                              \
        void *p;                                                                                   \
        __asm__("cvta." #space ".u64 %0, %1;" : "=l"(p) : "l"(a));                                 \
        return p;                                                                                  \
    }
VGPU_SPACE(global, Global, __nvvm_isspacep_global)
VGPU_SPACE(shared, Shared, __nvvm_isspacep_shared)
VGPU_SPACE(local, Local, __nvvm_isspacep_local)
#undef VGPU_SPACE
VGPU_DEVICE unsigned __isConstant(const void *p) { return __nvvm_isspacep_const(p); }

#undef VGPU_DEVICE

#endif
