package vfio

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ioctl is ioctl(2) with a number. VFIO returns numbers too, some of which are no errors.
func ioctl(fd int, request, v uintptr) (int, error) {
	n, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, v)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// ioctlMemory is ioctl(2) with a structure.
func ioctlMemory(fd int, request uintptr, arg []byte) (int, error) {
	n, err := ioctl(fd, request, uintptr(unsafe.Pointer(unsafe.SliceData(arg))))
	runtime.KeepAlive(arg)
	return n, err
}
