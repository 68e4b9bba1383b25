/* Memory of the device and the host, and pools (CUDA Runtime API, Memory Management, Stream Ordered
 * Memory Allocator, Unified Addressing). */

#include "runtime.h"

EXPORT cudaError_t cudaMalloc(void **p, size_t size)
{
    CUdeviceptr d = 0;
    if (!p)
        return fail(cudaErrorInvalidValue);
    *p = NULL;
    READY;
    if (size)
        TRY(driver.cuMemAlloc_v2(&d, size));
    *p = HOST_PTR(d);
    return cudaSuccess;
}

EXPORT cudaError_t cudaFree(void *p)
{
    READY; /* freeing NULL is how programs initialize the runtime */
    return p ? done(driver.cuMemFree_v2(DEVICE_PTR(p))) : cudaSuccess;
}

EXPORT cudaError_t cudaMallocPitch(void **p, size_t *pitch, size_t width, size_t height)
{
    CUdeviceptr d = 0;
    if (!p || !pitch)
        return fail(cudaErrorInvalidValue);
    *p = NULL;
    *pitch = 0;
    READY;
    if (width && height)
        TRY(driver.cuMemAllocPitch_v2(&d, pitch, width, height, 16));
    *p = HOST_PTR(d);
    return cudaSuccess;
}

EXPORT cudaError_t cudaMalloc3D(struct cudaPitchedPtr *p, struct cudaExtent e)
{
    size_t rows;
    if (!p || __builtin_mul_overflow(e.height, e.depth, &rows))
        return fail(cudaErrorInvalidValue);
    p->xsize = e.width;
    p->ysize = e.height;
    return cudaMallocPitch(&p->ptr, &p->pitch, e.width, rows);
}

EXPORT cudaError_t cudaHostAlloc(void **p, size_t size, unsigned flags)
{
    if (!p)
        return fail(cudaErrorInvalidValue);
    *p = NULL;
    READY;
    return size ? done(driver.cuMemHostAlloc(p, size, flags)) : cudaSuccess;
}

EXPORT cudaError_t cudaMallocHost(void **p, size_t size) { return cudaHostAlloc(p, size, 0); }

EXPORT cudaError_t cudaFreeHost(void *p)
{
    READY;
    return p ? done(driver.cuMemFreeHost(p)) : cudaSuccess;
}

EXPORT cudaError_t cudaHostRegister(void *p, size_t size, unsigned flags)
{
    READY;
    return done(driver.cuMemHostRegister_v2(p, size, flags));
}

EXPORT cudaError_t cudaHostUnregister(void *p)
{
    READY;
    return done(driver.cuMemHostUnregister(p));
}

EXPORT cudaError_t cudaHostGetDevicePointer(void **p, void *host, unsigned flags)
{
    CUdeviceptr d;
    if (!p)
        return fail(cudaErrorInvalidValue);
    READY;
    TRY(driver.cuMemHostGetDevicePointer_v2(&d, host, flags));
    *p = HOST_PTR(d);
    return cudaSuccess;
}

EXPORT cudaError_t cudaHostGetFlags(unsigned *flags, void *p)
{
    READY;
    return done(driver.cuMemHostGetFlags(flags, p));
}

EXPORT cudaError_t cudaMemGetInfo(size_t *free, size_t *total)
{
    size_t f, t;
    READY;
    TRY(driver.cuMemGetInfo_v2(&f, &t));
    if (free)
        *free = f;
    if (total)
        *total = t;
    return cudaSuccess;
}

EXPORT cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *p)
{
    if (!a)
        return fail(cudaErrorInvalidValue);
    READY;
    CUmemorytype type = 0;
    int device = 0;
    unsigned managed = 0;
    CUdeviceptr d = 0;
    void *host = NULL;
    CUpointer_attribute ask[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_IS_MANAGED,
        CU_POINTER_ATTRIBUTE_DEVICE_POINTER, CU_POINTER_ATTRIBUTE_HOST_POINTER};
    void *answers[] = {&type, &device, &managed, &d, &host};
    CUresult r = driver.cuPointerGetAttributes(5, ask, answers, DEVICE_PTR(p));
    if (r != CUDA_SUCCESS && r != CUDA_ERROR_INVALID_VALUE)
        return fail((cudaError_t)r);
    memset(a, 0, sizeof *a);
    if (r != CUDA_SUCCESS || !type) {
        /* Memory that CUDA doesn't know is the host's own. */
        a->type = cudaMemoryTypeUnregistered;
        a->device = cudaInvalidDeviceId;
        a->hostPointer = (void *)p;
        return cudaSuccess;
    }
    a->type = managed                         ? cudaMemoryTypeManaged
              : type == CU_MEMORYTYPE_HOST ? cudaMemoryTypeHost
                                              : cudaMemoryTypeDevice;
    a->device = device;
    a->devicePointer = HOST_PTR(d);
    a->hostPointer = a->type == cudaMemoryTypeDevice ? NULL : host;
    return cudaSuccess;
}

/* Managed memory: the driver says whether it has it. */

EXPORT cudaError_t cudaMallocManaged(void **p, size_t size, unsigned flags)
{
    CUdeviceptr d = 0;
    if (!p || !size)
        return fail(cudaErrorInvalidValue);
    READY;
    TRY(driver.cuMemAllocManaged(&d, size, flags));
    *p = HOST_PTR(d);
    return cudaSuccess;
}

EXPORT cudaError_t cudaStreamAttachMemAsync(cudaStream_t s, void *p, size_t length, unsigned flags)
{
    READY;
    return done(driver.cuStreamAttachMemAsync(s, DEVICE_PTR(p), length, flags));
}
PTSZ(cudaStreamAttachMemAsync, (cudaStream_t s, void *p, size_t length, unsigned flags),
    (own(s), p, length, flags))

EXPORT cudaError_t cudaMemRangeGetAttribute(void *data, size_t size, enum cudaMemRangeAttribute a,
    const void *p, size_t n)
{
    READY;
    return done(driver.cuMemRangeGetAttribute(data, size, (CUmem_range_attribute)a, DEVICE_PTR(p), n));
}

EXPORT cudaError_t cudaMemRangeGetAttributes(void **data, size_t *sizes,
    enum cudaMemRangeAttribute *a, size_t count, const void *p, size_t n)
{
    READY;
    return done(driver.cuMemRangeGetAttributes(data, sizes, (CUmem_range_attribute *)a, count,
        DEVICE_PTR(p), n));
}

static cudaError_t prefetch(const void *p, size_t n, struct cudaMemLocation where, unsigned flags,
    cudaStream_t s)
{
    READY;
    CUmemLocation l = {(CUmemLocationType)where.type, where.id};
    return done(driver.cuMemPrefetchAsync_v2(DEVICE_PTR(p), n, l, flags, s));
}

static cudaError_t advise(const void *p, size_t n, enum cudaMemoryAdvise a, struct cudaMemLocation where)
{
    READY;
    CUmemLocation l = {(CUmemLocationType)where.type, where.id};
    return done(driver.cuMemAdvise_v2(DEVICE_PTR(p), n, (CUmem_advise)a, l));
}

#if MAJOR >= 13
EXPORT cudaError_t cudaMemPrefetchAsync(const void *p, size_t n, struct cudaMemLocation where,
    unsigned flags, cudaStream_t s)
{
    return prefetch(p, n, where, flags, s);
}
PTSZ(cudaMemPrefetchAsync,
    (const void *p, size_t n, struct cudaMemLocation where, unsigned flags, cudaStream_t s),
    (p, n, where, flags, own(s)))

EXPORT cudaError_t cudaMemAdvise(const void *p, size_t n, enum cudaMemoryAdvise a, struct cudaMemLocation where)
{
    return advise(p, n, a, where);
}
#else
static struct cudaMemLocation location(int device)
{
    return device == cudaCpuDeviceId ? (struct cudaMemLocation){cudaMemLocationTypeHost, 0}
                                     : (struct cudaMemLocation){cudaMemLocationTypeDevice, device};
}

EXPORT cudaError_t cudaMemPrefetchAsync(const void *p, size_t n, int device, cudaStream_t s)
{
    return prefetch(p, n, location(device), 0, s);
}
PTSZ(cudaMemPrefetchAsync, (const void *p, size_t n, int device, cudaStream_t s), (p, n, device, own(s)))

EXPORT cudaError_t cudaMemAdvise(const void *p, size_t n, enum cudaMemoryAdvise a, int device)
{
    return advise(p, n, a, location(device));
}

#if MAJOR >= 12
EXPORT cudaError_t cudaMemPrefetchAsync_v2(const void *p, size_t n, struct cudaMemLocation where,
    unsigned flags, cudaStream_t s)
{
    return prefetch(p, n, where, flags, s);
}
PTSZ(cudaMemPrefetchAsync_v2,
    (const void *p, size_t n, struct cudaMemLocation where, unsigned flags, cudaStream_t s),
    (p, n, where, flags, own(s)))

EXPORT cudaError_t cudaMemAdvise_v2(const void *p, size_t n, enum cudaMemoryAdvise a, struct cudaMemLocation where)
{
    return advise(p, n, a, where);
}
#endif
#endif

/* Memory of other processes, which are other contexts here: the driver refuses it. */

EXPORT cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t *h, cudaEvent_t e)
{
    READY;
    return done(driver.cuIpcGetEventHandle((CUipcEventHandle *)h, e));
}

EXPORT cudaError_t cudaIpcOpenEventHandle(cudaEvent_t *e, cudaIpcEventHandle_t h)
{
    CUipcEventHandle d;
    READY;
    memcpy(&d, &h, sizeof d);
    return done(driver.cuIpcOpenEventHandle(e, d));
}

EXPORT cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *h, void *p)
{
    READY;
    return done(driver.cuIpcGetMemHandle((CUipcMemHandle *)h, DEVICE_PTR(p)));
}

EXPORT cudaError_t cudaIpcOpenMemHandle(void **p, cudaIpcMemHandle_t h, unsigned flags)
{
    CUipcMemHandle m;
    CUdeviceptr d;
    READY;
    memcpy(&m, &h, sizeof m);
    TRY(driver.cuIpcOpenMemHandle_v2(&d, m, flags));
    *p = HOST_PTR(d);
    return cudaSuccess;
}

EXPORT cudaError_t cudaIpcCloseMemHandle(void *p)
{
    READY;
    return done(driver.cuIpcCloseMemHandle(DEVICE_PTR(p)));
}
