package abi

import (
	"sync/atomic"
	"unsafe"
)

// word returns the 32-bit word at offset off of shared memory for atomic use. The slice must be
// aligned by 4, as every mapping is. It panics when the word is outside.
//
// Go's atomics are sequentially consistent, so the other side sees a store before a later load of
// the storing side, which the suppression protocol needs. There is one exception: with the race
// detector, outside Go's own memory, Store is a plain store, which a later load can overtake. Swap
// is none, and on amd64 the same instruction as Store without the race detector. So a host that
// stores a word and then looks at one of the guest's stores it by Swap, and a guest by [Show] or
// [Show64].
func word(b []byte, off int) *atomic.Uint32 {
	w := b[off : off+4 : off+4]
	p := unsafe.Pointer(unsafe.SliceData(w))
	if uintptr(p)&3 != 0 {
		panic("abi: shared memory is not aligned")
	}
	return (*atomic.Uint32)(p)
}

// AtomicWord64 is [AtomicWord] for 64 bits. It panics unless off is a multiple of 8 within the memory.
func AtomicWord64(b []byte, off int) *atomic.Uint64 {
	w := b[off : off+8 : off+8]
	p := unsafe.Pointer(unsafe.SliceData(w))
	if uintptr(p)&7 != 0 {
		panic("abi: shared memory is not aligned")
	}
	return (*atomic.Uint64)(p)
}

// Show stores a word for the host before the guest looks at any of the host's.
func Show(w *atomic.Uint32, v uint32) {
	w.Swap(v)
	barrier()
}

// Show64 is [Show] for 64 bits.
func Show64(w *atomic.Uint64, v uint64) {
	w.Swap(v)
	barrier()
}
