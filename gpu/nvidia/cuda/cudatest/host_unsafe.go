package cudatest

import (
	"sync/atomic"
	"unsafe"

	"vgpud/gpu/nvidia/cuda"
)

// Store stores a word as the GPU does: at once.
func (g *GPU) Store(at cuda.DevicePtr, value uint64) error {
	b, err := g.Bytes(at, 8)
	if err != nil {
		return err
	}
	(*atomic.Uint64)(unsafe.Pointer(&b[0])).Store(value)
	return nil
}

// row returns n bytes of one side of a box.
func (g *GPU) row(kind uint32, host uintptr, device cuda.DevicePtr, offset, n uintptr) ([]byte, error) {
	if kind == cuda.MemoryHost {
		p := *(*unsafe.Pointer)(unsafe.Pointer(&host))
		return unsafe.Slice((*byte)(unsafe.Add(p, offset)), n), nil
	}
	return g.Bytes(device+cuda.DevicePtr(offset), uint64(n))
}
