/* Several threads use one context, and each one of its own. */
#include "check.h"

#include <pthread.h>

enum { THREADS = 8, TIMES = 60, N = 1000 };

static CUcontext shared;
static CUfunction fill;

static void *use(void *number) {
  unsigned id = (unsigned)(size_t)number, n = N, got[N];
  CUdeviceptr p;
  CUstream s;
  CUevent e;
  OK(cuCtxSetCurrent(shared));
  OK(cuMemAlloc(&p, sizeof got));
  OK(cuStreamCreate(&s, id % 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
  OK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
  for (unsigned i = 0; i < TIMES; i++) {
    unsigned v = id * 1000 + i;
    OK(cuLaunchKernel(fill, 4, 1, 1, 256, 1, 1, 0, s, (void *[]){&p, &v, &n}, NULL));
    OK(cuEventRecord(e, s));
    if (i % 3 == 0) OK(cuEventSynchronize(e));
    OK(cuMemcpyDtoHAsync(got, p, sizeof got, s));
    OK(cuStreamSynchronize(s));
    TRUE(got[0] == v && got[N - 1] == v);
    if (i % 10 == 0) {
      CUdeviceptr q;
      OK(cuMemAlloc(&q, 1 << 16));
      OK(cuMemsetD8Async(q, 1, 1 << 16, s));
      OK(cuMemFree(q));
    }
  }
  OK(cuEventDestroy(e));
  OK(cuStreamDestroy(s));
  OK(cuMemFree(p));
  return NULL;
}

int main(void) {
  shared = begin();
  fill = load(PTX_HEAD FILL_KERNEL, "fill");
  pthread_t t[THREADS];
  for (size_t i = 0; i < THREADS; i++) pthread_create(&t[i], NULL, use, (void *)i);
  for (int i = 0; i < THREADS; i++) pthread_join(t[i], NULL);
  OK(cuCtxDestroy(shared));
}
