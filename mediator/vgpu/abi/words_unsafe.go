package abi

import (
	"sync/atomic"
	"unsafe"
)

// word returns the 32-bit word at offset off of shared memory for atomic use. Both sides of a ring
// use it, so both get the ordering of Go's atomics, sequential consistency, which the suppression
// protocol needs (the other side sees a store before a later load of the storing side). The slice
// must be aligned by 4, as every mapping is. It panics when the word is outside.
func word(b []byte, off int) *atomic.Uint32 {
	w := b[off : off+4 : off+4]
	p := unsafe.Pointer(unsafe.SliceData(w))
	if uintptr(p)&3 != 0 {
		panic("abi: shared memory is not aligned")
	}
	return (*atomic.Uint32)(p)
}
