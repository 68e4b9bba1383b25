/* The forms of graphs' functions that programs of CUDA 10 to 12 ask for. */
#include "check.h"

#undef cuGraphAddKernelNode
#undef cuGraphExecKernelNodeSetParams
#undef cuGraphKernelNodeGetParams
#undef cuGraphKernelNodeSetParams
#undef cuGraphExecUpdate
#undef cuGraphInstantiate
#undef cuStreamGetCaptureInfo
#undef cuStreamBeginCapture

int main(void) {
  begin();
  CUfunction fill = load(PTX_HEAD FILL_KERNEL, "fill");
  CUstream s;
  OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  CUdeviceptr p;
  OK(cuMemAlloc(&p, 64));
  unsigned value = 1, n = 16, host[16];
  void *args[] = {&p, &value, &n};
  CUDA_KERNEL_NODE_PARAMS_v1 k = {fill, 1, 1, 1, 16, 1, 1, 0, args, NULL}, got;
  CUgraph g;
  CUgraphNode a, b, nodes[4], to[4];
  size_t count = 4;
  OK(cuGraphCreate(&g, 0));
  OK(cuGraphAddKernelNode(&a, g, NULL, 0, &k));
  OK(cuGraphAddEmptyNode(&b, g, NULL, 0));
  OK(cuGraphAddDependencies(g, &a, &b, 1));
  OK(cuGraphGetEdges(g, nodes, to, &count));
  TRUE(count == 1 && nodes[0] == a && to[0] == b);
  count = 4;
  OK(cuGraphNodeGetDependencies(b, nodes, &count));
  TRUE(count == 1 && nodes[0] == a);
  count = 4;
  OK(cuGraphNodeGetDependentNodes(a, nodes, &count));
  TRUE(count == 1 && nodes[0] == b);
  OK(cuGraphRemoveDependencies(g, &a, &b, 1));
  OK(cuGraphKernelNodeGetParams(a, &got));
  TRUE(got.func == fill && *(unsigned *)got.kernelParams[1] == 1);
  CUgraphExec e;
  char log[64] = "x";
  CUgraphNode bad = a;
  OK(cuGraphInstantiate(&e, g, &bad, log, sizeof log));
  TRUE(bad == NULL && log[0] == 0);
  OK(cuGraphExecDestroy(e));
  OK(cuGraphAddDependencies(g, &a, &b, 1));
  OK(cuGraphAddDependencies(g, &b, &a, 1));
  WANT(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiate_v2(&e, g, &bad, log, sizeof log));
  TRUE(bad != NULL && strstr(log, "circle"));
  OK(cuGraphRemoveDependencies(g, &b, &a, 1));
  OK(cuGraphInstantiate_v2(&e, g, &bad, log, sizeof log));
  value = 2;
  OK(cuGraphExecKernelNodeSetParams(e, a, &k));
  OK(cuGraphLaunch(e, s));
  OK(cuStreamSynchronize(s));
  OK(cuMemcpyDtoH(host, p, sizeof host));
  TRUE(host[0] == 2 && host[15] == 2);
  value = 3;
  OK(cuGraphKernelNodeSetParams(a, &k));
  CUgraphExecUpdateResult result;
  OK(cuGraphExecUpdate(e, g, &bad, &result));
  TRUE(result == CU_GRAPH_EXEC_UPDATE_SUCCESS);
  OK(cuGraphLaunch(e, s));
  OK(cuStreamSynchronize(s));
  OK(cuMemcpyDtoH(host, p, sizeof host));
  TRUE(host[0] == 3);
  CUgraphNodeParams np = {.type = CU_GRAPH_NODE_TYPE_EMPTY};
  OK(cuGraphAddNode(&b, g, NULL, 0, &np));
  WANT(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate(e, g, &bad, &result));
  TRUE(result == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);

  OK(cuStreamBeginCapture(s));
  OK(cuLaunchKernel(fill, 1, 1, 1, 16, 1, 1, 0, s, args, NULL));
  CUstreamCaptureStatus status;
  cuuint64_t id = 0;
  OK(cuStreamGetCaptureInfo(s, &status, &id));
  TRUE(status == CU_STREAM_CAPTURE_STATUS_ACTIVE && id != 0);
  CUgraph h;
  const CUgraphNode *deps;
  OK(cuStreamGetCaptureInfo_v2(s, &status, &id, &h, &deps, &count));
  TRUE(count == 1 && deps[0] != NULL);
  CUgraphNode only = deps[0];
  OK(cuStreamUpdateCaptureDependencies(s, &only, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
  OK(cuStreamEndCapture(s, &g));
  TRUE(g == h);
  puts("right");
}
