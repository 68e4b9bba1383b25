/* Properties of a device (CUDA Runtime API, Device Management). Nearly all are attributes. */

#include "runtime.h"

/* fill gives p's fields up to those that CUDA 12 added. The layouts of 11 and 12 begin alike. */
static cudaError_t fill(struct cudaDeviceProp *p, int device)
{
    int n;
    CUdevice d;
    CUuuid uuid;
    TRY(cudaGetDeviceCount(&n));
    if (device < 0 || device >= n)
        return fail(cudaErrorInvalidDevice);
    TRY(driver.cuDeviceGet(&d, device));
    TRY(driver.cuDeviceGetName(p->name, sizeof p->name, d));
    TRY(driver.cuDeviceTotalMem_v2(&p->totalGlobalMem, d));
    if (driver.cuDeviceGetUuid_v2(&uuid, d) == CUDA_SUCCESS)
        memcpy(&p->uuid, &uuid, sizeof p->uuid);

    /* An attribute that the driver does not know is 0. */
#define GET(field, attribute)                                                                      \
    do {                                                                                           \
        int v_ = 0;                                                                                \
        if (driver.cuDeviceGetAttribute(&v_, CU_DEVICE_ATTRIBUTE_##attribute, d) != CUDA_SUCCESS)  \
            v_ = 0;                                                                                \
        p->field = (__typeof__(p->field))v_;                                                       \
    } while (0)
    GET(sharedMemPerBlock, MAX_SHARED_MEMORY_PER_BLOCK);
    GET(regsPerBlock, MAX_REGISTERS_PER_BLOCK);
    GET(warpSize, WARP_SIZE);
    GET(memPitch, MAX_PITCH);
    GET(maxThreadsPerBlock, MAX_THREADS_PER_BLOCK);
    GET(maxThreadsDim[0], MAX_BLOCK_DIM_X);
    GET(maxThreadsDim[1], MAX_BLOCK_DIM_Y);
    GET(maxThreadsDim[2], MAX_BLOCK_DIM_Z);
    GET(maxGridSize[0], MAX_GRID_DIM_X);
    GET(maxGridSize[1], MAX_GRID_DIM_Y);
    GET(maxGridSize[2], MAX_GRID_DIM_Z);
    GET(totalConstMem, TOTAL_CONSTANT_MEMORY);
    GET(major, COMPUTE_CAPABILITY_MAJOR);
    GET(minor, COMPUTE_CAPABILITY_MINOR);
    GET(textureAlignment, TEXTURE_ALIGNMENT);
    GET(texturePitchAlignment, TEXTURE_PITCH_ALIGNMENT);
    GET(multiProcessorCount, MULTIPROCESSOR_COUNT);
    GET(integrated, INTEGRATED);
    GET(canMapHostMemory, CAN_MAP_HOST_MEMORY);
    GET(maxTexture1D, MAXIMUM_TEXTURE1D_WIDTH);
    GET(maxTexture1DMipmap, MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH);
    GET(maxTexture2D[0], MAXIMUM_TEXTURE2D_WIDTH);
    GET(maxTexture2D[1], MAXIMUM_TEXTURE2D_HEIGHT);
    GET(maxTexture2DMipmap[0], MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH);
    GET(maxTexture2DMipmap[1], MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT);
    GET(maxTexture2DLinear[0], MAXIMUM_TEXTURE2D_LINEAR_WIDTH);
    GET(maxTexture2DLinear[1], MAXIMUM_TEXTURE2D_LINEAR_HEIGHT);
    GET(maxTexture2DLinear[2], MAXIMUM_TEXTURE2D_LINEAR_PITCH);
    GET(maxTexture2DGather[0], MAXIMUM_TEXTURE2D_GATHER_WIDTH);
    GET(maxTexture2DGather[1], MAXIMUM_TEXTURE2D_GATHER_HEIGHT);
    GET(maxTexture3D[0], MAXIMUM_TEXTURE3D_WIDTH);
    GET(maxTexture3D[1], MAXIMUM_TEXTURE3D_HEIGHT);
    GET(maxTexture3D[2], MAXIMUM_TEXTURE3D_DEPTH);
    GET(maxTexture3DAlt[0], MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE);
    GET(maxTexture3DAlt[1], MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE);
    GET(maxTexture3DAlt[2], MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE);
    GET(maxTextureCubemap, MAXIMUM_TEXTURECUBEMAP_WIDTH);
    GET(maxTexture1DLayered[0], MAXIMUM_TEXTURE1D_LAYERED_WIDTH);
    GET(maxTexture1DLayered[1], MAXIMUM_TEXTURE1D_LAYERED_LAYERS);
    GET(maxTexture2DLayered[0], MAXIMUM_TEXTURE2D_LAYERED_WIDTH);
    GET(maxTexture2DLayered[1], MAXIMUM_TEXTURE2D_LAYERED_HEIGHT);
    GET(maxTexture2DLayered[2], MAXIMUM_TEXTURE2D_LAYERED_LAYERS);
    GET(maxTextureCubemapLayered[0], MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH);
    GET(maxTextureCubemapLayered[1], MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS);
    GET(maxSurface1D, MAXIMUM_SURFACE1D_WIDTH);
    GET(maxSurface2D[0], MAXIMUM_SURFACE2D_WIDTH);
    GET(maxSurface2D[1], MAXIMUM_SURFACE2D_HEIGHT);
    GET(maxSurface3D[0], MAXIMUM_SURFACE3D_WIDTH);
    GET(maxSurface3D[1], MAXIMUM_SURFACE3D_HEIGHT);
    GET(maxSurface3D[2], MAXIMUM_SURFACE3D_DEPTH);
    GET(maxSurface1DLayered[0], MAXIMUM_SURFACE1D_LAYERED_WIDTH);
    GET(maxSurface1DLayered[1], MAXIMUM_SURFACE1D_LAYERED_LAYERS);
    GET(maxSurface2DLayered[0], MAXIMUM_SURFACE2D_LAYERED_WIDTH);
    GET(maxSurface2DLayered[1], MAXIMUM_SURFACE2D_LAYERED_HEIGHT);
    GET(maxSurface2DLayered[2], MAXIMUM_SURFACE2D_LAYERED_LAYERS);
    GET(maxSurfaceCubemap, MAXIMUM_SURFACECUBEMAP_WIDTH);
    GET(maxSurfaceCubemapLayered[0], MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH);
    GET(maxSurfaceCubemapLayered[1], MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS);
    GET(surfaceAlignment, SURFACE_ALIGNMENT);
    GET(concurrentKernels, CONCURRENT_KERNELS);
    GET(ECCEnabled, ECC_ENABLED);
    GET(pciBusID, PCI_BUS_ID);
    GET(pciDeviceID, PCI_DEVICE_ID);
    GET(pciDomainID, PCI_DOMAIN_ID);
    GET(tccDriver, TCC_DRIVER);
    GET(asyncEngineCount, ASYNC_ENGINE_COUNT);
    GET(unifiedAddressing, UNIFIED_ADDRESSING);
    GET(memoryBusWidth, GLOBAL_MEMORY_BUS_WIDTH);
    GET(l2CacheSize, L2_CACHE_SIZE);
    GET(persistingL2CacheMaxSize, MAX_PERSISTING_L2_CACHE_SIZE);
    GET(maxThreadsPerMultiProcessor, MAX_THREADS_PER_MULTIPROCESSOR);
    GET(streamPrioritiesSupported, STREAM_PRIORITIES_SUPPORTED);
    GET(globalL1CacheSupported, GLOBAL_L1_CACHE_SUPPORTED);
    GET(localL1CacheSupported, LOCAL_L1_CACHE_SUPPORTED);
    GET(sharedMemPerMultiprocessor, MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
    GET(regsPerMultiprocessor, MAX_REGISTERS_PER_MULTIPROCESSOR);
    GET(managedMemory, MANAGED_MEMORY);
    GET(isMultiGpuBoard, MULTI_GPU_BOARD);
    GET(multiGpuBoardGroupID, MULTI_GPU_BOARD_GROUP_ID);
    GET(hostNativeAtomicSupported, HOST_NATIVE_ATOMIC_SUPPORTED);
    GET(pageableMemoryAccess, PAGEABLE_MEMORY_ACCESS);
    GET(concurrentManagedAccess, CONCURRENT_MANAGED_ACCESS);
    GET(computePreemptionSupported, COMPUTE_PREEMPTION_SUPPORTED);
    GET(canUseHostPointerForRegisteredMem, CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM);
    GET(cooperativeLaunch, COOPERATIVE_LAUNCH);
    GET(sharedMemPerBlockOptin, MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
    GET(pageableMemoryAccessUsesHostPageTables, PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES);
    GET(directManagedMemAccessFromHost, DIRECT_MANAGED_MEM_ACCESS_FROM_HOST);
    GET(maxBlocksPerMultiProcessor, MAX_BLOCKS_PER_MULTIPROCESSOR);
    GET(accessPolicyMaxWindowSize, MAX_ACCESS_POLICY_WINDOW_SIZE);
    GET(reservedSharedMemPerBlock, RESERVED_SHARED_MEMORY_PER_BLOCK);
#if MAJOR < 13
    GET(clockRate, CLOCK_RATE);
    GET(deviceOverlap, GPU_OVERLAP);
    GET(kernelExecTimeoutEnabled, KERNEL_EXEC_TIMEOUT);
    GET(computeMode, COMPUTE_MODE);
    GET(maxTexture1DLinear, MAXIMUM_TEXTURE1D_LINEAR_WIDTH);
    GET(memoryClockRate, MEMORY_CLOCK_RATE);
    GET(singleToDoublePrecisionPerfRatio, SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO);
    GET(cooperativeMultiDeviceLaunch, COOPERATIVE_MULTI_DEVICE_LAUNCH);
#endif
    return cudaSuccess;
}

#if MAJOR >= 12
static void fill_rest(struct cudaDeviceProp *p, int device)
{
    CUdevice d;
    if (driver.cuDeviceGet(&d, device) != CUDA_SUCCESS)
        return;
    GET(hostRegisterSupported, HOST_REGISTER_SUPPORTED);
    GET(sparseCudaArraySupported, SPARSE_CUDA_ARRAY_SUPPORTED);
    GET(hostRegisterReadOnlySupported, READ_ONLY_HOST_REGISTER_SUPPORTED);
    GET(timelineSemaphoreInteropSupported, TIMELINE_SEMAPHORE_INTEROP_SUPPORTED);
    GET(memoryPoolsSupported, MEMORY_POOLS_SUPPORTED);
    GET(gpuDirectRDMASupported, GPU_DIRECT_RDMA_SUPPORTED);
    GET(gpuDirectRDMAFlushWritesOptions, GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS);
    GET(gpuDirectRDMAWritesOrdering, GPU_DIRECT_RDMA_WRITES_ORDERING);
    GET(memoryPoolSupportedHandleTypes, MEMPOOL_SUPPORTED_HANDLE_TYPES);
    GET(deferredMappingCudaArraySupported, DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED);
    GET(ipcEventSupported, IPC_EVENT_SUPPORTED);
    GET(clusterLaunch, CLUSTER_LAUNCH);
    GET(unifiedFunctionPointers, UNIFIED_FUNCTION_POINTERS);
#if MAJOR >= 13
    GET(deviceNumaConfig, NUMA_CONFIG);
    GET(deviceNumaId, NUMA_ID);
    GET(mpsEnabled, MPS_ENABLED);
    GET(hostNumaId, HOST_NUMA_ID);
    GET(gpuPciDeviceID, GPU_PCI_DEVICE_ID);
    GET(gpuPciSubsystemID, GPU_PCI_SUBSYSTEM_ID);
    GET(hostNumaMultinodeIpcSupported, HOST_NUMA_MULTINODE_IPC_SUPPORTED);
#endif
}
#endif

/* The bytes that programs built with CUDA 11 have for the structure: up to what 12 added. */
#if MAJOR == 12
#define OLD_SIZE offsetof(struct cudaDeviceProp, hostRegisterSupported)

EXPORT cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
    struct cudaDeviceProp all;
    if (!p)
        return fail(cudaErrorInvalidValue);
    memset(&all, 0, sizeof all);
    cudaError_t e = fill(&all, device);
    if (e == cudaSuccess)
        memcpy(p, &all, OLD_SIZE);
    return e;
}

EXPORT cudaError_t cudaGetDeviceProperties_v2(struct cudaDeviceProp *p, int device)
#else
EXPORT cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
#endif
{
    if (!p)
        return fail(cudaErrorInvalidValue);
    memset(p, 0, sizeof *p);
    cudaError_t e = fill(p, device);
#if MAJOR >= 12
    if (e == cudaSuccess)
        fill_rest(p, device);
#endif
    return e;
}

/* cudaChooseDevice takes the device that has most of what is asked for, as the documentation has
 * it: memory, capability and processors at least what p says; 0 asks for nothing. */
EXPORT cudaError_t cudaChooseDevice(int *device, const struct cudaDeviceProp *p)
{
    int n, best = -1;
    if (!device || !p)
        return fail(cudaErrorInvalidValue);
    TRY(cudaGetDeviceCount(&n));
    for (int i = 0; i < n; i++) {
        struct cudaDeviceProp have;
        memset(&have, 0, sizeof have);
        TRY(fill(&have, i));
        int matches = (have.totalGlobalMem >= p->totalGlobalMem) +
                      (have.major * 1000 + have.minor >= p->major * 1000 + p->minor) +
                      (have.multiProcessorCount >= p->multiProcessorCount);
        if (matches > best) {
            best = matches;
            *device = i;
        }
    }
    return cudaSuccess;
}
