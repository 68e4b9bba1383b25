/* Contexts: the stack, the primary one, flags, limits. */
#include "check.h"

#include <pthread.h>

static CUcontext shared;

static void *other_thread(void *unused) {
  CUcontext c = (CUcontext)1;
  CUdevice d;
  OK(cuCtxGetCurrent(&c));
  TRUE(c == NULL);
  WANT(CUDA_ERROR_INVALID_CONTEXT, cuCtxGetDevice(&d));
  WANT(CUDA_ERROR_INVALID_CONTEXT, cuCtxSynchronize());
  OK(cuCtxSetCurrent(shared));
  OK(cuCtxGetDevice(&d));
  OK(cuCtxSynchronize());
  return unused;
}

int main(void) {
  CUcontext c, a, b;
  CUdevice d;
  unsigned flags = 0, version = 0;
  int active = 0, least, greatest;
  unsigned long long id1, id2;
  size_t limit;
  OK(cuInit(0));
  OK(cuDeviceGet(&d, 0));
  OK(cuCtxGetCurrent(&c));
  TRUE(c == NULL);
  WANT(CUDA_ERROR_INVALID_VALUE, cuCtxGetCurrent(NULL));
  WANT(CUDA_ERROR_INVALID_CONTEXT, cuCtxPopCurrent(&c));
  WANT(CUDA_ERROR_INVALID_VALUE, cuCtxCreate(NULL, 0, d));
  WANT(CUDA_ERROR_INVALID_VALUE, cuCtxCreate(&a, 0xff00, d));
  WANT(CUDA_ERROR_INVALID_DEVICE, cuCtxCreate(&a, 0, 4));

  OK(cuCtxCreate(&a, CU_CTX_SCHED_YIELD, d));
  OK(cuCtxCreate(&b, 0, d));
  OK(cuCtxGetCurrent(&c));
  TRUE(c == b && a != b);
  OK(cuCtxPopCurrent(&c));
  TRUE(c == b);
  OK(cuCtxGetCurrent(&c));
  TRUE(c == a);
  OK(cuCtxGetFlags(&flags));
  TRUE(flags == CU_CTX_SCHED_YIELD);
  OK(cuCtxSetFlags(CU_CTX_SCHED_SPIN));
  OK(cuCtxGetFlags(&flags));
  TRUE(flags == CU_CTX_SCHED_SPIN);
  OK(cuCtxGetApiVersion(a, &version));
  TRUE(version >= 3010);
  OK(cuCtxGetId(a, &id1));
  OK(cuCtxGetId(b, &id2));
  TRUE(id1 != id2);
  OK(cuCtxGetStreamPriorityRange(&least, &greatest));
  TRUE(least == 0 && greatest < 0);
  CUfunc_cache cache;
  OK(cuCtxSetCacheConfig(CU_FUNC_CACHE_PREFER_L1));
  OK(cuCtxGetCacheConfig(&cache));
  TRUE(cache == CU_FUNC_CACHE_PREFER_L1);
  CUsharedconfig banks;
  OK(cuCtxSetSharedMemConfig(CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE));
  OK(cuCtxGetSharedMemConfig(&banks));
  OK(cuCtxResetPersistingL2Cache());
  OK(cuCtxGetLimit(&limit, CU_LIMIT_PRINTF_FIFO_SIZE));
  TRUE(limit > 0);
  OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096));
  OK(cuCtxGetLimit(&limit, CU_LIMIT_STACK_SIZE));
  TRUE(limit >= 4096);
  WANT(CUDA_ERROR_INVALID_VALUE, cuCtxGetLimit(&limit, 77));
  WANT(CUDA_ERROR_UNSUPPORTED_LIMIT, cuCtxSetLimit(CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH, 4));
  WANT(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, cuCtxEnablePeerAccess(b, 0));
  WANT(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, cuCtxDisablePeerAccess(b));
  OK(cuCtxAttach(&c, 0));
  OK(cuCtxDetach(a));

  shared = a;
  pthread_t t;
  pthread_create(&t, NULL, other_thread, NULL);
  pthread_join(t, NULL);

  /* A stack deeper than it is at first. */
  for (int i = 0; i < 100; i++) OK(cuCtxPushCurrent(i % 2 ? a : b));
  for (int i = 99; i >= 0; i--) {
    OK(cuCtxPopCurrent(&c));
    TRUE(c == (i % 2 ? a : b));
  }
  OK(cuCtxSetCurrent(b));
  OK(cuCtxDestroy(a));
  WANT(CUDA_ERROR_INVALID_CONTEXT, cuCtxSetCurrent(a));
  WANT(CUDA_ERROR_INVALID_CONTEXT, cuCtxPushCurrent(a));
  WANT(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuCtxDestroy(a));
  WANT(CUDA_ERROR_INVALID_CONTEXT, cuCtxPushCurrent((CUcontext)main));
  WANT(CUDA_ERROR_INVALID_CONTEXT, cuCtxSetCurrent((CUcontext)0x1234));
  OK(cuCtxDestroy(b));
  OK(cuCtxGetCurrent(&c));
  TRUE(c == NULL);

  /* Destroyed while it is current elsewhere. */
  OK(cuCtxCreate(&a, 0, d));
  OK(cuCtxPushCurrent(a));
  OK(cuCtxDestroy(a));
  WANT(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuCtxSynchronize());
  OK(cuCtxPopCurrent(&c));

  /* The primary context. */
  OK(cuDevicePrimaryCtxGetState(d, &flags, &active));
  TRUE(!active);
  OK(cuDevicePrimaryCtxSetFlags(d, CU_CTX_SCHED_BLOCKING_SYNC));
  OK(cuDevicePrimaryCtxRetain(&a, d));
  OK(cuDevicePrimaryCtxRetain(&b, d));
  TRUE(a == b);
  OK(cuDevicePrimaryCtxGetState(d, &flags, &active));
  TRUE(active && flags == CU_CTX_SCHED_BLOCKING_SYNC);
  OK(cuCtxSetCurrent(a));
  WANT(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy(a));
  CUdeviceptr p;
  OK(cuMemAlloc(&p, 4096));
  OK(cuDevicePrimaryCtxRelease(d));
  OK(cuMemFree(p));
  OK(cuDevicePrimaryCtxRelease(d));
  WANT(CUDA_ERROR_INVALID_CONTEXT, cuDevicePrimaryCtxRelease(d));
  WANT(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuMemAlloc(&p, 4096));
  OK(cuDevicePrimaryCtxRetain(&a, d));
  OK(cuDevicePrimaryCtxReset(d));
  OK(cuDevicePrimaryCtxGetState(d, &flags, &active));
  TRUE(!active);
  WANT(CUDA_ERROR_INVALID_DEVICE, cuDevicePrimaryCtxRetain(&a, 2));

  /* The forms of CUDA 11 and later. */
  OK(cuCtxCreate_v3(&a, NULL, 0, 0, d));
  OK(cuCtxDestroy_v2(a));
  OK(cuCtxCreate_v4(&a, NULL, 0, d));
  OK(cuCtxGetDevice_v2(&d, a));
  OK(cuCtxSynchronize_v2(a));
  OK(cuCtxDestroy_v2(a));
}
