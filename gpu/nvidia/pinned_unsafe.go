package nvidia

import (
	"sync/atomic"
	"unsafe"

	"vgpud/gpu/nvidia/cuda"
)

// word is the 64-bit word at an offset, a multiple of 8, of page-locked memory:
// the GPU writes it.
func word(mem []byte, offset int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&mem[offset : offset+8][0]))
}

// within is whether inner lies in outer.
func within(inner, outer []byte) bool {
	i, o := uintptr(unsafe.Pointer(unsafe.SliceData(inner))), uintptr(unsafe.Pointer(unsafe.SliceData(outer)))
	return len(outer) > 0 && i >= o && len(inner) <= len(outer) && i-o <= uintptr(len(outer)-len(inner))
}

// address is where page-locked memory lies.
func address(mem []byte) cuda.DevicePtr { return cuda.Address(mem) }
