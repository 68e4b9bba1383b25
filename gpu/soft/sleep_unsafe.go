package soft

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// pinnedSleep is the longest sleep in which the thread keeps its place in Go's scheduler.
const pinnedSleep = 4 * time.Millisecond

// wait sleeps until a doorbell rings or d has passed; a negative d means until a doorbell rings. It
// is precise to the timer's resolution, unlike the milliseconds of epoll_wait.
//
// A thread that returns from an ordinary system call must get a place in Go's scheduler again. It
// then waits for locks that threads without its priority may hold for tens of milliseconds on a
// busy host. So a sleep with an end, during which a kernel executes, is a raw system call, which
// keeps the place. It is divided into short pieces, and the signal with which the runtime stops a
// thread for a collection ends it at once.
func (d *doorbellSet) wait(dur time.Duration) {
	var events [16]unix.EpollEvent
	var errno unix.Errno
	if dur < 0 {
		_, _, errno = unix.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(d.fd), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), 0, 0, 0)
	} else {
		ts := unix.NsecToTimespec(int64(min(dur, pinnedSleep)))
		_, _, errno = unix.RawSyscall6(unix.SYS_EPOLL_PWAIT2, uintptr(d.fd), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)),
			uintptr(unsafe.Pointer(&ts)), 0, 0)
	}
	if errno == unix.ENOSYS { // before Linux 5.11
		millis := -1
		if dur >= 0 {
			millis = int(dur / time.Millisecond)
		}
		_, _ = unix.EpollWait(d.fd, events[:], millis)
	}
}

// threadCPU returns the processor time of the calling thread.
func threadCPU() time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts) != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}
