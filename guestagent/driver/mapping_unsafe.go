package driver

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// replace maps zeroed memory over b, at once for all goroutines.
func replace(b []byte) error {
	_, err := unix.MmapPtr(-1, 0, unsafe.Pointer(unsafe.SliceData(b)), uintptr(len(b)),
		unix.PROT_READ|unix.PROT_WRITE, unix.MAP_FIXED|unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	return err
}

// move moves a mapping to an address where nothing is, and reports whether it could.
func move(b []byte, to uintptr) ([]byte, bool) {
	// The kernel would move it over what is there.
	p, _, errno := unix.Syscall6(unix.SYS_MMAP, to, uintptr(len(b)), unix.PROT_NONE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE|unix.MAP_FIXED_NOREPLACE, ^uintptr(0), 0)
	if errno != 0 {
		return b, false
	}
	at := unsafe.Slice(*(**byte)(unsafe.Pointer(&p)), len(b))
	if p == to {
		_, err := unix.MremapPtr(unsafe.Pointer(unsafe.SliceData(b)), uintptr(len(b)), unsafe.Pointer(unsafe.SliceData(at)), uintptr(len(b)),
			unix.MREMAP_MAYMOVE|unix.MREMAP_FIXED)
		if err == nil {
			return at, true
		}
	}
	_ = unmap(at) // a kernel that does not know the flag has chosen another address
	return b, false
}

// unmap unmaps what move has moved.
func unmap(b []byte) error {
	return unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(b)), uintptr(len(b)))
}

// addressOf returns the address of memory in this process.
func addressOf(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }
