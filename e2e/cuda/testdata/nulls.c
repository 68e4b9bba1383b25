/* Calls every function with NULL for every pointer, and for the other parameters numbers that are no
 * handles, sizes that are too large, handles of objects that are gone or of another kind. A line of
 * stdin is a function: its name and a letter a parameter, p for a pointer and w for any other. None of
 * the calls may crash or hang, and afterwards the GPU still computes in the same context. */
#define _GNU_SOURCE
#include "check.h"

#include <dlfcn.h>
#include <stdint.h>

typedef CUresult any(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);

int main(void) {
  enum { MOST = 16, N = 1024 };
  CUcontext ctx = begin();
  CUfunction fill = load(PTX_HEAD FILL_KERNEL, "fill");
  CUdeviceptr p, gone;
  CUevent live;
  CUstream ended;
  OK(cuMemAlloc(&p, 4 * N));
  OK(cuMemAlloc(&gone, 4096));
  OK(cuMemFree(gone));
  OK(cuStreamCreate(&ended, 0));
  OK(cuStreamDestroy(ended));
  char name[128], kinds[MOST + 2];
  int functions = 0;
  while (scanf("%127s %17s", name, kinds) == 2) {
    any *f;
    *(void **)&f = dlsym(RTLD_DEFAULT, name);
    if (!f) fprintf(stderr, "there is no %s\n", name), exit(1);
    OK(cuEventCreate(&live, 0)); /* anew: it may be destroyed */
    uint64_t values[] = {0, 1, 7, 0x12345678, UINT64_MAX, UINT64_MAX / 2, 1ull << 40, gone, (uint64_t)ended, (uint64_t)live};
    for (size_t k = 0; k < sizeof values / sizeof *values; k++) {
      uint64_t a[MOST] = {0};
      for (int i = 0; kinds[i] && i < MOST; i++) a[i] = kinds[i] == 'p' ? 0 : values[k];
      fprintf(stderr, "%s %s %#llx\n", name, kinds, (unsigned long long)values[k]); /* the last is the culprit */
      f(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13], a[14], a[15]);
      OK(cuCtxSetCurrent(ctx));
    }
    cuEventDestroy(live);
    functions++;
  }
  unsigned v = 3, n = N, got[N];
  OK(cuLaunchKernel(fill, 4, 1, 1, 256, 1, 1, 0, NULL, (void *[]){&p, &v, &n}, NULL));
  OK(cuMemcpyDtoH(got, p, sizeof got));
  for (int i = 0; i < N; i++) TRUE(got[i] == 3);
  printf("%d functions\n", functions);
  OK(cuCtxDestroy(ctx));
}
