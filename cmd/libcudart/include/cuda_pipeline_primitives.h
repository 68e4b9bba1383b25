#ifndef VGPU_CUDA_PIPELINE_PRIMITIVES_H
#define VGPU_CUDA_PIPELINE_PRIMITIVES_H

/* A thread's asynchronous copies (CUDA C++ Programming Guide, Pipeline Primitives Interface). */

#include "crt/async_copy.h"

#if defined(__CUDA__) && defined(__cplusplus)

static __device__ __inline__ void __pipeline_memcpy_async(void *to, const void *from, size_t size, size_t zeros = 0)
{
    vgpu_copy_async(to, from, size, zeros);
}
static __device__ __inline__ void __pipeline_commit() { vgpu_copy_commit(); }
static __device__ __inline__ void __pipeline_wait_prior(size_t n) { vgpu_copy_wait((unsigned)n); }

#endif

#endif
