#ifndef VGPU_UNBUILT_H
#define VGPU_UNBUILT_H

#include "runtime.h"

/* Some names are declared with their parameters, which stubs do not have. So a stub's name in C is
 * another. */
#define STUB(name)                                                                                 \
    EXPORT cudaError_t unbuilt_##name(void) __asm__(#name);                                        \
    EXPORT cudaError_t unbuilt_##name(void) { return fail(cudaErrorNotSupported); }

#endif
