package simt

import "unsafe"

// value is the type of a register's lanes.
type value interface {
	uint32 | int32 | float32 | uint64 | int64 | float64
}

// vec returns register i of the bank for values of T's size, as lanes of type T.
func vec[T value](w *warp, i uint32) *[lanes]T {
	var zero T
	if unsafe.Sizeof(zero) == 4 {
		return (*[lanes]T)(unsafe.Pointer(&w.r32[i]))
	}
	return (*[lanes]T)(unsafe.Pointer(&w.r64[i]))
}

// littleEndian reports whether this machine has the byte order of GPUs, so that registers can be
// copied to and from memory as bytes.
var littleEndian = func() bool {
	x := uint16(1)
	return *(*byte)(unsafe.Pointer(&x)) == 1
}()

// bytes32 returns a register's bytes in the machine's order.
func bytes32(r *[lanes]uint32) []byte { return (*[4 * lanes]byte)(unsafe.Pointer(r))[:] }

// bytes64 returns the bytes of a register of the 64-bit bank.
func bytes64(r *[lanes]uint64) []byte { return (*[8 * lanes]byte)(unsafe.Pointer(r))[:] }

// pairs returns a register as words of two lanes, for operations that treat all bits alike.
func pairs(r *[lanes]uint32) *[lanes / 2]uint64 { return (*[lanes / 2]uint64)(unsafe.Pointer(r)) }

// word32 returns the word that memory begins with, at an address that is a multiple of 4.
func word32(b []byte) *uint32 { return (*uint32)(unsafe.Pointer(&b[:4][0])) }

// word64 returns the word that memory begins with, at an address that is a multiple of 8.
func word64(b []byte) *uint64 { return (*uint64)(unsafe.Pointer(&b[:8][0])) }
