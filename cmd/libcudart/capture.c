/* Capture of streams into graphs, and objects that graphs own (CUDA Runtime API, Stream Management
 * and Graph Management). */

#include "runtime.h"

_Static_assert(sizeof(cudaGraphEdgeData) == sizeof(CUgraphEdgeData), "edge data");

EXPORT cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode mode)
{
    READY;
    return done(driver.cuStreamBeginCapture_v2(s, (CUstreamCaptureMode)mode));
}
PTSZ(cudaStreamBeginCapture, (cudaStream_t s, enum cudaStreamCaptureMode mode), (own(s), mode))

EXPORT cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *g)
{
    READY;
    return done(driver.cuStreamEndCapture(s, g));
}
PTSZ(cudaStreamEndCapture, (cudaStream_t s, cudaGraph_t *g), (own(s), g))

EXPORT cudaError_t cudaStreamIsCapturing(cudaStream_t s, enum cudaStreamCaptureStatus *status)
{
    READY;
    return done(driver.cuStreamIsCapturing(s, (CUstreamCaptureStatus *)status));
}
PTSZ(cudaStreamIsCapturing, (cudaStream_t s, enum cudaStreamCaptureStatus *status), (own(s), status))

EXPORT cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    READY;
    return done(driver.cuThreadExchangeStreamCaptureMode((CUstreamCaptureMode *)mode));
}

#if MAJOR < 13
static cudaError_t capture_info_v2(cudaStream_t s, enum cudaStreamCaptureStatus *status,
    unsigned long long *id, cudaGraph_t *g, const cudaGraphNode_t **nodes, size_t *n)
{
    READY;
    return done(driver.cuStreamGetCaptureInfo_v2(s, (CUstreamCaptureStatus *)status,
        (cuuint64_t *)id, g, nodes, n));
}
#endif

#if MAJOR >= 12
static cudaError_t capture_info_v3(cudaStream_t s, enum cudaStreamCaptureStatus *status,
    unsigned long long *id, cudaGraph_t *g, const cudaGraphNode_t **nodes,
    const cudaGraphEdgeData **edges, size_t *n)
{
    READY;
    return done(driver.cuStreamGetCaptureInfo_v3(s, (CUstreamCaptureStatus *)status,
        (cuuint64_t *)id, g, nodes, (const CUgraphEdgeData **)edges, n));
}

static cudaError_t update_v2(cudaStream_t s, cudaGraphNode_t *nodes, const cudaGraphEdgeData *edges,
    size_t n, unsigned flags)
{
    READY;
    return done(driver.cuStreamUpdateCaptureDependencies_v2(s, nodes, (const CUgraphEdgeData *)edges, n, flags));
}

EXPORT cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t s, cudaGraph_t g,
    const cudaGraphNode_t *nodes, const cudaGraphEdgeData *edges, size_t n, enum cudaStreamCaptureMode mode)
{
    READY;
    return done(driver.cuStreamBeginCaptureToGraph(s, g, nodes, (const CUgraphEdgeData *)edges, n,
        (CUstreamCaptureMode)mode));
}
PTSZ(cudaStreamBeginCaptureToGraph,
    (cudaStream_t s, cudaGraph_t g, const cudaGraphNode_t *nodes, const cudaGraphEdgeData *edges,
        size_t n, enum cudaStreamCaptureMode mode),
    (own(s), g, nodes, edges, n, mode))
#endif

#if MAJOR >= 13
EXPORT cudaError_t cudaStreamGetCaptureInfo(cudaStream_t s, enum cudaStreamCaptureStatus *status,
    unsigned long long *id, cudaGraph_t *g, const cudaGraphNode_t **nodes,
    const cudaGraphEdgeData **edges, size_t *n)
{
    return capture_info_v3(s, status, id, g, nodes, edges, n);
}
PTSZ(cudaStreamGetCaptureInfo,
    (cudaStream_t s, enum cudaStreamCaptureStatus *status, unsigned long long *id, cudaGraph_t *g,
        const cudaGraphNode_t **nodes, const cudaGraphEdgeData **edges, size_t *n),
    (own(s), status, id, g, nodes, edges, n))

EXPORT cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t s, cudaGraphNode_t *nodes,
    const cudaGraphEdgeData *edges, size_t n, unsigned flags)
{
    return update_v2(s, nodes, edges, n, flags);
}
PTSZ(cudaStreamUpdateCaptureDependencies,
    (cudaStream_t s, cudaGraphNode_t *nodes, const cudaGraphEdgeData *edges, size_t n, unsigned flags),
    (own(s), nodes, edges, n, flags))

#else
EXPORT cudaError_t cudaStreamGetCaptureInfo(cudaStream_t s, enum cudaStreamCaptureStatus *status,
    unsigned long long *id)
{
    return capture_info_v2(s, status, id, NULL, NULL, NULL);
}
PTSZ(cudaStreamGetCaptureInfo,
    (cudaStream_t s, enum cudaStreamCaptureStatus *status, unsigned long long *id), (own(s), status, id))

EXPORT cudaError_t cudaStreamGetCaptureInfo_v2(cudaStream_t s, enum cudaStreamCaptureStatus *status,
    unsigned long long *id, cudaGraph_t *g, const cudaGraphNode_t **nodes, size_t *n)
{
    return capture_info_v2(s, status, id, g, nodes, n);
}
PTSZ(cudaStreamGetCaptureInfo_v2,
    (cudaStream_t s, enum cudaStreamCaptureStatus *status, unsigned long long *id, cudaGraph_t *g,
        const cudaGraphNode_t **nodes, size_t *n),
    (own(s), status, id, g, nodes, n))

EXPORT cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t s, cudaGraphNode_t *nodes,
    size_t n, unsigned flags)
{
    READY;
    return done(driver.cuStreamUpdateCaptureDependencies(s, nodes, n, flags));
}
PTSZ(cudaStreamUpdateCaptureDependencies,
    (cudaStream_t s, cudaGraphNode_t *nodes, size_t n, unsigned flags), (own(s), nodes, n, flags))

#if MAJOR >= 12
EXPORT cudaError_t cudaStreamGetCaptureInfo_v3(cudaStream_t s, enum cudaStreamCaptureStatus *status,
    unsigned long long *id, cudaGraph_t *g, const cudaGraphNode_t **nodes,
    const cudaGraphEdgeData **edges, size_t *n)
{
    return capture_info_v3(s, status, id, g, nodes, edges, n);
}
PTSZ(cudaStreamGetCaptureInfo_v3,
    (cudaStream_t s, enum cudaStreamCaptureStatus *status, unsigned long long *id, cudaGraph_t *g,
        const cudaGraphNode_t **nodes, const cudaGraphEdgeData **edges, size_t *n),
    (own(s), status, id, g, nodes, edges, n))

EXPORT cudaError_t cudaStreamUpdateCaptureDependencies_v2(cudaStream_t s, cudaGraphNode_t *nodes,
    const cudaGraphEdgeData *edges, size_t n, unsigned flags)
{
    return update_v2(s, nodes, edges, n, flags);
}
PTSZ(cudaStreamUpdateCaptureDependencies_v2,
    (cudaStream_t s, cudaGraphNode_t *nodes, const cudaGraphEdgeData *edges, size_t n, unsigned flags),
    (own(s), nodes, edges, n, flags))
#endif
#endif

EXPORT cudaError_t cudaUserObjectCreate(cudaUserObject_t *o, void *p, cudaHostFn_t destroy,
    unsigned count, unsigned flags)
{
    READY;
    return done(driver.cuUserObjectCreate(o, p, destroy, count, flags));
}

EXPORT cudaError_t cudaUserObjectRetain(cudaUserObject_t o, unsigned count)
{
    READY;
    return done(driver.cuUserObjectRetain(o, count));
}

EXPORT cudaError_t cudaUserObjectRelease(cudaUserObject_t o, unsigned count)
{
    READY;
    return done(driver.cuUserObjectRelease(o, count));
}

EXPORT cudaError_t cudaGraphRetainUserObject(cudaGraph_t g, cudaUserObject_t o, unsigned count, unsigned flags)
{
    READY;
    return done(driver.cuGraphRetainUserObject(g, o, count, flags));
}

EXPORT cudaError_t cudaGraphReleaseUserObject(cudaGraph_t g, cudaUserObject_t o, unsigned count)
{
    READY;
    return done(driver.cuGraphReleaseUserObject(g, o, count));
}

EXPORT cudaError_t cudaDeviceGraphMemTrim(int device)
{
    READY;
    return done(driver.cuDeviceGraphMemTrim(device));
}

EXPORT cudaError_t cudaDeviceGetGraphMemAttribute(int device, enum cudaGraphMemAttributeType a, void *v)
{
    READY;
    return done(driver.cuDeviceGetGraphMemAttribute(device, (CUgraphMem_attribute)a, v));
}

EXPORT cudaError_t cudaDeviceSetGraphMemAttribute(int device, enum cudaGraphMemAttributeType a, void *v)
{
    READY;
    return done(driver.cuDeviceSetGraphMemAttribute(device, (CUgraphMem_attribute)a, v));
}
