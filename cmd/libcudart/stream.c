/* Streams and events (CUDA Runtime API, Stream Management and Event Management). A stream or event
 * of the runtime is the driver's. */

#include "runtime.h"

EXPORT cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags)
{
    READY;
    return done(driver.cuStreamCreate(s, flags));
}

EXPORT cudaError_t cudaStreamCreate(cudaStream_t *s) { return cudaStreamCreateWithFlags(s, 0); }

EXPORT cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags, int priority)
{
    READY;
    return done(driver.cuStreamCreateWithPriority(s, flags, priority));
}

EXPORT cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    READY;
    if (!s || s == cudaStreamLegacy || s == cudaStreamPerThread)
        return fail(cudaErrorInvalidResourceHandle);
    return done(driver.cuStreamDestroy_v2(s));
}

EXPORT cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    READY;
    return done(driver.cuStreamSynchronize(s));
}
PTSZ(cudaStreamSynchronize, (cudaStream_t s), (own(s)))

EXPORT cudaError_t cudaStreamQuery(cudaStream_t s)
{
    READY;
    return done(driver.cuStreamQuery(s));
}
PTSZ(cudaStreamQuery, (cudaStream_t s), (own(s)))

EXPORT cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags)
{
    READY;
    return done(driver.cuStreamWaitEvent(s, e, flags));
}
PTSZ(cudaStreamWaitEvent, (cudaStream_t s, cudaEvent_t e, unsigned flags), (own(s), e, flags))

EXPORT cudaError_t cudaStreamAddCallback(cudaStream_t s, cudaStreamCallback_t fn, void *data, unsigned flags)
{
    READY;
    return done(driver.cuStreamAddCallback(s, (CUstreamCallback)(void *)fn, data, flags));
}
PTSZ(cudaStreamAddCallback, (cudaStream_t s, cudaStreamCallback_t fn, void *data, unsigned flags),
    (own(s), fn, data, flags))

EXPORT cudaError_t cudaStreamGetFlags(cudaStream_t s, unsigned *flags)
{
    READY;
    return done(driver.cuStreamGetFlags(s, flags));
}
PTSZ(cudaStreamGetFlags, (cudaStream_t s, unsigned *flags), (own(s), flags))

EXPORT cudaError_t cudaStreamGetPriority(cudaStream_t s, int *priority)
{
    READY;
    return done(driver.cuStreamGetPriority(s, priority));
}
PTSZ(cudaStreamGetPriority, (cudaStream_t s, int *priority), (own(s), priority))

EXPORT cudaError_t cudaStreamGetId(cudaStream_t s, unsigned long long *id)
{
    READY;
    return done(driver.cuStreamGetId(s, id));
}
PTSZ(cudaStreamGetId, (cudaStream_t s, unsigned long long *id), (own(s), id))

EXPORT cudaError_t cudaStreamGetDevice(cudaStream_t s, int *device)
{
    READY;
    return done(driver.cuStreamGetDevice(s, device));
}
PTSZ(cudaStreamGetDevice, (cudaStream_t s, int *device), (own(s), device))

EXPORT cudaError_t cudaStreamCopyAttributes(cudaStream_t dst, cudaStream_t src)
{
    READY;
    return done(driver.cuStreamCopyAttributes(dst, src));
}
PTSZ(cudaStreamCopyAttributes, (cudaStream_t dst, cudaStream_t src), (own(dst), own(src)))

EXPORT cudaError_t cudaStreamGetAttribute(cudaStream_t s, enum cudaLaunchAttributeID id,
    union cudaLaunchAttributeValue *value)
{
    READY;
    return done(driver.cuStreamGetAttribute(s, (CUstreamAttrID)id, (CUstreamAttrValue *)value));
}
PTSZ(cudaStreamGetAttribute,
    (cudaStream_t s, enum cudaLaunchAttributeID id, union cudaLaunchAttributeValue *value),
    (own(s), id, value))

EXPORT cudaError_t cudaStreamSetAttribute(cudaStream_t s, enum cudaLaunchAttributeID id,
    const union cudaLaunchAttributeValue *value)
{
    READY;
    return done(driver.cuStreamSetAttribute(s, (CUstreamAttrID)id, (const CUstreamAttrValue *)value));
}
PTSZ(cudaStreamSetAttribute,
    (cudaStream_t s, enum cudaLaunchAttributeID id, const union cudaLaunchAttributeValue *value),
    (own(s), id, value))

EXPORT cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags)
{
    READY;
    return done(driver.cuEventCreate(e, flags));
}

EXPORT cudaError_t cudaEventCreate(cudaEvent_t *e) { return cudaEventCreateWithFlags(e, 0); }

EXPORT cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    READY;
    return done(driver.cuEventDestroy_v2(e));
}

EXPORT cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
    READY;
    return done(driver.cuEventRecord(e, s));
}
PTSZ(cudaEventRecord, (cudaEvent_t e, cudaStream_t s), (e, own(s)))

EXPORT cudaError_t cudaEventRecordWithFlags(cudaEvent_t e, cudaStream_t s, unsigned flags)
{
    READY;
    return done(driver.cuEventRecordWithFlags(e, s, flags));
}
PTSZ(cudaEventRecordWithFlags, (cudaEvent_t e, cudaStream_t s, unsigned flags), (e, own(s), flags))

EXPORT cudaError_t cudaEventQuery(cudaEvent_t e)
{
    READY;
    return done(driver.cuEventQuery(e));
}

EXPORT cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
    READY;
    return done(driver.cuEventSynchronize(e));
}

EXPORT cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    READY;
    return done(driver.cuEventElapsedTime(ms, start, end));
}

#if MAJOR == 12
EXPORT cudaError_t cudaEventElapsedTime_v2(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    return cudaEventElapsedTime(ms, start, end);
}
#endif
