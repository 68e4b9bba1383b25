package rm

import (
	"sync/atomic"
	"time"
)

// A brief call takes some microseconds, and up to a millisecond if it waits for the driver's locks.
// After one that took briefly or longer, the next distrustCalls calls are made the normal way.
const (
	briefly       = 2 * time.Millisecond
	distrustCalls = 1000
)

// briefCalls reports whether a node's brief calls have been brief lately. While Go's scheduler is
// not notified of a call, a garbage collection that begins meanwhile stops the process until the
// call returns. That may happen once in distrustCalls calls while a GPU or its driver fails, for
// the duration of that call. It is safe for concurrent use.
type briefCalls struct{ distrusted atomic.Int32 }

// trusted reports whether the next call may bypass the scheduler.
func (b *briefCalls) trusted() bool {
	if b.distrusted.Load() <= 0 {
		return true
	}
	b.distrusted.Add(-1)
	return false
}

// took records the duration of a call.
func (b *briefCalls) took(d time.Duration) {
	if d >= briefly {
		b.distrusted.Store(distrustCalls)
	}
}
