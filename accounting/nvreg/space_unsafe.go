package nvreg

import (
	"fmt"
	"sync/atomic"
	"unsafe"
)

// Size is how much of BAR0 has to be mapped to reach every register of this package: 16 MiB, the
// BAR's size. As a file in memory it is sparse: the soft GPU's has a few pages.
const Size = 16 << 20

// AllOnes is the result of a read that nothing answers: from a device that fell off the bus, or at
// an offset beyond the mapping.
const AllOnes = 0xffffffff

// Space is a register space mapped for reading. All loads are single 32-bit ones, as PCIe requires,
// and as readers of a page need that another process writes. The zero value answers AllOnes.
//
// The memory must stay mapped while a Space of it is used.
type Space struct {
	base *uint32
	n    uint32 // registers mapped
}

// NewSpace returns a Space of a mapping that starts at register 0.
func NewSpace(mem []byte) (Space, error) {
	if len(mem) < 4 || len(mem) > Size {
		return Space{}, fmt.Errorf("register space of %d bytes: want 4 to %d", len(mem), Size)
	}
	base := unsafe.Pointer(unsafe.SliceData(mem))
	if uintptr(base)%4 != 0 {
		return Space{}, fmt.Errorf("register space at %p: want 4-byte alignment", base)
	}
	return Space{base: (*uint32)(base), n: uint32(len(mem) / 4)}, nil
}

// Load reads the register at off, a multiple of 4.
func (s Space) Load(off uint32) uint32 {
	if off/4 >= s.n {
		return AllOnes
	}
	return atomic.LoadUint32((*uint32)(unsafe.Add(unsafe.Pointer(s.base), off&^3)))
}

// File is a register space that the caller writes: the soft GPU's. The memory must be mapped for
// writing.
type File struct{ Space }

// NewFile returns a File of a mapping that starts at register 0.
func NewFile(mem []byte) (File, error) {
	s, err := NewSpace(mem)
	return File{s}, err
}

// Store writes the register at off, a multiple of 4. Readers see registers change in the order of
// the stores. An offset beyond the mapping is ignored, as on the bus.
func (f File) Store(off, value uint32) {
	if off/4 >= f.n {
		return
	}
	atomic.StoreUint32((*uint32)(unsafe.Add(unsafe.Pointer(f.base), off&^3)), value)
}
