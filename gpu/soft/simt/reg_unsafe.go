package simt

import "unsafe"

// value is what a lane of a register can hold.
type value interface {
	uint32 | int32 | float32 | uint64 | int64 | float64
}

// vec returns register i of the bank that holds values of T's size, seen as
// lanes of type T.
func vec[T value](w *warp, i uint32) *[lanes]T {
	var zero T
	if unsafe.Sizeof(zero) == 4 {
		return (*[lanes]T)(unsafe.Pointer(&w.r32[i]))
	}
	return (*[lanes]T)(unsafe.Pointer(&w.r64[i]))
}
