/* Kernels that fault: CUDA's code, again and again, until the context ends; other contexts go on. */
#include "check.h"

static const char trap_kernel[] = PTX_HEAD ".visible .entry trap_now() { trap; }\n" BAD_KERNEL FILL_KERNEL
    ".visible .entry misaligned(.param .u64 p) {\n"
    "  .reg .b64 %rd<3>; .reg .b32 %r<2>;\n"
    "  ld.param.u64 %rd1, [p]; add.s64 %rd2, %rd1, 1; mov.u32 %r1, 1; st.global.u32 [%rd2], %r1; ret;\n}\n";

/* Launches a faulting kernel in a context of its own, and returns what the synchronization says. */
static CUresult fault(const char *name, CUdeviceptr arg, int by_copy) {
  CUcontext c;
  CUmodule m;
  CUfunction f;
  CUdeviceptr p;
  CUstream s;
  CUevent e;
  unsigned v;
  OK(cuCtxCreate(&c, 0, 0));
  OK(cuModuleLoadData(&m, trap_kernel));
  OK(cuModuleGetFunction(&f, m, name));
  OK(cuMemAlloc(&p, 64));
  OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  OK(cuEventCreate(&e, 0));
  CUdeviceptr at = arg == 1 ? p : arg;
  OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, by_copy ? NULL : s, strcmp(name, "trap_now") ? (void *[]){&at} : NULL, NULL));
  CUresult r = by_copy ? cuMemcpyDtoH(&v, p, 4) : cuStreamSynchronize(s);
  /* It stays. */
  WANT(r, cuCtxSynchronize());
  WANT(r, cuMemcpyDtoH(&v, p, 4));
  WANT(r, cuMemcpyHtoD(p, &v, 4));
  WANT(r, cuMemAlloc(&p, 4));
  WANT(r, cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&at}, NULL));
  WANT(r, cuStreamQuery(s));
  WANT(r, cuStreamSynchronize(NULL));
  WANT(r, cuEventRecord(e, s));
  WANT(r, cuModuleLoadData(&m, trap_kernel));
  OK(cuCtxDestroy(c));
  return r;
}

int main(void) {
  CUcontext ctx = begin();
  CUfunction fill = load(PTX_HEAD FILL_KERNEL, "fill");
  CUdeviceptr p;
  OK(cuMemAlloc(&p, 4096));
  TRUE(fault("bad", 16, 0) == CUDA_ERROR_ILLEGAL_ADDRESS);
  TRUE(fault("bad", 16, 1) == CUDA_ERROR_ILLEGAL_ADDRESS);
  TRUE(fault("misaligned", 1, 0) == CUDA_ERROR_MISALIGNED_ADDRESS);
  CUresult r = fault("trap_now", 0, 0);
  TRUE(r == CUDA_ERROR_LAUNCH_FAILED || r == CUDA_ERROR_ILLEGAL_INSTRUCTION);
  /* The context beside them still works. */
  unsigned v = 3, n = 1024, got[1024];
  void *params[] = {&p, &v, &n};
  OK(cuLaunchKernel(fill, 4, 1, 1, 256, 1, 1, 0, NULL, params, NULL));
  OK(cuMemcpyDtoH(got, p, sizeof got));
  TRUE(got[0] == 3 && got[1023] == 3);

  /* So does the primary context after a reset. */
  CUcontext primary;
  OK(cuDevicePrimaryCtxRetain(&primary, 0));
  OK(cuCtxPushCurrent(primary));
  CUfunction bad = load(PTX_HEAD BAD_KERNEL, "bad");
  CUdeviceptr nowhere = 8;
  OK(cuLaunchKernel(bad, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&nowhere}, NULL));
  WANT(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
  OK(cuDevicePrimaryCtxReset(0));
  OK(cuDevicePrimaryCtxRetain(&primary, 0));
  OK(cuCtxSetCurrent(primary));
  OK(cuMemAlloc(&p, 16));
  OK(cuMemsetD8(p, 1, 16));
  OK(cuCtxSynchronize());
  OK(cuDevicePrimaryCtxRelease(0));
  OK(cuCtxPopCurrent(NULL));
  OK(cuCtxDestroy(ctx));
}
