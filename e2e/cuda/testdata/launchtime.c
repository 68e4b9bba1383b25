/* How long a launch's call takes: launchtime ROUNDS prints ns a launch, by the clock and by this
 * thread's processor time, over rounds of 1,000 launches, each followed by a synchronization that
 * does not count. */
#include "check.h"

#include <time.h>

static double now(clockid_t c) {
  struct timespec t;
  clock_gettime(c, &t);
  return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

int main(int argc, char **argv) {
  enum { LAUNCHES = 1000 };
  int rounds = argc > 1 ? atoi(argv[1]) : 20;
  CUcontext ctx = begin();
  CUfunction f = load(PTX_HEAD ".visible .entry empty(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n) { ret; }", "empty");
  CUdeviceptr a = 1, b = 2, c = 3;
  unsigned n = 4;
  void *params[] = {&a, &b, &c, &n};
  double wall = 1e18, cpu = 1e18;
  for (int i = 0; i < rounds; i++) {
    double w = now(CLOCK_MONOTONIC), p = now(CLOCK_THREAD_CPUTIME_ID);
    for (int k = 0; k < LAUNCHES; k++) OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    p = now(CLOCK_THREAD_CPUTIME_ID) - p;
    w = now(CLOCK_MONOTONIC) - w;
    if (w < wall) wall = w;
    if (p < cpu) cpu = p;
    OK(cuCtxSynchronize());
  }
  printf("%.0f %.0f\n", wall / LAUNCHES, cpu / LAUNCHES);
  OK(cuCtxDestroy(ctx));
}
