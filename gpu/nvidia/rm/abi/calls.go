package abi

// Numbers of ioctls.
const (
	EscFree        = 0x29 // NV_ESC_RM_FREE, nv_escape.h
	EscControl     = 0x2a // NV_ESC_RM_CONTROL
	EscAlloc       = 0x2b // NV_ESC_RM_ALLOC
	EscMapMemory   = 0x4e // NV_ESC_RM_MAP_MEMORY
	EscUnmapMemory = 0x4f // NV_ESC_RM_UNMAP_MEMORY
	EscRegisterFD  = 201  // NV_ESC_REGISTER_FD, nv-ioctl-numbers.h
)

// Request is the number of the ioctl for a call of so many bytes: _IOWR('F', nr, size),
// with NV_IOCTL_MAGIC of nv-ioctl-numbers.h.
func Request(nr uint8, size int) uint32 {
	const readWrite = 3
	return readWrite<<30 | uint32(size)<<16 | 'F'<<8 | uint32(nr)
}

// PointerOffset is where [Alloc] and [Control] have the address of their parameters.
const PointerOffset = 16

// Handle names an object within its client, or a client (NvHandle). Zero is none.
type Handle uint32

// ClientBase is where the driver's numbering of user clients starts: it counts up by
// one a client, and wraps after [ClientSpan] (RS_CLIENT_HANDLE_BASE and _MAX,
// resserv.h).
const (
	ClientBase Handle = 0xc1d00000
	ClientSpan Handle = 0x100000
)

// Alloc is NVOS64_PARAMETERS (nvos.h): makes an object.
type Alloc struct {
	Client, Parent Handle
	// Object is the new object's handle; 0 asks for one.
	Object     Handle
	Class      Class
	Params     uint64
	Rights     uint64
	ParamsSize uint32
	Flags      uint32
	Status     Status
	_          [4]byte
}

// Control is NVOS54_PARAMETERS (nvos.h): tells an object something.
type Control struct {
	Client, Object Handle
	Command        Command
	Flags          uint32
	Params         uint64
	ParamsSize     uint32
	Status         Status
}

// Free is NVOS00_PARAMETERS (nvos.h): ends an object and all beneath it.
type Free struct {
	Client, Parent, Object Handle
	Status                 Status
}

// MapMemory is nv_ioctl_nvos33_parameters_with_fd (nv-unix-nvos-params-wrappers.h):
// makes FD, what mmap then maps: a fresh descriptor of the control node, or of the
// GPU's for memory on the GPU.
type MapMemory struct {
	Client, Device, Memory Handle
	_                      [4]byte
	Offset, Length         uint64
	Address                uint64
	Status                 Status
	Flags                  uint32
	FD                     int32
	_                      [4]byte
}

// MapReadOnly is NVOS33_FLAGS_ACCESS_READ_ONLY.
const MapReadOnly = 1

// UnmapMemory is NVOS34_PARAMETERS (nvos.h): ends what a [MapMemory] began, that
// answered the address.
type UnmapMemory struct {
	Client, Device, Memory Handle
	_                      [4]byte
	Address                uint64
	Status                 Status
	Flags                  uint32
}

// RegisterFD is nv_ioctl_register_fd_t (nv-ioctl.h): ties the GPU node on which it is
// called to a control node.
type RegisterFD struct{ FD int32 }
