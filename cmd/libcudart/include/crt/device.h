#ifndef VGPU_CRT_DEVICE_H
#define VGPU_CRT_DEVICE_H

/* Device code for clang. The compiler's own headers have the built-in variables, the intrinsics and
 * the overloads of mathematical functions; they stand on functions named __nv_..., which libdevice
 * has elsewhere and nv_*.h have here. The order is the one that the compiler's headers need:
 * declarations of device overloads come before <cmath>. */

#ifndef CUDA_VERSION
#if CUDART_VERSION < 12000
#define CUDA_VERSION CUDART_VERSION
#else
#define CUDA_VERSION 12040
#endif
#endif

#include <__clang_cuda_math_forward_declares.h>

#define __CUDACC__ 1
#define __CUDACC_VER_MAJOR__ (CUDA_VERSION / 1000)
#define __CUDACC_VER_MINOR__ (CUDA_VERSION % 1000 / 10)

#include <climits>
#include <cmath>
#include <cstdlib>
#include <cstring>
/* Its using declarations must come before the functions of device code that it would not expect. */
#include <stdlib.h>

#include <__clang_cuda_builtin_vars.h>

#pragma push_macro("__forceinline__")
#undef __forceinline__
#define __forceinline__ __inline__ __attribute__((always_inline))

#include "nv_arith.h"
#include "nv_math.h"
#include "nv_mathf.h"
#include "nv_special.h"

/* The compiler's votes and shuffles without a mask are instructions that GPUs since sm_70 lack:
 * intrinsics.h has them instead. */
#define __all vgpu_unused_all
#define __any vgpu_unused_any
#define __ballot vgpu_unused_ballot
#include <__clang_cuda_device_functions.h>
#undef __all
#undef __any
#undef __ballot
#include <__clang_cuda_math.h>

typedef unsigned int cuuint32_t;

extern "C" {
__device__ int vprintf(const char *format, const char *args);
__device__ int printf(const char *format, ...);
__device__ void free(void *p) __attribute__((nothrow));
__device__ void *malloc(size_t n) __attribute__((nothrow)) __attribute__((malloc));
__device__ void __assertfail(const char *message, const char *file, unsigned line,
    const char *function, size_t char_size);
__device__ static inline void __assert_fail(const char *message, const char *file, unsigned line,
    const char *function)
{
    __assertfail(message, file, line, function, sizeof(char));
}
/* Tables of abstract classes name these. A call ends the kernel. */
__device__ __attribute__((weak, noreturn)) inline void __cxa_pure_virtual() { __builtin_trap(); }
__device__ __attribute__((weak, noreturn)) inline void __cxa_deleted_virtual() { __builtin_trap(); }
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared = 0, void *stream = 0);
}

namespace std {
__device__ static inline void free(void *p) { ::free(p); }
__device__ static inline void *malloc(size_t n) { return ::malloc(n); }
} // namespace std

#define VGPU_BUILTIN(name)                                                                         \
    __device__ inline __cuda_builtin_##name##_t::operator dim3() const { return dim3(x, y, z); }   \
    __device__ inline __cuda_builtin_##name##_t::operator uint3() const { return uint3{x, y, z}; }
VGPU_BUILTIN(threadIdx)
VGPU_BUILTIN(blockIdx)
VGPU_BUILTIN(blockDim)
VGPU_BUILTIN(gridDim)
#undef VGPU_BUILTIN

#include "../vector_functions.h"
#include "address_spaces.h"
#include <__clang_cuda_cmath.h>
/* The compiler's (19) give redux.sync its mask as the value: intrinsics.h has them instead. */
#define __reduce_add_sync vgpu_unused_reduce_add
#define __reduce_min_sync vgpu_unused_reduce_min
#define __reduce_max_sync vgpu_unused_reduce_max
#define __reduce_or_sync vgpu_unused_reduce_or
#define __reduce_and_sync vgpu_unused_reduce_and
#define __reduce_xor_sync vgpu_unused_reduce_xor
#define __shfl vgpu_unused_shfl
#define __shfl_up vgpu_unused_shfl_up
#define __shfl_down vgpu_unused_shfl_down
#define __shfl_xor vgpu_unused_shfl_xor
#include <__clang_cuda_intrinsics.h>
#undef __shfl
#undef __shfl_up
#undef __shfl_down
#undef __shfl_xor
#undef __reduce_add_sync
#undef __reduce_min_sync
#undef __reduce_max_sync
#undef __reduce_or_sync
#undef __reduce_and_sync
#undef __reduce_xor_sync
#include <__clang_cuda_complex_builtins.h>

#include "atomics.h"
#include "intrinsics.h"
#include "dpx.h"
#include "math_overloads.h"
#if __cplusplus >= 201103L
#if CUDART_VERSION < 12000
#include "texture_reference.h"
#endif
#include <__clang_cuda_texture_intrinsics.h>
#include "texture_fetch.h"
#if CUDART_VERSION < 12000
#include "texture_reference_fetch.h"
#endif
#include "surface.h"
#endif

#pragma pop_macro("__forceinline__")

/* Host code may call isnan and the like without std::, as device code does, and programs leave out
 * what CUDA's own headers include. */
#include <assert.h>
#include <math.h>
#include <new>
#include <stdio.h>
#include <string.h>
#include <time.h>

#endif
