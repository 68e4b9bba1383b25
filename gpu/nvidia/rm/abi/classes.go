package abi

// Class is the kind of an object.
type Class uint32

// Classes, with the header of each.
const (
	ClassClient      Class = 0x41   // NV01_ROOT_CLIENT, cl0041.h
	ClassDevice      Class = 0x80   // NV01_DEVICE_0, cl0080.h
	ClassSubdevice   Class = 0x2080 // NV20_SUBDEVICE_0, cl2080.h
	ClassGroup       Class = 0xa06c // KEPLER_CHANNEL_GROUP_A, cla06c.h: a TSG
	ClassMemory      Class = 0x90ce // NV01_MEMORY_DEVICELESS, cl90ce.h
	ClassGPUMemory   Class = 0x40   // NV01_MEMORY_LOCAL_USER, cl0040.h: memory on the GPU
	ClassEventBuffer Class = 0x90cd // NV_EVENT_BUFFER, cl90cd.h

	// Of an H100. Other generations' have other high bytes; see [Class.Channel] and
	// [Class.Compute].
	ClassHopperChannel Class = 0xc86f // HOPPER_CHANNEL_GPFIFO_A, clc86f.h
	ClassHopperCompute Class = 0xcbc0 // HOPPER_COMPUTE_A, clcbc0.h
	ClassHopperCopy    Class = 0xc8b5 // HOPPER_DMA_COPY_A, clc8b5.h
)

// Channel says whether c is a channel of Volta or later: the headers number all of
// these 0xc36f, 0xc46f and so on.
func (c Class) Channel() bool { return c&0xff == 0x6f && c >= 0xc36f && c <= 0xcfff }

// Compute says whether c is the compute engine's object of Volta or later, which a
// channel has that runs kernels: 0xc3c0, 0xc5c0 and so on.
func (c Class) Compute() bool { return c&0xff == 0xc0 && c >= 0xc3c0 && c <= 0xcfff }

// DeviceAlloc is NV0080_ALLOC_PARAMETERS (cl0080.h).
type DeviceAlloc struct {
	// Device is the GPU's number; see [IDInfo].
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

// SubdeviceAlloc is NV2080_ALLOC_PARAMETERS (cl2080.h).
type SubdeviceAlloc struct{ Subdevice uint32 }

// MemoryAlloc is NV_MEMORY_ALLOCATION_PARAMS (nvos.h; NumaNode since 550).
type MemoryAlloc struct {
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
	AttrCached        = 1 << 29 // NVOS32_ATTR_COHERENCY_CACHED
	Attr2UserReadOnly = 1 << 22 // NVOS32_ATTR2_PROTECTION_USER_READ_ONLY
)

// EventBufferAlloc is NV_EVENT_BUFFER_ALLOC_PARAMETERS (cl90cd.h).
type EventBufferAlloc struct {
	HeaderAddress, RecordAddress        uint64
	RecordSize, RecordCount             uint32
	VardataAddress                      uint64
	VardataSize                         uint32
	RecordsFreeThreshold                uint32
	Notification                        uint64 // a descriptor made one by OSEvent
	VardataFreeThreshold                uint32
	Subdevice                           Handle
	Flags                               uint32
	HeaderMemory, RecordMemory, Vardata Handle
}
