#ifndef VGPU_CRT_HOST_DEFINES_H
#define VGPU_CRT_HOST_DEFINES_H
#define __HOST_DEFINES_H__

/* What marks functions and variables of device code. It means nothing to a C compiler. */

#if defined(__CUDA__) && defined(__clang__)
#define __host__ __attribute__((host))
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define __managed__ __attribute__((managed))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
#define __grid_constant__ __attribute__((grid_constant))
#define __device_builtin__
#else
#define __host__
#define __device__
#define __global__
#define __shared__
#define __constant__
#define __managed__
#define __launch_bounds__(...)
#define __grid_constant__
#define __device_builtin__
#endif

#define __forceinline__ __inline__ __attribute__((always_inline))
/* Newer compilers have the word for CUDA, and it may be an attribute's name, too: __attribute__((__noinline__)). */
#if defined(__CUDA__) && defined(__clang__) && __clang_major__ < 16 && !defined(__noinline__)
#define __noinline__ __attribute__((noinline))
#endif
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __align__(n)
#define CUDARTAPI
#define CUDART_CB
#define CUDARTAPI_CDECL

/* An argument that C++ programs may leave out. */
#ifdef __cplusplus
#define VGPU_DEFAULT(value) = value
#else
#define VGPU_DEFAULT(value)
#endif

#endif
