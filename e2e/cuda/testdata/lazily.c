/* A program that takes as many MiB as it is told, in two objects and, after its first launch, a third.
   It says when it is about to launch, and goes on at the next line of its standard input. */
#include "check.h"

int main(int argc, char **argv) {
  size_t bytes = (size_t)atoi(argv[argc - 1]) << 20;
  CUcontext ctx = begin();
  CUfunction add = load(PTX_HEAD ADD_KERNEL, "add");
  CUdeviceptr a, b, c;
  unsigned n = 1000;
  float *host = malloc(n * sizeof *host);
  for (unsigned i = 0; i < n; i++) host[i] = i;
  OK(cuMemAlloc(&a, bytes / 4));
  OK(cuMemAlloc(&b, bytes / 4));
  OK(cuMemcpyHtoD(a, host, n * sizeof *host));
  OK(cuMemcpyDtoD(b, a, n * sizeof *host));
  memset(host, 0, n * sizeof *host);
  OK(cuMemcpyDtoH(host, b, n * sizeof *host));
  for (unsigned i = 0; i < n; i++) TRUE(host[i] == i);
  puts("recorded");
  fflush(stdout);
  if (getchar() == EOF) return 1;
  void *params[] = {&a, &a, &b, &n};
  OK(cuLaunchKernel(add, (n + 255) / 256, 1, 1, 256, 1, 1, 0, NULL, params, NULL));
  OK(cuMemAlloc(&c, bytes / 2));
  OK(cuMemcpyDtoD(c, a, n * sizeof *host));
  OK(cuMemcpyDtoH(host, c, n * sizeof *host));
  for (unsigned i = 0; i < n; i++) TRUE(host[i] == 2 * i);
  puts("launched");
  fflush(stdout);
  while (getchar() != EOF) {
  }
  OK(cuCtxDestroy(ctx));
  puts("done");
}
