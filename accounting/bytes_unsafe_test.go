package accounting_test

import "unsafe"

// bytesOf is the memory of a slice of registers, which is aligned as they are.
func bytesOf(words []uint32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), 4*len(words))
}
