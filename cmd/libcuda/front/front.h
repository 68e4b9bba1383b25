/* The C part of libcuda.so.1. It has the exported functions, and what must not enter Go: the answer
 * in a forked child, the names of functions and errors, each thread's stack of current contexts.
 * Everything else is a call of the Go part, libvgpucuda.so, which cuInit loads. */
#ifndef VGPU_FRONT_H
#define VGPU_FRONT_H

#include <stdint.h>

#define VGPU_EXPORT __attribute__((visibility("default")))
#define CUDAAPI VGPU_EXPORT
#include <cuda.h>

#include "part.h"

/* In a function's number: it is the form for the per-thread default stream. */
#define VGPU_PER_THREAD 0x80000000u

/* Passes a call to the Go part. words are the arguments. */
CUresult vgpu_call(uint32_t function, uint64_t *words);

/* Counts a call of a function that is not built and answers CUDA_ERROR_NOT_SUPPORTED. */
uint32_t vgpu_unbuilt(uint32_t function);

/* Returns this thread's state, or NULL without memory. */
struct vgpu_thread *vgpu_thread(void);

/* Reports whether cuInit has succeeded in this process, not in its parent. */
int vgpu_ready(void);

#endif
