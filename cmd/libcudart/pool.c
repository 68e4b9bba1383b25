/* Memory in the order of streams, and its pools (CUDA Runtime API, Stream Ordered Memory
 * Allocator). A pool's properties, locations and descriptions have the same layout in the driver
 * API. */

#include "runtime.h"

_Static_assert(sizeof(struct cudaMemPoolProps) == sizeof(CUmemPoolProps), "pool properties");
_Static_assert(sizeof(struct cudaMemAccessDesc) == sizeof(CUmemAccessDesc), "access description");
_Static_assert(sizeof(struct cudaMemLocation) == sizeof(CUmemLocation), "location");

EXPORT cudaError_t cudaMallocAsync(void **p, size_t size, cudaStream_t s)
{
    CUdeviceptr d = 0;
    if (!p)
        return fail(cudaErrorInvalidValue);
    READY;
    if (size)
        TRY(driver.cuMemAllocAsync(&d, size, s));
    *p = HOST_PTR(d);
    return cudaSuccess;
}
PTSZ(cudaMallocAsync, (void **p, size_t size, cudaStream_t s), (p, size, own(s)))

EXPORT cudaError_t cudaMallocFromPoolAsync(void **p, size_t size, cudaMemPool_t pool, cudaStream_t s)
{
    CUdeviceptr d = 0;
    if (!p)
        return fail(cudaErrorInvalidValue);
    READY;
    if (size)
        TRY(driver.cuMemAllocFromPoolAsync(&d, size, pool, s));
    *p = HOST_PTR(d);
    return cudaSuccess;
}
PTSZ(cudaMallocFromPoolAsync, (void **p, size_t size, cudaMemPool_t pool, cudaStream_t s),
    (p, size, pool, own(s)))

EXPORT cudaError_t cudaFreeAsync(void *p, cudaStream_t s)
{
    READY;
    return p ? done(driver.cuMemFreeAsync(DEVICE_PTR(p), s)) : cudaSuccess;
}
PTSZ(cudaFreeAsync, (void *p, cudaStream_t s), (p, own(s)))

EXPORT cudaError_t cudaMemPoolCreate(cudaMemPool_t *pool, const struct cudaMemPoolProps *props)
{
    READY;
    return done(driver.cuMemPoolCreate(pool, (const CUmemPoolProps *)props));
}

EXPORT cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool)
{
    READY;
    return done(driver.cuMemPoolDestroy(pool));
}

EXPORT cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t keep)
{
    READY;
    return done(driver.cuMemPoolTrimTo(pool, keep));
}

EXPORT cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr a, void *value)
{
    READY;
    return done(driver.cuMemPoolSetAttribute(pool, (CUmemPool_attribute)a, value));
}

EXPORT cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr a, void *value)
{
    READY;
    return done(driver.cuMemPoolGetAttribute(pool, (CUmemPool_attribute)a, value));
}

EXPORT cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const struct cudaMemAccessDesc *list, size_t n)
{
    READY;
    return done(driver.cuMemPoolSetAccess(pool, (const CUmemAccessDesc *)list, n));
}

EXPORT cudaError_t cudaMemPoolGetAccess(enum cudaMemAccessFlags *flags, cudaMemPool_t pool,
    struct cudaMemLocation *where)
{
    READY;
    return done(driver.cuMemPoolGetAccess((CUmemAccess_flags *)flags, pool, (CUmemLocation *)where));
}

EXPORT cudaError_t cudaMemPoolExportToShareableHandle(void *handle, cudaMemPool_t pool,
    enum cudaMemAllocationHandleType type, unsigned flags)
{
    READY;
    return done(driver.cuMemPoolExportToShareableHandle(handle, pool, (CUmemAllocationHandleType)type, flags));
}

EXPORT cudaError_t cudaMemPoolImportFromShareableHandle(cudaMemPool_t *pool, void *handle,
    enum cudaMemAllocationHandleType type, unsigned flags)
{
    READY;
    return done(driver.cuMemPoolImportFromShareableHandle(pool, handle, (CUmemAllocationHandleType)type, flags));
}

EXPORT cudaError_t cudaMemPoolExportPointer(struct cudaMemPoolPtrExportData *data, void *p)
{
    READY;
    return done(driver.cuMemPoolExportPointer((CUmemPoolPtrExportData *)data, DEVICE_PTR(p)));
}

EXPORT cudaError_t cudaMemPoolImportPointer(void **p, cudaMemPool_t pool,
    struct cudaMemPoolPtrExportData *data)
{
    CUdeviceptr d;
    READY;
    TRY(driver.cuMemPoolImportPointer(&d, pool, (CUmemPoolPtrExportData *)data));
    *p = HOST_PTR(d);
    return cudaSuccess;
}

EXPORT cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device)
{
    READY;
    return done(driver.cuDeviceGetDefaultMemPool(pool, device));
}

EXPORT cudaError_t cudaDeviceGetMemPool(cudaMemPool_t *pool, int device)
{
    READY;
    return done(driver.cuDeviceGetMemPool(pool, device));
}

EXPORT cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t pool)
{
    READY;
    return done(driver.cuDeviceSetMemPool(device, pool));
}

#if MAJOR >= 13
EXPORT cudaError_t cudaMemGetDefaultMemPool(cudaMemPool_t *pool, struct cudaMemLocation *where,
    enum cudaMemAllocationType type)
{
    READY;
    return done(driver.cuMemGetDefaultMemPool(pool, (CUmemLocation *)where, (CUmemAllocationType)type));
}

EXPORT cudaError_t cudaMemGetMemPool(cudaMemPool_t *pool, struct cudaMemLocation *where,
    enum cudaMemAllocationType type)
{
    READY;
    return done(driver.cuMemGetMemPool(pool, (CUmemLocation *)where, (CUmemAllocationType)type));
}

EXPORT cudaError_t cudaMemSetMemPool(struct cudaMemLocation *where, enum cudaMemAllocationType type,
    cudaMemPool_t pool)
{
    READY;
    return done(driver.cuMemSetMemPool((CUmemLocation *)where, (CUmemAllocationType)type, pool));
}
#endif
