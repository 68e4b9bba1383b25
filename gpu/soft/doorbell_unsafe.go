package soft

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

var one = [8]byte{1}

// raise adds one to an eventfd. It is a raw call, since it doesn't block: for a call that might,
// Go's runtime would wake its monitor first, before the pacing thread.
func raise(fd uintptr) {
	_, _, _ = unix.RawSyscall(unix.SYS_WRITE, fd, uintptr(unsafe.Pointer(&one)), uintptr(len(one)))
}
