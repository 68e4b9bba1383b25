package clock

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// Sim is a clock that stands still until Advance is called. The zero value stands at its epoch.
//
// Waiters wake in the order of their instants. Those of one instant wake in the order in which they
// began to wait.
type Sim struct {
	mu      sync.Mutex
	changed sync.Cond // signalled when a waiter comes; L is mu, set lazily
	now     time.Duration
	seq     uint64
	waiters waiterHeap
}

type waiter struct {
	at    time.Duration
	seq   uint64
	index int
	wake  chan struct{}
}

// Now returns how far the clock has been advanced.
func (s *Sim) Now() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// WaitUntil waits until Advance has carried the clock to t.
func (s *Sim) WaitUntil(ctx context.Context, t time.Duration) error {
	s.mu.Lock()
	if t <= s.now {
		s.mu.Unlock()
		return ctx.Err()
	}
	w := &waiter{at: t, seq: s.seq, wake: make(chan struct{})}
	s.seq++
	heap.Push(&s.waiters, w)
	s.cond().Broadcast()
	s.mu.Unlock()

	select {
	case <-w.wake:
		return nil
	case <-ctx.Done():
		s.mu.Lock()
		defer s.mu.Unlock()
		if w.index >= 0 {
			heap.Remove(&s.waiters, w.index)
		}
		return ctx.Err()
	}
}

// Advance carries the clock d further and wakes each waiter at its own instant: a waiter that calls
// Now gets the time that it asked for or a later one.
func (s *Sim) Advance(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	end := s.now + d
	for len(s.waiters) > 0 && s.waiters[0].at <= end {
		w := heap.Pop(&s.waiters).(*waiter)
		s.now = w.at
		close(w.wake)
	}
	s.now = end
}

// AwaitWaiters waits until at least n callers wait on the clock, so that a test can advance it
// knowing that all goroutines that it drives are asleep.
func (s *Sim) AwaitWaiters(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.waiters) < n {
		s.cond().Wait()
	}
}

// cond returns the condition variable; the caller holds mu.
func (s *Sim) cond() *sync.Cond {
	if s.changed.L == nil {
		s.changed.L = &s.mu
	}
	return &s.changed
}

type waiterHeap []*waiter

func (h waiterHeap) Len() int { return len(h) }

func (h waiterHeap) Less(i, j int) bool {
	if h[i].at != h[j].at {
		return h[i].at < h[j].at
	}
	return h[i].seq < h[j].seq
}

func (h waiterHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *waiterHeap) Push(x any) {
	w := x.(*waiter)
	w.index = len(*h)
	*h = append(*h, w)
}

func (h *waiterHeap) Pop() any {
	old := *h
	w := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	w.index = -1
	return w
}
