/* A child of a fork has no CUDA; one that executes another program has; the parent goes on. */
#include "check.h"

#include <sys/wait.h>
#include <unistd.h>

static void expect(pid_t child, int status) {
  int s;
  TRUE(waitpid(child, &s, 0) == child && WIFEXITED(s));
  if (WEXITSTATUS(s) != status) fprintf(stderr, "a child ended with %d\n", WEXITSTATUS(s)), exit(1);
}

int main(int argc, char **argv) {
  int n;
  CUdeviceptr p;
  if (argc > 1) { /* the executed program */
    CUcontext c = begin();
    OK(cuMemAlloc(&p, 64));
    OK(cuCtxDestroy(c));
    return 5;
  }
  pid_t child = fork(); /* before cuInit: nothing is special */
  if (child == 0) {
    begin();
    _exit(4);
  }
  expect(child, 4);
  CUcontext ctx = begin();
  CUfunction fill = load(PTX_HEAD FILL_KERNEL, "fill");
  OK(cuMemAlloc(&p, 4096));
  OK(cuCtxPopCurrent(NULL)); /* gives the device's room to the children */
  OK(cuCtxPushCurrent(ctx));
  for (int i = 0; i < 10; i++) {
    child = fork();
    if (child == 0) {
      CUcontext c;
      WANT(CUDA_ERROR_NOT_INITIALIZED, cuInit(0));
      WANT(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount(&n));
      WANT(CUDA_ERROR_NOT_INITIALIZED, cuMemAlloc(&p, 4));
      WANT(CUDA_ERROR_NOT_INITIALIZED, cuCtxGetCurrent(&c));
      WANT(CUDA_ERROR_NOT_INITIALIZED, cuCtxSynchronize());
      exit(6); /* runs what the library has for the end of a process */
    }
    expect(child, 6);
  }
  unsigned v = 1, m = 1024, got[1024];
  OK(cuLaunchKernel(fill, 4, 1, 1, 256, 1, 1, 0, NULL, (void *[]){&p, &v, &m}, NULL));
  OK(cuMemcpyDtoH(got, p, sizeof got));
  TRUE(got[1023] == 1);
  OK(cuCtxDestroy(ctx));
  (void)argv;
}
