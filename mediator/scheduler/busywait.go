package scheduler

import (
	"runtime"
	"time"
)

// BusyWait reports whether the daemon and executors poll for launches, and for the order to leave,
// rather than sleep until they are woken. The zero value decides by itself and never polls for
// urgent guests.
type BusyWait struct {
	Mode BusyWaitMode
	// PollLimit is how long in a wait an urgent guest's executors may poll; 0 is not at all.
	PollLimit time.Duration
}

// BusyWaitMode says when to poll.
type BusyWaitMode uint8

const (
	// BusyWaitAuto polls for a second after a kernel was told to leave, on a host with at least
	// four processors.
	BusyWaitAuto BusyWaitMode = iota
	BusyWaitAlways
	BusyWaitNever
)

// Polling keeps a processor busy for each waiting thread. In BusyWaitAuto it is done on a host that
// has at least minProcessors, and until busyWaitFor after a kernel was told to leave.
const (
	minProcessors = 4
	busyWaitFor   = time.Second
)

// busyWait decides whether to poll. It is pure.
type busyWait struct {
	BusyWait
	processors int           // of the host; 0 is as many as there are
	evicted    bool          // a kernel was told to leave,
	last       time.Duration // and when the last one was
}

// evicts notes that a kernel is told to leave the GPU now.
func (b *busyWait) evicts(now time.Duration) { b.evicted, b.last = true, now }

// enough reports whether the host has processors enough.
func (b *busyWait) enough() bool {
	if b.processors == 0 {
		b.processors = runtime.NumCPU()
	}
	return b.processors >= minProcessors
}

// now reports whether to poll at an instant.
func (b *busyWait) now(at time.Duration) bool {
	switch b.Mode {
	case BusyWaitAlways:
		return true
	case BusyWaitNever:
		return false
	}
	return b.enough() && b.evicted && at-b.last < busyWaitFor
}

// pollLimit returns how long in a wait an urgent guest's executors may poll. No eviction need have
// been asked for: an urgent launch comes after a pause, and executors poll only while their pauses
// are short.
func (b *busyWait) pollLimit() time.Duration {
	if b.Mode == BusyWaitNever || b.Mode != BusyWaitAlways && !b.enough() {
		return 0
	}
	return b.PollLimit
}
