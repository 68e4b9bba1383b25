/* Launches (CUDA Runtime API, Execution Control). */

#include "registry.h"

/* launch_error tells a bad configuration from a bad argument, which the driver does not. */
static cudaError_t launch_error(CUresult r, dim3 grid, dim3 block)
{
    static const CUdevice_attribute limits[] = {
        CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X,  CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y,
        CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z,  CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X,
        CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z,
    };
    const unsigned dims[] = {grid.x, grid.y, grid.z, block.x, block.y, block.z};
    CUdevice d;
    int max;
    if (r != CUDA_ERROR_INVALID_VALUE || driver.cuCtxGetDevice(&d) != CUDA_SUCCESS)
        return fail((cudaError_t)r);
    for (int i = 0; i < 6; i++)
        if (dims[i] == 0 || (driver.cuDeviceGetAttribute(&max, limits[i], d) == CUDA_SUCCESS &&
                                dims[i] > (unsigned)max))
            return fail(cudaErrorInvalidConfiguration);
    if (driver.cuDeviceGetAttribute(&max, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, d) == CUDA_SUCCESS &&
        (uint64_t)block.x * block.y * block.z > (uint64_t)max)
        return fail(cudaErrorInvalidConfiguration);
    return fail((cudaError_t)r);
}

HOT EXPORT cudaError_t cudaLaunchKernel(const void *func, dim3 grid, dim3 block, void **args,
    size_t shared, cudaStream_t stream)
{
    CUfunction f;
    TRY(function_of(func, &f));
    CUresult r = driver.cuLaunchKernel(f, grid.x, grid.y, grid.z, block.x, block.y, block.z,
        (unsigned)shared, stream, args, NULL);
    return likely(r == CUDA_SUCCESS) ? cudaSuccess : launch_error(r, grid, block);
}
PTSZ(cudaLaunchKernel,
    (const void *func, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t stream),
    (func, grid, block, args, shared, own(stream)))

EXPORT cudaError_t cudaLaunchCooperativeKernel(const void *func, dim3 grid, dim3 block, void **args,
    size_t shared, cudaStream_t stream)
{
    CUfunction f;
    TRY(function_of(func, &f));
    CUresult r = driver.cuLaunchCooperativeKernel(f, grid.x, grid.y, grid.z, block.x, block.y,
        block.z, (unsigned)shared, stream, args);
    return r == CUDA_SUCCESS ? cudaSuccess : launch_error(r, grid, block);
}
PTSZ(cudaLaunchCooperativeKernel,
    (const void *func, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t stream),
    (func, grid, block, args, shared, own(stream)))

/* driver_config says in the driver's form what c says. Attributes have the same layout in both. */
static CUlaunchConfig driver_config(const cudaLaunchConfig_t *c)
{
    return (CUlaunchConfig){
        .gridDimX = c->gridDim.x,
        .gridDimY = c->gridDim.y,
        .gridDimZ = c->gridDim.z,
        .blockDimX = c->blockDim.x,
        .blockDimY = c->blockDim.y,
        .blockDimZ = c->blockDim.z,
        .sharedMemBytes = (unsigned)c->dynamicSmemBytes,
        .hStream = c->stream,
        .attrs = (CUlaunchAttribute *)c->attrs,
        .numAttrs = c->numAttrs,
    };
}

EXPORT cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *c, const void *func, void **args)
{
    CUfunction f;
    if (!c)
        return fail(cudaErrorInvalidValue);
    TRY(function_of(func, &f));
    CUlaunchConfig d = driver_config(c);
    CUresult r = driver.cuLaunchKernelEx(&d, f, args, NULL);
    return r == CUDA_SUCCESS ? cudaSuccess : launch_error(r, c->gridDim, c->blockDim);
}

EXPORT cudaError_t cudaLaunchKernelExC_ptsz(const cudaLaunchConfig_t *c, const void *func, void **args);
EXPORT cudaError_t cudaLaunchKernelExC_ptsz(const cudaLaunchConfig_t *c, const void *func, void **args)
{
    if (!c)
        return fail(cudaErrorInvalidValue);
    cudaLaunchConfig_t own_stream = *c;
    own_stream.stream = own(c->stream);
    return cudaLaunchKernelExC(&own_stream, func, args);
}

EXPORT cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t fn, void *data)
{
    READY;
    return done(driver.cuLaunchHostFunc(s, fn, data));
}
PTSZ(cudaLaunchHostFunc, (cudaStream_t s, cudaHostFn_t fn, void *data), (own(s), fn, data))

/* Since 12.x nvcc's stubs launch by kernel handles. */
EXPORT cudaError_t __cudaGetKernel(cudaKernel_t *k, const void *stub);
EXPORT cudaError_t __cudaGetKernel(cudaKernel_t *k, const void *stub) { return cudaGetKernel(k, stub); }

EXPORT cudaError_t __cudaLaunchKernel(cudaKernel_t k, dim3 grid, dim3 block, void **args,
    size_t shared, cudaStream_t s);
EXPORT cudaError_t __cudaLaunchKernel(cudaKernel_t k, dim3 grid, dim3 block, void **args,
    size_t shared, cudaStream_t s)
{
    return cudaLaunchKernel(k, grid, block, args, shared, s);
}
PTSZ(__cudaLaunchKernel,
    (cudaKernel_t k, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t s),
    (k, grid, block, args, shared, own(s)))

/* Functions (Execution Control and Occupancy) */

EXPORT cudaError_t cudaGetFuncBySymbol(cudaFunction_t *f, const void *stub)
{
    if (!f)
        return fail(cudaErrorInvalidValue);
    TRY(function_of(stub, f));
    register_handle(*f);
    return cudaSuccess;
}

EXPORT cudaError_t cudaGetKernel(cudaKernel_t *k, const void *stub)
{
    return cudaGetFuncBySymbol((cudaFunction_t *)k, stub);
}

EXPORT cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *a, const void *func)
{
    CUfunction f;
    if (!a)
        return fail(cudaErrorInvalidValue);
    TRY(function_of(func, &f));
    memset(a, 0, sizeof *a);
    int v;
#define GET(field, attribute)                                                                      \
    TRY(driver.cuFuncGetAttribute(&v, CU_FUNC_ATTRIBUTE_##attribute, f));                          \
    a->field = (__typeof__(a->field))v
    GET(sharedSizeBytes, SHARED_SIZE_BYTES);
    GET(constSizeBytes, CONST_SIZE_BYTES);
    GET(localSizeBytes, LOCAL_SIZE_BYTES);
    GET(maxThreadsPerBlock, MAX_THREADS_PER_BLOCK);
    GET(numRegs, NUM_REGS);
    GET(ptxVersion, PTX_VERSION);
    GET(binaryVersion, BINARY_VERSION);
    GET(cacheModeCA, CACHE_MODE_CA);
    GET(maxDynamicSharedSizeBytes, MAX_DYNAMIC_SHARED_SIZE_BYTES);
    GET(preferredShmemCarveout, PREFERRED_SHARED_MEMORY_CARVEOUT);
#undef GET
#if MAJOR >= 12
    /* A driver that knows no clusters has none of these. */
#define GET(field, attribute)                                                                      \
    if (driver.cuFuncGetAttribute(&v, CU_FUNC_ATTRIBUTE_##attribute, f) == CUDA_SUCCESS)           \
    a->field = v
    GET(clusterDimMustBeSet, CLUSTER_SIZE_MUST_BE_SET);
    GET(requiredClusterWidth, REQUIRED_CLUSTER_WIDTH);
    GET(requiredClusterHeight, REQUIRED_CLUSTER_HEIGHT);
    GET(requiredClusterDepth, REQUIRED_CLUSTER_DEPTH);
    GET(clusterSchedulingPolicyPreference, CLUSTER_SCHEDULING_POLICY_PREFERENCE);
    GET(nonPortableClusterSizeAllowed, NON_PORTABLE_CLUSTER_SIZE_ALLOWED);
#undef GET
#endif
    return cudaSuccess;
}

EXPORT cudaError_t cudaFuncSetAttribute(const void *func, enum cudaFuncAttribute attr, int value)
{
    CUfunction f;
    TRY(function_of(func, &f));
    return done(driver.cuFuncSetAttribute(f, (CUfunction_attribute)attr, value));
}

EXPORT cudaError_t cudaFuncSetCacheConfig(const void *func, enum cudaFuncCache config)
{
    CUfunction f;
    TRY(function_of(func, &f));
    return done(driver.cuFuncSetCacheConfig(f, (CUfunc_cache)config));
}

EXPORT cudaError_t cudaFuncSetSharedMemConfig(const void *func, enum cudaSharedMemConfig config)
{
    CUfunction f;
    TRY(function_of(func, &f));
    return done(driver.cuFuncSetSharedMemConfig(f, (CUsharedconfig)config));
}

EXPORT cudaError_t cudaFuncGetName(const char **name, const void *func)
{
    CUfunction f;
    if (!name)
        return fail(cudaErrorInvalidValue);
    TRY(function_of(func, &f));
    *name = name_of(func);
    return *name ? cudaSuccess : done(driver.cuFuncGetName(name, f));
}

EXPORT cudaError_t cudaFuncGetParamInfo(const void *func, size_t i, size_t *offset, size_t *size)
{
    CUfunction f;
    TRY(function_of(func, &f));
    return done(driver.cuFuncGetParamInfo(f, i, offset, size));
}

EXPORT cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks,
    const void *func, int block_size, size_t shared, unsigned flags)
{
    CUfunction f;
    TRY(function_of(func, &f));
    if (!flags)
        return done(driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, f, block_size, shared));
    return done(driver.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, f, block_size,
        shared, flags));
}

EXPORT cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *func,
    int block_size, size_t shared)
{
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, func, block_size, shared, 0);
}

EXPORT cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, const void *func,
    int blocks, int block_size)
{
    CUfunction f;
    TRY(function_of(func, &f));
    return done(driver.cuOccupancyAvailableDynamicSMemPerBlock(bytes, f, blocks, block_size));
}

EXPORT cudaError_t cudaOccupancyMaxPotentialClusterSize(int *size, const void *func,
    const cudaLaunchConfig_t *c)
{
    CUfunction f;
    if (!c)
        return fail(cudaErrorInvalidValue);
    TRY(function_of(func, &f));
    CUlaunchConfig d = driver_config(c);
    return done(driver.cuOccupancyMaxPotentialClusterSize(size, f, &d));
}

EXPORT cudaError_t cudaOccupancyMaxActiveClusters(int *clusters, const void *func,
    const cudaLaunchConfig_t *c)
{
    CUfunction f;
    if (!c)
        return fail(cudaErrorInvalidValue);
    TRY(function_of(func, &f));
    CUlaunchConfig d = driver_config(c);
    return done(driver.cuOccupancyMaxActiveClusters(clusters, f, &d));
}
