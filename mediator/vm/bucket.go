package vm

import "time"

// bucket is a token bucket: it allows an action burst times at once, and once in every on average.
// Its state is one instant (the generic cell rate algorithm of ITU-T I.371). It has no clock of its
// own. A zero full allows everything.
type bucket struct {
	every time.Duration
	burst int
	full  time.Duration // when the bucket is full again
}

// next returns the first instant from now on at which the action is allowed.
func (b *bucket) next(now time.Duration) time.Duration {
	return max(now, b.full-time.Duration(b.burst-1)*b.every)
}

// take counts an action at now.
func (b *bucket) take(now time.Duration) { b.full = max(b.full, now) + b.every }
