#ifndef VGPU_CRT_IMPLICIT_H
#define VGPU_CRT_IMPLICIT_H

/* What comes before a program's first line: CUDA C++ has the runtime's API, and other sources on the
 * same command line have what they include. */
#ifdef __CUDA__
#include "cuda_runtime.h"
#endif

/* NVTX's own switch. Where it is off, CCCL does not wrap NVTX in C++, for which nvToolsExt.h has too
 * little. */
#ifndef NVTX_DISABLE
#define NVTX_DISABLE
#endif

#endif
