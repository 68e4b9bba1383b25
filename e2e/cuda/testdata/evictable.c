/* Kernels of many blocks in two streams, long enough to be evicted. The results are the CPU's. */
#include "check.h"

/* mix(unsigned *out, unsigned *sum, unsigned turns): out[i] gets a number that takes turns steps from
   out[i]; the block's numbers are added up in shared memory, and their sum to *sum. */
#define MIX_KERNEL \
  ".visible .entry mix(.param .u64 out, .param .u64 sum, .param .u32 turns) {\n" \
  "  .reg .pred %p<3>; .reg .b32 %r<12>; .reg .b64 %rd<6>;\n" \
  "  .shared .align 4 .u32 part;\n" \
  "  ld.param.u64 %rd1, [out]; ld.param.u64 %rd2, [sum]; ld.param.u32 %r1, [turns];\n" \
  "  mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x; mad.lo.s32 %r5, %r2, %r3, %r4;\n" \
  "  mul.wide.u32 %rd3, %r5, 4; add.s64 %rd4, %rd1, %rd3; ld.global.u32 %r6, [%rd4];\n" \
  "  setp.ne.u32 %p2, %r4, 0; @%p2 bra READY; mov.u32 %r8, 0; st.shared.u32 [part], %r8;\n" \
  "READY: bar.sync 0; mov.u32 %r7, 0;\n" \
  "LOOP: mad.lo.u32 %r6, %r6, 1664525, 1013904223; add.u32 %r7, %r7, 1; setp.lt.u32 %p1, %r7, %r1; @%p1 bra LOOP;\n" \
  "  st.global.u32 [%rd4], %r6;\n" \
  "  atom.shared.add.u32 %r9, [part], %r6; bar.sync 0;\n" \
  "  @%p2 bra DONE; ld.shared.u32 %r10, [part]; red.global.add.u32 [%rd2], %r10;\n" \
  "DONE: ret;\n}\n"

enum { BLOCKS = 200, THREADS = 64, N = BLOCKS * THREADS, STREAMS = 2, TIMES = 12, TURNS = 100 };

int main(void) {
  CUcontext ctx = begin();
  CUfunction mix = load(PTX_HEAD MIX_KERNEL, "mix");
  CUstream s[STREAMS];
  CUdeviceptr out[STREAMS], sum;
  static unsigned host[STREAMS][N], want[STREAMS][N];
  unsigned sums[STREAMS], want_sums[STREAMS] = {0}, turns = TURNS;
  OK(cuMemAlloc(&sum, sizeof sums));
  OK(cuMemsetD8(sum, 0, sizeof sums));
  for (unsigned k = 0; k < STREAMS; k++) {
    OK(cuStreamCreate(&s[k], CU_STREAM_DEFAULT));
    OK(cuMemAlloc(&out[k], sizeof host[k]));
    for (unsigned i = 0; i < N; i++) host[k][i] = want[k][i] = i ^ k << 20;
    OK(cuMemcpyHtoD(out[k], host[k], sizeof host[k]));
  }
  for (unsigned n = 0; n < TIMES; n++) {
    for (unsigned k = 0; k < STREAMS; k++) {
      CUdeviceptr at = sum + 4 * k;
      void *params[] = {&out[k], &at, &turns};
      OK(cuLaunchKernel(mix, BLOCKS, 1, 1, THREADS, 1, 1, 0, s[k], params, NULL));
    }
    OK(cuCtxSynchronize()); /* a kernel's form is chosen by what its launches so far took */
  }
  for (unsigned n = 0; n < TIMES; n++)
    for (unsigned k = 0; k < STREAMS; k++)
      for (unsigned i = 0; i < N; i++) {
        for (unsigned t = 0; t < TURNS; t++) want[k][i] = want[k][i] * 1664525u + 1013904223u;
        want_sums[k] += want[k][i];
      }
  OK(cuCtxSynchronize());
  OK(cuMemcpyDtoH(sums, sum, sizeof sums));
  for (unsigned k = 0; k < STREAMS; k++) {
    OK(cuMemcpyDtoH(host[k], out[k], sizeof host[k]));
    TRUE(memcmp(host[k], want[k], sizeof host[k]) == 0);
    TRUE(sums[k] == want_sums[k]);
  }
  OK(cuCtxDestroy(ctx));
  return 0;
}
