#include <cuda.h>

#ifndef __cplusplus
#define static_assert _Static_assert
#endif
#define SIZE(type, bytes) static_assert(sizeof(type) == bytes, #type)

SIZE(CUDA_MEMCPY2D, 128);
SIZE(CUDA_MEMCPY3D, 200);
SIZE(CUDA_MEMCPY3D_PEER, 200);
SIZE(CUlaunchAttributeValue, 64);
SIZE(CUlaunchAttribute, 72);
SIZE(CUlaunchConfig, 56);
SIZE(CUgraphNodeParams, 256);
SIZE(CUDA_RESOURCE_DESC, 144);
SIZE(CUDA_TEXTURE_DESC, 104);
SIZE(CUDA_RESOURCE_VIEW_DESC, 112);
SIZE(CUmemPoolProps, 88);
SIZE(CUmemAllocationProp, 32);
SIZE(CUipcMemHandle, 64);
SIZE(CUuuid, 16);

int use(void);
int use(void) {
  CUcontext c;
  CUdeviceptr p;
#if CUDA_VERSION < 13000
  cuCtxCreate(&c, 0, 0);
#else
  cuCtxCreate(&c, 0, 0, 0);
#endif
  return cuMemAlloc(&p, 4) + cuMemcpyHtoD(p, &c, 4) + cuStreamSynchronize(CU_STREAM_PER_THREAD);
}
