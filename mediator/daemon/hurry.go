package daemon

import (
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// A launch waits for a listener, and the GPU with it, so listeners come before
// whatever else the host computes, as executors do: see package executor. They
// need very little.
const (
	listenNiceness = -15
	listenSlice    = 100 * time.Microsecond // the shortest there is
)

// hurry keeps the calling goroutine to a thread, which ends with it, and gives that
// precedence. Without the right to that it works all the same, a little later.
func hurry() error {
	runtime.LockOSThread()
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL, Nice: listenNiceness, Runtime: uint64(listenSlice)}
	if err := unix.SchedSetAttr(0, &attr, 0); err != nil {
		return fmt.Errorf("raise a listener's priority (needs CAP_SYS_NICE, or LimitNICE=%d): %w", listenNiceness, err)
	}
	return nil
}
