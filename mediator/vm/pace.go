package vm

import "time"

// pace says when something may happen again: burst times at once, and once in
// every on average. It is a token bucket kept as one instant (the generic cell
// rate algorithm of ITU-T I.371). It is pure: whoever uses it tells the time.
// Before the first time everything is allowed.
type pace struct {
	every time.Duration
	burst int
	full  time.Duration // when the bucket is full again
}

// next is the first instant from now on at which it may happen.
func (p *pace) next(now time.Duration) time.Duration {
	return max(now, p.full-time.Duration(p.burst-1)*p.every)
}

// take notes that it happens now.
func (p *pace) take(now time.Duration) { p.full = max(p.full, now) + p.every }
