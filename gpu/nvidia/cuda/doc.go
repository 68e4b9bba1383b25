// Package cuda binds those functions of the CUDA driver API that gpu/nvidia
// uses. The library, libcuda.so.1 of the host's NVIDIA driver, is opened when the
// program runs, so that one binary serves hosts with and without a GPU, and no C
// compiler is needed.
//
// Names, argument order and meaning are the driver's: its reference is the
// documentation of each method here that has none. Handles are values and are not
// checked; who uses one after its end has what C would have. A result other than
// CUDA_SUCCESS is an [Error].
//
// The driver keeps a current context for each thread of the operating system,
// and a goroutine may change threads between any two calls: see
// [Library.CtxSetCurrent].
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
