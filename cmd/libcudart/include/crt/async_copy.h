#ifndef VGPU_CRT_ASYNC_COPY_H
#define VGPU_CRT_ASYNC_COPY_H

/* Copies from global to shared memory that a thread does not wait for (PTX's cp.async), for
 * cuda_pipeline.h, cooperative_groups/memcpy_async.h and cuda/pipeline. */

#include "../cuda_runtime.h"

#if defined(__CUDA__) && defined(__cplusplus)

#define VGPU_DEVICE static __device__ __inline__ __attribute__((always_inline))

VGPU_DEVICE bool vgpu_is_shared(const void *p) { return __nvvm_isspacep_shared(p); }
VGPU_DEVICE bool vgpu_is_global(const void *p) { return __nvvm_isspacep_global(p); }

VGPU_DEVICE unsigned vgpu_shared_address(const void *p)
{
    return (unsigned)(unsigned long long)(const __attribute__((address_space(3))) void *)p;
}

/* The last zeros of n bytes are not read from the source. */
#define VGPU_COPY(n)                                                                               \
    VGPU_DEVICE void vgpu_copy_async_##n(void *to, const void *from, unsigned zeros)               \
    {                                                                                              \
        __asm__ __volatile__("cp.async.ca.shared.global [%0], [%1], " #n ", %2;"                   \
                             ::"r"(vgpu_shared_address(to)), "l"(from), "r"(n - zeros)             \
                             : "memory");                                                          \
    }
VGPU_COPY(4)
VGPU_COPY(8)
VGPU_COPY(16)
#undef VGPU_COPY

/* Copies n bytes, of which the last zeros are 0: later, where the GPU can, or at once. */
VGPU_DEVICE void vgpu_copy_async(void *to, const void *from, unsigned long long n, unsigned long long zeros = 0)
{
    char *d = (char *)to;
    const char *s = (const char *)from;
    unsigned long long each = ((unsigned long long)to | (unsigned long long)from | n) & 15;
    each = each == 0 ? 16 : each & -each;
    if (zeros == 0 && each >= 4 && vgpu_is_shared(to) && vgpu_is_global(from)) {
        for (; n; n -= each, d += each, s += each) {
            if (each == 16)
                vgpu_copy_async_16(d, s, 0);
            else if (each == 8)
                vgpu_copy_async_8(d, s, 0);
            else
                vgpu_copy_async_4(d, s, 0);
        }
        return;
    }
    for (unsigned long long i = 0; i < n; i++)
        d[i] = i + zeros < n ? s[i] : 0;
}

/* A thread's copies since its last commit are a group of copies. */
VGPU_DEVICE void vgpu_copy_commit() { __asm__ __volatile__("cp.async.commit_group;" ::: "memory"); }

/* Waits for all groups but the last n. */
VGPU_DEVICE void vgpu_copy_wait(unsigned n)
{
    switch (n) {
    case 0: __asm__ __volatile__("cp.async.wait_group 0;" ::: "memory"); break;
    case 1: __asm__ __volatile__("cp.async.wait_group 1;" ::: "memory"); break;
    case 2: __asm__ __volatile__("cp.async.wait_group 2;" ::: "memory"); break;
    case 3: __asm__ __volatile__("cp.async.wait_group 3;" ::: "memory"); break;
    case 4: __asm__ __volatile__("cp.async.wait_group 4;" ::: "memory"); break;
    case 5: __asm__ __volatile__("cp.async.wait_group 5;" ::: "memory"); break;
    case 6: __asm__ __volatile__("cp.async.wait_group 6;" ::: "memory"); break;
    case 7: __asm__ __volatile__("cp.async.wait_group 7;" ::: "memory"); break;
    default: __asm__ __volatile__("cp.async.wait_group 8;" ::: "memory");
    }
}

VGPU_DEVICE void vgpu_copy_wait_all() { __asm__ __volatile__("cp.async.wait_all;" ::: "memory"); }

#undef VGPU_DEVICE

#endif

#endif
