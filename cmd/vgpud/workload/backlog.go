package workload

import (
	"sync"
	"time"
)

// Backlog is the least number of pending launches of a guest that counts as backlogged: one that
// has work for the GPU even while it checks results.
const Backlog = 4

// backlog sums the time for which a guest was backlogged.
type backlog struct {
	mu         sync.Mutex
	begin      time.Time
	pending    int // launches
	since      time.Time
	backlogged time.Duration // until since
}

func (b *backlog) start(now time.Time) { b.begin, b.since = now, now }

// change adds n pending launches.
func (b *backlog) change(n int, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.upTo(now)
	b.pending += n
}

// upTo sums until now. now may be before the last call's, if the caller was delayed.
func (b *backlog) upTo(now time.Time) {
	d := now.Sub(b.since)
	if d <= 0 {
		return
	}
	if b.pending >= Backlog {
		b.backlogged += d
	}
	b.since = now
}

// sums returns the time since the start, and the backlogged part of it.
func (b *backlog) sums(now time.Time) (busy, backlogged time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.upTo(now)
	return b.since.Sub(b.begin), b.backlogged
}
