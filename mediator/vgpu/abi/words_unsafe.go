package abi

import (
	"sync/atomic"
	"unsafe"
)

// word returns the 32-bit word at offset off of shared memory for atomic use.
// Both sides of the ring use it, so both get the ordering of Go's atomics:
// sequentially consistent, which is what the suppression protocol needs (a store
// of ours is seen before a load of ours that follows it). The slice must be
// aligned by 4, which every mapping is; it panics when the word is outside.
func word(b []byte, off int) *atomic.Uint32 {
	w := b[off : off+4 : off+4]
	p := unsafe.Pointer(unsafe.SliceData(w))
	if uintptr(p)&3 != 0 {
		panic("abi: shared memory is not aligned")
	}
	return (*atomic.Uint32)(p)
}
