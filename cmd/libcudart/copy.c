/* Copies and sets of linear memory (CUDA Runtime API, Memory Management). */

#include "copy.h"

/* copy copies n bytes on stream s, and waits for them if now is set. */
static CUresult copy(void *dst, const void *src, size_t n, enum cudaMemcpyKind kind, CUstream s, bool now)
{
    CUresult r;
    if (!n)
        return CUDA_SUCCESS;
    if (now && !s) {
        switch (kind) {
        case cudaMemcpyHostToDevice:
            return driver.cuMemcpyHtoD_v2(DEVICE_PTR(dst), src, n);
        case cudaMemcpyDeviceToHost:
            return driver.cuMemcpyDtoH_v2(dst, DEVICE_PTR(src), n);
        case cudaMemcpyDeviceToDevice:
            return driver.cuMemcpyDtoD_v2(DEVICE_PTR(dst), DEVICE_PTR(src), n);
        case cudaMemcpyHostToHost:
        case cudaMemcpyDefault:
            return driver.cuMemcpy(DEVICE_PTR(dst), DEVICE_PTR(src), n);
        }
        return (CUresult)cudaErrorInvalidMemcpyDirection;
    }
    switch (kind) {
    case cudaMemcpyHostToDevice:
        r = driver.cuMemcpyHtoDAsync_v2(DEVICE_PTR(dst), src, n, s);
        break;
    case cudaMemcpyDeviceToHost:
        r = driver.cuMemcpyDtoHAsync_v2(dst, DEVICE_PTR(src), n, s);
        break;
    case cudaMemcpyDeviceToDevice:
        r = driver.cuMemcpyDtoDAsync_v2(DEVICE_PTR(dst), DEVICE_PTR(src), n, s);
        break;
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault:
        r = driver.cuMemcpyAsync(DEVICE_PTR(dst), DEVICE_PTR(src), n, s);
        break;
    default:
        r = (CUresult)cudaErrorInvalidMemcpyDirection;
    }
    return r == CUDA_SUCCESS && now ? driver.cuStreamSynchronize(s) : r;
}

static cudaError_t cudaMemcpy_on(void *dst, const void *src, size_t n, enum cudaMemcpyKind kind,
    CUstream s, bool now)
{
    READY;
    return done(copy(dst, src, n, kind, s, now));
}
NOW(cudaMemcpy, (void *dst, const void *src, size_t n, enum cudaMemcpyKind kind), (dst, src, n, kind))
LATER(cudaMemcpy, (void *dst, const void *src, size_t n, enum cudaMemcpyKind kind), (dst, src, n, kind))

/* Symbols */

/* part_of finds n bytes of a variable at offset. */
static CUresult part_of(const void *symbol, size_t offset, size_t n, void **p)
{
    CUdeviceptr d;
    size_t size, end;
    CUresult r = symbol_of(symbol, &d, &size);
    if (r != CUDA_SUCCESS)
        return r;
    if (__builtin_add_overflow(offset, n, &end) || end > size)
        return CUDA_ERROR_INVALID_VALUE;
    *p = HOST_PTR(d + offset);
    return CUDA_SUCCESS;
}

static cudaError_t cudaMemcpyToSymbol_on(const void *symbol, const void *src, size_t n, size_t offset,
    enum cudaMemcpyKind kind, CUstream s, bool now)
{
    void *dst;
    if (kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyHostToHost)
        return fail(cudaErrorInvalidMemcpyDirection);
    TRY(part_of(symbol, offset, n, &dst));
    return done(copy(dst, src, n, kind, s, now));
}
NOW(cudaMemcpyToSymbol,
    (const void *symbol, const void *src, size_t n, size_t offset, enum cudaMemcpyKind kind),
    (symbol, src, n, offset, kind))
LATER(cudaMemcpyToSymbol,
    (const void *symbol, const void *src, size_t n, size_t offset, enum cudaMemcpyKind kind),
    (symbol, src, n, offset, kind))

static cudaError_t cudaMemcpyFromSymbol_on(void *dst, const void *symbol, size_t n, size_t offset,
    enum cudaMemcpyKind kind, CUstream s, bool now)
{
    void *src;
    if (kind == cudaMemcpyHostToDevice || kind == cudaMemcpyHostToHost)
        return fail(cudaErrorInvalidMemcpyDirection);
    TRY(part_of(symbol, offset, n, &src));
    return done(copy(dst, src, n, kind, s, now));
}
NOW(cudaMemcpyFromSymbol,
    (void *dst, const void *symbol, size_t n, size_t offset, enum cudaMemcpyKind kind),
    (dst, symbol, n, offset, kind))
LATER(cudaMemcpyFromSymbol,
    (void *dst, const void *symbol, size_t n, size_t offset, enum cudaMemcpyKind kind),
    (dst, symbol, n, offset, kind))

EXPORT cudaError_t cudaGetSymbolAddress(void **p, const void *symbol)
{
    CUdeviceptr d;
    size_t size;
    if (!p)
        return fail(cudaErrorInvalidValue);
    TRY(symbol_of(symbol, &d, &size));
    *p = HOST_PTR(d);
    return cudaSuccess;
}

EXPORT cudaError_t cudaGetSymbolSize(size_t *size, const void *symbol)
{
    CUdeviceptr d;
    if (!size)
        return fail(cudaErrorInvalidValue);
    return done(symbol_of(symbol, &d, size));
}

/* Other devices */

static cudaError_t peer(void *dst, int to, const void *src, int from, size_t n, CUstream s, bool now)
{
    CUcontext a, b;
    int count;
    READY;
    TRY(cudaGetDeviceCount(&count));
    if (to < 0 || to >= count || from < 0 || from >= count)
        return fail(cudaErrorInvalidDevice);
    if (!n)
        return cudaSuccess;
    TRY(primary_context(to, &a));
    TRY(primary_context(from, &b));
    return done(now ? driver.cuMemcpyPeer(DEVICE_PTR(dst), a, DEVICE_PTR(src), b, n)
                    : driver.cuMemcpyPeerAsync(DEVICE_PTR(dst), a, DEVICE_PTR(src), b, n, s));
}

EXPORT cudaError_t cudaMemcpyPeer(void *dst, int to, const void *src, int from, size_t n)
{
    return peer(dst, to, src, from, n, NULL, true);
}

EXPORT cudaError_t cudaMemcpyPeerAsync(void *dst, int to, const void *src, int from, size_t n, cudaStream_t s)
{
    return peer(dst, to, src, from, n, s, false);
}
PTSZ(cudaMemcpyPeerAsync, (void *dst, int to, const void *src, int from, size_t n, cudaStream_t s),
    (dst, to, src, from, n, own(s)))

/* Sets */

static cudaError_t cudaMemset_on(void *p, int value, size_t n, CUstream s, bool now)
{
    READY;
    if (!n)
        return cudaSuccess;
    return done(now && !s ? driver.cuMemsetD8_v2(DEVICE_PTR(p), (unsigned char)value, n)
                          : driver.cuMemsetD8Async(DEVICE_PTR(p), (unsigned char)value, n, s));
}
NOW(cudaMemset, (void *p, int value, size_t n), (p, value, n))
LATER(cudaMemset, (void *p, int value, size_t n), (p, value, n))

static cudaError_t cudaMemset2D_on(void *p, size_t pitch, int value, size_t width, size_t height,
    CUstream s, bool now)
{
    READY;
    if (!width || !height)
        return cudaSuccess;
    return done(now && !s ? driver.cuMemsetD2D8_v2(DEVICE_PTR(p), pitch, (unsigned char)value, width, height)
                          : driver.cuMemsetD2D8Async(DEVICE_PTR(p), pitch, (unsigned char)value, width, height, s));
}
NOW(cudaMemset2D, (void *p, size_t pitch, int value, size_t width, size_t height),
    (p, pitch, value, width, height))
LATER(cudaMemset2D, (void *p, size_t pitch, int value, size_t width, size_t height),
    (p, pitch, value, width, height))

static cudaError_t cudaMemset3D_on(struct cudaPitchedPtr p, int value, struct cudaExtent e, CUstream s, bool now)
{
    /* Slices of whole rows follow each other without a gap. */
    if (e.height == p.ysize)
        return cudaMemset2D_on(p.ptr, p.pitch, value, e.width, e.height * e.depth, s, now);
    for (size_t z = 0; z < e.depth; z++) {
        cudaError_t r = cudaMemset2D_on((char *)p.ptr + z * p.pitch * p.ysize, p.pitch, value,
            e.width, e.height, s, now);
        if (r != cudaSuccess)
            return r;
    }
    return cudaSuccess;
}
NOW(cudaMemset3D, (struct cudaPitchedPtr p, int value, struct cudaExtent e), (p, value, e))
LATER(cudaMemset3D, (struct cudaPitchedPtr p, int value, struct cudaExtent e), (p, value, e))
