/* Stream capture: what streams would do becomes a graph. */
#define CUDA_VERSION 13000
#include "check.h"

#include <pthread.h>
#include <stdatomic.h>

enum { N = 1000 };

static CUcontext ctx;
static CUfunction fill;
static unsigned host[N];

static atomic_int calls;
static void CUDA_CB called(void *data) { atomic_fetch_add(&calls, *(int *)data); }

static void start(CUstream s, CUdeviceptr p, unsigned value) {
  unsigned n = N;
  void *args[] = {&p, &value, &n};
  OK(cuLaunchKernel(fill, 4, 1, 1, 256, 1, 1, 0, s, args, NULL));
}

static void want_status(CUstream s, CUstreamCaptureStatus want) {
  CUstreamCaptureStatus status = 99;
  OK(cuStreamIsCapturing(s, &status));
  TRUE(status == want);
}

static size_t nodes_of(CUgraph g) {
  size_t n = 0;
  OK(cuGraphGetNodes(g, NULL, &n));
  return n;
}

static void replay(CUgraph g, CUstream s) {
  CUgraphExec e;
  OK(cuGraphInstantiateWithFlags(&e, g, 0));
  OK(cuGraphLaunch(e, s));
  OK(cuStreamSynchronize(s));
  OK(cuGraphExecDestroy(e));
}

/* One stream, all that can be captured in it. */
static void sequence(CUstream s, CUdeviceptr a, CUdeviceptr b) {
  OK(cuMemsetD32Async(a, 1, N, s)); /* s does not wait for the legacy stream */
  want_status(s, CU_STREAM_CAPTURE_STATUS_NONE);
  OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  want_status(s, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  WANT(CUDA_ERROR_ILLEGAL_STATE, cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
  start(s, a, 8);
  OK(cuMemcpyDtoDAsync(b, a, sizeof host, s));
  OK(cuMemsetD32Async(a, 2, N, s));
  OK(cuMemcpyDtoHAsync(host, b, sizeof host, s));
  int one = 1;
  OK(cuLaunchHostFunc(s, called, &one));
  CUstreamCaptureStatus status;
  cuuint64_t id = 0;
  CUgraph g = NULL, same;
  const CUgraphNode *deps;
  size_t n = 0;
  const CUgraphEdgeData *edges;
  OK(cuStreamGetCaptureInfo(s, &status, &id, &same, &deps, &edges, &n));
  TRUE(status == CU_STREAM_CAPTURE_STATUS_ACTIVE && id != 0 && n == 1 && deps[0] != NULL);
  OK(cuStreamEndCapture(s, &g));
  TRUE(g == same && nodes_of(g) == 5 && calls == 0);
  want_status(s, CU_STREAM_CAPTURE_STATUS_NONE);
  WANT(CUDA_ERROR_ILLEGAL_STATE, cuStreamEndCapture(s, &same));
  memset(host, 0, sizeof host);
  replay(g, s);
  TRUE(calls == 1 && host[0] == 8 && host[N - 1] == 8);
  OK(cuMemcpyDtoH(host, a, sizeof host));
  TRUE(host[0] == 2 && host[N - 1] == 2);
  OK(cuGraphDestroy(g));
}

/* Work that forks to another stream and joins again. */
static void fork_and_join(CUstream s, CUstream t, CUdeviceptr a, CUdeviceptr b) {
  CUevent forked, joined;
  OK(cuEventCreate(&forked, CU_EVENT_DISABLE_TIMING));
  OK(cuEventCreate(&joined, CU_EVENT_DISABLE_TIMING));
  CUgraph g;
  OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  start(s, a, 1);
  OK(cuEventRecord(forked, s));
  WANT(CUDA_ERROR_CAPTURED_EVENT, cuEventQuery(forked));
  OK(cuStreamWaitEvent(t, forked, 0));
  want_status(t, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  OK(cuMemcpyDtoDAsync(b, a, sizeof host, t));
  WANT(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, cuStreamEndCapture(t, &g));
  OK(cuEventRecord(joined, t));
  OK(cuStreamWaitEvent(s, joined, 0));
  start(s, a, 3);
  OK(cuStreamEndCapture(s, &g));
  want_status(t, CU_STREAM_CAPTURE_STATUS_NONE);
  TRUE(nodes_of(g) == 3);
  size_t edges = 0;
  OK(cuGraphGetEdges(g, NULL, NULL, NULL, &edges));
  TRUE(edges == 3);
  replay(g, t);
  OK(cuMemcpyDtoH(host, b, sizeof host));
  TRUE(host[0] == 1 && host[N - 1] == 1);
  OK(cuMemcpyDtoH(host, a, sizeof host));
  TRUE(host[0] == 3 && host[N - 1] == 3);
  OK(cuGraphDestroy(g));

  /* Not joined. */
  OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
  start(s, a, 1);
  OK(cuEventRecord(forked, s));
  OK(cuStreamWaitEvent(t, forked, 0));
  start(t, b, 1);
  WANT(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, cuStreamEndCapture(s, &g));
  TRUE(g == NULL);
  /* A stream that joined the capture may go before the capture's end. Its nodes must be joined. */
  for (int joins = 0; joins < 2; joins++) {
    CUstream gone;
    OK(cuStreamCreate(&gone, CU_STREAM_NON_BLOCKING));
    OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    start(s, a, 1);
    OK(cuEventRecord(forked, s));
    OK(cuStreamWaitEvent(gone, forked, 0));
    start(gone, b, 1);
    OK(cuEventRecord(joined, gone));
    if (joins) OK(cuStreamWaitEvent(s, joined, 0));
    OK(cuStreamDestroy(gone));
    start(s, a, 2);
    WANT(joins ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNJOINED, cuStreamEndCapture(s, &g));
    if (joins) {
      TRUE(nodes_of(g) == 3);
      OK(cuGraphDestroy(g));
    }
  }
  /* Two captures must not meet. */
  OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
  OK(cuStreamBeginCapture(t, CU_STREAM_CAPTURE_MODE_RELAXED));
  OK(cuEventRecord(forked, s));
  WANT(CUDA_ERROR_STREAM_CAPTURE_MERGE, cuStreamWaitEvent(t, forked, 0));
  WANT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(s, &g));
  WANT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(t, &g));
  /* Nor may a captured stream wait for what is not captured. */
  OK(cuEventRecord(joined, t));
  OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
  WANT(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, cuStreamWaitEvent(s, joined, 0));
  WANT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(s, &g));
  /* As a node it may. */
  OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
  OK(cuStreamWaitEvent(s, joined, CU_EVENT_WAIT_EXTERNAL));
  OK(cuEventRecordWithFlags(forked, s, CU_EVENT_RECORD_EXTERNAL));
  OK(cuStreamEndCapture(s, &g));
  TRUE(nodes_of(g) == 2);
  replay(g, s);
  OK(cuEventQuery(forked));
  OK(cuGraphDestroy(g));
  OK(cuEventDestroy(forked));
  OK(cuEventDestroy(joined));
}

/* Calls that can't be captured invalidate the capture. */
static void forbidden(CUstream s, CUstream blocking, CUdeviceptr a) {
  CUgraph g;
  CUdeviceptr p;
  OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  WANT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize(s));
  WANT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuMemsetD32Async(a, 1, 1, s));
  want_status(s, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
  WANT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(s, &g));
  OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  WANT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamQuery(s));
  WANT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(s, &g));
  OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
  WANT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuCtxSynchronize());
  WANT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(s, &g));
  OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  WANT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemAlloc(&p, 4));
  WANT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(s, &g));
  /* A thread may say that it knows what it does. */
  OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  OK(cuThreadExchangeStreamCaptureMode(&mode));
  TRUE(mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
  OK(cuMemAlloc(&p, 4));
  OK(cuMemFree(p));
  OK(cuThreadExchangeStreamCaptureMode(&mode));
  OK(cuStreamEndCapture(s, &g));
  OK(cuGraphDestroy(g));
  /* The legacy stream would wait for captured ones. */
  WANT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamBeginCapture(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(cuStreamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
  WANT(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuMemsetD32(a, 1, 1));
  WANT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(blocking, &g));
  /* Its end is forgotten with the stream. */
  CUstream t;
  OK(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
  OK(cuStreamBeginCapture(t, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(cuStreamDestroy(t));
  OK(cuMemAlloc(&p, 4));
  OK(cuMemFree(p));
}

static void *other_thread(void *stream) {
  CUgraph g;
  OK(cuCtxSetCurrent(ctx));
  WANT(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, cuStreamEndCapture(stream, &g));
  return NULL;
}

/* Into a graph that is there, and a graph's launch as part of a capture. */
static void into(CUstream s, CUdeviceptr a, CUdeviceptr b) {
  CUgraph g, got;
  OK(cuGraphCreate(&g, 0));
  CUgraphNode first;
  CUDA_MEMSET_NODE_PARAMS sp = {.dst = a, .value = 4, .elementSize = 4, .width = N, .height = 1};
  OK(cuGraphAddMemsetNode(&first, g, NULL, 0, &sp, ctx));
  OK(cuStreamBeginCaptureToGraph(s, g, &first, NULL, 1, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(cuMemcpyDtoDAsync(b, a, sizeof host, s));
  CUgraphNode none = NULL;
  WANT(CUDA_ERROR_INVALID_VALUE, cuStreamUpdateCaptureDependencies(s, &none, NULL, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
  OK(cuStreamUpdateCaptureDependencies(s, &first, NULL, 1, CU_STREAM_ADD_CAPTURE_DEPENDENCIES));
  OK(cuMemsetD32Async(a, 6, N, s));
  pthread_t other;
  pthread_create(&other, NULL, other_thread, s);
  pthread_join(other, NULL);
  OK(cuStreamEndCapture(s, &got));
  TRUE(got == g && nodes_of(g) == 3);
  CUgraphExec e;
  OK(cuGraphInstantiateWithFlags(&e, g, 0));
  OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(cuGraphLaunch(e, s));
  OK(cuStreamEndCapture(s, &got));
  TRUE(nodes_of(got) == 1);
  replay(got, s);
  OK(cuMemcpyDtoH(host, b, sizeof host));
  TRUE(host[0] == 4);
  OK(cuMemcpyDtoH(host, a, sizeof host));
  TRUE(host[0] == 6);
  OK(cuGraphExecDestroy(e));
  OK(cuGraphDestroy(g));
  OK(cuGraphDestroy(got));
}

int main(void) {
  ctx = begin();
  fill = load(PTX_HEAD FILL_KERNEL, "fill");
  CUdeviceptr a, b;
  OK(cuMemAlloc(&a, sizeof host));
  OK(cuMemAlloc(&b, sizeof host));
  CUstream s, t, blocking;
  OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  OK(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
  OK(cuStreamCreate(&blocking, 0));
  sequence(s, a, b);
  fork_and_join(s, t, a, b);
  forbidden(s, blocking, a);
  into(s, a, b);
  puts("right");
  return 0;
}
