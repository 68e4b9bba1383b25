/* Devices and their primary contexts (CUDA Runtime API, Device Management). */

#include "runtime.h"

#include <stdio.h>

#define DEVICES 64

struct device {
    CUcontext ctx;       /* the primary context, once it was retained */
    _Atomic bool active; /* retained and not reset since */
};

static struct device devices[DEVICES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int device_count = -1;
static _Atomic unsigned resets;

_Atomic unsigned context_epoch;

static __thread int current;        /* the device that the thread chose */
static __thread bool chosen;        /* it called cudaSetDevice */
static __thread int valid[DEVICES]; /* by cudaSetValidDevices */
static __thread int valid_count;

static void unlock_in_child(void) { pthread_mutex_init(&lock, NULL); }

__attribute__((constructor)) static void at_fork(void)
{
    pthread_atfork(NULL, NULL, unlock_in_child);
}

int thread_device(void) { return current; }

static CUresult count_devices(int *n)
{
    int c = atomic_load_explicit(&device_count, memory_order_acquire);
    if (unlikely(c < 0)) {
        CUresult r = load_driver();
        if (r == CUDA_SUCCESS)
            r = driver.cuDeviceGetCount(&c);
        if (r == CUDA_SUCCESS && c == 0)
            r = CUDA_ERROR_NO_DEVICE;
        if (r != CUDA_SUCCESS)
            return r;
        if (c > DEVICES)
            c = DEVICES;
        atomic_store_explicit(&device_count, c, memory_order_release);
    }
    *n = c;
    return CUDA_SUCCESS;
}

static CUresult check_device(int device)
{
    int n;
    CUresult r = count_devices(&n);
    if (r == CUDA_SUCCESS && (device < 0 || device >= n))
        r = CUDA_ERROR_INVALID_DEVICE;
    return r;
}

CUresult primary_context(int device, CUcontext *ctx)
{
    struct device *d = &devices[device];
    if (atomic_load_explicit(&d->active, memory_order_acquire)) {
        *ctx = d->ctx;
        return CUDA_SUCCESS;
    }
    CUdevice dev;
    CUresult r = CUDA_SUCCESS;
    pthread_mutex_lock(&lock);
    if (!atomic_load(&d->active)) {
        r = driver.cuDeviceGet(&dev, device);
        if (r == CUDA_SUCCESS)
            r = driver.cuDevicePrimaryCtxRetain(&d->ctx, dev);
        if (r == CUDA_SUCCESS)
            atomic_store_explicit(&d->active, true, memory_order_release);
    }
    *ctx = d->ctx;
    pthread_mutex_unlock(&lock);
    return r;
}

/* reset_since reports whether ctx is a primary context that was reset, so that it has to be
 * retained anew. */
static bool reset_since(CUcontext ctx)
{
    for (int i = 0; i < DEVICES; i++)
        if (devices[i].ctx == ctx)
            return !atomic_load(&devices[i].active);
    return false;
}

static CUresult make_current(CUcontext *ctx)
{
    CUresult r = load_driver();
    if (r != CUDA_SUCCESS)
        return r;
    r = driver.cuCtxGetCurrent(ctx);
    if (r != CUDA_SUCCESS)
        return r;
    if (*ctx && !(atomic_load(&resets) && reset_since(*ctx)))
        return CUDA_SUCCESS;
    if (!chosen && valid_count)
        current = valid[0];
    r = check_device(current);
    if (r == CUDA_SUCCESS)
        r = primary_context(current, ctx);
    if (r == CUDA_SUCCESS)
        r = driver.cuCtxSetCurrent(*ctx);
    return r;
}

HOT CUresult ready_context(CUcontext *ctx)
{
    if (likely(atomic_load_explicit(&device_count, memory_order_acquire) >= 0)) {
        CUresult r = driver.cuCtxGetCurrent(ctx);
        if (likely(r == CUDA_SUCCESS && *ctx && !atomic_load_explicit(&resets, memory_order_relaxed)))
            return CUDA_SUCCESS;
    }
    return make_current(ctx);
}

CUresult ready(void)
{
    CUcontext ctx;
    return ready_context(&ctx);
}

EXPORT cudaError_t cudaGetDeviceCount(int *n)
{
    if (!n)
        return fail(cudaErrorInvalidValue);
    *n = 0;
    return done(count_devices(n));
}

EXPORT cudaError_t cudaGetDevice(int *device)
{
    if (!device)
        return fail(cudaErrorInvalidValue);
    TRY(load_driver());
    /* The driver API may have made another device's context current. */
    CUcontext ctx;
    CUdevice d;
    if (driver.cuCtxGetCurrent(&ctx) == CUDA_SUCCESS && ctx &&
        !(atomic_load(&resets) && reset_since(ctx)) && driver.cuCtxGetDevice(&d) == CUDA_SUCCESS) {
        *device = d;
        return cudaSuccess;
    }
    *device = current;
    return cudaSuccess;
}

EXPORT cudaError_t cudaSetDevice(int device)
{
    TRY(check_device(device));
    if (valid_count) {
        bool found = false;
        for (int i = 0; i < valid_count; i++)
            found |= valid[i] == device;
        if (!found)
            return fail(cudaErrorInvalidDevice);
    }
    CUcontext ctx = NULL;
    current = device;
    chosen = true;
    /* Since 12.0 this initializes the device; before, its first use did. */
    if (MAJOR >= 12 || atomic_load(&devices[device].active))
        TRY(primary_context(device, &ctx));
    return done(driver.cuCtxSetCurrent(ctx));
}

EXPORT cudaError_t cudaSetValidDevices(int *list, int n)
{
    if (n < 0 || n > DEVICES || (n && !list))
        return fail(cudaErrorInvalidValue);
    for (int i = 0; i < n; i++)
        TRY(check_device(list[i]));
    if (n)
        memcpy(valid, list, (size_t)n * sizeof *list);
    valid_count = n;
    return cudaSuccess;
}

EXPORT cudaError_t cudaInitDevice(int device, unsigned device_flags, unsigned flags)
{
    CUcontext ctx;
    TRY(check_device(device));
    if (flags & cudaInitDeviceFlagsAreValid)
        TRY(driver.cuDevicePrimaryCtxSetFlags_v2(device, device_flags & ~cudaDeviceMapHost));
    return done(primary_context(device, &ctx));
}

EXPORT cudaError_t cudaDeviceReset(void)
{
    int device;
    TRY(cudaGetDevice(&device));
    TRY(check_device(device));
    struct device *d = &devices[device];
    CUresult r = CUDA_SUCCESS;
    pthread_mutex_lock(&lock);
    CUcontext ctx = d->ctx;
    bool active = atomic_load(&d->active);
    if (active) {
        atomic_store(&d->active, false);
        atomic_fetch_add(&resets, 1);
    }
    pthread_mutex_unlock(&lock);
    if (active) {
        driver.cuCtxSynchronize(); /* what kernels printed appears before it is lost */
        forget_context(ctx);
        atomic_fetch_add(&context_epoch, 1);
        r = driver.cuDevicePrimaryCtxReset_v2(device);
        driver.cuDevicePrimaryCtxRelease_v2(device);
        driver.cuCtxSetCurrent(NULL);
    }
    if (r == CUDA_SUCCESS)
        forget_corruption(device);
    return done(r);
}

EXPORT cudaError_t cudaDeviceSynchronize(void)
{
    READY;
    return done(driver.cuCtxSynchronize());
}

EXPORT cudaError_t cudaSetDeviceFlags(unsigned flags)
{
    if (flags & ~(unsigned)cudaDeviceMask)
        return fail(cudaErrorInvalidValue);
    TRY(check_device(current));
    return done(driver.cuDevicePrimaryCtxSetFlags_v2(current, flags & ~cudaDeviceMapHost));
}

EXPORT cudaError_t cudaGetDeviceFlags(unsigned *flags)
{
    int active;
    if (!flags)
        return fail(cudaErrorInvalidValue);
    TRY(check_device(current));
    TRY(driver.cuDevicePrimaryCtxGetState(current, flags, &active));
    *flags |= cudaDeviceMapHost;
    return cudaSuccess;
}

EXPORT cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int device)
{
    if (!value)
        return fail(cudaErrorInvalidValue);
    TRY(check_device(device));
    return done(driver.cuDeviceGetAttribute(value, (CUdevice_attribute)attr, device));
}

EXPORT cudaError_t cudaDeviceGetLimit(size_t *value, enum cudaLimit limit)
{
    READY;
    return done(driver.cuCtxGetLimit(value, (CUlimit)limit));
}

EXPORT cudaError_t cudaDeviceSetLimit(enum cudaLimit limit, size_t value)
{
    READY;
    return done(driver.cuCtxSetLimit((CUlimit)limit, value));
}

EXPORT cudaError_t cudaDeviceGetCacheConfig(enum cudaFuncCache *config)
{
    READY;
    return done(driver.cuCtxGetCacheConfig((CUfunc_cache *)config));
}

EXPORT cudaError_t cudaDeviceSetCacheConfig(enum cudaFuncCache config)
{
    READY;
    return done(driver.cuCtxSetCacheConfig((CUfunc_cache)config));
}

EXPORT cudaError_t cudaDeviceGetSharedMemConfig(enum cudaSharedMemConfig *config)
{
    READY;
    return done(driver.cuCtxGetSharedMemConfig((CUsharedconfig *)config));
}

EXPORT cudaError_t cudaDeviceSetSharedMemConfig(enum cudaSharedMemConfig config)
{
    READY;
    return done(driver.cuCtxSetSharedMemConfig((CUsharedconfig)config));
}

EXPORT cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    READY;
    return done(driver.cuCtxGetStreamPriorityRange(least, greatest));
}

EXPORT cudaError_t cudaDeviceGetByPCIBusId(int *device, const char *id)
{
    CUdevice d;
    if (!device || !id)
        return fail(cudaErrorInvalidValue);
    TRY(load_driver());
    TRY(driver.cuDeviceGetByPCIBusId(&d, id));
    *device = d;
    return cudaSuccess;
}

EXPORT cudaError_t cudaDeviceGetPCIBusId(char *id, int length, int device)
{
    TRY(check_device(device));
    return done(driver.cuDeviceGetPCIBusId(id, length, device));
}

EXPORT cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    TRY(check_device(device));
    TRY(check_device(peer));
    return done(driver.cuDeviceCanAccessPeer(can, device, peer));
}

EXPORT cudaError_t cudaDeviceGetP2PAttribute(int *value, enum cudaDeviceP2PAttr attr, int src, int dst)
{
    TRY(check_device(src));
    TRY(check_device(dst));
    return done(driver.cuDeviceGetP2PAttribute(value, (CUdevice_P2PAttribute)attr, src, dst));
}

EXPORT cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags)
{
    CUcontext ctx;
    READY;
    TRY(check_device(peer));
    TRY(primary_context(peer, &ctx));
    return done(driver.cuCtxEnablePeerAccess(ctx, flags));
}

EXPORT cudaError_t cudaDeviceDisablePeerAccess(int peer)
{
    CUcontext ctx;
    READY;
    TRY(check_device(peer));
    TRY(primary_context(peer, &ctx));
    return done(driver.cuCtxDisablePeerAccess(ctx));
}

EXPORT cudaError_t cudaCtxResetPersistingL2Cache(void)
{
    READY;
    return done(driver.cuCtxResetPersistingL2Cache());
}

EXPORT cudaError_t cudaDeviceGetTexture1DLinearMaxWidth(size_t *width,
    const struct cudaChannelFormatDesc *desc, int device)
{
    CUarray_format f;
    unsigned channels;
    if (!width || !desc)
        return fail(cudaErrorInvalidValue);
    TRY(check_device(device));
    TRY(array_format(desc, &f, &channels));
    return done(driver.cuDeviceGetTexture1DLinearMaxWidth(width, f, channels, device));
}

EXPORT cudaError_t cudaDriverGetVersion(int *version)
{
    if (!version)
        return fail(cudaErrorInvalidValue);
    *version = 0;
    CUresult r = load_driver();
    if (r == (CUresult)cudaErrorInsufficientDriver)
        return cudaSuccess; /* documented: 0 without a driver */
    TRY(r);
    return done(driver.cuDriverGetVersion(version));
}

EXPORT cudaError_t cudaRuntimeGetVersion(int *version)
{
    if (!version)
        return fail(cudaErrorInvalidValue);
    *version = CUDART_VERSION;
    return cudaSuccess;
}

/* The host has no profiler to start in the guest. */
EXPORT cudaError_t cudaProfilerStart(void) { return cudaSuccess; }
EXPORT cudaError_t cudaProfilerStop(void) { return cudaSuccess; }

#if MAJOR < 13
EXPORT cudaError_t cudaThreadExit(void) { return cudaDeviceReset(); }
EXPORT cudaError_t cudaThreadSynchronize(void) { return cudaDeviceSynchronize(); }
EXPORT cudaError_t cudaThreadGetLimit(size_t *v, enum cudaLimit l) { return cudaDeviceGetLimit(v, l); }
EXPORT cudaError_t cudaThreadSetLimit(enum cudaLimit l, size_t v) { return cudaDeviceSetLimit(l, v); }
EXPORT cudaError_t cudaThreadGetCacheConfig(enum cudaFuncCache *c) { return cudaDeviceGetCacheConfig(c); }
EXPORT cudaError_t cudaThreadSetCacheConfig(enum cudaFuncCache c) { return cudaDeviceSetCacheConfig(c); }
/* Since devices of capability 1.3, doubles need no conversion. */
EXPORT cudaError_t cudaSetDoubleForDevice(double *d) { return d ? cudaSuccess : fail(cudaErrorInvalidValue); }
EXPORT cudaError_t cudaSetDoubleForHost(double *d) { return d ? cudaSuccess : fail(cudaErrorInvalidValue); }
#endif
