#ifndef VGPU_COPY_H
#define VGPU_COPY_H

#include "runtime.h"

/* A copy has up to four names, which differ in the stream and in whether they wait:
 *
 *     cudaMemcpy       the legacy default stream, waits
 *     cudaMemcpy_ptds  the thread's own stream, waits
 *     cudaMemcpyAsync, cudaMemcpyAsync_ptsz
 *
 * They are made from a function that takes both as its last parameters: cudaMemcpy_on. */
#define LIST(...) __VA_ARGS__

#define NOW(name, params, args)                                                                    \
    EXPORT cudaError_t name params { return name##_on(LIST args, NULL, true); }                    \
    EXPORT cudaError_t name##_ptds params;                                                         \
    EXPORT cudaError_t name##_ptds params { return name##_on(LIST args, cudaStreamPerThread, true); }

#define LATER(name, params, args) LATER_(name, (LIST params, cudaStream_t s), args)
#define LATER_(name, params, args)                                                                 \
    EXPORT cudaError_t name##Async params { return name##_on(LIST args, s, false); }               \
    EXPORT cudaError_t name##Async_ptsz params;                                                    \
    EXPORT cudaError_t name##Async_ptsz params { return name##_on(LIST args, own(s), false); }

#endif
