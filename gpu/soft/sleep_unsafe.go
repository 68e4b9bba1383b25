package soft

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// pinnedSleep is the longest sleep in which the thread keeps its place in Go's scheduler.
const pinnedSleep = 4 * time.Millisecond

// wait sleeps until a bell rings or d has passed; negative: for a bell only. It is precise to the timer's resolution,
// which epoll_wait's milliseconds are not.
//
// A thread that comes back from an ordinary system call must find a place in Go's scheduler again, behind locks that
// threads without its priority may hold for tens of milliseconds on a busy host. So a sleep with an end, one in which a
// kernel executes, is a raw system call, which keeps the place; it is cut into short pieces, and the signal by which
// the runtime asks a thread to stop, for a collection, ends it at once.
func (d *doorbell) wait(dur time.Duration) {
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

// threadCPU is the processor time that the calling thread has used.
func threadCPU() time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts) != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}
