package soft

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

var one = [8]byte{1}

// raise adds one to an eventfd. Raw, since it doesn't wait: told of a call that might, Go's runtime would wake its monitor
// first, which comes before whoever is to be woken.
func raise(fd uintptr) {
	_, _, _ = unix.RawSyscall(unix.SYS_WRITE, fd, uintptr(unsafe.Pointer(&one)), uintptr(len(one)))
}
