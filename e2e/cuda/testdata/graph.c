/* Graphs: made node by node, queried, cloned, launched, changed and updated. */
#define CUDA_VERSION 13000
#include "check.h"

#include <stdatomic.h>
#include <unistd.h>

enum { N = 1000 };

static CUfunction fill;
static CUstream stream;
static unsigned host[N];

static void launch(CUgraphExec e) {
  OK(cuGraphLaunch(e, stream));
  OK(cuStreamSynchronize(stream));
}

static void want_all(CUdeviceptr p, unsigned value) {
  OK(cuMemcpyDtoH(host, p, sizeof host));
  for (int i = 0; i < N; i++)
    if (host[i] != value) {
      fprintf(stderr, "word %d is %u, want %u\n", i, host[i], value);
      exit(1);
    }
}

static CUDA_KERNEL_NODE_PARAMS filling(CUdeviceptr *p, unsigned *value, unsigned *n, void **args) {
  args[0] = p, args[1] = value, args[2] = n;
  CUDA_KERNEL_NODE_PARAMS k = {.func = fill, .gridDimX = 4, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 256, .blockDimY = 1, .blockDimZ = 1};
  k.kernelParams = args;
  return k;
}

static CUDA_MEMCPY3D copying(CUdeviceptr dst, CUdeviceptr src, size_t n) {
  CUDA_MEMCPY3D c = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = src, .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = dst};
  c.WidthInBytes = n, c.Height = 1, c.Depth = 1;
  return c;
}

static atomic_int calls;
static void CUDA_CB called(void *data) { atomic_fetch_add(&calls, *(int *)data); }

static atomic_int destroyed;
static void CUDA_CB destroy(void *data) { atomic_fetch_add(&destroyed, *(int *)data); }

/* A chain of all kinds: set a, copy a to b, fill a by a kernel, call a host function, record an event. */
static void chain(void) {
  CUdeviceptr a, b;
  OK(cuMemAlloc(&a, sizeof host));
  OK(cuMemAlloc(&b, sizeof host));
  CUgraph g;
  OK(cuGraphCreate(&g, 0));
  WANT(CUDA_ERROR_INVALID_VALUE, cuGraphCreate(&g, 7));
  WANT(CUDA_ERROR_INVALID_VALUE, cuGraphCreate(NULL, 0));

  CUgraphNode set, copy, kernel, call, record, wait, empty;
  CUDA_MEMSET_NODE_PARAMS sp = {.dst = a, .value = 7, .elementSize = 4, .width = N, .height = 1};
  CUcontext ctx;
  OK(cuCtxGetCurrent(&ctx));
  OK(cuGraphAddMemsetNode(&set, g, NULL, 0, &sp, ctx));
  CUDA_MEMCPY3D cp = copying(b, a, sizeof host);
  OK(cuGraphAddMemcpyNode(&copy, g, &set, 1, &cp, ctx));
  unsigned value = 9, n = N;
  void *args[3];
  CUDA_KERNEL_NODE_PARAMS kp = filling(&a, &value, &n, args);
  OK(cuGraphAddKernelNode(&kernel, g, &copy, 1, &kp));
  value = 0; /* the node has a copy */
  int one = 1;
  CUDA_HOST_NODE_PARAMS hp = {.fn = called, .userData = &one};
  OK(cuGraphAddHostNode(&call, g, &kernel, 1, &hp));
  CUevent event;
  OK(cuEventCreate(&event, 0));
  OK(cuGraphAddEventRecordNode(&record, g, &call, 1, event));
  OK(cuGraphAddEventWaitNode(&wait, g, &record, 1, event));
  OK(cuGraphAddEmptyNode(&empty, g, &wait, 1));
  CUgraphNode none = NULL;
  WANT(CUDA_ERROR_INVALID_VALUE, cuGraphAddEmptyNode(&none, g, &none, 1));
  WANT(CUDA_ERROR_INVALID_VALUE, cuGraphAddEmptyNode(&none, NULL, NULL, 0));

  CUgraphNodeType type;
  OK(cuGraphNodeGetType(kernel, &type));
  TRUE(type == CU_GRAPH_NODE_TYPE_KERNEL);
  OK(cuGraphNodeGetType(empty, &type));
  TRUE(type == CU_GRAPH_NODE_TYPE_EMPTY);
  size_t count = 0;
  OK(cuGraphGetNodes(g, NULL, &count));
  TRUE(count == 7);
  CUgraphNode nodes[9], to[9];
  CUgraphEdgeData edges[9] = {{.type = 1}};
  count = 9;
  OK(cuGraphGetNodes(g, nodes, &count));
  TRUE(count == 7 && nodes[0] == set && nodes[6] == empty && nodes[7] == NULL);
  count = 9;
  OK(cuGraphGetRootNodes(g, nodes, &count));
  TRUE(count == 1 && nodes[0] == set);
  count = 9;
  OK(cuGraphGetEdges(g, nodes, to, edges, &count));
  TRUE(count == 6 && nodes[0] == set && to[0] == copy && edges[0].type == CU_GRAPH_DEPENDENCY_TYPE_DEFAULT);
  count = 9;
  OK(cuGraphNodeGetDependencies(kernel, nodes, edges, &count));
  TRUE(count == 1 && nodes[0] == copy);
  count = 9;
  OK(cuGraphNodeGetDependentNodes(kernel, nodes, NULL, &count));
  TRUE(count == 1 && nodes[0] == call);
  unsigned id = 0;
  OK(cuGraphNodeGetLocalId(kernel, &id));
  TRUE(id == 3);
  CUgraph containing;
  OK(cuGraphNodeGetContainingGraph(kernel, &containing));
  TRUE(containing == g);

  CUDA_KERNEL_NODE_PARAMS kq;
  OK(cuGraphKernelNodeGetParams(kernel, &kq));
  TRUE(kq.func == fill && kq.gridDimX == 4 && *(unsigned *)kq.kernelParams[1] == 9);
  CUDA_MEMCPY3D cq;
  OK(cuGraphMemcpyNodeGetParams(copy, &cq));
  TRUE(memcmp(&cq, &cp, sizeof cq) == 0);
  CUDA_MEMSET_NODE_PARAMS sq;
  OK(cuGraphMemsetNodeGetParams(set, &sq));
  TRUE(sq.dst == a && sq.value == 7);
  CUDA_HOST_NODE_PARAMS hq;
  OK(cuGraphHostNodeGetParams(call, &hq));
  TRUE(hq.fn == called);
  CUevent got;
  OK(cuGraphEventRecordNodeGetEvent(record, &got));
  TRUE(got == event);
  OK(cuGraphEventWaitNodeGetEvent(wait, &got));
  TRUE(got == event);
  OK(cuGraphEventRecordNodeSetEvent(record, event));
  OK(cuGraphEventWaitNodeSetEvent(wait, event));
  WANT(CUDA_ERROR_INVALID_VALUE, cuGraphMemsetNodeGetParams(kernel, &sq));

  CUgraphExec e;
  OK(cuGraphInstantiateWithFlags(&e, g, 0));
  OK(cuGraphUpload(e, stream));
  launch(e);
  want_all(a, 9);
  want_all(b, 7);
  TRUE(calls == 1);
  OK(cuEventQuery(event));
  launch(e);
  TRUE(calls == 2);

  /* Changes of the graph leave what is executable alone. */
  sp.value = 70;
  OK(cuGraphMemsetNodeSetParams(set, &sp));
  launch(e);
  want_all(b, 7);
  /* Changes of what is executable leave the graph alone. */
  sp.value = 71;
  OK(cuGraphExecMemsetNodeSetParams(e, set, &sp, ctx));
  value = 91;
  kp = filling(&a, &value, &n, args);
  OK(cuGraphExecKernelNodeSetParams(e, kernel, &kp));
  int ten = 10;
  CUDA_HOST_NODE_PARAMS hr = {.fn = called, .userData = &ten};
  OK(cuGraphExecHostNodeSetParams(e, call, &hr));
  OK(cuGraphExecEventRecordNodeSetEvent(e, record, event));
  OK(cuGraphExecEventWaitNodeSetEvent(e, wait, event));
  cp = copying(b, a, 4);
  OK(cuGraphExecMemcpyNodeSetParams(e, copy, &cp, ctx));
  calls = 0;
  launch(e);
  TRUE(calls == 10);
  want_all(a, 91);
  OK(cuMemcpyDtoH(host, b, sizeof host));
  TRUE(host[0] == 71 && host[1] == 7);
  OK(cuGraphMemsetNodeGetParams(set, &sq));
  TRUE(sq.value == 70);
  WANT(CUDA_ERROR_INVALID_VALUE, cuGraphExecMemsetNodeSetParams(e, kernel, &sp, ctx));

  /* Nodes can be left out. */
  unsigned on = 9;
  OK(cuGraphNodeGetEnabled(e, kernel, &on));
  TRUE(on == 1);
  OK(cuGraphNodeSetEnabled(e, kernel, 0));
  OK(cuGraphNodeGetEnabled(e, kernel, &on));
  TRUE(on == 0);
  launch(e);
  want_all(a, 71);
  WANT(CUDA_ERROR_NOT_SUPPORTED, cuGraphNodeSetEnabled(e, call, 0));
  OK(cuGraphNodeSetEnabled(e, kernel, 1));

  /* The graph as it is now replaces what is executable. */
  value = 92;
  kp = filling(&a, &value, &n, args);
  OK(cuGraphKernelNodeSetParams(kernel, &kp));
  cp = copying(b, a, sizeof host);
  OK(cuGraphMemcpyNodeSetParams(copy, &cp));
  OK(cuGraphHostNodeSetParams(call, &hp));
  CUgraphExecUpdateResultInfo info;
  OK(cuGraphExecUpdate(e, g, &info));
  TRUE(info.result == CU_GRAPH_EXEC_UPDATE_SUCCESS);
  calls = 0;
  launch(e);
  want_all(a, 92);
  want_all(b, 70);
  TRUE(calls == 1);

  /* A clone is a graph of its own. */
  CUgraph clone;
  OK(cuGraphClone(&clone, g));
  CUgraphNode twin;
  OK(cuGraphNodeFindInClone(&twin, kernel, clone));
  TRUE(twin != kernel);
  value = 93;
  kp = filling(&a, &value, &n, args);
  OK(cuGraphKernelNodeSetParams(twin, &kp));
  OK(cuGraphKernelNodeGetParams(kernel, &kq));
  TRUE(*(unsigned *)kq.kernelParams[1] == 92);
  /* Without its last node it is no update. */
  OK(cuGraphNodeFindInClone(&twin, empty, clone));
  OK(cuGraphDestroyNode(twin));
  WANT(CUDA_ERROR_INVALID_VALUE, cuGraphDestroyNode(twin));
  WANT(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate(e, clone, &info));
  TRUE(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
  CUgraphExec f;
  OK(cuGraphInstantiateWithFlags(&f, clone, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
  cuuint64_t flags = 0;
  OK(cuGraphExecGetFlags(f, &flags));
  TRUE(flags == CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
  OK(cuGraphDestroy(clone));
  launch(f);
  want_all(a, 93);
  OK(cuGraphExecDestroy(f));
  WANT(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(f, stream));

  /* A graph within a graph. */
  CUgraph outer;
  OK(cuGraphCreate(&outer, 0));
  CUgraphNode child, after;
  OK(cuGraphAddChildGraphNode(&child, outer, NULL, 0, g));
  sp.value = 5;
  OK(cuGraphAddMemsetNode(&after, outer, &child, 1, &sp, ctx));
  CUgraph inner;
  OK(cuGraphChildGraphNodeGetGraph(child, &inner));
  TRUE(inner != g);
  WANT(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(inner));
  OK(cuGraphInstantiateWithFlags(&f, outer, 0));
  launch(f);
  want_all(a, 5);
  want_all(b, 70);
  sq.value = 6;
  OK(cuGraphMemsetNodeSetParams(set, &sq));
  OK(cuGraphExecChildGraphNodeSetParams(f, child, g));
  launch(f);
  want_all(b, 6);
  OK(cuGraphExecDestroy(f));
  OK(cuGraphDestroy(outer));

  OK(cuGraphExecDestroy(e));
  OK(cuGraphDestroy(g));
  WANT(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(g));
  WANT(CUDA_ERROR_INVALID_VALUE, cuGraphNodeGetType(kernel, &type));
  OK(cuEventDestroy(event));
  OK(cuMemFree(a));
  OK(cuMemFree(b));
}

/* Edges, circles, and nodes described by CUgraphNodeParams. */
static void structure(void) {
  CUgraph g;
  OK(cuGraphCreate(&g, 0));
  CUgraphNode a, b, c;
  OK(cuGraphAddEmptyNode(&a, g, NULL, 0));
  OK(cuGraphAddEmptyNode(&b, g, NULL, 0));
  OK(cuGraphAddDependencies(g, &a, &b, NULL, 1));
  WANT(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies(g, &a, &b, NULL, 1));
  WANT(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies(g, &a, &a, NULL, 1));
  CUgraphEdgeData special = {.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC};
  WANT(CUDA_ERROR_NOT_SUPPORTED, cuGraphAddDependencies(g, &b, &a, &special, 1));
  OK(cuGraphAddDependencies(g, &b, &a, NULL, 1));
  CUgraphExec e;
  WANT(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiateWithFlags(&e, g, 0));
  CUDA_GRAPH_INSTANTIATE_PARAMS ip = {0};
  WANT(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiateWithParams(&e, g, &ip));
  TRUE(ip.result_out == CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE && (ip.hErrNode_out == a || ip.hErrNode_out == b));
  OK(cuGraphRemoveDependencies(g, &b, &a, NULL, 1));
  WANT(CUDA_ERROR_INVALID_VALUE, cuGraphRemoveDependencies(g, &b, &a, NULL, 1));
  OK(cuGraphInstantiateWithParams(&e, g, &ip));
  TRUE(ip.result_out == CUDA_GRAPH_INSTANTIATE_SUCCESS);
  launch(e);
  WANT(CUDA_ERROR_NOT_SUPPORTED, cuGraphInstantiateWithFlags(&e, g, CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH));

  CUdeviceptr p;
  OK(cuMemAlloc(&p, sizeof host));
  unsigned value = 3, n = N;
  void *args[3];
  CUDA_KERNEL_NODE_PARAMS k = filling(&p, &value, &n, args);
  CUgraphNodeParams np = {.type = CU_GRAPH_NODE_TYPE_KERNEL};
  memcpy(&np.kernel, &k, sizeof k);
  OK(cuGraphAddNode(&c, g, &b, NULL, 1, &np));
  CUgraphExec f;
  OK(cuGraphInstantiateWithFlags(&f, g, 0));
  launch(f);
  want_all(p, 3);
  value = 4;
  OK(cuGraphExecNodeSetParams(f, c, &np));
  launch(f);
  want_all(p, 4);
  value = 5;
  OK(cuGraphNodeSetParams(c, &np));
  OK(cuGraphExecUpdate(f, g, NULL));
  launch(f);
  want_all(p, 5);
  np.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  WANT(CUDA_ERROR_NOT_SUPPORTED, cuGraphAddNode(&c, g, NULL, NULL, 0, &np));

  /* Attributes of kernels. */
  CUlaunchAttributeValue v = {.cooperative = 1}, w;
  CUgraphNode d;
  np.type = CU_GRAPH_NODE_TYPE_KERNEL;
  OK(cuGraphAddNode(&d, g, NULL, NULL, 0, &np));
  OK(cuGraphKernelNodeSetAttribute(c, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &v));
  OK(cuGraphKernelNodeCopyAttributes(d, c));
  OK(cuGraphKernelNodeGetAttribute(d, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &w));
  TRUE(w.cooperative == 1);
  WANT(CUDA_ERROR_INVALID_VALUE, cuGraphKernelNodeGetAttribute(d, (CUlaunchAttributeID)99, &w));

  /* A drawing. */
  char path[] = "/tmp/vgpud-graph-XXXXXX";
  int fd = mkstemp(path);
  TRUE(fd >= 0);
  OK(cuGraphDebugDotPrint(g, path, 0));
  char text[4096] = {0};
  TRUE(read(fd, text, sizeof text - 1) > 0);
  TRUE(strstr(text, "digraph") && strstr(text, "fill") && strstr(text, "\"1\" -> \"2\""));
  close(fd);
  unlink(path);
  OK(cuGraphExecDestroy(e));
  OK(cuGraphExecDestroy(f));
  OK(cuGraphDestroy(g));
  OK(cuMemFree(p));
}

/* User objects end with the last graph that keeps them. */
static void objects(void) {
  CUuserObject o;
  int one = 1;
  WANT(CUDA_ERROR_INVALID_VALUE, cuUserObjectCreate(&o, &one, destroy, 1, 0));
  OK(cuUserObjectCreate(&o, &one, destroy, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  OK(cuUserObjectRetain(o, 1));
  CUgraph g;
  OK(cuGraphCreate(&g, 0));
  OK(cuGraphRetainUserObject(g, o, 1, CU_GRAPH_USER_OBJECT_MOVE));
  OK(cuGraphRetainUserObject(g, o, 1, 0));
  OK(cuGraphReleaseUserObject(g, o, 1));
  WANT(CUDA_ERROR_INVALID_VALUE, cuGraphReleaseUserObject(g, o, 5));
  OK(cuUserObjectRelease(o, 1));
  CUgraphExec e;
  OK(cuGraphInstantiateWithFlags(&e, g, 0));
  OK(cuGraphDestroy(g));
  TRUE(destroyed == 0);
  OK(cuGraphExecDestroy(e));
  while (destroyed == 0) usleep(1000);
  TRUE(destroyed == 1);
  WANT(CUDA_ERROR_INVALID_VALUE, cuUserObjectRetain(o, 1));
}

int main(void) {
  begin();
  fill = load(PTX_HEAD FILL_KERNEL, "fill");
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  chain();
  structure();
  objects();
  puts("right");
  return 0;
}
