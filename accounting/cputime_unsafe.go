package accounting

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// threadCPU is the processor time that the calling thread has used. It is asked for twice
// in each round, so Go's scheduler does not hear of the call, which would wake a thread to
// look after it.
func threadCPU() time.Duration {
	var ts unix.Timespec
	if _, _, errno := unix.RawSyscall(unix.SYS_CLOCK_GETTIME, unix.CLOCK_THREAD_CPUTIME_ID, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		return 0
	}
	return time.Duration(ts.Nano())
}
