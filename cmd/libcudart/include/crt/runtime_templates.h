#ifndef VGPU_CRT_RUNTIME_TEMPLATES_H
#define VGPU_CRT_RUNTIME_TEMPLATES_H

/* The C++ forms of the runtime API: functions that take typed pointers, kernels and variables, and
 * default arguments. cuda_runtime.h includes this file. */

#include <utility>

template <class T> inline cudaError_t cudaMalloc(T **p, size_t n) { return ::cudaMalloc((void **)(void *)p, n); }
template <class T> inline cudaError_t cudaMallocHost(T **p, size_t n, unsigned flags = 0)
{
    return ::cudaHostAlloc((void **)(void *)p, n, flags);
}
template <class T> inline cudaError_t cudaHostAlloc(T **p, size_t n, unsigned flags)
{
    return ::cudaHostAlloc((void **)(void *)p, n, flags);
}
template <class T> inline cudaError_t cudaHostGetDevicePointer(T **p, void *host, unsigned flags)
{
    return ::cudaHostGetDevicePointer((void **)(void *)p, host, flags);
}
template <class T> inline cudaError_t cudaMallocManaged(T **p, size_t n, unsigned flags = cudaMemAttachGlobal)
{
    return ::cudaMallocManaged((void **)(void *)p, n, flags);
}
#if CUDART_VERSION >= 12000 && CUDART_VERSION < 13000
/* CUDA 13's forms. */
inline cudaError_t cudaMemPrefetchAsync(const void *p, size_t n, cudaMemLocation where, unsigned flags, cudaStream_t s = 0)
{
    return ::cudaMemPrefetchAsync_v2(p, n, where, flags, s);
}
inline cudaError_t cudaMemAdvise(const void *p, size_t n, cudaMemoryAdvise advice, cudaMemLocation where)
{
    return ::cudaMemAdvise_v2(p, n, advice, where);
}
#endif
template <class T> inline cudaError_t cudaMallocPitch(T **p, size_t *pitch, size_t w, size_t h)
{
    return ::cudaMallocPitch((void **)(void *)p, pitch, w, h);
}
template <class T> inline cudaError_t cudaMallocAsync(T **p, size_t n, cudaStream_t s)
{
    return ::cudaMallocAsync((void **)(void *)p, n, s);
}
template <class T> inline cudaError_t cudaMallocFromPoolAsync(T **p, size_t n, cudaMemPool_t pool, cudaStream_t s)
{
    return ::cudaMallocFromPoolAsync((void **)(void *)p, n, pool, s);
}
template <class T> inline cudaError_t cudaMallocAsync(T **p, size_t n, cudaMemPool_t pool, cudaStream_t s)
{
    return ::cudaMallocFromPoolAsync((void **)(void *)p, n, pool, s);
}

/* Symbols are variables here, and references to them in the API. */
template <class T> inline const void *vgpu_address(const T &symbol)
{
    return (const void *)__builtin_addressof(symbol);
}
template <class T>
inline cudaError_t cudaMemcpyToSymbol(const T &symbol, const void *src, size_t n, size_t offset = 0,
    cudaMemcpyKind kind = cudaMemcpyHostToDevice)
{
    return ::cudaMemcpyToSymbol(vgpu_address(symbol), src, n, offset, kind);
}
template <class T>
inline cudaError_t cudaMemcpyToSymbolAsync(const T &symbol, const void *src, size_t n, size_t offset = 0,
    cudaMemcpyKind kind = cudaMemcpyHostToDevice, cudaStream_t s = 0)
{
    return ::cudaMemcpyToSymbolAsync(vgpu_address(symbol), src, n, offset, kind, s);
}
template <class T>
inline cudaError_t cudaMemcpyFromSymbol(void *dst, const T &symbol, size_t n, size_t offset = 0,
    cudaMemcpyKind kind = cudaMemcpyDeviceToHost)
{
    return ::cudaMemcpyFromSymbol(dst, vgpu_address(symbol), n, offset, kind);
}
template <class T>
inline cudaError_t cudaMemcpyFromSymbolAsync(void *dst, const T &symbol, size_t n, size_t offset = 0,
    cudaMemcpyKind kind = cudaMemcpyDeviceToHost, cudaStream_t s = 0)
{
    return ::cudaMemcpyFromSymbolAsync(dst, vgpu_address(symbol), n, offset, kind, s);
}
template <class T> inline cudaError_t cudaGetSymbolAddress(void **p, const T &symbol)
{
    return ::cudaGetSymbolAddress(p, vgpu_address(symbol));
}
template <class T> inline cudaError_t cudaGetSymbolSize(size_t *n, const T &symbol)
{
    return ::cudaGetSymbolSize(n, vgpu_address(symbol));
}

/* Kernels */

template <class T>
inline cudaError_t cudaLaunchKernel(T *kernel, dim3 grid, dim3 block, void **args, size_t shared = 0,
    cudaStream_t s = 0)
{
    return ::cudaLaunchKernel((const void *)kernel, grid, block, args, shared, s);
}
template <class T>
inline cudaError_t cudaLaunchCooperativeKernel(T *kernel, dim3 grid, dim3 block, void **args,
    size_t shared = 0, cudaStream_t s = 0)
{
    return ::cudaLaunchCooperativeKernel((const void *)kernel, grid, block, args, shared, s);
}
template <class... P, class... A>
inline cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *c, void (*kernel)(P...), A &&...args)
{
    return [&](P... converted) {
        void *list[] = {(void *)__builtin_addressof(converted)..., nullptr};
        return ::cudaLaunchKernelExC(c, (const void *)kernel, list);
    }(std::forward<A>(args)...);
}
template <class T> inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *a, T *kernel)
{
    return ::cudaFuncGetAttributes(a, (const void *)kernel);
}
template <class T> inline cudaError_t cudaFuncSetAttribute(T *kernel, cudaFuncAttribute a, int value)
{
    return ::cudaFuncSetAttribute((const void *)kernel, a, value);
}
template <class T> inline cudaError_t cudaFuncSetCacheConfig(T *kernel, cudaFuncCache c)
{
    return ::cudaFuncSetCacheConfig((const void *)kernel, c);
}
template <class T> inline cudaError_t cudaFuncSetSharedMemConfig(T *kernel, cudaSharedMemConfig c)
{
    return ::cudaFuncSetSharedMemConfig((const void *)kernel, c);
}
template <class T> inline cudaError_t cudaGetFuncBySymbol(cudaFunction_t *f, T *kernel)
{
    return ::cudaGetFuncBySymbol(f, (const void *)kernel);
}
template <class T> inline cudaError_t cudaGetKernel(cudaKernel_t *k, T *kernel)
{
    return ::cudaGetKernel(k, (const void *)kernel);
}

/* Occupancy */

template <class T>
inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, T kernel, int block, size_t shared)
{
    return ::cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, (const void *)kernel, block, shared);
}
template <class T>
inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, T kernel, int block,
    size_t shared, unsigned flags)
{
    return ::cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, (const void *)kernel, block,
        shared, flags);
}

/* The block size with most threads on a multiprocessor, of those the largest, and the blocks that
 * fill the device with it. */
template <class F, class T>
inline cudaError_t cudaOccupancyMaxPotentialBlockSizeVariableSMemWithFlags(int *grid, int *block, T kernel,
    F shared, int limit = 0, unsigned flags = 0)
{
    int device, most, processors, warp, best = 0;
    cudaFuncAttributes a;
    cudaError_t e;
    if (!grid || !block || !kernel)
        return cudaErrorInvalidValue;
    if ((e = ::cudaGetDevice(&device)) || (e = ::cudaDeviceGetAttribute(&most, cudaDevAttrMaxThreadsPerBlock, device)) ||
        (e = ::cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device)) ||
        (e = ::cudaDeviceGetAttribute(&warp, cudaDevAttrWarpSize, device)) ||
        (e = ::cudaFuncGetAttributes(&a, (const void *)kernel)))
        return e;
    if (a.maxThreadsPerBlock < most)
        most = a.maxThreadsPerBlock;
    if (limit > 0 && limit < most)
        most = limit;
    *grid = *block = 0;
    for (int size = (most + warp - 1) / warp * warp; size > 0; size -= warp) {
        int threads = size < most ? size : most, blocks;
        e = ::cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&blocks, (const void *)kernel, threads,
            shared(threads), flags);
        if (e)
            return e;
        if (blocks * threads > best) {
            best = blocks * threads;
            *block = threads;
            *grid = blocks * processors;
        }
    }
    return cudaSuccess;
}
template <class F, class T>
inline cudaError_t cudaOccupancyMaxPotentialBlockSizeVariableSMem(int *grid, int *block, T kernel, F shared,
    int limit = 0)
{
    return cudaOccupancyMaxPotentialBlockSizeVariableSMemWithFlags(grid, block, kernel, shared, limit, 0);
}
template <class T>
inline cudaError_t cudaOccupancyMaxPotentialBlockSizeWithFlags(int *grid, int *block, T kernel,
    size_t shared = 0, int limit = 0, unsigned flags = 0)
{
    return cudaOccupancyMaxPotentialBlockSizeVariableSMemWithFlags(grid, block, kernel,
        [shared](int) { return shared; }, limit, flags);
}
template <class T>
inline cudaError_t cudaOccupancyMaxPotentialBlockSize(int *grid, int *block, T kernel, size_t shared = 0,
    int limit = 0)
{
    return cudaOccupancyMaxPotentialBlockSizeWithFlags(grid, block, kernel, shared, limit, 0);
}
template <class T>
inline cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, T *kernel, int blocks, int block)
{
    return ::cudaOccupancyAvailableDynamicSMemPerBlock(bytes, (const void *)kernel, blocks, block);
}

/* Events and graphs */

inline cudaError_t cudaEventCreate(cudaEvent_t *e, unsigned flags) { return ::cudaEventCreateWithFlags(e, flags); }

#if CUDART_VERSION >= 12000
inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t *x, cudaGraph_t g, cudaGraphNode_t *bad, char *log,
    size_t size)
{
    if (bad)
        *bad = nullptr;
    if (log && size)
        *log = 0;
    return ::cudaGraphInstantiate(x, g, 0);
}
inline cudaError_t cudaGraphExecUpdate(cudaGraphExec_t x, cudaGraph_t g, cudaGraphNode_t *bad,
    cudaGraphExecUpdateResult *result)
{
    cudaGraphExecUpdateResultInfo info = {};
    cudaError_t e = ::cudaGraphExecUpdate(x, g, &info);
    if (bad)
        *bad = info.errorNode;
    if (result)
        *result = info.result;
    return e;
}
#endif

/* Texture references */

#if CUDART_VERSION < 12000 && defined(__CUDA__)
template <class T, int D, cudaTextureReadMode M>
inline cudaError_t cudaBindTexture(size_t *offset, const texture<T, D, M> &t, const void *p,
    const cudaChannelFormatDesc &d, size_t size = UINT_MAX)
{
    return ::cudaBindTexture(offset, &t, p, &d, size);
}
template <class T, int D, cudaTextureReadMode M>
inline cudaError_t cudaBindTexture(size_t *offset, const texture<T, D, M> &t, const void *p, size_t size = UINT_MAX)
{
    return ::cudaBindTexture(offset, &t, p, &t.channelDesc, size);
}
template <class T, int D, cudaTextureReadMode M>
inline cudaError_t cudaBindTexture2D(size_t *offset, const texture<T, D, M> &t, const void *p,
    const cudaChannelFormatDesc &d, size_t width, size_t height, size_t pitch)
{
    return ::cudaBindTexture2D(offset, &t, p, &d, width, height, pitch);
}
template <class T, int D, cudaTextureReadMode M>
inline cudaError_t cudaBindTexture2D(size_t *offset, const texture<T, D, M> &t, const void *p, size_t width,
    size_t height, size_t pitch)
{
    return ::cudaBindTexture2D(offset, &t, p, &t.channelDesc, width, height, pitch);
}
template <class T, int D, cudaTextureReadMode M>
inline cudaError_t cudaBindTextureToArray(const texture<T, D, M> &t, cudaArray_const_t a,
    const cudaChannelFormatDesc &d)
{
    return ::cudaBindTextureToArray(&t, a, &d);
}
template <class T, int D, cudaTextureReadMode M>
inline cudaError_t cudaBindTextureToArray(const texture<T, D, M> &t, cudaArray_const_t a)
{
    cudaChannelFormatDesc d;
    cudaError_t e = ::cudaGetChannelDesc(&d, a);
    return e ? e : ::cudaBindTextureToArray(&t, a, &d);
}
template <class T, int D, cudaTextureReadMode M> inline cudaError_t cudaUnbindTexture(const texture<T, D, M> &t)
{
    return ::cudaUnbindTexture(&t);
}
template <class T, int D, cudaTextureReadMode M>
inline cudaError_t cudaGetTextureAlignmentOffset(size_t *offset, const texture<T, D, M> &t)
{
    return ::cudaGetTextureAlignmentOffset(offset, &t);
}
#endif

#endif
