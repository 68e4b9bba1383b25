/* Streams and events: order, overlap, the default streams, times. */
#include "check.h"

#include <time.h>

#include <pthread.h>

enum { LONG = 1500000 }; /* 3.6 s */

static CUfunction spin, fill, bump;
static CUdeviceptr p;

static void launch_spin(CUstream s, unsigned n) {
  void *params[] = {&n};
  OK(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, s, params, NULL));
}

static void launch_fill(CUstream s, unsigned v) {
  unsigned n = 1;
  void *params[] = {&p, &v, &n};
  OK(cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, s, params, NULL));
}

static void launch_bump(CUstream s) {
  void *params[] = {&p};
  OK(cuLaunchKernel(bump, 1, 1, 1, 1, 1, 1, 0, s, params, NULL));
}

static unsigned value(void) {
  unsigned v;
  OK(cuMemcpyDtoH(&v, p, 4));
  return v;
}

/* Each of many streams, over few channels, keeps its order. */
static void many(void) {
  enum { STREAMS = 40, TIMES = 25 };
  CUstream s[STREAMS];
  CUdeviceptr q;
  unsigned v[STREAMS];
  OK(cuMemAlloc(&q, sizeof v));
  OK(cuMemsetD32(q, 0, STREAMS));
  for (int i = 0; i < STREAMS; i++) OK(cuStreamCreate(&s[i], i % 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
  OK(cuCtxSynchronize());
  for (int k = 0; k < TIMES; k++)
    for (int i = 0; i < STREAMS; i++) {
      CUdeviceptr at = q + 4 * i;
      void *params[] = {&at};
      OK(cuLaunchKernel(bump, 1, 1, 1, 1, 1, 1, 0, s[i], params, NULL));
    }
  for (int i = 0; i < STREAMS; i++) OK(cuStreamSynchronize(s[i]));
  OK(cuMemcpyDtoH(v, q, sizeof v));
  for (int i = 0; i < STREAMS; i++) TRUE(v[i] == TIMES);
  for (int i = 0; i < STREAMS; i++) OK(cuStreamDestroy(s[i]));
  WANT(CUDA_ERROR_INVALID_HANDLE, cuStreamDestroy(s[0]));
  OK(cuMemFree(q));
}

/* The legacy stream waits for the blocking ones, and they for it. */
static void legacy(void) {
  CUstream s, t;
  OK(cuStreamCreate(&s, CU_STREAM_DEFAULT));
  OK(cuStreamCreate(&t, CU_STREAM_DEFAULT));
  for (unsigned i = 1; i <= 5; i++) {
    OK(cuMemsetD32(p, 0, 1));
    launch_spin(s, LONG / 20);
    launch_fill(s, i);
    launch_bump(NULL);
    launch_bump(t);
    OK(cuStreamSynchronize(t));
    TRUE(value() == i + 2);
  }
  OK(cuStreamDestroy(s));
  OK(cuStreamDestroy(t));
}

/* now returns the time in milliseconds. */
static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

static void events(void) {
  CUstream s, t;
  CUevent start, end, plain, never;
  float ms = -1, ms2 = -1;
  OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  OK(cuStreamCreateWithPriority(&t, CU_STREAM_NON_BLOCKING, -1));
  OK(cuEventCreate(&start, CU_EVENT_DEFAULT));
  OK(cuEventCreate(&end, CU_EVENT_BLOCKING_SYNC));
  OK(cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING));
  OK(cuEventCreate(&never, CU_EVENT_DEFAULT));
  WANT(CUDA_ERROR_INVALID_VALUE, cuEventCreate(&never, 0x80));
  WANT(CUDA_ERROR_NOT_SUPPORTED, cuEventCreate(&never, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
  OK(cuEventQuery(never));
  OK(cuEventSynchronize(never));
  OK(cuMemsetD32(p, 0, 1));
  OK(cuCtxSynchronize());

  double from = now();
  OK(cuEventRecord(start, s));
  launch_spin(s, LONG);
  launch_fill(s, 7);
  OK(cuEventRecordWithFlags(end, s, 0));
  WANT(CUDA_ERROR_NOT_READY, cuEventQuery(end));
  WANT(CUDA_ERROR_NOT_READY, cuEventElapsedTime(&ms, start, end));
  WANT(CUDA_ERROR_NOT_READY, cuStreamQuery(s));
  OK(cuStreamWaitEvent(t, end, 0));
  launch_bump(t);
  OK(cuEventRecord(plain, t));
  OK(cuEventSynchronize(plain));
  OK(cuEventQuery(end));
  OK(cuStreamQuery(s));
  OK(cuStreamQuery(t));
  unsigned v;
  OK(cuMemcpyDtoHAsync(&v, p, 4, t));
  OK(cuStreamSynchronize(t));
  TRUE(v == 8);
  OK(cuEventElapsedTime(&ms, start, end));
  OK(cuEventElapsedTime_v2(&ms2, start, end));
  TRUE(ms > 0 && ms < now() - from && ms == ms2);
  WANT(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&ms, start, never));
  WANT(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&ms, start, plain));
  WANT(CUDA_ERROR_INVALID_HANDLE, cuEventRecord((CUevent)s, s));
  WANT(CUDA_ERROR_INVALID_HANDLE, cuStreamWaitEvent(s, (CUevent)begin, 0));
  WANT(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(end, (CUstream)0x77));
  OK(cuStreamWaitEvent(t, never, 0));

  unsigned flags;
  int priority;
  unsigned long long a, b;
  CUcontext c, d;
  CUdevice dev;
  OK(cuStreamGetFlags(s, &flags));
  TRUE(flags == CU_STREAM_NON_BLOCKING);
  OK(cuStreamGetPriority(t, &priority));
  TRUE(priority == -1);
  OK(cuStreamGetId(s, &a));
  OK(cuStreamGetId(t, &b));
  TRUE(a != b);
  OK(cuStreamGetCtx(s, &c));
  CUgreenCtx green = (CUgreenCtx)1;
  OK(cuStreamGetCtx_v2(s, &d, &green));
  TRUE(c == d && green == NULL);
  OK(cuCtxGetCurrent(&d));
  TRUE(c == d);
  OK(cuStreamGetDevice(s, &dev));
  CUstreamAttrValue attribute = {.syncPolicy = CU_SYNC_POLICY_YIELD}, other;
  OK(cuStreamSetAttribute(s, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &attribute));
  OK(cuStreamCopyAttributes(t, s));
  OK(cuStreamGetAttribute(t, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &other));
  TRUE(other.syncPolicy == CU_SYNC_POLICY_YIELD);
  WANT(CUDA_ERROR_INVALID_VALUE, cuStreamSetAttribute(s, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &attribute));
  WANT(CUDA_ERROR_INVALID_VALUE, cuStreamCreate(&s, 0x10));
  WANT(CUDA_ERROR_INVALID_VALUE, cuStreamCreate(NULL, 0));
  OK(cuEventDestroy(start));
  WANT(CUDA_ERROR_INVALID_HANDLE, cuEventDestroy(start));
  WANT(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(start));
  OK(cuEventDestroy(end));
  OK(cuStreamDestroy(s));
  OK(cuStreamDestroy(t));
}

/* Each thread has a default stream of its own. */
static void *own_stream(void *context) {
  CUdeviceptr q;
  unsigned v, n = 1, w = 5;
  unsigned long long *id = malloc(sizeof *id);
  OK(cuCtxSetCurrent(context));
  OK(cuMemAlloc(&q, 4));
  void *params[] = {&q, &w, &n};
  OK(cuLaunchKernel_ptsz(fill, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
  OK(cuMemcpyDtoH_v2_ptds(&v, q, 4));
  TRUE(v == 5);
  OK(cuStreamGetId(CU_STREAM_PER_THREAD, id));
  unsigned long long same;
  OK(cuStreamGetId_ptsz(NULL, &same));
  TRUE(same == *id);
  OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
  OK(cuMemFree(q));
  return id;
}

int main(void) {
  CUcontext ctx = begin();
  spin = load(PTX_HEAD SPIN_KERNEL, "spin");
  fill = load(PTX_HEAD FILL_KERNEL, "fill");
  bump = load(PTX_HEAD BUMP_KERNEL, "bump");
  OK(cuMemAlloc(&p, 4));
  many();
  legacy();
  events();
  unsigned long long ids[4];
  pthread_t t[4];
  for (int i = 0; i < 4; i++) pthread_create(&t[i], NULL, own_stream, ctx);
  for (int i = 0; i < 4; i++) {
    void *id;
    pthread_join(t[i], &id);
    ids[i] = *(unsigned long long *)id;
  }
  TRUE(ids[0] != 0);
  OK(cuStreamQuery(CU_STREAM_LEGACY));
  /* What was enqueued in a stream that is destroyed is still carried out. */
  CUstream s;
  OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  OK(cuMemsetD32(p, 0, 1));
  OK(cuCtxSynchronize());
  launch_spin(s, LONG / 10);
  launch_fill(s, 99);
  OK(cuStreamDestroy(s));
  OK(cuCtxSynchronize());
  TRUE(value() == 99);
  OK(cuCtxDestroy(ctx));
}
