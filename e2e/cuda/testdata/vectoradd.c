/* The first CUDA program of everybody: c = a + b. */
#include "check.h"

int main(void) {
  enum { N = 100000 };
  CUcontext ctx = begin();
  CUfunction add = load(PTX_HEAD ADD_KERNEL, "add");
  float *a = malloc(N * sizeof *a), *b = malloc(N * sizeof *b), *c = malloc(N * sizeof *c);
  for (int i = 0; i < N; i++) a[i] = i, b[i] = 2 * i + 1;
  CUdeviceptr da, db, dc;
  OK(cuMemAlloc(&da, N * sizeof *a));
  OK(cuMemAlloc(&db, N * sizeof *b));
  OK(cuMemAlloc(&dc, N * sizeof *c));
  OK(cuMemcpyHtoD(da, a, N * sizeof *a));
  OK(cuMemcpyHtoD(db, b, N * sizeof *b));
  unsigned n = N;
  void *params[] = {&dc, &da, &db, &n};
  OK(cuLaunchKernel(add, (N + 255) / 256, 1, 1, 256, 1, 1, 0, NULL, params, NULL));
  OK(cuMemcpyDtoH(c, dc, N * sizeof *c));
  for (int i = 0; i < N; i++) TRUE(c[i] == 3 * i + 1);
  OK(cuMemFree(da));
  OK(cuMemFree(db));
  OK(cuMemFree(dc));
  OK(cuCtxDestroy(ctx));
  puts("right");
}
