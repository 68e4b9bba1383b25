/* Signals of the program's, with handlers that run on the thread's own stack, while it uses the GPU;
 * its own handler of SIGSEGV; an alarm during a long wait. */
#include "check.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/time.h>
#include <time.h>

static atomic_int alarms, faults;
static sigjmp_buf back;

static void on_alarm(int n) {
  volatile char stack[16384]; /* more than a small stack has */
  for (size_t i = 0; i < sizeof stack; i += 512) stack[i] = (char)n;
  atomic_fetch_add(&alarms, 1);
}

static void on_fault(int n) {
  (void)n;
  atomic_fetch_add(&faults, 1);
  siglongjmp(back, 1);
}

static CUfunction spin, fill;

static void *work(void *context) {
  CUdeviceptr p;
  unsigned n = 64, got[64];
  OK(cuCtxSetCurrent(context));
  OK(cuMemAlloc(&p, sizeof got));
  for (unsigned i = 0; i < 300; i++) {
    OK(cuLaunchKernel(fill, 1, 1, 1, 64, 1, 1, 0, CU_STREAM_PER_THREAD, (void *[]){&p, &i, &n}, NULL));
    OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    OK(cuMemcpyDtoH_v2_ptds(got, p, sizeof got));
    TRUE(got[63] == i);
  }
  OK(cuMemFree(p));
  return NULL;
}

static void segfault(void) {
  if (!sigsetjmp(back, 1)) *(volatile int *)16 = 1;
}

int main(int argc, char **argv) {
  struct sigaction a = {.sa_handler = on_alarm}, f = {.sa_handler = on_fault};
  int late = argc > 1 && strcmp(argv[1], "late") == 0;
  if (!late) sigaction(SIGSEGV, &f, NULL), sigaction(SIGALRM, &a, NULL);
  CUcontext ctx = begin();
  if (late) sigaction(SIGSEGV, &f, NULL), sigaction(SIGALRM, &a, NULL);
  segfault();
  struct itimerval every = {{0, 1000}, {0, 1000}};
  setitimer(ITIMER_REAL, &every, NULL);
  spin = load(PTX_HEAD SPIN_KERNEL, "spin");
  fill = load(PTX_HEAD FILL_KERNEL, "fill");
  pthread_t t[3];
  for (int i = 0; i < 3; i++) pthread_create(&t[i], NULL, work, ctx);
  work(ctx);
  for (int i = 0; i < 3; i++) pthread_join(t[i], NULL);
  segfault();
  TRUE(atomic_load(&faults) == 2);
  TRUE(atomic_load(&alarms) > 5);

  /* An alarm is not put off until the end of a long wait. */
  struct itimerval none = {{0, 0}, {0, 0}}, once = {{0, 0}, {0, 20000}};
  setitimer(ITIMER_REAL, &none, NULL);
  unsigned n = 400000000; /* seconds */
  atomic_store(&alarms, 0);
  OK(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&n}, NULL));
  if (argc > 2) { /* the default action ends the process meanwhile */
    signal(SIGALRM, SIG_DFL);
    setitimer(ITIMER_REAL, &once, NULL);
    cuCtxSynchronize();
    return 3;
  }
  OK(cuCtxDestroy(ctx));
}
