/* Copies of two and three dimensions, and of arrays (CUDA Runtime API, Memory Management). All are
 * the driver's three-dimensional copy. */

#include "copy.h"

static CUresult copy(const CUDA_MEMCPY3D *c, CUstream s, bool now)
{
    if (!c->WidthInBytes || !c->Height || !c->Depth)
        return CUDA_SUCCESS;
    if (now && !s)
        return driver.cuMemcpy3D_v2(c);
    CUresult r = driver.cuMemcpy3DAsync_v2(c, s);
    return r == CUDA_SUCCESS && now ? driver.cuStreamSynchronize(s) : r;
}

static bool valid(enum cudaMemcpyKind k) { return (unsigned)k <= cudaMemcpyDefault; }

static CUmemorytype source_type(enum cudaMemcpyKind k)
{
    return k == cudaMemcpyDefault ? CU_MEMORYTYPE_UNIFIED
           : k == cudaMemcpyHostToDevice || k == cudaMemcpyHostToHost ? CU_MEMORYTYPE_HOST
                                                                       : CU_MEMORYTYPE_DEVICE;
}

static CUmemorytype target_type(enum cudaMemcpyKind k)
{
    return k == cudaMemcpyDefault ? CU_MEMORYTYPE_UNIFIED
           : k == cudaMemcpyDeviceToHost || k == cudaMemcpyHostToHost ? CU_MEMORYTYPE_HOST
                                                                       : CU_MEMORYTYPE_DEVICE;
}

static void from_linear(CUDA_MEMCPY3D *c, const void *p, size_t pitch, size_t height, enum cudaMemcpyKind k)
{
    c->srcMemoryType = source_type(k);
    if (c->srcMemoryType == CU_MEMORYTYPE_HOST)
        c->srcHost = p;
    else
        c->srcDevice = DEVICE_PTR(p);
    c->srcPitch = pitch;
    c->srcHeight = height;
}

static void to_linear(CUDA_MEMCPY3D *c, void *p, size_t pitch, size_t height, enum cudaMemcpyKind k)
{
    c->dstMemoryType = target_type(k);
    if (c->dstMemoryType == CU_MEMORYTYPE_HOST)
        c->dstHost = p;
    else
        c->dstDevice = DEVICE_PTR(p);
    c->dstPitch = pitch;
    c->dstHeight = height;
}

static void from_array(CUDA_MEMCPY3D *c, cudaArray_const_t a, size_t x, size_t y)
{
    c->srcMemoryType = CU_MEMORYTYPE_ARRAY;
    c->srcArray = (CUarray)(uintptr_t)a;
    c->srcXInBytes = x;
    c->srcY = y;
}

static void to_array(CUDA_MEMCPY3D *c, cudaArray_t a, size_t x, size_t y)
{
    c->dstMemoryType = CU_MEMORYTYPE_ARRAY;
    c->dstArray = (CUarray)a;
    c->dstXInBytes = x;
    c->dstY = y;
}

void linear_params(CUDA_MEMCPY3D *c, void *dst, const void *src, size_t n, enum cudaMemcpyKind k)
{
    *c = (CUDA_MEMCPY3D){.WidthInBytes = n, .Height = 1, .Depth = 1};
    from_linear(c, src, n, 1, k);
    to_linear(c, dst, n, 1, k);
}

static cudaError_t cudaMemcpy2D_on(void *dst, size_t dpitch, const void *src, size_t spitch,
    size_t width, size_t height, enum cudaMemcpyKind kind, CUstream s, bool now)
{
    READY;
    if (!valid(kind))
        return fail(cudaErrorInvalidMemcpyDirection);
    if (width > dpitch || width > spitch)
        return fail(cudaErrorInvalidPitchValue);
    CUDA_MEMCPY3D c = {.WidthInBytes = width, .Height = height, .Depth = 1};
    from_linear(&c, src, spitch, height, kind);
    to_linear(&c, dst, dpitch, height, kind);
    return done(copy(&c, s, now));
}
NOW(cudaMemcpy2D,
    (void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height,
        enum cudaMemcpyKind kind),
    (dst, dpitch, src, spitch, width, height, kind))
LATER(cudaMemcpy2D,
    (void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height,
        enum cudaMemcpyKind kind),
    (dst, dpitch, src, spitch, width, height, kind))

static cudaError_t cudaMemcpy2DToArray_on(cudaArray_t dst, size_t x, size_t y, const void *src,
    size_t spitch, size_t width, size_t height, enum cudaMemcpyKind kind, CUstream s, bool now)
{
    READY;
    if (!valid(kind))
        return fail(cudaErrorInvalidMemcpyDirection);
    if (width > spitch)
        return fail(cudaErrorInvalidPitchValue);
    CUDA_MEMCPY3D c = {.WidthInBytes = width, .Height = height, .Depth = 1};
    from_linear(&c, src, spitch, height, kind);
    to_array(&c, dst, x, y);
    return done(copy(&c, s, now));
}
NOW(cudaMemcpy2DToArray,
    (cudaArray_t dst, size_t x, size_t y, const void *src, size_t spitch, size_t width,
        size_t height, enum cudaMemcpyKind kind),
    (dst, x, y, src, spitch, width, height, kind))
LATER(cudaMemcpy2DToArray,
    (cudaArray_t dst, size_t x, size_t y, const void *src, size_t spitch, size_t width,
        size_t height, enum cudaMemcpyKind kind),
    (dst, x, y, src, spitch, width, height, kind))

static cudaError_t cudaMemcpy2DFromArray_on(void *dst, size_t dpitch, cudaArray_const_t src, size_t x,
    size_t y, size_t width, size_t height, enum cudaMemcpyKind kind, CUstream s, bool now)
{
    READY;
    if (!valid(kind))
        return fail(cudaErrorInvalidMemcpyDirection);
    if (width > dpitch)
        return fail(cudaErrorInvalidPitchValue);
    CUDA_MEMCPY3D c = {.WidthInBytes = width, .Height = height, .Depth = 1};
    from_array(&c, src, x, y);
    to_linear(&c, dst, dpitch, height, kind);
    return done(copy(&c, s, now));
}
NOW(cudaMemcpy2DFromArray,
    (void *dst, size_t dpitch, cudaArray_const_t src, size_t x, size_t y, size_t width,
        size_t height, enum cudaMemcpyKind kind),
    (dst, dpitch, src, x, y, width, height, kind))
LATER(cudaMemcpy2DFromArray,
    (void *dst, size_t dpitch, cudaArray_const_t src, size_t x, size_t y, size_t width,
        size_t height, enum cudaMemcpyKind kind),
    (dst, dpitch, src, x, y, width, height, kind))

static cudaError_t cudaMemcpy2DArrayToArray_on(cudaArray_t dst, size_t dx, size_t dy,
    cudaArray_const_t src, size_t sx, size_t sy, size_t width, size_t height,
    enum cudaMemcpyKind kind, CUstream s, bool now)
{
    READY;
    if (!valid(kind))
        return fail(cudaErrorInvalidMemcpyDirection);
    CUDA_MEMCPY3D c = {.WidthInBytes = width, .Height = height, .Depth = 1};
    from_array(&c, src, sx, sy);
    to_array(&c, dst, dx, dy);
    return done(copy(&c, s, now));
}
NOW(cudaMemcpy2DArrayToArray,
    (cudaArray_t dst, size_t dx, size_t dy, cudaArray_const_t src, size_t sx, size_t sy,
        size_t width, size_t height, enum cudaMemcpyKind kind),
    (dst, dx, dy, src, sx, sy, width, height, kind))

/* The three functions below go through an array's elements row after row. */

/* row_bytes returns the bytes in one of the array's rows. */
static CUresult row_bytes(cudaArray_const_t a, size_t *bytes, size_t *element)
{
    CUDA_ARRAY3D_DESCRIPTOR d;
    CUresult r = driver.cuArray3DGetDescriptor_v2(&d, (CUarray)(uintptr_t)a);
    if (r != CUDA_SUCCESS)
        return r;
    *element = format_bytes(d.Format) * d.NumChannels;
    *bytes = d.Width * *element;
    return CUDA_SUCCESS;
}

struct cursor {
    size_t x, y, row; /* row 0: linear memory */
};

static size_t run(const struct cursor *p, size_t n)
{
    return p->row && n > p->row - p->x ? p->row - p->x : n;
}

static void step(struct cursor *p, size_t n)
{
    p->x += n;
    if (p->row && p->x == p->row) {
        p->x = 0;
        p->y++;
    }
}

static cudaError_t by_rows(cudaArray_t da, char *dp, size_t dx, size_t dy, cudaArray_const_t sa,
    const char *sp, size_t sx, size_t sy, size_t n, enum cudaMemcpyKind kind, CUstream s, bool now)
{
    struct cursor d = {da ? dx : 0, dy, 0}, t = {sa ? sx : 0, sy, 0};
    size_t element;
    READY;
    if (!valid(kind))
        return fail(cudaErrorInvalidMemcpyDirection);
    if (da)
        TRY(row_bytes(da, &d.row, &element));
    if (sa)
        TRY(row_bytes(sa, &t.row, &element));
    if ((da && d.x >= d.row) || (sa && t.x >= t.row))
        return fail(cudaErrorInvalidValue);
    while (n) {
        size_t some = run(&d, run(&t, n));
        CUDA_MEMCPY3D c = {.WidthInBytes = some, .Height = 1, .Depth = 1};
        if (sa)
            from_array(&c, sa, t.x, t.y);
        else
            from_linear(&c, sp + t.x, some, 1, kind);
        if (da)
            to_array(&c, da, d.x, d.y);
        else
            to_linear(&c, dp + d.x, some, 1, kind);
        TRY(copy(&c, s, now));
        step(&d, some);
        step(&t, some);
        n -= some;
    }
    return cudaSuccess;
}

static cudaError_t cudaMemcpyToArray_on(cudaArray_t dst, size_t x, size_t y, const void *src, size_t n,
    enum cudaMemcpyKind kind, CUstream s, bool now)
{
    return by_rows(dst, NULL, x, y, NULL, src, 0, 0, n, kind, s, now);
}
NOW(cudaMemcpyToArray,
    (cudaArray_t dst, size_t x, size_t y, const void *src, size_t n, enum cudaMemcpyKind kind),
    (dst, x, y, src, n, kind))
LATER(cudaMemcpyToArray,
    (cudaArray_t dst, size_t x, size_t y, const void *src, size_t n, enum cudaMemcpyKind kind),
    (dst, x, y, src, n, kind))

static cudaError_t cudaMemcpyFromArray_on(void *dst, cudaArray_const_t src, size_t x, size_t y, size_t n,
    enum cudaMemcpyKind kind, CUstream s, bool now)
{
    return by_rows(NULL, dst, 0, 0, src, NULL, x, y, n, kind, s, now);
}
NOW(cudaMemcpyFromArray,
    (void *dst, cudaArray_const_t src, size_t x, size_t y, size_t n, enum cudaMemcpyKind kind),
    (dst, src, x, y, n, kind))
LATER(cudaMemcpyFromArray,
    (void *dst, cudaArray_const_t src, size_t x, size_t y, size_t n, enum cudaMemcpyKind kind),
    (dst, src, x, y, n, kind))

static cudaError_t cudaMemcpyArrayToArray_on(cudaArray_t dst, size_t dx, size_t dy, cudaArray_const_t src,
    size_t sx, size_t sy, size_t n, enum cudaMemcpyKind kind, CUstream s, bool now)
{
    return by_rows(dst, NULL, dx, dy, src, NULL, sx, sy, n, kind, s, now);
}
NOW(cudaMemcpyArrayToArray,
    (cudaArray_t dst, size_t dx, size_t dy, cudaArray_const_t src, size_t sx, size_t sy, size_t n,
        enum cudaMemcpyKind kind),
    (dst, dx, dy, src, sx, sy, n, kind))

/* Three dimensions. An extent, and a position in an array, count the array's elements; without an
 * array, bytes. */

CUresult copy_params(const struct cudaMemcpy3DParms *p, CUDA_MEMCPY3D *c)
{
    size_t row, element = 1, other = 1;
    CUresult r = CUDA_SUCCESS;
    if (!p || !valid(p->kind) || !p->srcArray == !p->srcPtr.ptr || !p->dstArray == !p->dstPtr.ptr)
        return CUDA_ERROR_INVALID_VALUE;
    *c = (CUDA_MEMCPY3D){0};
    if (p->srcArray)
        r = row_bytes(p->srcArray, &row, &element);
    if (r == CUDA_SUCCESS && p->dstArray)
        r = row_bytes(p->dstArray, &row, &other);
    if (r != CUDA_SUCCESS)
        return r;
    if (p->srcArray && p->dstArray && element != other)
        return CUDA_ERROR_INVALID_VALUE;
    if (p->dstArray)
        element = other;
    c->WidthInBytes = p->extent.width * element;
    c->Height = p->extent.height;
    c->Depth = p->extent.depth;
    if (p->srcArray)
        from_array(c, p->srcArray, p->srcPos.x * element, p->srcPos.y);
    else
        from_linear(c, p->srcPtr.ptr, p->srcPtr.pitch, p->srcPtr.ysize, p->kind);
    if (p->dstArray)
        to_array(c, p->dstArray, p->dstPos.x * element, p->dstPos.y);
    else
        to_linear(c, p->dstPtr.ptr, p->dstPtr.pitch, p->dstPtr.ysize, p->kind);
    if (!p->srcArray) {
        c->srcXInBytes = p->srcPos.x;
        c->srcY = p->srcPos.y;
    }
    if (!p->dstArray) {
        c->dstXInBytes = p->dstPos.x;
        c->dstY = p->dstPos.y;
    }
    c->srcZ = p->srcPos.z;
    c->dstZ = p->dstPos.z;
    return CUDA_SUCCESS;
}

void copy_params_back(const CUDA_MEMCPY3D *c, struct cudaMemcpy3DParms *p)
{
    size_t row, element = 1;
    bool from_host = c->srcMemoryType == CU_MEMORYTYPE_HOST;
    bool to_host = c->dstMemoryType == CU_MEMORYTYPE_HOST;
    *p = (struct cudaMemcpy3DParms){0};
    if (c->srcMemoryType == CU_MEMORYTYPE_ARRAY)
        p->srcArray = (cudaArray_t)c->srcArray;
    else
        p->srcPtr = (struct cudaPitchedPtr){from_host ? (void *)c->srcHost : HOST_PTR(c->srcDevice),
            c->srcPitch, c->WidthInBytes, c->srcHeight};
    if (c->dstMemoryType == CU_MEMORYTYPE_ARRAY)
        p->dstArray = (cudaArray_t)c->dstArray;
    else
        p->dstPtr = (struct cudaPitchedPtr){to_host ? c->dstHost : HOST_PTR(c->dstDevice),
            c->dstPitch, c->WidthInBytes, c->dstHeight};
    if (p->srcArray || p->dstArray)
        if (row_bytes(p->srcArray ? p->srcArray : p->dstArray, &row, &element) != CUDA_SUCCESS || !element)
            element = 1;
    p->srcPos = (struct cudaPos){c->srcXInBytes / (p->srcArray ? element : 1), c->srcY, c->srcZ};
    p->dstPos = (struct cudaPos){c->dstXInBytes / (p->dstArray ? element : 1), c->dstY, c->dstZ};
    p->extent = (struct cudaExtent){c->WidthInBytes / element, c->Height, c->Depth};
    if (c->srcMemoryType == CU_MEMORYTYPE_UNIFIED || c->dstMemoryType == CU_MEMORYTYPE_UNIFIED)
        p->kind = cudaMemcpyDefault;
    else if (from_host)
        p->kind = to_host ? cudaMemcpyHostToHost : cudaMemcpyHostToDevice;
    else
        p->kind = to_host ? cudaMemcpyDeviceToHost : cudaMemcpyDeviceToDevice;
}

static cudaError_t cudaMemcpy3D_on(const struct cudaMemcpy3DParms *p, CUstream s, bool now)
{
    CUDA_MEMCPY3D c;
    READY;
    TRY(copy_params(p, &c));
    return done(copy(&c, s, now));
}
NOW(cudaMemcpy3D, (const struct cudaMemcpy3DParms *p), (p))
LATER(cudaMemcpy3D, (const struct cudaMemcpy3DParms *p), (p))

static cudaError_t cudaMemcpy3DPeer_on(const struct cudaMemcpy3DPeerParms *p, CUstream s, bool now)
{
    CUDA_MEMCPY3D c;
    CUcontext from, to;
    int n;
    if (!p)
        return fail(cudaErrorInvalidValue);
    READY;
    TRY(cudaGetDeviceCount(&n));
    if (p->srcDevice < 0 || p->srcDevice >= n || p->dstDevice < 0 || p->dstDevice >= n)
        return fail(cudaErrorInvalidDevice);
    struct cudaMemcpy3DParms one = {p->srcArray, p->srcPos, p->srcPtr, p->dstArray, p->dstPos,
        p->dstPtr, p->extent, cudaMemcpyDeviceToDevice};
    TRY(copy_params(&one, &c));
    TRY(primary_context(p->srcDevice, &from));
    TRY(primary_context(p->dstDevice, &to));
    CUDA_MEMCPY3D_PEER peer = {
        .srcXInBytes = c.srcXInBytes,
        .srcY = c.srcY,
        .srcZ = c.srcZ,
        .srcMemoryType = c.srcMemoryType,
        .srcDevice = c.srcDevice,
        .srcArray = c.srcArray,
        .srcContext = from,
        .srcPitch = c.srcPitch,
        .srcHeight = c.srcHeight,
        .dstXInBytes = c.dstXInBytes,
        .dstY = c.dstY,
        .dstZ = c.dstZ,
        .dstMemoryType = c.dstMemoryType,
        .dstDevice = c.dstDevice,
        .dstArray = c.dstArray,
        .dstContext = to,
        .dstPitch = c.dstPitch,
        .dstHeight = c.dstHeight,
        .WidthInBytes = c.WidthInBytes,
        .Height = c.Height,
        .Depth = c.Depth,
    };
    if (now && !s)
        return done(driver.cuMemcpy3DPeer(&peer));
    TRY(driver.cuMemcpy3DPeerAsync(&peer, s));
    return now ? done(driver.cuStreamSynchronize(s)) : cudaSuccess;
}
NOW(cudaMemcpy3DPeer, (const struct cudaMemcpy3DPeerParms *p), (p))
LATER(cudaMemcpy3DPeer, (const struct cudaMemcpy3DPeerParms *p), (p))
