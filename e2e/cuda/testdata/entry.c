/* Names: of functions for runtimes, of errors, of versions. */
#include "check.h"

#include <dlfcn.h>

static void *entry(const char *name, int version, cuuint64_t flags) {
  void *p = NULL;
  CUdriverProcAddressQueryResult status;
  OK(cuGetProcAddress_v2(name, &p, version, flags, &status));
  TRUE(status == CU_GET_PROC_ADDRESS_SUCCESS && p);
  return p;
}

int main(void) {
  void *p = (void *)1;
  CUdriverProcAddressQueryResult status;
  const char *text;
  /* Before cuInit, as runtimes do. */
  TRUE(entry("cuMemAlloc", 2000, 0) == dlsym(RTLD_DEFAULT, "cuMemAlloc"));
  TRUE(entry("cuMemAlloc", 12000, 0) == dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"));
  TRUE(entry("cuCtxCreate", 12000, 0) == dlsym(RTLD_DEFAULT, "cuCtxCreate_v3"));
  TRUE(entry("cuCtxCreate", 13000, 0) == dlsym(RTLD_DEFAULT, "cuCtxCreate_v4"));
  TRUE(entry("cuLaunchKernel", 11030, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) == dlsym(RTLD_DEFAULT, "cuLaunchKernel_ptsz"));
  TRUE(entry("cuLaunchKernel", 11030, CU_GET_PROC_ADDRESS_LEGACY_STREAM) == dlsym(RTLD_DEFAULT, "cuLaunchKernel"));
  TRUE(entry("cuMemcpyHtoD", 11030, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) == dlsym(RTLD_DEFAULT, "cuMemcpyHtoD_v2_ptds"));
  TRUE(entry("cuMemFree", 11030, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) == dlsym(RTLD_DEFAULT, "cuMemFree_v2"));
  TRUE(entry("cuGetProcAddress", 11030, 0) == dlsym(RTLD_DEFAULT, "cuGetProcAddress"));
  TRUE(entry("cuGetProcAddress", 12000, 0) == dlsym(RTLD_DEFAULT, "cuGetProcAddress_v2"));
  OK(cuGetProcAddress_v2("cuLibraryLoadData", &p, 11080, 0, &status));
  TRUE(p == NULL && status == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
  OK(cuGetProcAddress_v2("cuFlyToTheMoon", &p, 13000, 0, &status));
  TRUE(p == NULL && status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  CUresult (*old)(const char *, void **, int, cuuint64_t) = dlsym(RTLD_DEFAULT, "cuGetProcAddress");
  WANT(CUDA_ERROR_NOT_FOUND, old("cuFlyToTheMoon", &p, 13000, 0));
  OK(old("cuInit", &p, 11030, 0));
  TRUE(p == dlsym(RTLD_DEFAULT, "cuInit"));
  WANT(CUDA_ERROR_INVALID_VALUE, cuGetProcAddress_v2(NULL, &p, 12000, 0, &status));
  WANT(CUDA_ERROR_INVALID_VALUE, cuGetProcAddress_v2("cuInit", NULL, 12000, 0, &status));
  WANT(CUDA_ERROR_INVALID_VALUE, cuGetProcAddress_v2("cuInit", &p, 12000, 3, &status));
  OK(cuGetProcAddress_v2_ptsz("cuStreamQuery", &p, 12000, 0, NULL));
  TRUE(p == dlsym(RTLD_DEFAULT, "cuStreamQuery_ptsz"));

  OK(cuGetErrorName(CUDA_ERROR_ILLEGAL_ADDRESS, &text));
  TRUE(strcmp(text, "CUDA_ERROR_ILLEGAL_ADDRESS") == 0);
  OK(cuGetErrorString(CUDA_ERROR_ILLEGAL_ADDRESS, &text));
  TRUE(strcmp(text, "an illegal memory access was encountered") == 0);
  OK(cuGetErrorString(CUDA_SUCCESS, &text));
  TRUE(strcmp(text, "no error") == 0);
  WANT(CUDA_ERROR_INVALID_VALUE, cuGetErrorName(5555, &text));
  TRUE(text == NULL);
  WANT(CUDA_ERROR_INVALID_VALUE, cuGetErrorString(1, NULL));

  /* What is not built says so. */
  OK(cuInit(0));
  WANT(CUDA_ERROR_NOT_SUPPORTED, cuProfilerInitialize(NULL, NULL, 0));
  CUresult (*gl)(void) = dlsym(RTLD_DEFAULT, "cuGLInit");
  WANT(CUDA_ERROR_NOT_SUPPORTED, gl());
  WANT(CUDA_ERROR_INVALID_CONTEXT, cuProfilerStart());
  CUcontext ctx = begin();
  OK(cuProfilerStart());
  OK(cuProfilerStop());
  CUipcMemHandle h;
  WANT(CUDA_ERROR_NOT_SUPPORTED, cuIpcGetMemHandle(&h, 0));
  OK(cuCtxDestroy(ctx));
}
