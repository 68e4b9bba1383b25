// Package cuda binds those functions of the CUDA driver API that gpu/nvidia uses. The library,
// libcuda.so.1 of the host's NVIDIA driver, is opened at run time, so that one binary serves hosts
// with and without a GPU, and no C compiler is needed.
//
// Names, argument order and meaning are the driver's: its reference documents each method here that
// has no documentation of its own. Handles are values and are not checked; a use after free has the
// same effect as in C. A result other than CUDA_SUCCESS is an [Error].
//
// The driver keeps a current context for each operating system thread, and a goroutine may change
// threads between any two calls: see [Library.CtxSetCurrent].
package cuda

// Handles of the driver's objects.
type (
	Device   int32
	Context  uintptr
	Module   uintptr
	Function uintptr
	Stream   uintptr
	Event    uintptr
	// DevicePtr is CUdeviceptr: an address in a context's GPU address space.
	DevicePtr uint64
)
