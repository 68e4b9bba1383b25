/* A program that has most of the GPU memory that it sees, computes with it, and stays until its
   standard input ends. It prints what it sees. */
#include "check.h"

int main(void) {
  CUcontext ctx = begin();
  size_t free, total;
  OK(cuMemGetInfo(&free, &total));
  CUfunction add = load(PTX_HEAD ADD_KERNEL, "add");
  unsigned n = total / 4 / sizeof(float);
  CUdeviceptr a, b, c;
  OK(cuMemAlloc(&a, n * sizeof(float)));
  OK(cuMemAlloc(&b, n * sizeof(float)));
  OK(cuMemAlloc(&c, n * sizeof(float)));
  CUdeviceptr more;
  WANT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&more, (size_t)1 << 40));
  float one = 1, two = 2;
  unsigned bits1, bits2;
  memcpy(&bits1, &one, sizeof bits1);
  memcpy(&bits2, &two, sizeof bits2);
  OK(cuMemsetD32(a, bits1, n));
  OK(cuMemsetD32(b, bits2, n));
  unsigned some = 100000; /* the rest is only held */
  void *params[] = {&c, &a, &b, &some};
  OK(cuLaunchKernel(add, (some + 255) / 256, 1, 1, 256, 1, 1, 0, NULL, params, NULL));
  float *sum = malloc(some * sizeof *sum);
  OK(cuMemcpyDtoH(sum, c, some * sizeof *sum));
  for (unsigned i = 0; i < some; i++) TRUE(sum[i] == 3);
  printf("%zu MiB\n", total >> 20);
  fflush(stdout);
  while (getchar() != EOF) {
  }
  OK(cuCtxDestroy(ctx));
  puts("done");
}
