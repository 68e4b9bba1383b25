package nvidia

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"vgpud/gpu"
	"vgpud/gpu/nvidia/cuda"
)

// pinned returns page-locked memory that the GPU can access too. It is not the driver's own memory,
// which would go with the context while callers may still read it; it stays until the process ends.
// The context is current.
func pinned(d Driver, n int) ([]byte, error) {
	mem, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("allocate %d bytes for the GPU to write to: %w", n, err)
	}
	if err := d.MemHostRegister(mem, cuda.HostPortable|cuda.HostDeviceMap); err != nil {
		return nil, errors.Join(err, unix.Munmap(mem))
	}
	return mem, nil
}

// hostPage is the granularity of mappings of the host's memory.
const hostPage = 4096

// mapAt maps n bytes of a file at an address where this process has nothing.
func mapAt(f *os.File, offset int64, n int, at gpu.Ptr) ([]byte, error) {
	p, _, errno := unix.Syscall6(unix.SYS_MMAP, uintptr(at), uintptr(n), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED|unix.MAP_FIXED_NOREPLACE, f.Fd(), uintptr(offset))
	if errno != 0 {
		return nil, errno
	}
	mem := unsafe.Slice(*(**byte)(unsafe.Pointer(&p)), n)
	if gpu.Ptr(p) != at { // a kernel that does not know the flag
		unmap(mem)
		return nil, unix.EEXIST
	}
	return mem, nil
}

// unmap undoes mapAt.
func unmap(mem []byte) {
	_, _, _ = unix.Syscall(unix.SYS_MUNMAP, uintptr(unsafe.Pointer(unsafe.SliceData(mem))), uintptr(len(mem)), 0)
}

// word returns the 64-bit word at an offset, a multiple of 8, of page-locked memory that the GPU
// writes.
func word(mem []byte, offset int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&mem[offset : offset+8][0]))
}

// within reports whether inner lies in outer.
func within(inner, outer []byte) bool {
	i, o := uintptr(unsafe.Pointer(unsafe.SliceData(inner))), uintptr(unsafe.Pointer(unsafe.SliceData(outer)))
	return len(outer) > 0 && i >= o && len(inner) <= len(outer) && i-o <= uintptr(len(outer)-len(inner))
}

// address returns the GPU's address of page-locked memory.
func address(mem []byte) cuda.DevicePtr { return cuda.Address(mem) }
