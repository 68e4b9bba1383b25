/* What kernels print appears at each synchronization, in its order with the program's own output. */
#include "check.h"

static const char kernels[] = PTX_HEAD
    ".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);\n"
    ".global .align 1 .b8 text[10] = {37, 100, 32, 115, 97, 105, 100, 10, 0};\n" /* "%d said\n" */
    ".visible .entry say(.param .u32 n) {\n"
    "  .local .align 8 .b8 stack[8]; .reg .b32 %r<3>; .reg .b64 %rd<5>; .reg .pred %p<2>;\n"
    "  ld.param.u32 %r1, [n]; mov.u64 %rd1, stack; cvta.local.u64 %rd2, %rd1; st.local.u32 [%rd1], %r1;\n"
    "  mov.u64 %rd3, text; cvta.global.u64 %rd4, %rd3;\n"
    "  { .param .b64 f; .param .b64 a; .param .b32 r; st.param.b64 [f], %rd4; st.param.b64 [a], %rd2;\n"
    "    call (r), vprintf, (f, a); ld.param.b32 %r2, [r]; }\n"
    "  setp.eq.u32 %p1, %r1, 9; @%p1 trap;\n"
    "  ret;\n}\n";

static CUfunction say;

static void launch(CUstream s, unsigned n) {
  OK(cuLaunchKernel(say, 1, 1, 1, 1, 1, 1, 0, s, (void *[]){&n}, NULL));
}

int main(int argc, char **argv) {
  CUcontext ctx = begin();
  CUstream s;
  CUevent e;
  OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  OK(cuEventCreate(&e, 0));
  say = load(kernels, "say");
  if (argc > 1 && !strcmp(argv[1], "trap")) { /* what was printed before a trap appears where it is found */
    launch(s, 8);
    launch(s, 9);
    WANT(CUDA_ERROR_LAUNCH_FAILED, cuStreamSynchronize(s));
    printf("after the trap\n");
    WANT(CUDA_ERROR_LAUNCH_FAILED, cuCtxSynchronize());
    return 0;
  }
  printf("begin\n");
  launch(NULL, 1);
  OK(cuCtxSynchronize());
  printf("after the context\n");
  launch(s, 2);
  OK(cuStreamSynchronize(s));
  printf("after the stream\n");
  launch(s, 3);
  OK(cuEventRecord(e, s));
  OK(cuEventSynchronize(e));
  printf("after the event\n");
  CUdeviceptr p;
  unsigned v;
  OK(cuMemAlloc(&p, 4));
  launch(NULL, 4);
  OK(cuMemcpyDtoH(&v, p, 4));
  printf("after the copy\n");
  launch(NULL, 5);
  OK(cuCtxDestroy(ctx));
  printf("after the context's end\n");
  begin();
  say = load(kernels, "say");
  launch(NULL, 6);
  /* The last appears at the process's end. */
}
