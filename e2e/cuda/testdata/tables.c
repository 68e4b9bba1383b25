/* Export tables that are services; the one that authenticates a driver is not there. */
#include "check.h"

static const CUuuid runtime = {"\x6b\xd5\xfb\x6c\x5b\xf4\xe7\x4a\x89\x87\xd9\x39\x12\xfd\x9d\xf9"};
static const CUuuid areas = {"\xa0\x94\x79\x8c\x2e\x74\x2e\x74\x93\xf2\x08\x00\x20\x0c\x0a\x66"};
static const CUuuid storage = {"\xc6\x93\x33\x6e\x11\x21\xdf\x11\xa8\xc3\x68\xf3\x55\xd8\x95\x93"};
static const CUuuid challenge = {"\xd4\x08\x20\x55\xbd\xe6\x70\x4b\x8d\x34\xba\x12\x3c\x66\xe1\xf2"};

int main(void) {
  const void *t = NULL;
  CUcontext primary = NULL, ctx;
  WANT(CUDA_ERROR_NOT_FOUND, cuGetExportTable(&t, &challenge));
  TRUE(t == NULL);
  WANT(CUDA_ERROR_INVALID_VALUE, cuGetExportTable(&t, NULL));
  OK(cuInit(0));
  OK(cuGetExportTable(&t, &runtime));
  void *const *f = t;
  TRUE((size_t)f[0] == 13 * sizeof(void *));
  OK(((CUresult(*)(CUcontext *, CUdevice))f[2])(&primary, 0));
  TRUE(primary != NULL);
  OK(cuDevicePrimaryCtxRetain(&ctx, 0));
  TRUE(ctx == primary);
  OK(cuCtxSetCurrent(ctx));
  CUmodule m;
  OK(((CUresult(*)(CUmodule *, const void *))f[1])(&m, PTX_HEAD FILL_KERNEL));
  OK(cuModuleUnload(m));

  OK(cuGetExportTable(&t, &areas));
  f = t;
  void *area = NULL;
  size_t bytes = 0;
  ((void (*)(void **, size_t *))f[2])(&area, &bytes);
  TRUE(bytes >= 4096);
  memset(area, 1, bytes);
  ((void (*)(void **, size_t *))f[6])(&area, &bytes);
  memset(area, 1, bytes);

  OK(cuGetExportTable(&t, &storage));
  f = t;
  int key, value, other;
  void *got = NULL;
  CUresult (*put)(CUcontext, void *, void *, void *) = f[0];
  CUresult (*drop)(CUcontext, void *) = f[1];
  CUresult (*get)(void **, CUcontext, void *) = f[2];
  OK(put(NULL, &key, &value, NULL));
  WANT(CUDA_ERROR_INVALID_VALUE, put(ctx, &key, &other, NULL));
  OK(get(&got, ctx, &key));
  TRUE(got == &value);
  OK(drop((CUcontext)-1, &key));
  WANT(CUDA_ERROR_INVALID_HANDLE, get(&got, ctx, &key));
}
