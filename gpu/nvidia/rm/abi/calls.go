package abi

// Numbers of ioctls (nv_escape.h; NV_ESC_REGISTER_FD from nv-ioctl-numbers.h).
const (
	NV_ESC_RM_FREE         = 0x29
	NV_ESC_RM_CONTROL      = 0x2a
	NV_ESC_RM_ALLOC        = 0x2b
	NV_ESC_RM_MAP_MEMORY   = 0x4e
	NV_ESC_RM_UNMAP_MEMORY = 0x4f
	NV_ESC_REGISTER_FD     = 201
)

// Request returns the ioctl request for a call of size bytes: _IOWR('F', nr, size), with
// NV_IOCTL_MAGIC of nv-ioctl-numbers.h.
func Request(nr uint8, size int) uint32 {
	const readWrite = 3
	return readWrite<<30 | uint32(size)<<16 | 'F'<<8 | uint32(nr)
}

// PointerOffset is the offset of the parameters' address in [NVOS64_PARAMETERS] and
// [NVOS54_PARAMETERS].
const PointerOffset = 16

// Handle names an object within its client, or a client (NvHandle). Zero is none.
type Handle uint32

// The driver numbers user clients upwards from RS_CLIENT_HANDLE_BASE, and wraps after ClientSpan
// (RS_CLIENT_HANDLE_BASE and RS_CLIENT_HANDLE_MAX, resserv.h).
const (
	RS_CLIENT_HANDLE_BASE Handle = 0xc1d00000
	ClientSpan            Handle = 0x100000
)

// NVOS64_PARAMETERS (nvos.h) creates an object.
type NVOS64_PARAMETERS struct {
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

// NVOS54_PARAMETERS (nvos.h) sends a command to an object.
type NVOS54_PARAMETERS struct {
	Client, Object Handle
	Command        Command
	Flags          uint32
	Params         uint64
	ParamsSize     uint32
	Status         Status
}

// NVOS00_PARAMETERS (nvos.h) frees an object and all objects beneath it.
type NVOS00_PARAMETERS struct {
	Client, Parent, Object Handle
	Status                 Status
}

// Nv_ioctl_nvos33_parameters_with_fd is nv_ioctl_nvos33_parameters_with_fd
// (nv-unix-nvos-params-wrappers.h). It prepares FD for mmap: a fresh descriptor of the control
// node, or of the GPU's node for memory on the GPU.
type Nv_ioctl_nvos33_parameters_with_fd struct {
	Client, Device, Memory Handle
	_                      [4]byte
	Offset, Length         uint64
	Address                uint64
	Status                 Status
	Flags                  uint32
	FD                     int32
	_                      [4]byte
}

// NVOS33_FLAGS_ACCESS_READ_ONLY asks for a mapping that can only be read (nvos.h).
const NVOS33_FLAGS_ACCESS_READ_ONLY = 1

// NVOS34_PARAMETERS (nvos.h) ends a mapping, which Address names as
// [Nv_ioctl_nvos33_parameters_with_fd] returned it.
type NVOS34_PARAMETERS struct {
	Client, Device, Memory Handle
	_                      [4]byte
	Address                uint64
	Status                 Status
	Flags                  uint32
}

// Nv_ioctl_register_fd_t is nv_ioctl_register_fd_t (nv-ioctl.h). It ties the GPU node on which it
// is called to a control node.
type Nv_ioctl_register_fd_t struct{ FD int32 }
