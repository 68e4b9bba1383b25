/* Functions of the program's in streams: after what is before them, before what is behind them. */
#include "check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

static CUdeviceptr p;
static unsigned *pinned;
static atomic_int calls, order, released;
static pthread_t main_thread;

static void CUDA_CB host(void *data) {
  if (pthread_equal(pthread_self(), main_thread)) _exit(9);
  int n = atomic_fetch_add(&order, 1);
  if (n != *(int *)data) _exit(10);
  atomic_fetch_add(&calls, 1);
}

static void CUDA_CB copied(CUstream s, CUresult r, void *data) {
  if (r != CUDA_SUCCESS || s != *(CUstream *)data || pinned[0] != 7) _exit(11);
  pinned[1] = 8;
  atomic_fetch_add(&calls, 1);
}

static void CUDA_CB waits(void *unused) {
  (void)unused;
  while (!atomic_load(&released)) sched_yield();
}

int main(void) {
  CUcontext ctx = begin();
  CUstream s, t;
  main_thread = pthread_self();
  CUfunction spin = load(PTX_HEAD SPIN_KERNEL, "spin"), fill = load(PTX_HEAD FILL_KERNEL, "fill");
  OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  OK(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
  OK(cuMemAlloc(&p, 64));
  OK(cuMemAllocHost((void **)&pinned, 64));
  pinned[0] = pinned[1] = 0;
  unsigned n = 300000, v = 7, one = 1;
  OK(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, s, (void *[]){&n}, NULL));
  OK(cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, s, (void *[]){&p, &v, &one}, NULL));
  OK(cuMemcpyDtoHAsync(pinned, p, 4, s));
  OK(cuStreamAddCallback(s, copied, &s, 0));
  OK(cuMemcpyHtoDAsync(p + 4, pinned + 1, 4, s)); /* what the callback wrote */
  OK(cuStreamSynchronize(s));
  TRUE(atomic_load(&calls) == 1);
  OK(cuMemcpyDtoH(&v, p + 4, 4));
  TRUE(v == 8);

  int numbers[50];
  for (int i = 0; i < 50; i++) {
    numbers[i] = i;
    OK(cuLaunchHostFunc(s, host, &numbers[i]));
  }
  OK(cuStreamSynchronize(s));
  TRUE(atomic_load(&calls) == 51);
  atomic_store(&order, 0);
  OK(cuLaunchHostFunc_v2(s, host, &numbers[0], 0));
  OK(cuStreamSynchronize(s));
  OK(cuLaunchHostFunc(NULL, host, &numbers[1]));
  OK(cuCtxSynchronize());
  TRUE(atomic_load(&calls) == 53);

  /* An event behind one waits for it; another stream does not. */
  CUevent e;
  OK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
  OK(cuLaunchHostFunc(s, waits, NULL));
  WANT(CUDA_ERROR_NOT_READY, cuStreamQuery(s));
  OK(cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, t, (void *[]){&p, &v, &one}, NULL));
  OK(cuStreamSynchronize(t));
  WANT(CUDA_ERROR_NOT_READY, cuStreamQuery(s));
  atomic_store(&released, 1);
  OK(cuEventRecord(e, s));
  OK(cuEventSynchronize(e));
  OK(cuStreamQuery(s));
  WANT(CUDA_ERROR_INVALID_VALUE, cuStreamAddCallback(s, copied, NULL, 1));
  WANT(CUDA_ERROR_INVALID_VALUE, cuLaunchHostFunc(s, NULL, NULL));
  OK(cuCtxDestroy(ctx));
}
