/* What the programs here share: checks that name the line, and kernels. */
#ifndef CHECK_H
#define CHECK_H

#include <cuda.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline const char *error_name(CUresult r) {
  const char *s = NULL;
  cuGetErrorName(r, &s);
  return s ? s : "an unknown error";
}

static inline void want_at(int line, const char *what, CUresult got, CUresult want) {
  if (got == want) return;
  fprintf(stderr, "line %d: %s: got %s (%d), want %s (%d)\n", line, what, error_name(got), got, error_name(want), want);
  exit(1);
}

/* The call must return this result. */
#define WANT(want, call) want_at(__LINE__, #call, call, want)
#define OK(call) WANT(CUDA_SUCCESS, call)
#define TRUE(condition) \
  do { \
    if (!(condition)) { \
      fprintf(stderr, "line %d: not so: %s\n", __LINE__, #condition); \
      exit(1); \
    } \
  } while (0)

#define PTX_HEAD ".version 7.0\n.target sm_80\n.address_size 64\n"

/* add(float *c, const float *a, const float *b, unsigned n) */
#define ADD_KERNEL \
  ".visible .entry add(.param .u64 c, .param .u64 a, .param .u64 b, .param .u32 n) {\n" \
  "  .reg .pred %p<2>; .reg .b32 %r<6>; .reg .f32 %f<4>; .reg .b64 %rd<8>;\n" \
  "  ld.param.u64 %rd1, [c]; ld.param.u64 %rd2, [a]; ld.param.u64 %rd3, [b]; ld.param.u32 %r1, [n];\n" \
  "  mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;\n" \
  "  mad.lo.s32 %r5, %r2, %r3, %r4;\n" \
  "  setp.ge.u32 %p1, %r5, %r1; @%p1 bra DONE;\n" \
  "  mul.wide.u32 %rd4, %r5, 4;\n" \
  "  add.s64 %rd5, %rd2, %rd4; add.s64 %rd6, %rd3, %rd4; add.s64 %rd7, %rd1, %rd4;\n" \
  "  ld.global.f32 %f1, [%rd5]; ld.global.f32 %f2, [%rd6]; add.f32 %f3, %f1, %f2; st.global.f32 [%rd7], %f3;\n" \
  "DONE: ret;\n}\n"

/* fill(unsigned *p, unsigned value, unsigned n) */
#define FILL_KERNEL \
  ".visible .entry fill(.param .u64 p, .param .u32 v, .param .u32 n) {\n" \
  "  .reg .pred %p<2>; .reg .b32 %r<7>; .reg .b64 %rd<4>;\n" \
  "  ld.param.u64 %rd1, [p]; ld.param.u32 %r6, [v]; ld.param.u32 %r1, [n];\n" \
  "  mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;\n" \
  "  mad.lo.s32 %r5, %r2, %r3, %r4;\n" \
  "  setp.ge.u32 %p1, %r5, %r1; @%p1 bra DONE;\n" \
  "  mul.wide.u32 %rd2, %r5, 4; add.s64 %rd3, %rd1, %rd2; st.global.u32 [%rd3], %r6;\n" \
  "DONE: ret;\n}\n"

/* spin(unsigned n): one thread that counts to n */
#define SPIN_KERNEL \
  ".visible .entry spin(.param .u32 n) {\n" \
  "  .reg .pred %p<2>; .reg .b32 %r<3>;\n" \
  "  ld.param.u32 %r1, [n]; mov.u32 %r2, 0;\n" \
  "LOOP: add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, %r1; @%p1 bra LOOP;\n" \
  "  ret;\n}\n"

/* bump(unsigned *p): adds 1 to *p, without an atomic operation */
#define BUMP_KERNEL \
  ".visible .entry bump(.param .u64 p) {\n" \
  "  .reg .b32 %r<3>; .reg .b64 %rd<2>;\n" \
  "  ld.param.u64 %rd1, [p]; ld.global.u32 %r1, [%rd1]; add.u32 %r2, %r1, 1; st.global.u32 [%rd1], %r2;\n" \
  "  ret;\n}\n"

/* bad(unsigned long long address): stores to that address */
#define BAD_KERNEL \
  ".visible .entry bad(.param .u64 p) {\n" \
  "  .reg .b64 %rd<2>; .reg .b32 %r<2>;\n" \
  "  ld.param.u64 %rd1, [p]; mov.u32 %r1, 1; st.global.u32 [%rd1], %r1;\n" \
  "  ret;\n}\n"

static inline CUfunction load(const char *ptx, const char *name) {
  CUmodule m;
  CUfunction f;
  OK(cuModuleLoadData(&m, ptx));
  OK(cuModuleGetFunction(&f, m, name));
  return f;
}

/* Makes a context current on device 0. */
static inline CUcontext begin(void) {
  CUdevice d;
  CUcontext c;
  OK(cuInit(0));
  OK(cuDeviceGet(&d, 0));
  OK(cuCtxCreate_v2(&c, 0, d)); /* whatever CUDA_VERSION says */
  return c;
}

#endif
