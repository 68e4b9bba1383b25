/* A failed assertion is told on stderr, and its error stays. */
#include "check.h"

static const char kernels[] = PTX_HEAD
    ".extern .func __assertfail(.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 n, .param .b64 s);\n"
    ".global .align 1 .b8 message[8] = {120, 32, 60, 32, 121, 0};\n" /* x < y */
    ".global .align 1 .b8 file[8] = {107, 46, 99, 117, 0};\n"        /* k.cu */
    ".global .align 1 .b8 name[8] = {107, 101, 114, 110, 0};\n"     /* kern */
    ".visible .entry check() {\n"
    "  .reg .b64 %rd<7>; .reg .b32 %r<2>;\n"
    "  mov.u64 %rd1, message; cvta.global.u64 %rd2, %rd1; mov.u64 %rd3, file; cvta.global.u64 %rd4, %rd3; mov.u64 %rd5, name; cvta.global.u64 %rd6, %rd5; mov.u32 %r1, 42;\n"
    "  { .param .b64 m; .param .b64 f; .param .b32 l; .param .b64 n; .param .b64 s;\n"
    "    st.param.b64 [m], %rd2; st.param.b64 [f], %rd4; st.param.b32 [l], %r1; st.param.b64 [n], %rd6; st.param.b64 [s], 1;\n"
    "    call __assertfail, (m, f, l, n, s); }\n"
    "  ret;\n}\n";

int main(void) {
  begin();
  CUfunction f = load(kernels, "check");
  OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
  WANT(CUDA_ERROR_ASSERT, cuCtxSynchronize());
  WANT(CUDA_ERROR_ASSERT, cuCtxSynchronize());
}
