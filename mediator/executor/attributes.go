package executor

import (
	"encoding/binary"
	"fmt"

	"vgpud/gpu"
	"vgpud/mediator/vgpu/abi"
)

// untrue are the device attributes that are 0 for a guest, whatever the GPU can do: what they
// describe needs the host's memory, its operating system or another GPU, or has no command. Only
// the guest knows where the function lies on its PCI bus.
var untrue = []gpu.Attribute{
	gpu.Integrated, gpu.ComputeMode, gpu.PCIBusID, gpu.PCIDeviceID, gpu.PCIDomainID, gpu.TCCDriver,
	gpu.GPUPCIDeviceID, gpu.GPUPCISubsystemID,
	gpu.ManagedMemory, gpu.PageableMemoryAccess, gpu.ConcurrentManagedAccess, gpu.PageableMemoryUsesHostPageTables,
	gpu.DirectManagedAccessFromHost, gpu.HostNativeAtomics, gpu.OnlyPartialHostNativeAtomics,
	gpu.HostPointerForRegisteredMemory, gpu.HostRegister, gpu.ReadOnlyHostRegister,
	gpu.MultiGPUBoard, gpu.MultiGPUBoardGroupID, gpu.CooperativeMultiDeviceLaunch, gpu.Multicast, gpu.MPSEnabled,
	gpu.StreamMemOpsV1, gpu.StreamMemOps64V1, gpu.StreamWaitValueNORV1, gpu.StreamMemOps64, gpu.StreamWaitValueNOR,
	gpu.CanFlushRemoteWrites, gpu.GPUDirectRDMA, gpu.GPUDirectRDMAWithVMM, gpu.GPUDirectRDMAFlushWritesOptions,
	gpu.GPUDirectRDMAWritesOrdering, gpu.DMABuf, gpu.HostAllocDMABuf, gpu.TimelineSemaphoreInterop,
	gpu.HandleTypePosixFD, gpu.HandleTypeWin32, gpu.HandleTypeWin32KMT, gpu.HandleTypeFabric,
	gpu.MemoryPoolHandleTypes, gpu.IPCEvents,
	gpu.GenericCompression, gpu.MaxPersistingL2CacheSize, gpu.MaxAccessPolicyWindowSize, gpu.SparseArrays,
	gpu.DeferredMappingArrays, gpu.ClusterLaunch, gpu.TensorMapAccess, gpu.UnifiedFunctionPointers,
	gpu.D3D12CIG, gpu.VulkanCIG, gpu.MemDecompressAlgorithms, gpu.MemDecompressMaxLength, gpu.NUMAConfig,
	gpu.HostNUMAVirtualMemoryManagement, gpu.HostNUMAMemoryPools, gpu.HostNUMAMultinodeIPC,
	gpu.HostMemoryPools, gpu.HostVirtualMemoryManagement,
}

// The table's length is the same on both sides.
var _ = [1]struct{}{}[abi.DeviceAttributes-gpu.AttributeCount]

// attributes returns the device attributes that the guest is told.
func (x *Executor) attributes() (*[gpu.AttributeCount]int32, error) {
	if x.told != nil {
		return x.told, nil
	}
	var all [gpu.AttributeCount]int32
	if d, ok := x.o.Device.(gpu.Attributed); ok {
		var err error
		if all, err = d.Attributes(); err != nil {
			return nil, err
		}
	}
	p := &x.props
	for a, v := range map[gpu.Attribute]uint64{
		gpu.MaxThreadsPerBlock: uint64(p.ThreadsPerBlock), gpu.MaxSharedPerBlock: p.SharedPerBlock,
		gpu.MaxBlockDimX: uint64(p.MaxBlockDim.X), gpu.MaxBlockDimY: uint64(p.MaxBlockDim.Y), gpu.MaxBlockDimZ: uint64(p.MaxBlockDim.Z),
		gpu.MaxGridDimX: uint64(p.MaxGrid.X), gpu.MaxGridDimY: uint64(p.MaxGrid.Y), gpu.MaxGridDimZ: uint64(p.MaxGrid.Z),
		gpu.WarpSize: 32, gpu.MaxRegistersPerBlock: uint64(p.RegistersPerSM), gpu.ClockRate: p.ClockHz / 1000,
		gpu.MultiprocessorCount: uint64(p.SMs), gpu.MaxThreadsPerMultiprocessor: uint64(p.ThreadsPerSM),
		gpu.ComputeCapabilityMajor: uint64(p.Major), gpu.ComputeCapabilityMinor: uint64(p.Minor), gpu.MemSyncDomainCount: 1,
	} {
		all[a] = int32(v)
	}
	for _, a := range untrue {
		all[a] = 0
	}
	all[gpu.HostNUMAID], all[gpu.NUMAID] = -1, -1
	for a, on := range map[gpu.Attribute]bool{
		gpu.CanMapHostMemory:        Features&abi.FeatureWindowAddresses != 0,
		gpu.UnifiedAddressing:       Features&abi.FeatureChosenAddresses != 0,
		gpu.VirtualMemoryManagement: Features&abi.FeatureChosenAddresses != 0,
		gpu.KernelExecTimeout:       x.kernelTimeLimit() > 0,
	} {
		if all[a] = 0; on {
			all[a] = 1
		}
	}
	x.told = &all
	return x.told, nil
}

func deviceAttribute(c *command, p *pending) error {
	q, err := c.query()
	if err != nil {
		return err
	}
	switch {
	case q.Key == abi.DeviceMemoryBytes:
		p.com.Value[0] = c.ch.x.props.MemoryBytes
		return nil
	case q.Key >= abi.DeviceAddressBase && q.Key <= abi.DeviceAddressGrain:
		placer, ok := c.ch.x.o.Context.(gpu.Placer)
		if !ok {
			return nil // zero
		}
		base, bytes, grain, err := placer.Places()
		if c.ch.x.places.movable != nil {
			bytes = c.ch.x.places.guest
		}
		p.com.Value[0] = [...]uint64{uint64(base), bytes, grain}[q.Key-abi.DeviceAddressBase]
		return err
	case q.Key == 0 || q.Key >= gpu.AttributeCount:
		return fmt.Errorf("device attribute %d: %w", q.Key, abi.StatusNotSupported)
	}
	all, err := c.ch.x.attributes()
	if err != nil {
		return err
	}
	p.com.Value[0] = uint64(int64(all[q.Key]))
	return nil
}

// deviceAttributes writes all attributes that CUDA numbers to a window.
func deviceAttributes(c *command, p *pending) error {
	all, err := c.ch.x.attributes()
	if err != nil {
		return err
	}
	b := make([]byte, 0, 4*len(all))
	for _, v := range all {
		b = binary.LittleEndian.AppendUint32(b, uint32(v))
	}
	return c.answer(p, b)
}

// limits returns the context's limits, and which is asked for.
func (c *command) limits() (gpu.Limited, abi.Query, error) {
	q, err := c.query()
	if err != nil {
		return nil, q, err
	}
	l, ok := c.ch.x.o.Context.(gpu.Limited)
	if !ok {
		return nil, q, abi.StatusNotSupported
	}
	return l, q, nil
}

func limit(c *command, p *pending) error {
	l, q, err := c.limits()
	if err == nil {
		p.com.Value[0], err = l.Limit(gpu.Limit(q.Key))
	}
	return err
}

func setLimit(c *command, _ *pending) error {
	l, q, err := c.limits()
	if err == nil {
		err = l.SetLimit(gpu.Limit(q.Key), q.Value)
	}
	if err == nil {
		c.ch.x.limitsSet[q.Key] = q.Value
	}
	return err
}

// stackLimit returns the limit of the stack of modules that are loaded now, or 0 if it is not known.
func (x *Executor) stackLimit() uint64 {
	if l, ok := x.o.Context.(gpu.Limited); ok {
		if v, err := l.Limit(gpu.LimitStack); err == nil {
			return v
		}
	}
	return 0
}
