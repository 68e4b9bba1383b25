/* Names and descriptions of errors (CUDA Runtime API, Error Handling). The descriptions are those
 * that programs know. */

#include "runtime.h"

static const struct {
    int code;
    const char *name, *text;
} errors[] = {
#define ERROR(name, text) {cudaError##name, "cudaError" #name, text},
    {cudaSuccess, "cudaSuccess", "no error"},
    ERROR(InvalidValue, "invalid argument")
    ERROR(MemoryAllocation, "out of memory")
    ERROR(InitializationError, "initialization error")
    ERROR(CudartUnloading, "driver shutting down")
    ERROR(ProfilerDisabled, "profiler disabled while using external profiling tool")
    ERROR(ProfilerNotInitialized, "profiler not initialized: call cudaProfilerInitialize()")
    ERROR(ProfilerAlreadyStarted, "profiler already started")
    ERROR(ProfilerAlreadyStopped, "profiler already stopped")
    ERROR(InvalidConfiguration, "invalid configuration argument")
    ERROR(InvalidPitchValue, "invalid pitch argument")
    ERROR(InvalidSymbol, "invalid device symbol")
    ERROR(InvalidHostPointer, "invalid host pointer")
    ERROR(InvalidDevicePointer, "invalid device pointer")
    ERROR(InvalidTexture, "invalid texture reference")
    ERROR(InvalidTextureBinding, "texture is not bound to a pointer")
    ERROR(InvalidChannelDescriptor, "invalid channel descriptor")
    ERROR(InvalidMemcpyDirection, "invalid copy direction for memcpy")
    ERROR(AddressOfConstant, "__device__ variables cannot be addressed here")
    ERROR(TextureFetchFailed, "fetch from texture failed")
    ERROR(TextureNotBound, "cannot fetch from a texture that is not bound")
    ERROR(SynchronizationError, "incorrect use of __syncthreads()")
    ERROR(InvalidFilterSetting, "linear filtering not supported for non-float type")
    ERROR(InvalidNormSetting, "read as normalized float not supported for 32-bit non float type")
    ERROR(MixedDeviceExecution, "device emulation mode and device execution mode cannot be mixed")
    ERROR(NotYetImplemented, "feature not yet implemented")
    ERROR(MemoryValueTooLarge, "memory size or pointer value too large to fit in 32 bit")
    ERROR(StubLibrary, "CUDA driver is a stub library")
    ERROR(InsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version")
    ERROR(CallRequiresNewerDriver, "API call is not supported in the installed CUDA driver")
    ERROR(InvalidSurface, "invalid surface reference")
    ERROR(DuplicateVariableName, "duplicate global variable looked up by string name")
    ERROR(DuplicateTextureName, "duplicate texture looked up by string name")
    ERROR(DuplicateSurfaceName, "duplicate surface looked up by string name")
    ERROR(DevicesUnavailable, "all CUDA-capable devices are busy or unavailable")
    ERROR(IncompatibleDriverContext, "incompatible driver context")
    ERROR(MissingConfiguration, "__global__ function call is not configured")
    ERROR(PriorLaunchFailure, "unspecified launch failure in prior launch")
    ERROR(LaunchMaxDepthExceeded, "launch would exceed maximum depth of nested launches")
    ERROR(LaunchFileScopedTex,
        "launch failed because kernel uses unsupported, file-scoped textures (texture objects are supported)")
    ERROR(LaunchFileScopedSurf,
        "launch failed because kernel uses unsupported, file-scoped surfaces (surface objects are supported)")
    ERROR(SyncDepthExceeded,
        "cudaDeviceSynchronize failed because caller's grid depth exceeds cudaLimitDevRuntimeSyncDepth")
    ERROR(LaunchPendingCountExceeded,
        "launch failed because launch would exceed cudaLimitDevRuntimePendingLaunchCount")
    ERROR(InvalidDeviceFunction, "invalid device function")
    ERROR(NoDevice, "no CUDA-capable device is detected")
    ERROR(InvalidDevice, "invalid device ordinal")
    ERROR(DeviceNotLicensed, "device doesn't have valid Grid license")
    ERROR(SoftwareValidityNotEstablished, "integrity checks failed")
    ERROR(StartupFailure, "startup failure in cuda runtime")
    ERROR(InvalidKernelImage, "device kernel image is invalid")
    ERROR(DeviceUninitialized, "invalid device context")
    ERROR(MapBufferObjectFailed, "mapping of buffer object failed")
    ERROR(UnmapBufferObjectFailed, "unmapping of buffer object failed")
    ERROR(ArrayIsMapped, "array is mapped")
    ERROR(AlreadyMapped, "resource already mapped")
    ERROR(NoKernelImageForDevice, "no kernel image is available for execution on the device")
    ERROR(AlreadyAcquired, "resource already acquired")
    ERROR(NotMapped, "resource not mapped")
    ERROR(NotMappedAsArray, "resource not mapped as array")
    ERROR(NotMappedAsPointer, "resource not mapped as pointer")
    ERROR(ECCUncorrectable, "uncorrectable ECC error encountered")
    ERROR(UnsupportedLimit, "limit is not supported on this architecture")
    ERROR(DeviceAlreadyInUse, "exclusive-thread device already in use by a different thread")
    ERROR(PeerAccessUnsupported, "peer access is not supported between these two devices")
    ERROR(InvalidPtx, "a PTX JIT compilation failed")
    ERROR(InvalidGraphicsContext, "invalid OpenGL or DirectX context")
    ERROR(NvlinkUncorrectable, "uncorrectable NVLink error detected during the execution")
    ERROR(JitCompilerNotFound, "PTX JIT compiler library not found")
    ERROR(UnsupportedPtxVersion, "the provided PTX was compiled with an unsupported toolchain.")
    ERROR(JitCompilationDisabled, "PTX JIT compilation was disabled")
    ERROR(UnsupportedExecAffinity, "the provided execution affinity is not supported")
    ERROR(UnsupportedDevSideSync,
        "the provided PTX contains unsupported call to cudaDeviceSynchronize")
    ERROR(Contained, "Invalid access of peer GPU memory over nvlink or a hardware error")
    ERROR(InvalidSource, "device kernel image is invalid")
    ERROR(FileNotFound, "file not found")
    ERROR(SharedObjectSymbolNotFound, "shared object symbol not found")
    ERROR(SharedObjectInitFailed, "shared object initialization failed")
    ERROR(OperatingSystem, "OS call failed or operation not supported on this OS")
    ERROR(InvalidResourceHandle, "invalid resource handle")
    ERROR(IllegalState, "the operation cannot be performed in the present state")
    ERROR(LossyQuery, "attempted introspection would be semantically lossy")
    ERROR(SymbolNotFound, "named symbol not found")
    ERROR(NotReady, "device not ready")
    ERROR(IllegalAddress, "an illegal memory access was encountered")
    ERROR(LaunchOutOfResources, "too many resources requested for launch")
    ERROR(LaunchTimeout, "the launch timed out and was terminated")
    ERROR(LaunchIncompatibleTexturing, "launch uses incompatible texturing mode")
    ERROR(PeerAccessAlreadyEnabled, "peer access is already enabled")
    ERROR(PeerAccessNotEnabled, "peer access has not been enabled")
    ERROR(SetOnActiveProcess, "cannot set while device is active in this process")
    ERROR(ContextIsDestroyed, "context is destroyed")
    ERROR(Assert, "device-side assert triggered")
    ERROR(TooManyPeers, "peer mapping resources exhausted")
    ERROR(HostMemoryAlreadyRegistered,
        "part or all of the requested memory range is already mapped")
    ERROR(HostMemoryNotRegistered, "pointer does not correspond to a registered memory region")
    ERROR(HardwareStackError, "hardware stack error")
    ERROR(IllegalInstruction, "an illegal instruction was encountered")
    ERROR(MisalignedAddress, "misaligned address")
    ERROR(InvalidAddressSpace, "operation not supported on global/shared address space")
    ERROR(InvalidPc, "invalid program counter")
    ERROR(LaunchFailure, "unspecified launch failure")
    ERROR(CooperativeLaunchTooLarge, "too many blocks in cooperative launch")
    ERROR(TensorMemoryLeak, "tensor memory not completely freed")
    ERROR(NotPermitted, "operation not permitted")
    ERROR(NotSupported, "operation not supported")
    ERROR(SystemNotReady, "system not yet initialized")
    ERROR(SystemDriverMismatch, "system has unsupported display driver / cuda driver combination")
    ERROR(CompatNotSupportedOnDevice, "forward compatibility was attempted on non supported HW")
    ERROR(MpsConnectionFailed,
        "MPS client failed to connect to the MPS control daemon or the MPS server")
    ERROR(MpsRpcFailure,
        "the remote procedural call between the MPS server and the MPS client failed")
    ERROR(MpsServerNotReady, "MPS server is not ready to accept new MPS client requests")
    ERROR(MpsMaxClientsReached,
        "the hardware resources required to create MPS client have been exhausted")
    ERROR(MpsMaxConnectionsReached,
        "the hardware resources required to support device connections have been exhausted")
    ERROR(MpsClientTerminated, "the MPS client has been terminated by the server")
    ERROR(CdpNotSupported, "the device does not support CUDA Dynamic Parallelism")
    ERROR(CdpVersionMismatch,
        "the program was compiled with an incompatible version of CUDA Dynamic Parallelism")
    ERROR(StreamCaptureUnsupported, "operation not permitted when stream is capturing")
    ERROR(StreamCaptureInvalidated, "operation failed due to a previous error during capture")
    ERROR(StreamCaptureMerge, "operation would result in a merge of separate capture sequences")
    ERROR(StreamCaptureUnmatched, "capture was not ended in the same stream as it began")
    ERROR(StreamCaptureUnjoined, "capturing stream has unjoined work")
    ERROR(StreamCaptureIsolation, "dependency created on uncaptured work in another stream")
    ERROR(StreamCaptureImplicit,
        "operation would make the legacy stream depend on a capturing blocking stream")
    ERROR(CapturedEvent, "operation not permitted on an event last recorded in a capturing stream")
    ERROR(StreamCaptureWrongThread,
        "attempt to terminate a thread-local capture sequence from another thread")
    ERROR(Timeout, "wait operation timed out")
    ERROR(GraphExecUpdateFailure,
        "the graph update was not performed because it included changes which violated constraints specific to instantiated graph update")
    ERROR(ExternalDevice, "an async error has occured in external entity outside of CUDA")
    ERROR(InvalidClusterSize, "a kernel launch error has occurred due to cluster misconfiguration")
    ERROR(FunctionNotLoaded,
        "the function handle is not loaded when calling an API that requires a loaded function")
    ERROR(InvalidResourceType, "the resource type is invalid")
    ERROR(InvalidResourceConfiguration, "the resource configuration is invalid")
    ERROR(Unknown, "unknown error")
    ERROR(ApiFailureBase, "api failure base")
#undef ERROR
};

EXPORT const char *cudaGetErrorName(cudaError_t e)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == (int)e)
            return errors[i].name;
    return "unrecognized error code";
}

EXPORT const char *cudaGetErrorString(cudaError_t e)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == (int)e)
            return errors[i].text;
    return "unrecognized error code";
}
