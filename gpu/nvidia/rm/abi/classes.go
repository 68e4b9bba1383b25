package abi

// Class is the kind of an object.
type Class uint32

// Classes, with the header of each.
const (
	NV01_ROOT_CLIENT       Class = 0x41   // cl0041.h
	NV01_DEVICE_0          Class = 0x80   // cl0080.h
	NV20_SUBDEVICE_0       Class = 0x2080 // cl2080.h
	KEPLER_CHANNEL_GROUP_A Class = 0xa06c // cla06c.h: a TSG
	NV01_MEMORY_DEVICELESS Class = 0x90ce // cl90ce.h
	NV01_MEMORY_LOCAL_USER Class = 0x40   // cl0040.h: memory on the GPU
	NV_EVENT_BUFFER        Class = 0x90cd // cl90cd.h

	// The classes of an H100. Those of other generations have other high bytes; see [Class.Channel]
	// and [Class.Compute].
	HOPPER_CHANNEL_GPFIFO_A Class = 0xc86f // clc86f.h
	HOPPER_COMPUTE_A        Class = 0xcbc0 // clcbc0.h
	HOPPER_DMA_COPY_A       Class = 0xc8b5 // clc8b5.h
)

// Channel reports whether c is a channel of Volta or later, which the headers number 0xc36f, 0xc46f
// and so on.
func (c Class) Channel() bool { return c&0xff == 0x6f && c >= 0xc36f && c <= 0xcfff }

// Compute reports whether c is the compute object of Volta or later, which a channel that runs
// kernels has: 0xc3c0, 0xc5c0 and so on.
func (c Class) Compute() bool { return c&0xff == 0xc0 && c >= 0xc3c0 && c <= 0xcfff }

// NV0080_ALLOC_PARAMETERS (cl0080.h) creates a device.
type NV0080_ALLOC_PARAMETERS struct {
	// Device is the GPU's number; see [NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS].
	Device                              uint32
	ClientShare, TargetClient           Handle
	TargetDevice                        Handle
	Flags                               uint32
	_                                   [4]byte
	AddressSpaceSize, AddressSpaceStart uint64
	AddressSpaceLimit                   uint64
	AddressSpaceMode                    uint32
	_                                   [4]byte
}

// NV2080_ALLOC_PARAMETERS (cl2080.h) creates a subdevice.
type NV2080_ALLOC_PARAMETERS struct{ Subdevice uint32 }

// NV_MEMORY_ALLOCATION_PARAMS (nvos.h) allocates memory. NumaNode exists since 550.
type NV_MEMORY_ALLOCATION_PARAMS struct {
	Owner, Type, Flags                      uint32
	Width, Height                           uint32
	Pitch                                   int32
	Attr, Attr2                             uint32
	Format, ComprCovg, ZcullCovg            uint32
	_                                       [4]byte
	RangeLow, RangeHigh                     uint64
	Size, Alignment, Offset, Limit, Address uint64
	CtagOffset                              uint32
	AddressSpace                            Handle
	InternalFlags, Tag                      uint32
	NumaNode                                int32
	_                                       [4]byte
}

// Attributes of memory, nvos.h.
const (
	NVOS32_ATTR_COHERENCY_CACHED           = 1 << 29
	NVOS32_ATTR2_PROTECTION_USER_READ_ONLY = 1 << 22
)

// NV_EVENT_BUFFER_ALLOC_PARAMETERS (cl90cd.h) creates an event buffer.
type NV_EVENT_BUFFER_ALLOC_PARAMETERS struct {
	HeaderAddress, RecordAddress        uint64
	RecordSize, RecordCount             uint32
	VardataAddress                      uint64
	VardataSize                         uint32
	RecordsFreeThreshold                uint32
	Notification                        uint64 // a descriptor that the OS event call made an event
	VardataFreeThreshold                uint32
	Subdevice                           Handle
	Flags                               uint32
	HeaderMemory, RecordMemory, Vardata Handle
}
