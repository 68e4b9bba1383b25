/* Graphs (CUDA Runtime API, Graph Management). A graph, a node and an executable graph are the
 * driver's. */

#include "graph.h"

EXPORT cudaError_t cudaGraphCreate(cudaGraph_t *g, unsigned flags)
{
    READY;
    return done(driver.cuGraphCreate(g, flags));
}

EXPORT cudaError_t cudaGraphDestroy(cudaGraph_t g)
{
    READY;
    return done(driver.cuGraphDestroy(g));
}

EXPORT cudaError_t cudaGraphDestroyNode(cudaGraphNode_t n)
{
    READY;
    return done(driver.cuGraphDestroyNode(n));
}

EXPORT cudaError_t cudaGraphClone(cudaGraph_t *clone, cudaGraph_t g)
{
    READY;
    return done(driver.cuGraphClone(clone, g));
}

EXPORT cudaError_t cudaGraphNodeFindInClone(cudaGraphNode_t *n, cudaGraphNode_t original, cudaGraph_t clone)
{
    READY;
    return done(driver.cuGraphNodeFindInClone(n, original, clone));
}

EXPORT cudaError_t cudaGraphNodeGetType(cudaGraphNode_t n, enum cudaGraphNodeType *type)
{
    CUgraphNodeType t;
    READY;
    TRY(driver.cuGraphNodeGetType(n, &t));
    *type = (enum cudaGraphNodeType)t;
    return cudaSuccess;
}

EXPORT cudaError_t cudaGraphGetNodes(cudaGraph_t g, cudaGraphNode_t *nodes, size_t *n)
{
    READY;
    return done(driver.cuGraphGetNodes(g, nodes, n));
}

EXPORT cudaError_t cudaGraphGetRootNodes(cudaGraph_t g, cudaGraphNode_t *nodes, size_t *n)
{
    READY;
    return done(driver.cuGraphGetRootNodes(g, nodes, n));
}

EXPORT cudaError_t cudaGraphDebugDotPrint(cudaGraph_t g, const char *path, unsigned flags)
{
    READY;
    return done(driver.cuGraphDebugDotPrint(g, path, flags));
}

/* Dependencies. Since 12.3 an edge has data, and 13 has no function without it. */

#if MAJOR < 13
EXPORT cudaError_t cudaGraphAddDependencies(cudaGraph_t g, const cudaGraphNode_t *from,
    const cudaGraphNode_t *to, size_t n)
{
    READY;
    return done(driver.cuGraphAddDependencies(g, from, to, n));
}

EXPORT cudaError_t cudaGraphRemoveDependencies(cudaGraph_t g, const cudaGraphNode_t *from,
    const cudaGraphNode_t *to, size_t n)
{
    READY;
    return done(driver.cuGraphRemoveDependencies(g, from, to, n));
}

EXPORT cudaError_t cudaGraphGetEdges(cudaGraph_t g, cudaGraphNode_t *from, cudaGraphNode_t *to, size_t *n)
{
    READY;
    return done(driver.cuGraphGetEdges(g, from, to, n));
}

EXPORT cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t *nodes, size_t *n)
{
    READY;
    return done(driver.cuGraphNodeGetDependencies(node, nodes, n));
}

EXPORT cudaError_t cudaGraphNodeGetDependentNodes(cudaGraphNode_t node, cudaGraphNode_t *nodes, size_t *n)
{
    READY;
    return done(driver.cuGraphNodeGetDependentNodes(node, nodes, n));
}
#endif

#if MAJOR >= 13
#define WITH_EDGES(name) name
#else
#define WITH_EDGES(name) name##_v2
#endif

#if MAJOR >= 12
EXPORT cudaError_t WITH_EDGES(cudaGraphAddDependencies)(cudaGraph_t g, const cudaGraphNode_t *from,
    const cudaGraphNode_t *to, const cudaGraphEdgeData *edges, size_t n)
{
    READY;
    return done(driver.cuGraphAddDependencies_v2(g, from, to, (const CUgraphEdgeData *)edges, n));
}

EXPORT cudaError_t WITH_EDGES(cudaGraphRemoveDependencies)(cudaGraph_t g, const cudaGraphNode_t *from,
    const cudaGraphNode_t *to, const cudaGraphEdgeData *edges, size_t n)
{
    READY;
    return done(driver.cuGraphRemoveDependencies_v2(g, from, to, (const CUgraphEdgeData *)edges, n));
}

EXPORT cudaError_t WITH_EDGES(cudaGraphGetEdges)(cudaGraph_t g, cudaGraphNode_t *from,
    cudaGraphNode_t *to, cudaGraphEdgeData *edges, size_t *n)
{
    READY;
    return done(driver.cuGraphGetEdges_v2(g, from, to, (CUgraphEdgeData *)edges, n));
}

EXPORT cudaError_t WITH_EDGES(cudaGraphNodeGetDependencies)(cudaGraphNode_t node,
    cudaGraphNode_t *nodes, cudaGraphEdgeData *edges, size_t *n)
{
    READY;
    return done(driver.cuGraphNodeGetDependencies_v2(node, nodes, (CUgraphEdgeData *)edges, n));
}

EXPORT cudaError_t WITH_EDGES(cudaGraphNodeGetDependentNodes)(cudaGraphNode_t node,
    cudaGraphNode_t *nodes, cudaGraphEdgeData *edges, size_t *n)
{
    READY;
    return done(driver.cuGraphNodeGetDependentNodes_v2(node, nodes, (CUgraphEdgeData *)edges, n));
}
#endif

/* Executable graphs */

EXPORT cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *x, cudaGraph_t g, unsigned long long flags)
{
    READY;
    return done(driver.cuGraphInstantiateWithFlags(x, g, flags));
}

#if MAJOR < 12
EXPORT cudaError_t cudaGraphInstantiate(cudaGraphExec_t *x, cudaGraph_t g, cudaGraphNode_t *bad,
    char *log, size_t size)
{
    if (bad)
        *bad = NULL;
    if (log && size)
        *log = 0;
    return cudaGraphInstantiateWithFlags(x, g, 0);
}

EXPORT cudaError_t cudaGraphExecUpdate(cudaGraphExec_t x, cudaGraph_t g, cudaGraphNode_t *bad,
    enum cudaGraphExecUpdateResult *result)
{
    CUgraphExecUpdateResultInfo info = {0};
    READY;
    CUresult r = driver.cuGraphExecUpdate_v2(x, g, &info);
    if (bad)
        *bad = info.errorNode;
    if (result)
        *result = (enum cudaGraphExecUpdateResult)info.result;
    return done(r);
}
#else
_Static_assert(sizeof(cudaGraphExecUpdateResultInfo) == sizeof(CUgraphExecUpdateResultInfo), "update result");
_Static_assert(sizeof(cudaGraphInstantiateParams) == sizeof(CUDA_GRAPH_INSTANTIATE_PARAMS), "instantiation");

EXPORT cudaError_t cudaGraphInstantiate(cudaGraphExec_t *x, cudaGraph_t g, unsigned long long flags)
{
    return cudaGraphInstantiateWithFlags(x, g, flags);
}

EXPORT cudaError_t cudaGraphInstantiateWithParams(cudaGraphExec_t *x, cudaGraph_t g,
    cudaGraphInstantiateParams *p)
{
    READY;
    return done(driver.cuGraphInstantiateWithParams(x, g, (CUDA_GRAPH_INSTANTIATE_PARAMS *)p));
}
PTSZ(cudaGraphInstantiateWithParams,
    (cudaGraphExec_t *x, cudaGraph_t g, cudaGraphInstantiateParams *p), (x, g, p))

EXPORT cudaError_t cudaGraphExecUpdate(cudaGraphExec_t x, cudaGraph_t g, cudaGraphExecUpdateResultInfo *info)
{
    READY;
    return done(driver.cuGraphExecUpdate_v2(x, g, (CUgraphExecUpdateResultInfo *)info));
}

EXPORT cudaError_t cudaGraphExecGetFlags(cudaGraphExec_t x, unsigned long long *flags)
{
    READY;
    return done(driver.cuGraphExecGetFlags(x, (cuuint64_t *)flags));
}

EXPORT cudaError_t cudaGraphConditionalHandleCreate(cudaGraphConditionalHandle *h, cudaGraph_t g,
    unsigned value, unsigned flags)
{
    CUcontext ctx;
    TRY(ready_context(&ctx));
    return done(driver.cuGraphConditionalHandleCreate((CUgraphConditionalHandle *)h, g, ctx, value, flags));
}
#endif

EXPORT cudaError_t cudaGraphExecDestroy(cudaGraphExec_t x)
{
    READY;
    return done(driver.cuGraphExecDestroy(x));
}

EXPORT cudaError_t cudaGraphLaunch(cudaGraphExec_t x, cudaStream_t s)
{
    READY;
    return done(driver.cuGraphLaunch(x, s));
}
PTSZ(cudaGraphLaunch, (cudaGraphExec_t x, cudaStream_t s), (x, own(s)))

EXPORT cudaError_t cudaGraphUpload(cudaGraphExec_t x, cudaStream_t s)
{
    READY;
    return done(driver.cuGraphUpload(x, s));
}
PTSZ(cudaGraphUpload, (cudaGraphExec_t x, cudaStream_t s), (x, own(s)))

EXPORT cudaError_t cudaGraphNodeSetEnabled(cudaGraphExec_t x, cudaGraphNode_t n, unsigned on)
{
    READY;
    return done(driver.cuGraphNodeSetEnabled(x, n, on));
}

EXPORT cudaError_t cudaGraphNodeGetEnabled(cudaGraphExec_t x, cudaGraphNode_t n, unsigned *on)
{
    READY;
    return done(driver.cuGraphNodeGetEnabled(x, n, on));
}
