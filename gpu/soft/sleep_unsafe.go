package soft

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// wait sleeps until a bell rings or d has passed; negative: for a bell only. It is precise to the timer's resolution,
// which epoll_wait's milliseconds are not.
func (d *doorbell) wait(dur time.Duration) {
	var events [16]unix.EpollEvent
	var ts *unix.Timespec
	if dur >= 0 {
		t := unix.NsecToTimespec(int64(dur))
		ts = &t
	}
	_, _, errno := unix.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(d.fd), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)),
		uintptr(unsafe.Pointer(ts)), 0, 0)
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
