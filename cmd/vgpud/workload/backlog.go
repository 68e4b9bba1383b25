package workload

import (
	"sync"
	"time"
)

// Backlog is how many launches a guest has under way at least when it counts as
// backlogged: always with work for the GPU, also while it checks results.
const Backlog = 4

// backlog sums the time for which a guest was backlogged.
type backlog struct {
	mu         sync.Mutex
	begin      time.Time
	under      int // launches under way
	since      time.Time
	backlogged time.Duration // until since
}

func (b *backlog) start(now time.Time) { b.begin, b.since = now, now }

// change tells of n launches more.
func (b *backlog) change(n int, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.upTo(now)
	b.under += n
}

// upTo sums until now. Who was told of a change late may tell an earlier time.
func (b *backlog) upTo(now time.Time) {
	d := now.Sub(b.since)
	if d <= 0 {
		return
	}
	if b.under >= Backlog {
		b.backlogged += d
	}
	b.since = now
}

// sums are the time since the start, and how much of it was backlogged.
func (b *backlog) sums(now time.Time) (busy, backlogged time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.upTo(now)
	return b.since.Sub(b.begin), b.backlogged
}
