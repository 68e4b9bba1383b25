package sandbox

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// load installs a system call filter in all threads. The library's own loader takes a thread that
// could not follow for a success.
func load(program []unix.SockFilter) error {
	prog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	thread, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	switch {
	case errno != 0:
		return fmt.Errorf("set the system call filter (needs a kernel with CONFIG_SECCOMP_FILTER): %w", errno)
	case thread != 0:
		return fmt.Errorf("set the system call filter of thread %d: %w", thread, errOutOfStep)
	}
	return nil
}
