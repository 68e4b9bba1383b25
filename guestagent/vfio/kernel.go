package vfio

import (
	"golang.org/x/sys/unix"
)

// Kernel is the part of the operating system that VFIO needs. Descriptors are the kernel's own
// numbers.
type Kernel interface {
	Open(path string) (fd int, err error)
	Close(fd int) error
	// Value is an ioctl with a number as its argument, Memory one with a structure or text, which
	// the kernel may write.
	Value(fd int, request uintptr, v int) (int, error)
	Memory(fd int, request uintptr, arg []byte) (int, error)
	Pread(fd int, b []byte, offset int64) (int, error)
	Pwrite(fd int, b []byte, offset int64) (int, error)
	// Map maps memory shared, for reading and writing.
	Map(fd int, offset int64, bytes int) ([]byte, error)
}

// Linux is the machine's own kernel.
type Linux struct{}

// Open implements Kernel.
func (Linux) Open(path string) (int, error) { return unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0) }

// Close implements Kernel.
func (Linux) Close(fd int) error { return unix.Close(fd) }

// Value implements Kernel.
func (Linux) Value(fd int, request uintptr, v int) (int, error) {
	return ioctl(fd, request, uintptr(v))
}

// Memory implements Kernel.
func (Linux) Memory(fd int, request uintptr, arg []byte) (int, error) {
	return ioctlMemory(fd, request, arg)
}

// Pread implements Kernel.
func (Linux) Pread(fd int, b []byte, offset int64) (int, error) { return unix.Pread(fd, b, offset) }

// Pwrite implements Kernel.
func (Linux) Pwrite(fd int, b []byte, offset int64) (int, error) { return unix.Pwrite(fd, b, offset) }

// Map implements Kernel.
func (Linux) Map(fd int, offset int64, bytes int) ([]byte, error) {
	return unix.Mmap(fd, offset, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}
