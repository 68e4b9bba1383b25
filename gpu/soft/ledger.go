package soft

import (
	"fmt"
	"sync"

	"vgpud/gpu"
)

// ledger is what a context has taken out of the budget that it shares with its owner's others.
type ledger struct {
	budget gpu.Budget // nil: nobody counts

	mu     sync.Mutex
	taken  uint64
	closed bool
}

// take takes n bytes for what.
func (l *ledger) take(n uint64, what string) error {
	if l.budget == nil || n == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return fmt.Errorf("context is closed: %w", gpu.ErrLost)
	}
	if !l.budget.Take(n) {
		free, total := l.budget.Room()
		return fmt.Errorf("%s takes %d bytes, %d of %d are left: %w", what, n, free, total, gpu.ErrMemoryLimit)
	}
	l.taken += n
	return nil
}

// give gives n bytes back. After close that has been done.
func (l *ledger) give(n uint64) {
	if l.budget == nil || n == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.taken -= n
		l.budget.Give(n)
	}
}

// room narrows what a device says may be taken, and may be had in all, to what the budget says.
func (l *ledger) room(free, total uint64) (uint64, uint64) {
	if l.budget == nil {
		return free, total
	}
	f, t := l.budget.Room()
	return min(free, f), min(total, t)
}

// close gives everything back, once.
func (l *ledger) close() {
	if l.budget == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.closed = true
		l.budget.Give(l.taken)
	}
}
