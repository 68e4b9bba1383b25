package tenant

import "unsafe"

// places is the mapped page as gates. The mapping is aligned to a page, and every
// pattern of bits is a Gate.
func places(m []byte) []Gate {
	return unsafe.Slice((*Gate)(unsafe.Pointer(unsafe.SliceData(m))), len(m)/gateBytes)
}
