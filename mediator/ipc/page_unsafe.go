package ipc

import (
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The layout must be what PageBytes says: the subtractions fail to compile
// otherwise.
const (
	_ = uint(contextsBytes - unsafe.Sizeof(pageLayout{}))
	_ = uint(unsafe.Sizeof(pageLayout{}) - contextsBytes)
	_ = uint(stubAreaBytes - unsafe.Sizeof(stubArea{}))
	_ = uint(unsafe.Sizeof(stubArea{}) - stubAreaBytes)
	_ = uint(workAreaBytes - unsafe.Sizeof(workArea{}))
	_ = uint(unsafe.Sizeof(workArea{}) - workAreaBytes)

	_ = uint(32 - MaxContexts) // bits of pageLayout.disabled
)

// areaOf is where the stubs lie on a page that has them.
func areaOf(mem []byte) *stubArea {
	area := mem[contextsBytes : contextsBytes+stubAreaBytes]
	return (*stubArea)(unsafe.Pointer(unsafe.SliceData(area)))
}

// workOf is where the accounts of work lie on a page of PageBytes.
func workOf(mem []byte) *workArea {
	area := mem[contextsBytes+stubAreaBytes : PageBytes]
	return (*workArea)(unsafe.Pointer(unsafe.SliceData(area)))
}

// layoutOf is the page seen as its layout. A mapping is aligned to a memory
// page, and at least contextsBytes long.
func layoutOf(mem []byte) *pageLayout {
	return (*pageLayout)(unsafe.Pointer(unsafe.SliceData(mem)))
}

// The futex operations are the shared kind: the waiter is in another process.
const (
	opFutexWait = 0
	opFutexWake = 1
)

func futexWait(word *atomic.Uint32, value uint32, d time.Duration) error {
	ts := unix.NsecToTimespec(int64(d))
	_, _, errno := unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), opFutexWait, uintptr(value),
		uintptr(unsafe.Pointer(&ts)), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// futexWake wakes the sleeper. It doesn't wait, so Go's runtime is not told: it
// would wake its monitor first, which comes before whoever is to be woken.
func futexWake(word *atomic.Uint32) {
	// Waking fails only for an address that is not mapped, and the page is.
	unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), opFutexWake, 1, 0, 0, 0)
}
