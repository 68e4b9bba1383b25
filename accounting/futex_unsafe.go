package accounting

import (
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// From linux/futex.h.
const (
	futexWake       = 1
	futexWaitBitset = 9
	futexPrivate    = 128
	futexAnyBit     = 0xffffffff
)

// futexSleep sleeps until the absolute CLOCK_MONOTONIC time at, or until word
// is other than value and futexRouse is called. It wakes as exactly as
// clock_nanosleep does, from the same kernel timer, but can be woken early.
func futexSleep(word *atomic.Uint32, value uint32, at time.Duration) {
	ts := unix.NsecToTimespec(int64(at))
	// All its errors (time out, value changed, signal) mean: look again.
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWaitBitset|futexPrivate,
		uintptr(value), uintptr(unsafe.Pointer(&ts)), 0, futexAnyBit)
}

// futexRouse wakes the thread that sleeps on word.
func futexRouse(word *atomic.Uint32) {
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWake|futexPrivate, 1, 0, 0, 0)
}
