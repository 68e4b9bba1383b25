#ifndef VGPU_NV_TOOLS_EXT_CUDA_H
#define VGPU_NV_TOOLS_EXT_CUDA_H

/* NVTX: names for the driver's objects. */
#include "cuda.h"
#include "nvToolsExt.h"

#ifdef __cplusplus
extern "C" {
#endif

VGPU_NVTX(void, nvtxNameCuDeviceA, (CUdevice d, const char *name), (void)0)
VGPU_NVTX(void, nvtxNameCuContextA, (CUcontext c, const char *name), (void)0)
VGPU_NVTX(void, nvtxNameCuStreamA, (CUstream s, const char *name), (void)0)
VGPU_NVTX(void, nvtxNameCuEventA, (CUevent e, const char *name), (void)0)
VGPU_NVTX(void, nvtxNameCuDeviceW, (CUdevice d, const wchar_t *name), (void)0)
VGPU_NVTX(void, nvtxNameCuContextW, (CUcontext c, const wchar_t *name), (void)0)
VGPU_NVTX(void, nvtxNameCuStreamW, (CUstream s, const wchar_t *name), (void)0)
VGPU_NVTX(void, nvtxNameCuEventW, (CUevent e, const wchar_t *name), (void)0)

#ifdef __cplusplus
}
#endif

#ifdef UNICODE
#define nvtxNameCuDevice nvtxNameCuDeviceW
#define nvtxNameCuContext nvtxNameCuContextW
#define nvtxNameCuStream nvtxNameCuStreamW
#define nvtxNameCuEvent nvtxNameCuEventW
#else
#define nvtxNameCuDevice nvtxNameCuDeviceA
#define nvtxNameCuContext nvtxNameCuContextA
#define nvtxNameCuStream nvtxNameCuStreamA
#define nvtxNameCuEvent nvtxNameCuEventA
#endif

#endif
