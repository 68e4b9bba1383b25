package accounting_test

import "unsafe"

// bytesOf returns the memory of a slice of registers, aligned as they are.
func bytesOf(words []uint32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), 4*len(words))
}
