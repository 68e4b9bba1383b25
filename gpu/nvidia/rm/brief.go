package rm

import (
	"sync/atomic"
	"time"
)

// A call that is meant to be brief takes some microseconds, and up to a millisecond where
// it waits for the driver's locks. One that took briefly or longer makes all wary for the
// next wariness calls.
const (
	briefly  = 2 * time.Millisecond
	wariness = 1000
)

// brevity reports whether a node's brief calls have been brief lately. While Go's scheduler does
// not hear of a call, a collection that begins meanwhile stops the process until the call
// returns: that may happen once in wariness calls, where a GPU or its driver fails, for as
// long as that one takes. It is safe for concurrent use.
type brevity struct{ wary atomic.Int32 }

// trusted reports whether the next call may go without the scheduler's hearing of it.
func (b *brevity) trusted() bool {
	if b.wary.Load() <= 0 {
		return true
	}
	b.wary.Add(-1)
	return false
}

// took takes in how long a call took.
func (b *brevity) took(d time.Duration) {
	if d >= briefly {
		b.wary.Store(wariness)
	}
}
