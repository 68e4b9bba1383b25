package tenant

import "unsafe"

// places returns the mapped page as gates. The mapping is page-aligned, and every bit pattern is a
// valid Gate.
func places(m []byte) []Gate {
	return unsafe.Slice((*Gate)(unsafe.Pointer(unsafe.SliceData(m))), len(m)/gateBytes)
}
