/* How long a context takes to begin: begins CONTEXTS PAUSE prints ms, the median over as many
 * contexts of this process, one after the other, from the call that makes one until memory that it
 * was given is set. The first does not count. Each stays PAUSE ms, and as long nothing is there after
 * it. */
#include "check.h"

#include <time.h>
#include <unistd.h>

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

static int later(const void *a, const void *b) {
  double d = *(const double *)a - *(const double *)b;
  return (d > 0) - (d < 0);
}

int main(int argc, char **argv) {
  enum { MOST = 100 };
  double took[MOST];
  int contexts = argc > 1 ? atoi(argv[1]) : 5;
  unsigned pause = argc > 2 ? (unsigned)atoi(argv[2]) : 1000;
  if (contexts < 1 || contexts >= MOST) return 2;
  for (int i = 0; i <= contexts; i++) {
    double t = now();
    CUcontext ctx = begin();
    CUdeviceptr p;
    OK(cuMemAlloc(&p, 1 << 20));
    OK(cuMemsetD32(p, 1, 1 << 18));
    OK(cuCtxSynchronize());
    if (i > 0) took[i - 1] = now() - t;
    usleep(1000 * pause);
    OK(cuCtxDestroy(ctx));
    usleep(1000 * pause);
  }
  qsort(took, (size_t)contexts, sizeof *took, later);
  printf("%.3f\n", took[contexts / 2]);
}
