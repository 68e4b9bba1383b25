#ifndef VGPU_NV_TOOLS_EXT_CUDA_RT_H
#define VGPU_NV_TOOLS_EXT_CUDA_RT_H

/* NVTX: names for the runtime's objects. */
#include "cuda_runtime_api.h"
#include "nvToolsExt.h"

#ifdef __cplusplus
extern "C" {
#endif

VGPU_NVTX(void, nvtxNameCudaDeviceA, (int d, const char *name), (void)0)
VGPU_NVTX(void, nvtxNameCudaStreamA, (cudaStream_t s, const char *name), (void)0)
VGPU_NVTX(void, nvtxNameCudaEventA, (cudaEvent_t e, const char *name), (void)0)
VGPU_NVTX(void, nvtxNameCudaDeviceW, (int d, const wchar_t *name), (void)0)
VGPU_NVTX(void, nvtxNameCudaStreamW, (cudaStream_t s, const wchar_t *name), (void)0)
VGPU_NVTX(void, nvtxNameCudaEventW, (cudaEvent_t e, const wchar_t *name), (void)0)

#ifdef __cplusplus
}
#endif

#ifdef UNICODE
#define nvtxNameCudaDevice nvtxNameCudaDeviceW
#define nvtxNameCudaStream nvtxNameCudaStreamW
#define nvtxNameCudaEvent nvtxNameCudaEventW
#else
#define nvtxNameCudaDevice nvtxNameCudaDeviceA
#define nvtxNameCudaStream nvtxNameCudaStreamA
#define nvtxNameCudaEvent nvtxNameCudaEventA
#endif

#endif
