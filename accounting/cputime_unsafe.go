package accounting

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// threadCPU returns the processor time that the calling thread has used. It is called twice in each
// round, so the raw system call hides it from Go's scheduler, which would otherwise wake a thread
// to watch over the call.
func threadCPU() time.Duration {
	var ts unix.Timespec
	if _, _, errno := unix.RawSyscall(unix.SYS_CLOCK_GETTIME, unix.CLOCK_THREAD_CPUTIME_ID, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		return 0
	}
	return time.Duration(ts.Nano())
}
