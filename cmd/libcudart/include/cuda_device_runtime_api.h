#ifndef VGPU_CUDA_DEVICE_RUNTIME_API_H
#define VGPU_CUDA_DEVICE_RUNTIME_API_H
#define __CUDA_DEVICE_RUNTIME_API_H__

#include "cuda_runtime_api.h"

/* Kernels don't launch kernels here. Libraries of templates name these functions also where they don't
 * call them, in host code: so host code alone has their declarations. */
#if defined(__CUDA__) && defined(__cplusplus) && !defined(__CUDA_ARCH__)
extern "C" {
__device__ cudaError_t __cudaDeviceSynchronizeDeprecationAvoidance(void);
__device__ void *cudaGetParameterBuffer(size_t alignment, size_t size);
__device__ cudaError_t cudaLaunchDevice(void *kernel, void *parameters, dim3 grid, dim3 block,
    unsigned shared, cudaStream_t stream);
}
#endif

#endif
