// Package sched gives the processor to other threads.
package sched

import "golang.org/x/sys/unix"

// Yield gives the processor to another thread that waits for it, if there is one (sched_yield(2)).
// A thread that polls calls it, so that on a host with few free cores it does not keep out the
// thread that it polls for.
func Yield() {
	// sched_yield always succeeds. The call is raw because Go's runtime need not know: told of a
	// system call that takes a while, it would wake another thread to take this one's place.
	unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
}
