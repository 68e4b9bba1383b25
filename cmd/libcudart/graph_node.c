/* Nodes of graphs and their parameters (CUDA Runtime API, Graph Management). */

#include "graph.h"

/* What every function that adds a node takes first. */
#define WHERE cudaGraphNode_t *node, cudaGraph_t g, const cudaGraphNode_t *deps, size_t n
#define THERE node, g, deps, n

CUresult kernel_params(const struct cudaKernelNodeParams *p, CUDA_KERNEL_NODE_PARAMS *d)
{
    CUfunction f;
    if (!p)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = function_of(p->func, &f);
    if (r != CUDA_SUCCESS)
        return r;
    *d = (CUDA_KERNEL_NODE_PARAMS){
        .func = f,
        .gridDimX = p->gridDim.x,
        .gridDimY = p->gridDim.y,
        .gridDimZ = p->gridDim.z,
        .blockDimX = p->blockDim.x,
        .blockDimY = p->blockDim.y,
        .blockDimZ = p->blockDim.z,
        .sharedMemBytes = p->sharedMemBytes,
        .kernelParams = p->kernelParams,
        .extra = p->extra,
    };
    return CUDA_SUCCESS;
}

CUresult memset_params(const struct cudaMemsetParams *p, CUDA_MEMSET_NODE_PARAMS *d)
{
    if (!p)
        return CUDA_ERROR_INVALID_VALUE;
    *d = (CUDA_MEMSET_NODE_PARAMS){DEVICE_PTR(p->dst), p->pitch, p->value, p->elementSize, p->width, p->height};
    return CUDA_SUCCESS;
}

/* Kernels */

EXPORT cudaError_t cudaGraphAddKernelNode(WHERE, const struct cudaKernelNodeParams *p)
{
    CUDA_KERNEL_NODE_PARAMS d;
    READY;
    TRY(kernel_params(p, &d));
    return done(driver.cuGraphAddKernelNode_v2(THERE, &d));
}

EXPORT cudaError_t cudaGraphKernelNodeGetParams(cudaGraphNode_t node, struct cudaKernelNodeParams *p)
{
    CUDA_KERNEL_NODE_PARAMS d;
    READY;
    TRY(driver.cuGraphKernelNodeGetParams_v2(node, &d));
    p->func = stub_of(d.func ? d.func : (CUfunction)d.kern);
    p->gridDim = (dim3){d.gridDimX, d.gridDimY, d.gridDimZ};
    p->blockDim = (dim3){d.blockDimX, d.blockDimY, d.blockDimZ};
    p->sharedMemBytes = d.sharedMemBytes;
    p->kernelParams = d.kernelParams;
    p->extra = d.extra;
    return cudaSuccess;
}

EXPORT cudaError_t cudaGraphKernelNodeSetParams(cudaGraphNode_t node, const struct cudaKernelNodeParams *p)
{
    CUDA_KERNEL_NODE_PARAMS d;
    READY;
    TRY(kernel_params(p, &d));
    return done(driver.cuGraphKernelNodeSetParams_v2(node, &d));
}

EXPORT cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t x, cudaGraphNode_t node,
    const struct cudaKernelNodeParams *p)
{
    CUDA_KERNEL_NODE_PARAMS d;
    READY;
    TRY(kernel_params(p, &d));
    return done(driver.cuGraphExecKernelNodeSetParams_v2(x, node, &d));
}

EXPORT cudaError_t cudaGraphKernelNodeGetAttribute(cudaGraphNode_t node, enum cudaLaunchAttributeID id,
    union cudaLaunchAttributeValue *v)
{
    READY;
    return done(driver.cuGraphKernelNodeGetAttribute(node, (CUkernelNodeAttrID)id, (CUkernelNodeAttrValue *)v));
}

EXPORT cudaError_t cudaGraphKernelNodeSetAttribute(cudaGraphNode_t node, enum cudaLaunchAttributeID id,
    const union cudaLaunchAttributeValue *v)
{
    READY;
    return done(driver.cuGraphKernelNodeSetAttribute(node, (CUkernelNodeAttrID)id,
        (const CUkernelNodeAttrValue *)v));
}

/* 13 swapped the parameters. */
#if MAJOR >= 13
EXPORT cudaError_t cudaGraphKernelNodeCopyAttributes(cudaGraphNode_t dst, cudaGraphNode_t src)
#else
EXPORT cudaError_t cudaGraphKernelNodeCopyAttributes(cudaGraphNode_t src, cudaGraphNode_t dst)
#endif
{
    READY;
    return done(driver.cuGraphKernelNodeCopyAttributes(dst, src));
}

/* Copies. A node's copy is three-dimensional also where the program said less. */

static cudaError_t add_copy(WHERE, const CUDA_MEMCPY3D *c)
{
    CUcontext ctx;
    TRY(ready_context(&ctx));
    return done(driver.cuGraphAddMemcpyNode(THERE, c, ctx));
}

static cudaError_t set_copy(cudaGraphExec_t x, cudaGraphNode_t node, const CUDA_MEMCPY3D *c)
{
    CUcontext ctx;
    if (!x)
        return done(driver.cuGraphMemcpyNodeSetParams(node, c));
    TRY(ready_context(&ctx));
    return done(driver.cuGraphExecMemcpyNodeSetParams(x, node, c, ctx));
}

/* symbol_copy is the copy from or to n bytes at an offset of a variable. */
static CUresult symbol_copy(CUDA_MEMCPY3D *c, void *dst, const void *src, const void *symbol, size_t n,
    size_t offset, enum cudaMemcpyKind kind)
{
    CUdeviceptr p;
    size_t size;
    CUresult r = symbol_of(symbol, &p, &size);
    if (r != CUDA_SUCCESS)
        return r;
    if (offset > size || n > size - offset)
        return CUDA_ERROR_INVALID_VALUE;
    if (dst)
        linear_params(c, dst, HOST_PTR(p + offset), n, kind);
    else
        linear_params(c, HOST_PTR(p + offset), src, n, kind);
    return CUDA_SUCCESS;
}

EXPORT cudaError_t cudaGraphAddMemcpyNode(WHERE, const struct cudaMemcpy3DParms *p)
{
    CUDA_MEMCPY3D c;
    READY;
    TRY(copy_params(p, &c));
    return add_copy(THERE, &c);
}

EXPORT cudaError_t cudaGraphAddMemcpyNode1D(WHERE, void *dst, const void *src, size_t bytes,
    enum cudaMemcpyKind kind)
{
    CUDA_MEMCPY3D c;
    linear_params(&c, dst, src, bytes, kind);
    return add_copy(THERE, &c);
}

EXPORT cudaError_t cudaGraphAddMemcpyNodeToSymbol(WHERE, const void *symbol, const void *src,
    size_t bytes, size_t offset, enum cudaMemcpyKind kind)
{
    CUDA_MEMCPY3D c;
    TRY(symbol_copy(&c, NULL, src, symbol, bytes, offset, kind));
    return add_copy(THERE, &c);
}

EXPORT cudaError_t cudaGraphAddMemcpyNodeFromSymbol(WHERE, void *dst, const void *symbol,
    size_t bytes, size_t offset, enum cudaMemcpyKind kind)
{
    CUDA_MEMCPY3D c;
    TRY(symbol_copy(&c, dst, NULL, symbol, bytes, offset, kind));
    return add_copy(THERE, &c);
}

EXPORT cudaError_t cudaGraphMemcpyNodeGetParams(cudaGraphNode_t node, struct cudaMemcpy3DParms *p)
{
    CUDA_MEMCPY3D c;
    READY;
    TRY(driver.cuGraphMemcpyNodeGetParams(node, &c));
    copy_params_back(&c, p);
    return cudaSuccess;
}

static cudaError_t set_params(cudaGraphExec_t x, cudaGraphNode_t node, const struct cudaMemcpy3DParms *p)
{
    CUDA_MEMCPY3D c;
    READY;
    TRY(copy_params(p, &c));
    return set_copy(x, node, &c);
}

static cudaError_t set_1d(cudaGraphExec_t x, cudaGraphNode_t node, void *dst, const void *src, size_t bytes,
    enum cudaMemcpyKind kind)
{
    CUDA_MEMCPY3D c;
    READY;
    linear_params(&c, dst, src, bytes, kind);
    return set_copy(x, node, &c);
}

static cudaError_t set_symbol(cudaGraphExec_t x, cudaGraphNode_t node, void *dst, const void *src,
    const void *symbol, size_t bytes, size_t offset, enum cudaMemcpyKind kind)
{
    CUDA_MEMCPY3D c;
    TRY(symbol_copy(&c, dst, src, symbol, bytes, offset, kind));
    return set_copy(x, node, &c);
}

EXPORT cudaError_t cudaGraphMemcpyNodeSetParams(cudaGraphNode_t node, const struct cudaMemcpy3DParms *p)
{
    return set_params(NULL, node, p);
}

EXPORT cudaError_t cudaGraphExecMemcpyNodeSetParams(cudaGraphExec_t x, cudaGraphNode_t node,
    const struct cudaMemcpy3DParms *p)
{
    return set_params(x, node, p);
}

EXPORT cudaError_t cudaGraphMemcpyNodeSetParams1D(cudaGraphNode_t node, void *dst, const void *src,
    size_t bytes, enum cudaMemcpyKind kind)
{
    return set_1d(NULL, node, dst, src, bytes, kind);
}

EXPORT cudaError_t cudaGraphExecMemcpyNodeSetParams1D(cudaGraphExec_t x, cudaGraphNode_t node,
    void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind)
{
    return set_1d(x, node, dst, src, bytes, kind);
}

EXPORT cudaError_t cudaGraphMemcpyNodeSetParamsToSymbol(cudaGraphNode_t node, const void *symbol,
    const void *src, size_t bytes, size_t offset, enum cudaMemcpyKind kind)
{
    return set_symbol(NULL, node, NULL, src, symbol, bytes, offset, kind);
}

EXPORT cudaError_t cudaGraphExecMemcpyNodeSetParamsToSymbol(cudaGraphExec_t x, cudaGraphNode_t node,
    const void *symbol, const void *src, size_t bytes, size_t offset, enum cudaMemcpyKind kind)
{
    return set_symbol(x, node, NULL, src, symbol, bytes, offset, kind);
}

EXPORT cudaError_t cudaGraphMemcpyNodeSetParamsFromSymbol(cudaGraphNode_t node, void *dst,
    const void *symbol, size_t bytes, size_t offset, enum cudaMemcpyKind kind)
{
    return set_symbol(NULL, node, dst, NULL, symbol, bytes, offset, kind);
}

EXPORT cudaError_t cudaGraphExecMemcpyNodeSetParamsFromSymbol(cudaGraphExec_t x, cudaGraphNode_t node,
    void *dst, const void *symbol, size_t bytes, size_t offset, enum cudaMemcpyKind kind)
{
    return set_symbol(x, node, dst, NULL, symbol, bytes, offset, kind);
}

/* Sets */

EXPORT cudaError_t cudaGraphAddMemsetNode(WHERE, const struct cudaMemsetParams *p)
{
    CUDA_MEMSET_NODE_PARAMS d;
    CUcontext ctx;
    TRY(ready_context(&ctx));
    TRY(memset_params(p, &d));
    return done(driver.cuGraphAddMemsetNode(THERE, &d, ctx));
}

EXPORT cudaError_t cudaGraphMemsetNodeGetParams(cudaGraphNode_t node, struct cudaMemsetParams *p)
{
    CUDA_MEMSET_NODE_PARAMS d;
    READY;
    TRY(driver.cuGraphMemsetNodeGetParams(node, &d));
    *p = (struct cudaMemsetParams){HOST_PTR(d.dst), d.pitch, d.value, d.elementSize, d.width, d.height};
    return cudaSuccess;
}

EXPORT cudaError_t cudaGraphMemsetNodeSetParams(cudaGraphNode_t node, const struct cudaMemsetParams *p)
{
    CUDA_MEMSET_NODE_PARAMS d;
    READY;
    TRY(memset_params(p, &d));
    return done(driver.cuGraphMemsetNodeSetParams(node, &d));
}

EXPORT cudaError_t cudaGraphExecMemsetNodeSetParams(cudaGraphExec_t x, cudaGraphNode_t node,
    const struct cudaMemsetParams *p)
{
    CUDA_MEMSET_NODE_PARAMS d;
    CUcontext ctx;
    TRY(ready_context(&ctx));
    TRY(memset_params(p, &d));
    return done(driver.cuGraphExecMemsetNodeSetParams(x, node, &d, ctx));
}

/* Host functions */

_Static_assert(sizeof(struct cudaHostNodeParams) == sizeof(CUDA_HOST_NODE_PARAMS), "host node");

EXPORT cudaError_t cudaGraphAddHostNode(WHERE, const struct cudaHostNodeParams *p)
{
    READY;
    return done(driver.cuGraphAddHostNode(THERE, (const CUDA_HOST_NODE_PARAMS *)p));
}

EXPORT cudaError_t cudaGraphHostNodeGetParams(cudaGraphNode_t node, struct cudaHostNodeParams *p)
{
    READY;
    return done(driver.cuGraphHostNodeGetParams(node, (CUDA_HOST_NODE_PARAMS *)p));
}

EXPORT cudaError_t cudaGraphHostNodeSetParams(cudaGraphNode_t node, const struct cudaHostNodeParams *p)
{
    READY;
    return done(driver.cuGraphHostNodeSetParams(node, (const CUDA_HOST_NODE_PARAMS *)p));
}

EXPORT cudaError_t cudaGraphExecHostNodeSetParams(cudaGraphExec_t x, cudaGraphNode_t node,
    const struct cudaHostNodeParams *p)
{
    READY;
    return done(driver.cuGraphExecHostNodeSetParams(x, node, (const CUDA_HOST_NODE_PARAMS *)p));
}

/* Child graphs, empty nodes and events */

EXPORT cudaError_t cudaGraphAddChildGraphNode(WHERE, cudaGraph_t child)
{
    READY;
    return done(driver.cuGraphAddChildGraphNode(THERE, child));
}

EXPORT cudaError_t cudaGraphChildGraphNodeGetGraph(cudaGraphNode_t node, cudaGraph_t *child)
{
    READY;
    return done(driver.cuGraphChildGraphNodeGetGraph(node, child));
}

EXPORT cudaError_t cudaGraphExecChildGraphNodeSetParams(cudaGraphExec_t x, cudaGraphNode_t node, cudaGraph_t child)
{
    READY;
    return done(driver.cuGraphExecChildGraphNodeSetParams(x, node, child));
}

EXPORT cudaError_t cudaGraphAddEmptyNode(WHERE)
{
    READY;
    return done(driver.cuGraphAddEmptyNode(THERE));
}

#define EVENT_NODE(kind)                                                                           \
    EXPORT cudaError_t cudaGraphAdd##kind##Node(WHERE, cudaEvent_t e)                              \
    {                                                                                              \
        READY;                                                                                     \
        return done(driver.cuGraphAdd##kind##Node(THERE, e));                                      \
    }                                                                                              \
    EXPORT cudaError_t cudaGraph##kind##NodeGetEvent(cudaGraphNode_t node, cudaEvent_t *e)         \
    {                                                                                              \
        READY;                                                                                     \
        return done(driver.cuGraph##kind##NodeGetEvent(node, e));                                  \
    }                                                                                              \
    EXPORT cudaError_t cudaGraph##kind##NodeSetEvent(cudaGraphNode_t node, cudaEvent_t e)          \
    {                                                                                              \
        READY;                                                                                     \
        return done(driver.cuGraph##kind##NodeSetEvent(node, e));                                  \
    }                                                                                              \
    EXPORT cudaError_t cudaGraphExec##kind##NodeSetEvent(cudaGraphExec_t x, cudaGraphNode_t node,  \
        cudaEvent_t e)                                                                             \
    {                                                                                              \
        READY;                                                                                     \
        return done(driver.cuGraphExec##kind##NodeSetEvent(x, node, e));                           \
    }
EVENT_NODE(EventRecord)
EVENT_NODE(EventWait)

/* Memory */

_Static_assert(sizeof(struct cudaMemAllocNodeParams) == sizeof(CUDA_MEM_ALLOC_NODE_PARAMS), "allocation node");

EXPORT cudaError_t cudaGraphAddMemAllocNode(WHERE, struct cudaMemAllocNodeParams *p)
{
    READY;
    return done(driver.cuGraphAddMemAllocNode(THERE, (CUDA_MEM_ALLOC_NODE_PARAMS *)p));
}

EXPORT cudaError_t cudaGraphMemAllocNodeGetParams(cudaGraphNode_t node, struct cudaMemAllocNodeParams *p)
{
    READY;
    return done(driver.cuGraphMemAllocNodeGetParams(node, (CUDA_MEM_ALLOC_NODE_PARAMS *)p));
}

EXPORT cudaError_t cudaGraphAddMemFreeNode(WHERE, void *p)
{
    READY;
    return done(driver.cuGraphAddMemFreeNode(THERE, DEVICE_PTR(p)));
}

EXPORT cudaError_t cudaGraphMemFreeNodeGetParams(cudaGraphNode_t node, void *p)
{
    READY;
    return done(driver.cuGraphMemFreeNodeGetParams(node, p));
}

/* Nodes of any type */

#if MAJOR >= 12
static CUresult any_params(const struct cudaGraphNodeParams *p, CUgraphNodeParams *d)
{
    CUcontext ctx;
    CUDA_KERNEL_NODE_PARAMS k;
    CUresult r = ready_context(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    if (!p)
        return CUDA_ERROR_INVALID_VALUE;
    memset(d, 0, sizeof *d);
    d->type = (CUgraphNodeType)p->type;
    switch (p->type) {
    case cudaGraphNodeTypeKernel: {
        struct cudaKernelNodeParams one = {p->kernel.func, p->kernel.gridDim, p->kernel.blockDim,
            p->kernel.sharedMemBytes, p->kernel.kernelParams, p->kernel.extra};
        r = kernel_params(&one, &k);
        if (r == CUDA_SUCCESS)
            memcpy(&d->kernel, &k, sizeof k);
        return r;
    }
    case cudaGraphNodeTypeMemcpy:
        d->memcpy.copyCtx = ctx;
        return copy_params(&p->memcpy.copyParams, &d->memcpy.copyParams);
    case cudaGraphNodeTypeMemset:
        d->memset.dst = DEVICE_PTR(p->memset.dst);
        d->memset.pitch = p->memset.pitch;
        d->memset.value = p->memset.value;
        d->memset.elementSize = p->memset.elementSize;
        d->memset.width = p->memset.width;
        d->memset.height = p->memset.height;
        d->memset.ctx = ctx;
        return CUDA_SUCCESS;
    case cudaGraphNodeTypeConditional:
        d->conditional.handle = p->conditional.handle;
        d->conditional.type = (CUgraphConditionalNodeType)p->conditional.type;
        d->conditional.size = p->conditional.size;
        d->conditional.ctx = ctx;
        return CUDA_SUCCESS;
    default:
        /* The others have the same layout in both APIs. */
        memcpy(d->reserved1, p->reserved1, sizeof d->reserved1);
        return CUDA_SUCCESS;
    }
}

/* any_results gives what adding the node found out. */
static void any_results(const CUgraphNodeParams *d, struct cudaGraphNodeParams *p)
{
    if (p->type == cudaGraphNodeTypeMemAlloc)
        p->alloc.dptr = HOST_PTR(d->alloc.dptr);
    else if (p->type == cudaGraphNodeTypeConditional)
        p->conditional.phGraph_out = (cudaGraph_t *)d->conditional.phGraph_out;
}

static cudaError_t add_node(WHERE, const cudaGraphEdgeData *edges, struct cudaGraphNodeParams *p)
{
    CUgraphNodeParams d;
    TRY(any_params(p, &d));
    TRY(driver.cuGraphAddNode_v2(node, g, deps, (const CUgraphEdgeData *)edges, n, &d));
    any_results(&d, p);
    return cudaSuccess;
}

#if MAJOR >= 13
EXPORT cudaError_t cudaGraphAddNode(cudaGraphNode_t *node, cudaGraph_t g, const cudaGraphNode_t *deps,
    const cudaGraphEdgeData *edges, size_t n, struct cudaGraphNodeParams *p)
{
    return add_node(THERE, edges, p);
}
#else
EXPORT cudaError_t cudaGraphAddNode(WHERE, struct cudaGraphNodeParams *p)
{
    return add_node(THERE, NULL, p);
}

EXPORT cudaError_t cudaGraphAddNode_v2(cudaGraphNode_t *node, cudaGraph_t g, const cudaGraphNode_t *deps,
    const cudaGraphEdgeData *edges, size_t n, struct cudaGraphNodeParams *p)
{
    return add_node(THERE, edges, p);
}
#endif

EXPORT cudaError_t cudaGraphNodeSetParams(cudaGraphNode_t node, struct cudaGraphNodeParams *p)
{
    CUgraphNodeParams d;
    TRY(any_params(p, &d));
    return done(driver.cuGraphNodeSetParams(node, &d));
}

EXPORT cudaError_t cudaGraphExecNodeSetParams(cudaGraphExec_t x, cudaGraphNode_t node,
    struct cudaGraphNodeParams *p)
{
    CUgraphNodeParams d;
    TRY(any_params(p, &d));
    return done(driver.cuGraphExecNodeSetParams(x, node, &d));
}
#endif
