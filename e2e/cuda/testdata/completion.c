/* How long launches take to their completion: for each line on stdin, "empty" or "work", it launches
 * that kernel so many times (argument 1), one after the other, synchronizes after each, and prints
 * the nanoseconds of each launch on average. */
#include "check.h"

#include <time.h>

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

static char *read_file(const char *path) {
  static char text[1 << 16];
  FILE *f = fopen(path, "r");
  TRUE(f != NULL);
  text[fread(text, 1, sizeof text - 1, f)] = 0;
  fclose(f);
  return text;
}

int main(int argc, char **argv) {
  TRUE(argc == 3);
  int rounds = atoi(argv[1]);
  char name[64];
  CUcontext ctx = begin();
  CUmodule m;
  OK(cuModuleLoadData(&m, read_file(argv[2])));
  CUdeviceptr p = 0;
  unsigned v = 1, n = 1 << 14;
  OK(cuMemAlloc(&p, 4 * n));
  while (scanf("%63s", name) == 1) {
    CUfunction f;
    OK(cuModuleGetFunction(&f, m, name));
    void *params[] = {&p, &v, &n};
    double t = now();
    for (int i = 0; i < rounds; i++) {
      OK(cuLaunchKernel(f, n / 256, 1, 1, 256, 1, 1, 0, NULL, params, NULL));
      OK(cuCtxSynchronize());
    }
    printf("%.0f\n", (now() - t) / rounds);
    fflush(stdout);
  }
  OK(cuCtxDestroy(ctx));
}
