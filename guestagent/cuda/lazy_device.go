package cuda

import (
	"context"

	"vgpud/guestagent/driver"
)

// questionBytes is what a context asks for that only answers what the device is: enough for what any
// GPU needs for an empty context. Such a context ends at once.
const questionBytes = 16 << 20

// learnAlike learns, once, what is the same on all GPUs that contexts may be placed on, if contexts
// may be made without a GPU: then no later question needs one.
func (d *Driver) learnAlike() Result {
	if d.addresses.Load() != nil || !d.lazy() {
		return Success
	}
	d.device.mu.Lock()
	defer d.device.mu.Unlock()
	return d.learnAlikeLocked()
}

// learnAlikeLocked is learnAlike; d.device.mu is held.
func (d *Driver) learnAlikeLocked() Result {
	if d.addresses.Load() != nil || !d.lazy() {
		return Success
	}
	d.making.Lock()
	defer d.making.Unlock()
	ctx := context.Background()
	g, err := d.gpu.NewContext(ctx, driver.ContextOptions{
		Preempt: &driver.PreemptOptions{Off: true}, Task: &driver.Task{MemoryBytes: min(questionBytes, d.taskLimit())},
	})
	if err != nil {
		return resultOnly(err)
	}
	defer func() { _ = g.Close() }() // the host ends it in any case
	var at driver.AddressRange
	if d.device.name, err = deviceName(ctx, g); err == nil {
		d.device.attributes, err = d.attributesOf(ctx, g)
	}
	if err == nil {
		at, err = g.AddressRange(ctx)
	}
	if err != nil {
		if r := resultOnly(err); r != ErrorNotSupported {
			return r
		}
		at = driver.AddressRange{} // no object has the same address on every GPU
	}
	d.device.total = d.taskLimit()
	d.addresses.Store(&at)
	return Success
}

// residentThreads returns how many threads a GPU has at a time, if that is known, or 0.
func (d *Driver) residentThreads() uint64 {
	d.device.mu.Lock()
	defer d.device.mu.Unlock()
	a := d.device.attributes
	return uint64(max(a[DeviceAttributeMultiprocessorCount], 0)) * uint64(max(a[DeviceAttributeMaxThreadsPerMultiprocessor], 0))
}

// recordedNames are the functions that a context without a GPU records, or that need none. All others
// have its task begin first.
var recordedNames = []string{
	"cuDeviceGet", "cuDeviceGetCount", "cuDeviceGetName", "cuDeviceGetUuid", "cuDeviceGetUuid_v2",
	"cuDeviceTotalMem_v2", "cuDeviceGetAttribute", "cuDeviceGetProperties", "cuDeviceComputeCapability", "cuDeviceGetPCIBusId",
	"cuDeviceGetByPCIBusId", "cuDeviceGetExecAffinitySupport", "cuDeviceGetTexture1DLinearMaxWidth", "cuDeviceCanAccessPeer",
	"cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxRelease_v2", "cuDevicePrimaryCtxReset",
	"cuDevicePrimaryCtxReset_v2", "cuDevicePrimaryCtxSetFlags", "cuDevicePrimaryCtxSetFlags_v2", "cuDevicePrimaryCtxGetState",
	"cuCtxCreate", "cuCtxCreate_v2", "cuCtxCreate_v3", "cuCtxCreate_v4", "cuCtxDestroy", "cuCtxDestroy_v2", "cuCtxAttach", "cuCtxDetach",
	"cuCtxPushCurrent", "cuCtxPushCurrent_v2", "cuCtxPopCurrent", "cuCtxPopCurrent_v2", "cuCtxSetCurrent", "cuCtxGetDevice", "cuCtxGetDevice_v2",
	"cuCtxGetFlags", "cuCtxSetFlags", "cuCtxGetId", "cuCtxGetApiVersion", "cuCtxGetStreamPriorityRange", "cuCtxGetCacheConfig",
	"cuCtxSetCacheConfig", "cuCtxGetSharedMemConfig", "cuCtxSetSharedMemConfig", "cuCtxSetLimit", "cuCtxSynchronize", "cuCtxSynchronize_v2",
	"cuMemAlloc_v2", "cuMemAllocPitch_v2", "cuMemFree_v2", "cuMemGetInfo_v2", "cuMemGetAddressRange_v2", "cuMemAllocAsync", "cuMemFreeAsync",
	"cuMemAllocHost_v2", "cuMemHostAlloc", "cuMemFreeHost", "cuMemHostRegister_v2", "cuMemHostUnregister", "cuMemHostGetFlags",
	"cuMemcpy", "cuMemcpyAsync", "cuMemcpyHtoD_v2", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoH_v2", "cuMemcpyDtoHAsync_v2", "cuMemcpyDtoD_v2", "cuMemcpyDtoDAsync_v2",
	"cuMemsetD8_v2", "cuMemsetD16_v2", "cuMemsetD32_v2", "cuMemsetD2D8_v2", "cuMemsetD2D16_v2", "cuMemsetD2D32_v2",
	"cuMemsetD8Async", "cuMemsetD16Async", "cuMemsetD32Async", "cuMemsetD2D8Async", "cuMemsetD2D16Async", "cuMemsetD2D32Async",
	"cuStreamCreate", "cuStreamCreateWithPriority", "cuStreamDestroy", "cuStreamDestroy_v2", "cuStreamSynchronize", "cuStreamQuery",
	"cuStreamWaitEvent", "cuStreamGetFlags", "cuStreamGetPriority", "cuStreamGetId", "cuStreamGetCtx", "cuStreamGetDevice",
	"cuEventCreate", "cuEventDestroy", "cuEventDestroy_v2", "cuEventRecord", "cuEventRecordWithFlags", "cuEventQuery", "cuEventSynchronize",
	"cuModuleLoad", "cuModuleLoadData", "cuModuleLoadDataEx", "cuModuleLoadFatBinary", "cuModuleUnload", "cuModuleGetFunction", "cuModuleGetLoadingMode",
	"cuLibraryLoadData", "cuLibraryLoadFromFile",
}

// recorded holds, by number, whether a function is one of recordedNames.
var recorded = func() (r [len(calls)]bool) {
	for _, name := range recordedNames {
		if i, ok := functionNumbers[name]; ok {
			r[i] = true
		}
	}
	return r
}()

// functionNumbers are the numbers of functions by their names.
var functionNumbers = func() map[string]uint32 {
	m := make(map[string]uint32, len(Functions))
	for i, name := range Functions {
		m[name] = uint32(i)
	}
	return m
}()
