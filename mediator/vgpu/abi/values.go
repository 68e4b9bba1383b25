package abi

// Place says in which memory an address of a [Copy3D] lies.
type Place uint16

// The places.
const (
	PlaceMemory Place = 0 // GPU memory
	PlaceWindow Place = 1 // BAR2
)

// Format is the kind of a module's image.
type Format uint32

// The formats.
const (
	FormatAuto  Format = 0 // detected by its first bytes
	FormatPTX   Format = 1
	FormatCubin Format = 2 // ELF of one architecture; FeatureCubin
	FormatFat   Format = 3 // NVIDIA's fat binary; FeatureCubin
)

// FunctionAttribute numbers of [OpFunctionAttribute]. Those below 0x1000 are CUDA's own
// CUfunction_attribute.
const (
	FunctionMaxThreads       = 0
	FunctionSharedBytes      = 1
	FunctionConstBytes       = 2
	FunctionLocalBytes       = 3
	FunctionRegisters        = 4
	FunctionPTXVersion       = 5
	FunctionBinaryVersion    = 6
	FunctionCacheModeCA      = 7
	FunctionMaxDynamicShared = 8
	FunctionCarveout         = 9
	FunctionParams           = 0x1000 // number of parameters
	FunctionParamBytes       = 0x1001 // size of the parameter space
)

// Limit numbers of [OpLimit] and [OpSetLimit]: CUDA's own CUlimit.
const (
	LimitStackBytes   = 0 // local memory of a thread for calls whose depth is not known
	LimitPrintfBytes  = 1
	LimitHeapBytes    = 2 // of malloc in kernels
	LimitSyncDepth    = 3 // of kernels that launch kernels
	LimitPending      = 4 // launches by kernels
	LimitL2FetchBytes = 5 // a hint
	LimitPersistingL2 = 6 // a hint
)

// DeviceAttribute numbers of [OpDeviceAttribute]. Those below 0x1000 are CUDA's own
// CUdevice_attribute; these are the ones every device answers.
const (
	DeviceMaxThreadsPerBlock = 1
	DeviceMaxBlockX          = 2
	DeviceMaxBlockY          = 3
	DeviceMaxBlockZ          = 4
	DeviceMaxGridX           = 5
	DeviceMaxGridY           = 6
	DeviceMaxGridZ           = 7
	DeviceMaxSharedPerBlock  = 8
	DeviceWarpSize           = 10
	DeviceMaxRegisters       = 12
	DeviceClockKHz           = 13
	DeviceSMs                = 16
	DeviceMaxThreadsPerSM    = 39
	DeviceComputeMajor       = 75
	DeviceComputeMinor       = 76
	DeviceMemoryBytes        = 0x1000 // of the physical GPU
	DeviceAddressBase        = 0x1001 // first address that MEM_ALLOC takes; 0: it takes none
	DeviceAddressBytes       = 0x1002 // bytes from there on
	DeviceAddressGrain       = 0x1003 // chosen addresses are multiples of this, and memory is taken in such pieces
)

// DeviceAttributes1_1 are those of CUDA's attributes that [OpDeviceAttribute] answered before
// [FeatureIdentity].
var DeviceAttributes1_1 = []uint32{
	DeviceMaxThreadsPerBlock, DeviceMaxBlockX, DeviceMaxBlockY, DeviceMaxBlockZ, DeviceMaxGridX, DeviceMaxGridY, DeviceMaxGridZ,
	DeviceMaxSharedPerBlock, DeviceWarpSize, DeviceMaxRegisters, DeviceClockKHz, DeviceSMs, DeviceMaxThreadsPerSM,
	DeviceComputeMajor, DeviceComputeMinor,
}

// DeviceAttributes is how many of CUDA's attributes [OpDeviceAttributes] answers: a signed 32-bit
// number for each CUdevice_attribute below it. Those that CUDA does not define are 0.
const DeviceAttributes = 160

// EventQuery states, value 0 of [OpEventQuery].
const (
	EventUnrecorded = 0
	EventPending    = 1
	EventReached    = 2 // value 1 is its time
)

// Aux bits of [OpEventCreate].
const (
	EventNoTiming  = 1
	EventTriggered = 2 // with FeatureTriggeredEvents
)
