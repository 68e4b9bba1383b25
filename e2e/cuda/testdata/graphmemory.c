/* Memory that nodes of graphs allocate and free, and what programs ask of graphs' nodes. */
#define CUDA_VERSION 13020
#include "check.h"

#include <stdatomic.h>
#include <unistd.h>

enum { N = 1 << 18 };

static CUfunction fill;
static CUstream stream, other;
static unsigned *host;

static unsigned long long amount(CUgraphMem_attribute a) {
  cuuint64_t v = 99;
  OK(cuDeviceGetGraphMemAttribute(0, a, &v));
  return v;
}

static CUDA_MEM_ALLOC_NODE_PARAMS request(size_t bytes) {
  CUDA_MEM_ALLOC_NODE_PARAMS p = {.bytesize = bytes};
  p.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  p.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  return p;
}

/* A node that fills memory with a value. */
static CUgraphNode filling(CUgraph g, CUgraphNode after, CUdeviceptr p, unsigned value) {
  unsigned n = N;
  void *args[] = {&p, &value, &n};
  CUDA_KERNEL_NODE_PARAMS k = {.func = fill, .gridDimX = N / 256, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 256, .blockDimY = 1, .blockDimZ = 1, .kernelParams = args};
  CUgraphNode node;
  OK(cuGraphAddKernelNode(&node, g, &after, 1, &k));
  return node;
}

/* A node that copies memory to host. */
static CUgraphNode reading(CUgraph g, CUgraphNode after, CUdeviceptr p) {
  CUDA_MEMCPY3D c = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = p, .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = host, .WidthInBytes = N * 4, .Height = 1, .Depth = 1};
  CUgraphNode node;
  CUcontext ctx;
  OK(cuCtxGetCurrent(&ctx));
  OK(cuGraphAddMemcpyNode(&node, g, &after, 1, &c, ctx));
  return node;
}

static void all(unsigned want) {
  for (int i = 0; i < N; i++) TRUE(host[i] == want);
  memset(host, 0, N * 4);
}

/* Allocated and freed in one graph: it can be launched again and again. */
static void whole(void) {
  CUgraph g, copy;
  CUgraphNode alloc, last, node;
  OK(cuGraphCreate(&g, 0));
  CUDA_MEM_ALLOC_NODE_PARAMS p = request(N * 4), q;
  WANT(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemAllocNode(&alloc, g, NULL, 0, NULL));
  CUDA_MEM_ALLOC_NODE_PARAMS none = request(0), shared = request(8);
  WANT(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemAllocNode(&alloc, g, NULL, 0, &none));
  shared.poolProps.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  WANT(CUDA_ERROR_NOT_SUPPORTED, cuGraphAddMemAllocNode(&alloc, g, NULL, 0, &shared));
  OK(cuGraphAddMemAllocNode(&alloc, g, NULL, 0, &p));
  TRUE(p.dptr != 0 && amount(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT) == N * 4 && amount(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT) == 0);
  OK(cuGraphMemAllocNodeGetParams(alloc, &q));
  TRUE(q.dptr == p.dptr && q.bytesize == N * 4 && q.poolProps.allocType == CU_MEM_ALLOCATION_TYPE_PINNED);
  last = reading(g, filling(g, alloc, p.dptr, 7), p.dptr);
  WANT(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemFreeNode(&node, g, &last, 1, 12345));
  OK(cuGraphAddMemFreeNode(&node, g, &last, 1, p.dptr));
  WANT(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemFreeNode(&node, g, &last, 1, p.dptr));
  CUdeviceptr freed = 0;
  OK(cuGraphMemFreeNodeGetParams(node, &freed));
  TRUE(freed == p.dptr);
  WANT(CUDA_ERROR_INVALID_VALUE, cuGraphMemFreeNodeGetParams(alloc, &freed));

  /* What can't be done with such a graph. */
  CUgraph parent;
  OK(cuGraphCreate(&parent, 0));
  WANT(CUDA_ERROR_INVALID_VALUE, cuGraphAddChildGraphNode(&node, parent, NULL, 0, g));
  OK(cuGraphDestroy(parent));
  WANT(CUDA_ERROR_INVALID_VALUE, cuGraphClone(&copy, g));
  WANT(CUDA_ERROR_INVALID_VALUE, cuGraphDestroyNode(last));
  CUgraphExec e, second;
  OK(cuGraphInstantiateWithFlags(&e, g, 0));
  WANT(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiateWithFlags(&second, g, 0));
  for (int i = 0; i < 3; i++) {
    OK(cuGraphLaunch(e, stream));
    OK(cuStreamSynchronize(stream));
    all(7);
  }
  TRUE(amount(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT) == 0 && amount(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH) == N * 4);
  cuuint64_t zero = 0, one = 1;
  OK(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &zero));
  TRUE(amount(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH) == 0);
  WANT(CUDA_ERROR_INVALID_VALUE, cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &one));
  WANT(CUDA_ERROR_INVALID_VALUE, cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &zero));
  WANT(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetGraphMemAttribute(7, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &zero));
  OK(cuGraphExecDestroy(e));
  OK(cuGraphInstantiateWithFlags(&e, g, 0));
  OK(cuGraphDestroy(g));
  OK(cuDeviceGraphMemTrim(0));
  TRUE(amount(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT) == N * 4); /* the executable graph's */
  OK(cuGraphExecDestroy(e));
  OK(cuDeviceGraphMemTrim(0));
  WANT(CUDA_ERROR_INVALID_DEVICE, cuDeviceGraphMemTrim(7));
  TRUE(amount(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT) == 0);
}

static atomic_int release;
static void CUDA_CB held(void *unused) {
  (void)unused;
  while (!release) usleep(1000);
}

/* Memory that outlives its launch is freed by the program, or by the next launch. */
static void outlives(void) {
  CUgraph g;
  CUgraphNode alloc;
  OK(cuGraphCreate(&g, 0));
  CUDA_MEM_ALLOC_NODE_PARAMS p = request(N * 4);
  OK(cuGraphAddMemAllocNode(&alloc, g, NULL, 0, &p));
  filling(g, alloc, p.dptr, 9);
  CUgraphExec e;
  OK(cuGraphInstantiateWithFlags(&e, g, 0));
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemFree(p.dptr)); /* nothing has allocated it */
  OK(cuGraphLaunch(e, stream));
  WANT(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(e, stream));
  OK(cuMemcpyDtoHAsync(host, p.dptr, N * 4, stream));
  OK(cuStreamSynchronize(stream));
  all(9);
  TRUE(amount(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT) == N * 4);
  /* What was freed in one stream's order is allocated behind that in another's. */
  OK(cuLaunchHostFunc(other, held, NULL));
  OK(cuMemsetD32Async(p.dptr, 1, N, other));
  OK(cuMemFreeAsync(p.dptr, other));
  WANT(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(p.dptr, other));
  OK(cuGraphLaunch(e, stream));
  usleep(20000);
  WANT(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
  release = 1;
  OK(cuMemcpyDtoHAsync(host, p.dptr, N * 4, stream));
  OK(cuStreamSynchronize(stream));
  all(9);
  OK(cuMemFree(p.dptr));
  OK(cuGraphLaunch(e, stream));
  OK(cuGraphExecDestroy(e));
  OK(cuGraphInstantiateWithFlags(&e, g, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
  OK(cuGraphLaunch(e, stream));
  OK(cuGraphLaunch(e, stream));
  /* Another graph may free it. */
  CUgraph f;
  CUgraphNode node;
  CUgraphExec fe;
  OK(cuGraphCreate(&f, 0));
  OK(cuGraphAddMemFreeNode(&node, f, NULL, 0, p.dptr));
  OK(cuGraphInstantiateWithFlags(&fe, f, 0));
  OK(cuGraphLaunch(fe, stream));
  WANT(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(fe, stream));
  TRUE(amount(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT) == 0);
  OK(cuGraphLaunch(e, stream));
  OK(cuGraphDestroy(f));
  OK(cuGraphExecDestroy(fe));
  OK(cuGraphDestroy(g));
  OK(cuGraphExecDestroy(e));
  TRUE(amount(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT) == N * 4);
  OK(cuMemFree(p.dptr)); /* the last that had it */
  TRUE(amount(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT) == 0 && amount(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) == N * 4);
  OK(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, &(cuuint64_t){0}));
}

/* A stream's allocations are captured as nodes. */
static void captured(void) {
  CUgraph g;
  CUgraphExec e;
  CUdeviceptr p, mine;
  OK(cuMemAllocAsync(&mine, 64, stream));
  OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(cuMemAllocAsync(&p, N * 4, stream));
  OK(cuMemsetD32Async(p, 5, N, stream));
  OK(cuMemcpyDtoHAsync(host, p, N * 4, stream));
  OK(cuMemFreeAsync(p, stream));
  OK(cuStreamEndCapture(stream, &g));
  size_t count = 0;
  OK(cuGraphGetNodes(g, NULL, &count));
  TRUE(count == 4);
  CUgraphNode nodes[4];
  OK(cuGraphGetNodes(g, nodes, &count));
  CUgraphNodeType first, last;
  OK(cuGraphNodeGetType(nodes[0], &first));
  OK(cuGraphNodeGetType(nodes[3], &last));
  TRUE(first == CU_GRAPH_NODE_TYPE_MEM_ALLOC && last == CU_GRAPH_NODE_TYPE_MEM_FREE);
  OK(cuGraphInstantiateWithFlags(&e, g, 0));
  OK(cuGraphLaunch(e, stream));
  OK(cuStreamSynchronize(stream));
  all(5);
  CUgraphExecUpdateResultInfo info;
  OK(cuGraphExecUpdate(e, g, &info));
  /* Other memory would be another graph. */
  CUgraph h;
  OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CUdeviceptr q;
  OK(cuMemAllocAsync(&q, N * 4, stream));
  OK(cuMemsetD32Async(q, 6, N, stream));
  OK(cuMemcpyDtoHAsync(host, q, N * 4, stream));
  OK(cuMemFreeAsync(q, stream));
  OK(cuStreamEndCapture(stream, &h));
  TRUE(q != p);
  WANT(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate(e, h, &info));
  TRUE(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED);
  OK(cuGraphDestroy(h));
  /* Memory of no graph can't be freed in one. */
  OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  WANT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemFreeAsync(mine, stream));
  WANT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(stream, &h));
  OK(cuMemFreeAsync(mine, stream));
  OK(cuGraphExecDestroy(e));
  OK(cuGraphDestroy(g));
}

/* Numbers and descriptions of nodes of all kinds. */
static void described(void) {
  CUgraph g, other_graph;
  CUgraphExec e;
  OK(cuGraphCreate(&g, 0));
  OK(cuGraphCreate(&other_graph, 0));
  unsigned id = 0, again = 0, second = 0;
  OK(cuGraphGetId(g, &id));
  OK(cuGraphGetId(g, &again));
  OK(cuGraphGetId(other_graph, &second));
  TRUE(id != 0 && id == again && second != id);
  CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC}, got;
  p.alloc.bytesize = N * 4;
  p.alloc.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  p.alloc.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUgraphNode alloc, kernel, copy, set, release_node, empty;
  OK(cuGraphAddNode(&alloc, g, NULL, NULL, 0, &p));
  CUdeviceptr at = p.alloc.dptr;
  TRUE(at != 0);
  kernel = filling(g, alloc, at, 3);
  copy = reading(g, kernel, at);
  CUDA_MEMSET_NODE_PARAMS m = {.dst = at, .value = 4, .elementSize = 4, .width = N, .height = 1};
  CUcontext ctx;
  OK(cuCtxGetCurrent(&ctx));
  OK(cuGraphAddMemsetNode(&set, g, &copy, 1, &m, ctx));
  p = (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_MEM_FREE};
  p.free.dptr = at;
  OK(cuGraphAddNode(&release_node, g, &set, NULL, 1, &p));
  OK(cuGraphAddEmptyNode(&empty, g, NULL, 0));
  unsigned long long a = 0, b = 0;
  OK(cuGraphNodeGetToolsId(kernel, &a));
  OK(cuGraphNodeGetToolsId(copy, &b));
  TRUE(a != b && a >> 32 == id);
  OK(cuGraphNodeGetParams(alloc, &got));
  TRUE(got.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && got.alloc.dptr == at && got.alloc.bytesize == N * 4);
  OK(cuGraphNodeGetParams(kernel, &got));
  TRUE(got.type == CU_GRAPH_NODE_TYPE_KERNEL && got.kernel.func == fill && got.kernel.gridDimX == N / 256 && *(unsigned *)got.kernel.kernelParams[1] == 3);
  OK(cuGraphNodeGetParams(copy, &got));
  TRUE(got.type == CU_GRAPH_NODE_TYPE_MEMCPY && got.memcpy.copyParams.srcDevice == at && got.memcpy.copyParams.WidthInBytes == N * 4);
  OK(cuGraphNodeGetParams(set, &got));
  TRUE(got.type == CU_GRAPH_NODE_TYPE_MEMSET && got.memset.dst == at && got.memset.value == 4 && got.memset.width == N);
  OK(cuGraphNodeGetParams(release_node, &got));
  TRUE(got.type == CU_GRAPH_NODE_TYPE_MEM_FREE && got.free.dptr == at);
  OK(cuGraphNodeGetParams(empty, &got));
  TRUE(got.type == CU_GRAPH_NODE_TYPE_EMPTY);
  WANT(CUDA_ERROR_INVALID_VALUE, cuGraphNodeGetParams(empty, NULL));
  OK(cuGraphInstantiateWithFlags(&e, g, 0));
  OK(cuGraphExecGetId(e, &second));
  TRUE(second != 0 && second != id);
  OK(cuGraphLaunch(e, stream));
  OK(cuStreamSynchronize(stream));
  all(3);
  OK(cuGraphExecDestroy(e));
  OK(cuGraphDestroy(g));
  OK(cuGraphDestroy(other_graph));
}

int main(void) {
  CUcontext ctx = begin();
  host = calloc(N, 4);
  fill = load(PTX_HEAD FILL_KERNEL, "fill");
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  whole();
  outlives();
  captured();
  described();
  TRUE(amount(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT) == 0);
  OK(cuCtxDestroy(ctx));
  puts("right");
  return 0;
}
