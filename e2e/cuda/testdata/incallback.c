/* A callback may not call CUDA, and may end the process. */
#include "check.h"

#include <unistd.h>

static CUdeviceptr p;
static CUresult answers[4];

static void ask(CUresult *r) {
  CUdevice d;
  CUdeviceptr base;
  size_t size;
  r[0] = cuCtxGetDevice(&d);
  r[1] = cuMemGetAddressRange(&base, &size, p);
}

static void CUDA_CB function(void *data) { ask(data); }
static void CUDA_CB callback(CUstream s, CUresult status, void *data) {
  (void)s;
  TRUE(status == CUDA_SUCCESS);
  ask(data);
}
static void CUDA_CB end(void *data) { exit(data != NULL); }

int main(void) {
  begin();
  CUstream s;
  OK(cuMemAlloc(&p, 4));
  OK(cuStreamCreate(&s, CU_STREAM_DEFAULT));
  OK(cuLaunchHostFunc(s, function, &answers[0]));
  OK(cuStreamAddCallback(s, callback, &answers[2], 0));
  OK(cuStreamSynchronize(s));
  for (int i = 0; i < 4; i++) TRUE(answers[i] == CUDA_ERROR_NOT_PERMITTED);
  CUdeviceptr base;
  OK(cuMemGetAddressRange(&base, NULL, p));
  TRUE(base == p);

  OK(cuLaunchHostFunc(s, end, NULL));
  cuStreamSynchronize(s);
  for (;;) pause();
}
