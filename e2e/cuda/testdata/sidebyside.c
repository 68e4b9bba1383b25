/* Kernels of several streams, and of several branches of a graph, that wait for each other: they
   end only if they execute side by side. And what must still be in order. */
#define CUDA_VERSION 13000
#include "check.h"

/* meet(unsigned *mine, unsigned *other): sets *mine and waits until *other is set */
#define MEET_KERNEL \
  ".visible .entry meet(.param .u64 mine, .param .u64 other) {\n" \
  "  .reg .pred %p<2>; .reg .b32 %r<3>; .reg .b64 %rd<3>;\n" \
  "  ld.param.u64 %rd1, [mine]; ld.param.u64 %rd2, [other];\n" \
  "  mov.u32 %r1, 1; st.volatile.global.u32 [%rd1], %r1;\n" \
  "LOOP: ld.volatile.global.u32 %r2, [%rd2]; setp.eq.u32 %p1, %r2, 0; @%p1 bra LOOP;\n" \
  "  ret;\n}\n"

/* note(unsigned *list, unsigned n): appends n to the list, whose first word is its length */
#define NOTE_KERNEL \
  ".visible .entry note(.param .u64 list, .param .u32 n) {\n" \
  "  .reg .b32 %r<4>; .reg .b64 %rd<4>;\n" \
  "  ld.param.u64 %rd1, [list]; ld.param.u32 %r1, [n];\n" \
  "  atom.global.add.u32 %r2, [%rd1], 1; mul.wide.u32 %rd2, %r2, 4; add.s64 %rd3, %rd1, %rd2;\n" \
  "  st.global.u32 [%rd3+4], %r1;\n" \
  "  ret;\n}\n"

enum { WORDS = 64 };

static CUfunction meet, note;
static CUdeviceptr words, list;

static void clear_all(void) {
  OK(cuCtxSynchronize());
  OK(cuMemsetD32(words, 0, WORDS));
  OK(cuMemsetD32(list, 0, WORDS));
  OK(cuCtxSynchronize());
}

static void launch_meet(CUstream s, int mine, int other) {
  CUdeviceptr m = words + 4 * mine, o = words + 4 * other;
  void *params[] = {&m, &o};
  OK(cuLaunchKernel(meet, 1, 1, 1, 32, 1, 1, 0, s, params, NULL));
}

static void launch_note(CUstream s, unsigned n) {
  void *params[] = {&list, &n};
  OK(cuLaunchKernel(note, 1, 1, 1, 1, 1, 1, 0, s, params, NULL));
}

/* The list must be this. */
static void want_notes(int line, unsigned n, const unsigned *notes) {
  unsigned got[WORDS];
  OK(cuCtxSynchronize());
  OK(cuMemcpyDtoH(got, list, sizeof got));
  int wrong = got[0] != n;
  for (unsigned i = 0; i < n; i++) wrong |= got[i + 1] != notes[i];
  if (!wrong) return;
  fprintf(stderr, "line %d: %u notes:", line, got[0]);
  for (unsigned i = 0; i < got[0]; i++) fprintf(stderr, " %u", got[i + 1]);
  fprintf(stderr, "\n");
  exit(1);
}
#define NOTES(...) want_notes(__LINE__, sizeof((unsigned[]){__VA_ARGS__}) / sizeof(unsigned), (unsigned[]){__VA_ARGS__})

/* Two streams meet, and one then waits for an event of the other's. */
static void streams(void) {
  CUstream s, t;
  CUevent e;
  OK(cuStreamCreate(&s, CU_STREAM_DEFAULT));
  OK(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
  OK(cuEventCreate(&e, CU_EVENT_DEFAULT));
  clear_all();
  launch_meet(s, 0, 1);
  launch_note(s, 1);
  OK(cuEventRecord(e, s));
  launch_meet(t, 1, 0);
  OK(cuStreamWaitEvent(t, e, 0));
  launch_note(t, 2);
  OK(cuStreamSynchronize(t));
  NOTES(1, 2);
  /* What comes after the recording is not waited for. */
  clear_all();
  launch_note(s, 1);
  OK(cuEventRecord(e, s));
  launch_meet(s, 0, 1);
  OK(cuStreamWaitEvent(t, e, 0));
  launch_note(t, 2);
  launch_meet(t, 1, 0);
  NOTES(1, 2);
  OK(cuEventDestroy(e));
  OK(cuStreamDestroy(s));
  OK(cuStreamDestroy(t));
}

/* Four streams meet in a circle. */
static void circle(void) {
  enum { STREAMS = 4 };
  CUstream s[STREAMS];
  for (int i = 0; i < STREAMS; i++) OK(cuStreamCreate(&s[i], CU_STREAM_NON_BLOCKING));
  clear_all();
  for (int i = 0; i < STREAMS; i++) launch_meet(s[i], i, (i + 1) % STREAMS);
  OK(cuCtxSynchronize());
  for (int i = 0; i < STREAMS; i++) OK(cuStreamDestroy(s[i]));
}

/* The legacy stream waits for blocking streams and they for it, while a non-blocking one does not;
   nor does it wait for a thread's own, which is a blocking one. */
static void defaults(void) {
  CUstream s, t, n;
  OK(cuStreamCreate(&s, CU_STREAM_DEFAULT));
  OK(cuStreamCreate(&t, CU_STREAM_DEFAULT));
  OK(cuStreamCreate(&n, CU_STREAM_NON_BLOCKING));
  clear_all();
  launch_meet(s, 0, 1);
  launch_note(s, 1);
  launch_note(NULL, 2);
  launch_note(t, 3);
  launch_meet(n, 1, 0);
  NOTES(1, 2, 3);
  clear_all();
  launch_meet(CU_STREAM_PER_THREAD, 0, 1);
  launch_note(CU_STREAM_PER_THREAD, 1);
  launch_note(CU_STREAM_LEGACY, 2);
  launch_note(CU_STREAM_PER_THREAD, 3);
  launch_meet(n, 1, 0);
  NOTES(1, 2, 3);
  clear_all();
  launch_meet(CU_STREAM_PER_THREAD, 0, 1);
  launch_meet(s, 1, 0);
  OK(cuCtxSynchronize());
  OK(cuStreamDestroy(s));
  OK(cuStreamDestroy(t));
  OK(cuStreamDestroy(n));
}

static CUgraphNode node(CUgraph g, CUfunction f, void **params, size_t ndeps, const CUgraphNode *deps) {
  CUDA_KERNEL_NODE_PARAMS k = {.func = f, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1};
  CUgraphNode n;
  k.kernelParams = params;
  OK(cuGraphAddKernelNode(&n, g, deps, ndeps, &k));
  return n;
}

/* A note, two branches that meet, and a note after both; two such in a row. */
static CUgraphExec branches(void) {
  CUgraph g;
  CUgraphExec e;
  OK(cuGraphCreate(&g, 0));
  CUgraphNode last = NULL;
  for (unsigned i = 0; i < 2; i++) {
    unsigned before = 10 * i + 1, after = 10 * i + 2;
    CUdeviceptr a = words + 8 * i, b = a + 4;
    CUgraphNode first = node(g, note, (void *[]){&list, &before}, last ? 1 : 0, &last);
    CUgraphNode two[2] = {
        node(g, meet, (void *[]){&a, &b}, 1, &first),
        node(g, meet, (void *[]){&b, &a}, 1, &first),
    };
    last = node(g, note, (void *[]){&list, &after}, 2, two);
  }
  OK(cuGraphInstantiateWithFlags(&e, g, 0));
  OK(cuGraphDestroy(g));
  return e;
}

static void graphs(void) {
  CUstream s, t;
  OK(cuStreamCreate(&s, CU_STREAM_DEFAULT));
  OK(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
  CUgraphExec e = branches();
  CUstream in[] = {s, t, NULL, CU_STREAM_PER_THREAD};
  for (int i = 0; i < 4; i++) {
    clear_all();
    launch_note(in[i], 7);
    OK(cuGraphLaunch(e, in[i]));
    launch_note(in[i], 8);
    NOTES(7, 1, 2, 11, 12, 8);
  }
  /* Other streams' work comes before and after all of the graph where the streams' does. */
  clear_all();
  launch_note(s, 7);
  OK(cuGraphLaunch(e, NULL));
  launch_note(s, 8);
  NOTES(7, 1, 2, 11, 12, 8);
  clear_all();
  launch_note(NULL, 7);
  OK(cuGraphLaunch(e, s));
  launch_note(NULL, 8);
  NOTES(7, 1, 2, 11, 12, 8);
  OK(cuGraphExecDestroy(e));
  OK(cuStreamDestroy(s));
  OK(cuStreamDestroy(t));
}

/* The same from a capture of two streams, of which one begins and ends beside the other. */
static void captured(void) {
  CUstream s, t;
  CUevent fork, join;
  CUgraph g;
  CUgraphExec e;
  OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  OK(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
  OK(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
  OK(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
  clear_all();
  OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  launch_note(s, 1);
  OK(cuEventRecord(fork, s));
  OK(cuStreamWaitEvent(t, fork, 0));
  launch_meet(s, 0, 1);
  launch_meet(t, 1, 0);
  OK(cuEventRecord(join, t));
  OK(cuStreamWaitEvent(s, join, 0));
  launch_note(s, 2);
  OK(cuStreamEndCapture(s, &g));
  OK(cuGraphInstantiateWithFlags(&e, g, 0));
  OK(cuGraphLaunch(e, s));
  NOTES(1, 2);
  clear_all();
  OK(cuGraphLaunch(e, t));
  NOTES(1, 2);
  OK(cuGraphExecDestroy(e));
  OK(cuGraphDestroy(g));
  OK(cuEventDestroy(fork));
  OK(cuEventDestroy(join));
  OK(cuStreamDestroy(s));
  OK(cuStreamDestroy(t));
}

int main(void) {
  CUcontext c = begin();
  int concurrent = 0;
  OK(cuDeviceGetAttribute(&concurrent, CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 0));
  TRUE(concurrent == 1);
  CUmodule m;
  OK(cuModuleLoadData(&m, PTX_HEAD MEET_KERNEL NOTE_KERNEL));
  OK(cuModuleGetFunction(&meet, m, "meet"));
  OK(cuModuleGetFunction(&note, m, "note"));
  OK(cuMemAlloc(&words, 4 * WORDS));
  OK(cuMemAlloc(&list, 4 * WORDS));
  streams();
  circle();
  defaults();
  graphs();
  captured();
  OK(cuCtxDestroy(c));
  return 0;
}
