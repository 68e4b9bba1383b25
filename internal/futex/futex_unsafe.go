// Package futex waits for words in memory to change, and wakes those that wait (futex(2)).
//
// The words may lie in memory that several processes share. A wait can end without a reason, so a
// caller reads its word again after each.
package futex

import (
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// From linux/futex.h.
const (
	opWait       = 0
	opWake       = 1
	opWaitBitset = 9
	anyBit       = 0xffffffff
)

// Wait blocks the calling thread until word is woken, for at most d. It returns [unix.EAGAIN] if
// word is not value, [unix.ETIMEDOUT] after d, and [unix.EINTR] after a signal.
func Wait(word *atomic.Uint32, value uint32, d time.Duration) error {
	return wait(word, opWait, value, d)
}

// WaitUntil is [Wait] until an instant of CLOCK_MONOTONIC. It ends as exactly as clock_nanosleep
// does, from the same timer of the kernel's.
func WaitUntil(word *atomic.Uint32, value uint32, at time.Duration) error {
	return wait(word, opWaitBitset, value, at)
}

func wait(word *atomic.Uint32, op uintptr, value uint32, t time.Duration) error {
	ts := unix.NsecToTimespec(int64(t))
	_, _, errno := unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), op, uintptr(value),
		uintptr(unsafe.Pointer(&ts)), 0, anyBit)
	if errno != 0 {
		return errno
	}
	return nil
}

// Wake wakes all threads that wait for word.
func Wake(word *atomic.Uint32) {
	const all = 1<<31 - 1
	// The call is raw because it does not block: told of it, Go's runtime would wake its monitor
	// thread before the one that waits. It fails only for an address that is not mapped.
	_, _, _ = unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), opWake, all, 0, 0, 0)
}
