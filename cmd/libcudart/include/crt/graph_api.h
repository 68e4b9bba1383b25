#ifndef VGPU_CRT_GRAPH_API_H
#define VGPU_CRT_GRAPH_API_H

/* Functions for graphs and capture; cuda_runtime_api.h includes this file. */

cudaError_t cudaDeviceGetGraphMemAttribute(int device, enum cudaGraphMemAttributeType attr,
    void *value);
cudaError_t cudaDeviceGraphMemTrim(int device);
cudaError_t cudaDeviceSetGraphMemAttribute(int device, enum cudaGraphMemAttributeType attr,
    void *value);
cudaError_t cudaGraphAddChildGraphNode(cudaGraphNode_t *graphNode, cudaGraph_t graph,
    const cudaGraphNode_t *dependencies, size_t numDependencies, cudaGraph_t childGraph);
cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t *graphNode, cudaGraph_t graph,
    const cudaGraphNode_t *dependencies, size_t numDependencies);
cudaError_t cudaGraphAddEventRecordNode(cudaGraphNode_t *graphNode, cudaGraph_t graph,
    const cudaGraphNode_t *dependencies, size_t numDependencies, cudaEvent_t event);
cudaError_t cudaGraphAddEventWaitNode(cudaGraphNode_t *graphNode, cudaGraph_t graph,
    const cudaGraphNode_t *dependencies, size_t numDependencies, cudaEvent_t event);
cudaError_t cudaGraphAddHostNode(cudaGraphNode_t *graphNode, cudaGraph_t graph,
    const cudaGraphNode_t *dependencies, size_t numDependencies,
    const struct cudaHostNodeParams *nodeParams);
cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t *graphNode, cudaGraph_t graph,
    const cudaGraphNode_t *dependencies, size_t numDependencies,
    const struct cudaKernelNodeParams *nodeParams);
cudaError_t cudaGraphAddMemAllocNode(cudaGraphNode_t *graphNode, cudaGraph_t graph,
    const cudaGraphNode_t *dependencies, size_t numDependencies,
    struct cudaMemAllocNodeParams *nodeParams);
cudaError_t cudaGraphAddMemFreeNode(cudaGraphNode_t *graphNode, cudaGraph_t graph,
    const cudaGraphNode_t *dependencies, size_t numDependencies, void *dptr);
cudaError_t cudaGraphAddMemcpyNode(cudaGraphNode_t *graphNode, cudaGraph_t graph,
    const cudaGraphNode_t *dependencies, size_t numDependencies,
    const struct cudaMemcpy3DParms *copyParams);
cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t *graphNode, cudaGraph_t graph,
    const cudaGraphNode_t *dependencies, size_t numDependencies, void *dst, const void *src,
    size_t count, enum cudaMemcpyKind kind);
cudaError_t cudaGraphAddMemcpyNodeFromSymbol(cudaGraphNode_t *graphNode, cudaGraph_t graph,
    const cudaGraphNode_t *dependencies, size_t numDependencies, void *dst, const void *symbol,
    size_t count, size_t offset, enum cudaMemcpyKind kind);
cudaError_t cudaGraphAddMemcpyNodeToSymbol(cudaGraphNode_t *graphNode, cudaGraph_t graph,
    const cudaGraphNode_t *dependencies, size_t numDependencies, const void *symbol,
    const void *src, size_t count, size_t offset, enum cudaMemcpyKind kind);
cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t *graphNode, cudaGraph_t graph,
    const cudaGraphNode_t *dependencies, size_t numDependencies,
    const struct cudaMemsetParams *memsetParams);
cudaError_t cudaGraphChildGraphNodeGetGraph(cudaGraphNode_t node, cudaGraph_t *graph);
cudaError_t cudaGraphClone(cudaGraph_t *graphClone, cudaGraph_t originalGraph);
cudaError_t cudaGraphCreate(cudaGraph_t *graph, unsigned int flags);
cudaError_t cudaGraphDebugDotPrint(cudaGraph_t graph, const char *path, unsigned int flags);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphDestroyNode(cudaGraphNode_t node);
cudaError_t cudaGraphEventRecordNodeGetEvent(cudaGraphNode_t node, cudaEvent_t *event);
cudaError_t cudaGraphEventRecordNodeSetEvent(cudaGraphNode_t node, cudaEvent_t event);
cudaError_t cudaGraphEventWaitNodeGetEvent(cudaGraphNode_t node, cudaEvent_t *event);
cudaError_t cudaGraphEventWaitNodeSetEvent(cudaGraphNode_t node, cudaEvent_t event);
cudaError_t cudaGraphExecChildGraphNodeSetParams(cudaGraphExec_t hGraphExec, cudaGraphNode_t node,
    cudaGraph_t childGraph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graphExec);
cudaError_t cudaGraphExecEventRecordNodeSetEvent(cudaGraphExec_t hGraphExec, cudaGraphNode_t hNode,
    cudaEvent_t event);
cudaError_t cudaGraphExecEventWaitNodeSetEvent(cudaGraphExec_t hGraphExec, cudaGraphNode_t hNode,
    cudaEvent_t event);
cudaError_t cudaGraphExecHostNodeSetParams(cudaGraphExec_t hGraphExec, cudaGraphNode_t node,
    const struct cudaHostNodeParams *nodeParams);
cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t hGraphExec, cudaGraphNode_t node,
    const struct cudaKernelNodeParams *nodeParams);
cudaError_t cudaGraphExecMemcpyNodeSetParams(cudaGraphExec_t hGraphExec, cudaGraphNode_t node,
    const struct cudaMemcpy3DParms *nodeParams);
cudaError_t cudaGraphExecMemcpyNodeSetParams1D(cudaGraphExec_t hGraphExec, cudaGraphNode_t node,
    void *dst, const void *src, size_t count, enum cudaMemcpyKind kind);
cudaError_t cudaGraphExecMemcpyNodeSetParamsFromSymbol(cudaGraphExec_t hGraphExec,
    cudaGraphNode_t node, void *dst, const void *symbol, size_t count, size_t offset,
    enum cudaMemcpyKind kind);
cudaError_t cudaGraphExecMemcpyNodeSetParamsToSymbol(cudaGraphExec_t hGraphExec,
    cudaGraphNode_t node, const void *symbol, const void *src, size_t count, size_t offset,
    enum cudaMemcpyKind kind);
cudaError_t cudaGraphExecMemsetNodeSetParams(cudaGraphExec_t hGraphExec, cudaGraphNode_t node,
    const struct cudaMemsetParams *nodeParams);
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *numNodes);
cudaError_t cudaGraphGetRootNodes(cudaGraph_t graph, cudaGraphNode_t *rootNodes,
    size_t *numRootNodes);
cudaError_t cudaGraphHostNodeGetParams(cudaGraphNode_t node, struct cudaHostNodeParams *nodeParams);
cudaError_t cudaGraphHostNodeSetParams(cudaGraphNode_t node,
    const struct cudaHostNodeParams *nodeParams);
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *graphExec, cudaGraph_t graph,
    unsigned long long flags VGPU_DEFAULT(0));
cudaError_t cudaGraphKernelNodeGetAttribute(cudaGraphNode_t hNode, enum cudaLaunchAttributeID attr,
    union cudaLaunchAttributeValue *value);
cudaError_t cudaGraphKernelNodeGetParams(cudaGraphNode_t node,
    struct cudaKernelNodeParams *nodeParams);
cudaError_t cudaGraphKernelNodeSetAttribute(cudaGraphNode_t hNode, enum cudaLaunchAttributeID attr,
    const union cudaLaunchAttributeValue *value);
cudaError_t cudaGraphKernelNodeSetParams(cudaGraphNode_t node,
    const struct cudaKernelNodeParams *nodeParams);
cudaError_t cudaGraphLaunch(cudaGraphExec_t graphExec, cudaStream_t stream);
cudaError_t cudaGraphMemAllocNodeGetParams(cudaGraphNode_t node,
    struct cudaMemAllocNodeParams *params);
cudaError_t cudaGraphMemFreeNodeGetParams(cudaGraphNode_t node, void *dptr);
cudaError_t cudaGraphMemcpyNodeGetParams(cudaGraphNode_t node,
    struct cudaMemcpy3DParms *nodeParams);
cudaError_t cudaGraphMemcpyNodeSetParams(cudaGraphNode_t node,
    const struct cudaMemcpy3DParms *nodeParams);
cudaError_t cudaGraphMemcpyNodeSetParams1D(cudaGraphNode_t node, void *dst, const void *src,
    size_t count, enum cudaMemcpyKind kind);
cudaError_t cudaGraphMemcpyNodeSetParamsFromSymbol(cudaGraphNode_t node, void *dst,
    const void *symbol, size_t count, size_t offset, enum cudaMemcpyKind kind);
cudaError_t cudaGraphMemcpyNodeSetParamsToSymbol(cudaGraphNode_t node, const void *symbol,
    const void *src, size_t count, size_t offset, enum cudaMemcpyKind kind);
cudaError_t cudaGraphMemsetNodeGetParams(cudaGraphNode_t node, struct cudaMemsetParams *nodeParams);
cudaError_t cudaGraphMemsetNodeSetParams(cudaGraphNode_t node,
    const struct cudaMemsetParams *nodeParams);
cudaError_t cudaGraphNodeFindInClone(cudaGraphNode_t *node, cudaGraphNode_t originalNode,
    cudaGraph_t clonedGraph);
cudaError_t cudaGraphNodeGetEnabled(cudaGraphExec_t hGraphExec, cudaGraphNode_t hNode,
    unsigned int *isEnabled);
cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, enum cudaGraphNodeType *type);
cudaError_t cudaGraphNodeSetEnabled(cudaGraphExec_t hGraphExec, cudaGraphNode_t hNode,
    unsigned int isEnabled);
cudaError_t cudaGraphReleaseUserObject(cudaGraph_t graph, cudaUserObject_t object,
    unsigned int count);
cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object,
    unsigned int count, unsigned int flags);
cudaError_t cudaGraphUpload(cudaGraphExec_t graphExec, cudaStream_t stream);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph);
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *captureStatus);
cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode);
cudaError_t cudaUserObjectCreate(cudaUserObject_t *object, void *ptr, cudaHostFn_t destroy,
    unsigned int initialRefcount, unsigned int flags);
cudaError_t cudaUserObjectRelease(cudaUserObject_t object, unsigned int count);
cudaError_t cudaUserObjectRetain(cudaUserObject_t object, unsigned int count);

cudaError_t cudaGraphConditionalHandleCreate(cudaGraphConditionalHandle *handle, cudaGraph_t graph,
    unsigned int defaultLaunchValue, unsigned int flags);
cudaError_t cudaGraphExecGetFlags(cudaGraphExec_t graphExec, unsigned long long *flags);
cudaError_t cudaGraphExecNodeSetParams(cudaGraphExec_t graphExec, cudaGraphNode_t node,
    struct cudaGraphNodeParams *nodeParams);
cudaError_t cudaGraphInstantiateWithParams(cudaGraphExec_t *graphExec, cudaGraph_t graph,
    cudaGraphInstantiateParams *instantiateParams);
cudaError_t cudaGraphNodeSetParams(cudaGraphNode_t node, struct cudaGraphNodeParams *nodeParams);
cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t stream, cudaGraph_t graph,
    const cudaGraphNode_t *dependencies, const cudaGraphEdgeData *dependencyData,
    size_t numDependencies, enum cudaStreamCaptureMode mode);

#if CUDART_VERSION < 12000
cudaError_t cudaGraphExecUpdate(cudaGraphExec_t hGraphExec, cudaGraph_t hGraph,
    cudaGraphNode_t *hErrorNode, enum cudaGraphExecUpdateResult *updateResult);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *graphExec, cudaGraph_t graph,
    cudaGraphNode_t *errorNode, char *logBuffer, size_t bufferSize);
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream,
    enum cudaStreamCaptureStatus *captureStatus, unsigned long long *id);
#else
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *graphExec, cudaGraph_t graph,
    unsigned long long flags VGPU_DEFAULT(0));
cudaError_t cudaGraphExecUpdate(cudaGraphExec_t hGraphExec, cudaGraph_t hGraph,
    cudaGraphExecUpdateResultInfo *resultInfo);
#endif

#if CUDART_VERSION < 13000
cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t *from,
    const cudaGraphNode_t *to, size_t numDependencies);
cudaError_t cudaGraphGetEdges(cudaGraph_t graph, cudaGraphNode_t *from, cudaGraphNode_t *to,
    size_t *numEdges);
cudaError_t cudaGraphKernelNodeCopyAttributes(cudaGraphNode_t hSrc, cudaGraphNode_t hDst);
cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t *dependencies,
    size_t *numDependencies);
cudaError_t cudaGraphNodeGetDependentNodes(cudaGraphNode_t node, cudaGraphNode_t *dependentNodes,
    size_t *numDependentNodes);
cudaError_t cudaGraphRemoveDependencies(cudaGraph_t graph, const cudaGraphNode_t *from,
    const cudaGraphNode_t *to, size_t numDependencies);
cudaError_t cudaStreamGetCaptureInfo_v2(cudaStream_t stream,
    enum cudaStreamCaptureStatus *captureStatus, unsigned long long *id VGPU_DEFAULT(NULL),
    cudaGraph_t *graph VGPU_DEFAULT(NULL), const cudaGraphNode_t **dependencies VGPU_DEFAULT(NULL),
    size_t *numDependencies VGPU_DEFAULT(NULL));
cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t stream, cudaGraphNode_t *dependencies,
    size_t numDependencies, unsigned int flags VGPU_DEFAULT(0));
#endif

#if CUDART_VERSION < 13000 && CUDART_VERSION >= 12000
cudaError_t cudaGraphAddDependencies_v2(cudaGraph_t graph, const cudaGraphNode_t *from,
    const cudaGraphNode_t *to, const cudaGraphEdgeData *edgeData, size_t numDependencies);
cudaError_t cudaGraphAddNode(cudaGraphNode_t *graphNode, cudaGraph_t graph,
    const cudaGraphNode_t *dependencies, size_t numDependencies,
    struct cudaGraphNodeParams *nodeParams);
cudaError_t cudaGraphAddNode_v2(cudaGraphNode_t *graphNode, cudaGraph_t graph,
    const cudaGraphNode_t *dependencies, const cudaGraphEdgeData *dependencyData,
    size_t numDependencies, struct cudaGraphNodeParams *nodeParams);
cudaError_t cudaGraphGetEdges_v2(cudaGraph_t graph, cudaGraphNode_t *from, cudaGraphNode_t *to,
    cudaGraphEdgeData *edgeData, size_t *numEdges);
cudaError_t cudaGraphNodeGetDependencies_v2(cudaGraphNode_t node, cudaGraphNode_t *dependencies,
    cudaGraphEdgeData *edgeData, size_t *numDependencies);
cudaError_t cudaGraphNodeGetDependentNodes_v2(cudaGraphNode_t node, cudaGraphNode_t *dependentNodes,
    cudaGraphEdgeData *edgeData, size_t *numDependentNodes);
cudaError_t cudaGraphRemoveDependencies_v2(cudaGraph_t graph, const cudaGraphNode_t *from,
    const cudaGraphNode_t *to, const cudaGraphEdgeData *edgeData, size_t numDependencies);
cudaError_t cudaStreamGetCaptureInfo_v3(cudaStream_t stream,
    enum cudaStreamCaptureStatus *captureStatus, unsigned long long *id VGPU_DEFAULT(NULL),
    cudaGraph_t *graph VGPU_DEFAULT(NULL), const cudaGraphNode_t **dependencies VGPU_DEFAULT(NULL),
    const cudaGraphEdgeData **edgeData VGPU_DEFAULT(NULL),
    size_t *numDependencies VGPU_DEFAULT(NULL));
cudaError_t cudaStreamUpdateCaptureDependencies_v2(cudaStream_t stream,
    cudaGraphNode_t *dependencies, const cudaGraphEdgeData *dependencyData, size_t numDependencies,
    unsigned int flags VGPU_DEFAULT(0));
#endif

#if CUDART_VERSION >= 13000
cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t *from,
    const cudaGraphNode_t *to, const cudaGraphEdgeData *edgeData, size_t numDependencies);
cudaError_t cudaGraphAddNode(cudaGraphNode_t *graphNode, cudaGraph_t graph,
    const cudaGraphNode_t *dependencies, const cudaGraphEdgeData *dependencyData,
    size_t numDependencies, struct cudaGraphNodeParams *nodeParams);
cudaError_t cudaGraphGetEdges(cudaGraph_t graph, cudaGraphNode_t *from, cudaGraphNode_t *to,
    cudaGraphEdgeData *edgeData, size_t *numEdges);
cudaError_t cudaGraphKernelNodeCopyAttributes(cudaGraphNode_t hDst, cudaGraphNode_t hSrc);
cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t *dependencies,
    cudaGraphEdgeData *edgeData, size_t *numDependencies);
cudaError_t cudaGraphNodeGetDependentNodes(cudaGraphNode_t node, cudaGraphNode_t *dependentNodes,
    cudaGraphEdgeData *edgeData, size_t *numDependentNodes);
cudaError_t cudaGraphRemoveDependencies(cudaGraph_t graph, const cudaGraphNode_t *from,
    const cudaGraphNode_t *to, const cudaGraphEdgeData *edgeData, size_t numDependencies);
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream,
    enum cudaStreamCaptureStatus *captureStatus, unsigned long long *id VGPU_DEFAULT(NULL),
    cudaGraph_t *graph VGPU_DEFAULT(NULL), const cudaGraphNode_t **dependencies VGPU_DEFAULT(NULL),
    const cudaGraphEdgeData **edgeData VGPU_DEFAULT(NULL),
    size_t *numDependencies VGPU_DEFAULT(NULL));
cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t stream, cudaGraphNode_t *dependencies,
    const cudaGraphEdgeData *dependencyData, size_t numDependencies,
    unsigned int flags VGPU_DEFAULT(0));
#endif

#endif
