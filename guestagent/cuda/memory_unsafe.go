package cuda

import (
	"bytes"
	"fmt"
	"runtime"
	"runtime/debug"
	"unsafe"
)

// Pointer is an address in the program's memory.
type Pointer = unsafe.Pointer

// hostBytes returns n bytes of the program's memory.
func hostBytes(p Pointer, n uint64) []byte { return unsafe.Slice((*byte)(p), n) }

// addressOf returns a pointer's number.
func addressOf(p Pointer) uint64 { return uint64(uintptr(p)) }

// pointerTo returns the pointer with a number. The memory is not Go's.
func pointerTo(a uint64) Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&a)) }

// value returns what a pointer points to as a T.
func value[T any](p Pointer) *T { return (*T)(p) }

// array returns n elements at p.
func array[T any](p *T, n uint64) []T { return unsafe.Slice(p, n) }

// maxName bounds the names that programs pass.
const maxName = 1 << 16

// text returns the string that a program passed, without the zero that ends it.
func text(s *byte) (string, bool) {
	if s == nil {
		return "", false
	}
	p := Pointer(s)
	for n := range maxName {
		if *(*byte)(unsafe.Add(p, n)) == 0 {
			return string(unsafe.Slice(s, n)), true
		}
	}
	return "", false
}

// length returns how many bytes precede the zero that ends a text, at most most. It reads whole
// pages, of memory that is not Go's.
//
//go:nocheckptr
func length(p Pointer, most int) int {
	for n := 0; n < most; {
		// To the end of a page at a time: the next may not be there.
		part := min(4096-int((addressOf(p)+uint64(n))%4096), most-n)
		if i := bytes.IndexByte(unsafe.Slice((*byte)(unsafe.Add(p, n)), part), 0); i >= 0 {
			return n + i
		}
		n += part
	}
	return most
}

// offset returns the pointer n bytes after p.
func offset(p Pointer, n uint64) Pointer { return unsafe.Add(p, n) }

// access reports whether the program's memory can be read, or read and written. A fault here is an
// error of the program's, while one in the driver is taken for a device that is gone.
func access(p Pointer, n uint64) (err error) {
	if n == 0 {
		return nil
	}
	if p == nil || addressOf(p)+n < addressOf(p) {
		return ErrorInvalidValue
	}
	old := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(old)
		if r := recover(); r != nil {
			err = fmt.Errorf("%v: %w", r, ErrorInvalidValue)
		}
	}()
	const page = 4096
	sum := byte(0)
	for at := uint64(0); at < n; at += page - (addressOf(p)+at)%page {
		sum += *(*byte)(unsafe.Add(p, at))
	}
	sum += *(*byte)(unsafe.Add(p, n-1))
	runtime.KeepAlive(sum) // or the reads could be left out
	return nil
}

// put stores a value where a program wants it.
func put[T any](p *T, v T) { *p = v }

// startOf returns the address of a slice's first byte.
func startOf(b []byte) Pointer { return Pointer(unsafe.SliceData(b)) }

// words64 returns n pointers at p as numbers: programs pass numbers as pointers.
func words64(p *Pointer, n uint64) []uint64 { return unsafe.Slice((*uint64)(Pointer(p)), n) }

// putFloat stores a float in the first half of a word.
func putFloat(w *uint64, f float32) { *(*float32)(Pointer(w)) = f }

// pointers returns the address of a list of addresses.
func pointers(list []Pointer) *Pointer { return unsafe.SliceData(list) }

// handles returns the address of a list of handles.
func handles(list []Handle) Pointer { return Pointer(unsafe.SliceData(list)) }
