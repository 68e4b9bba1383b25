package gpu

// Attribute is a number of a device attribute, CUDA's CUdevice_attribute.
type Attribute int

// AttributeCount is one more than the highest attribute that devices are asked for.
const AttributeCount = 160

// The device attributes of CUDA 13.
const (
	MaxThreadsPerBlock               Attribute = 1
	MaxBlockDimX                     Attribute = 2
	MaxBlockDimY                     Attribute = 3
	MaxBlockDimZ                     Attribute = 4
	MaxGridDimX                      Attribute = 5
	MaxGridDimY                      Attribute = 6
	MaxGridDimZ                      Attribute = 7
	MaxSharedPerBlock                Attribute = 8
	TotalConstantMemory              Attribute = 9
	WarpSize                         Attribute = 10
	MaxPitch                         Attribute = 11
	MaxRegistersPerBlock             Attribute = 12
	ClockRate                        Attribute = 13 // kHz
	TextureAlignment                 Attribute = 14
	GPUOverlap                       Attribute = 15
	MultiprocessorCount              Attribute = 16
	KernelExecTimeout                Attribute = 17
	Integrated                       Attribute = 18
	CanMapHostMemory                 Attribute = 19
	ComputeMode                      Attribute = 20
	MaxTexture1DWidth                Attribute = 21
	MaxTexture2DWidth                Attribute = 22
	MaxTexture2DHeight               Attribute = 23
	MaxTexture3DWidth                Attribute = 24
	MaxTexture3DHeight               Attribute = 25
	MaxTexture3DDepth                Attribute = 26
	MaxTexture2DLayeredWidth         Attribute = 27
	MaxTexture2DLayeredHeight        Attribute = 28
	MaxTexture2DLayeredLayers        Attribute = 29
	SurfaceAlignment                 Attribute = 30
	ConcurrentKernels                Attribute = 31
	ECCEnabled                       Attribute = 32
	PCIBusID                         Attribute = 33
	PCIDeviceID                      Attribute = 34
	TCCDriver                        Attribute = 35
	MemoryClockRate                  Attribute = 36 // kHz
	MemoryBusWidth                   Attribute = 37 // bits
	L2CacheSize                      Attribute = 38
	MaxThreadsPerMultiprocessor      Attribute = 39
	AsyncEngineCount                 Attribute = 40
	UnifiedAddressing                Attribute = 41
	MaxTexture1DLayeredWidth         Attribute = 42
	MaxTexture1DLayeredLayers        Attribute = 43
	CanTexture2DGather               Attribute = 44
	MaxTexture2DGatherWidth          Attribute = 45
	MaxTexture2DGatherHeight         Attribute = 46
	MaxTexture3DWidthAlternate       Attribute = 47
	MaxTexture3DHeightAlternate      Attribute = 48
	MaxTexture3DDepthAlternate       Attribute = 49
	PCIDomainID                      Attribute = 50
	TexturePitchAlignment            Attribute = 51
	MaxTextureCubemapWidth           Attribute = 52
	MaxTextureCubemapLayeredWidth    Attribute = 53
	MaxTextureCubemapLayeredLayers   Attribute = 54
	MaxSurface1DWidth                Attribute = 55
	MaxSurface2DWidth                Attribute = 56
	MaxSurface2DHeight               Attribute = 57
	MaxSurface3DWidth                Attribute = 58
	MaxSurface3DHeight               Attribute = 59
	MaxSurface3DDepth                Attribute = 60
	MaxSurface1DLayeredWidth         Attribute = 61
	MaxSurface1DLayeredLayers        Attribute = 62
	MaxSurface2DLayeredWidth         Attribute = 63
	MaxSurface2DLayeredHeight        Attribute = 64
	MaxSurface2DLayeredLayers        Attribute = 65
	MaxSurfaceCubemapWidth           Attribute = 66
	MaxSurfaceCubemapLayeredWidth    Attribute = 67
	MaxSurfaceCubemapLayeredLayers   Attribute = 68
	MaxTexture1DLinearWidth          Attribute = 69
	MaxTexture2DLinearWidth          Attribute = 70
	MaxTexture2DLinearHeight         Attribute = 71
	MaxTexture2DLinearPitch          Attribute = 72
	MaxTexture2DMipmappedWidth       Attribute = 73
	MaxTexture2DMipmappedHeight      Attribute = 74
	ComputeCapabilityMajor           Attribute = 75
	ComputeCapabilityMinor           Attribute = 76
	MaxTexture1DMipmappedWidth       Attribute = 77
	StreamPriorities                 Attribute = 78
	GlobalL1Cache                    Attribute = 79
	LocalL1Cache                     Attribute = 80
	MaxSharedPerMultiprocessor       Attribute = 81
	MaxRegistersPerMultiprocessor    Attribute = 82
	ManagedMemory                    Attribute = 83
	MultiGPUBoard                    Attribute = 84
	MultiGPUBoardGroupID             Attribute = 85
	HostNativeAtomics                Attribute = 86
	SingleToDoubleRatio              Attribute = 87
	PageableMemoryAccess             Attribute = 88
	ConcurrentManagedAccess          Attribute = 89
	ComputePreemption                Attribute = 90
	HostPointerForRegisteredMemory   Attribute = 91
	StreamMemOpsV1                   Attribute = 92
	StreamMemOps64V1                 Attribute = 93
	StreamWaitValueNORV1             Attribute = 94
	CooperativeLaunch                Attribute = 95
	CooperativeMultiDeviceLaunch     Attribute = 96
	MaxSharedPerBlockOptin           Attribute = 97
	CanFlushRemoteWrites             Attribute = 98
	HostRegister                     Attribute = 99
	PageableMemoryUsesHostPageTables Attribute = 100
	DirectManagedAccessFromHost      Attribute = 101
	VirtualMemoryManagement          Attribute = 102
	HandleTypePosixFD                Attribute = 103
	HandleTypeWin32                  Attribute = 104
	HandleTypeWin32KMT               Attribute = 105
	MaxBlocksPerMultiprocessor       Attribute = 106
	GenericCompression               Attribute = 107
	MaxPersistingL2CacheSize         Attribute = 108
	MaxAccessPolicyWindowSize        Attribute = 109
	GPUDirectRDMAWithVMM             Attribute = 110
	ReservedSharedPerBlock           Attribute = 111
	SparseArrays                     Attribute = 112
	ReadOnlyHostRegister             Attribute = 113
	TimelineSemaphoreInterop         Attribute = 114
	MemoryPools                      Attribute = 115
	GPUDirectRDMA                    Attribute = 116
	GPUDirectRDMAFlushWritesOptions  Attribute = 117
	GPUDirectRDMAWritesOrdering      Attribute = 118
	MemoryPoolHandleTypes            Attribute = 119
	ClusterLaunch                    Attribute = 120
	DeferredMappingArrays            Attribute = 121
	StreamMemOps64                   Attribute = 122
	StreamWaitValueNOR               Attribute = 123
	DMABuf                           Attribute = 124
	IPCEvents                        Attribute = 125
	MemSyncDomainCount               Attribute = 126
	TensorMapAccess                  Attribute = 127
	HandleTypeFabric                 Attribute = 128
	UnifiedFunctionPointers          Attribute = 129
	NUMAConfig                       Attribute = 130
	NUMAID                           Attribute = 131
	Multicast                        Attribute = 132
	MPSEnabled                       Attribute = 133
	HostNUMAID                       Attribute = 134
	D3D12CIG                         Attribute = 135
	MemDecompressAlgorithms          Attribute = 136
	MemDecompressMaxLength           Attribute = 137
	VulkanCIG                        Attribute = 138
	GPUPCIDeviceID                   Attribute = 139
	GPUPCISubsystemID                Attribute = 140
	HostNUMAVirtualMemoryManagement  Attribute = 141
	HostNUMAMemoryPools              Attribute = 142
	HostNUMAMultinodeIPC             Attribute = 143
	HostMemoryPools                  Attribute = 144
	HostVirtualMemoryManagement      Attribute = 145
	HostAllocDMABuf                  Attribute = 146
	OnlyPartialHostNativeAtomics     Attribute = 147
)

// Attributed is a device that reports all of CUDA's device attributes.
type Attributed interface {
	// Attributes returns the attributes as the host's own programs would be told them. Those that
	// the device does not know are 0.
	Attributes() ([AttributeCount]int32, error)
}

// A Limit is a number of a context's limit, CUDA's CUlimit.
type Limit uint32

// The limits.
const (
	LimitStack        Limit = 0 // bytes of local memory of a thread for calls of unknown depth
	LimitPrintf       Limit = 1 // bytes of the buffer for what kernels print
	LimitHeap         Limit = 2 // bytes for malloc in kernels
	LimitL2Fetch      Limit = 5 // bytes, a hint
	LimitPersistingL2 Limit = 6 // bytes, a hint
)

// Limited is a context whose limits can be read and set.
type Limited interface {
	// Limit returns a limit. The error is [ErrUnsupported] if there is no such limit.
	Limit(l Limit) (uint64, error)
	// SetLimit sets a limit, which may be rounded or, if it is a hint, reduced. Memory that it takes
	// counts as the context's. A change that is no longer possible, such as of the size of a heap
	// that kernels may use, is [ErrInvalidLimit].
	SetLimit(l Limit, value uint64) error
}
