package soft

import (
	"fmt"
	"sync"

	"vgpud/gpu"
)

// account is a context's reservation in the budget that it shares with its owner's other contexts.
type account struct {
	budget gpu.Budget // nil if there is no limit

	mu     sync.Mutex
	taken  uint64
	closed bool
}

// reserve reserves n bytes for what.
func (l *account) reserve(n uint64, what string) error {
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

// release returns n bytes. After close it does nothing.
func (l *account) release(n uint64) {
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

// room limits the free and total memory that a device reports to the budget.
func (l *account) room(free, total uint64) (uint64, uint64) {
	if l.budget == nil {
		return free, total
	}
	f, t := l.budget.Room()
	return min(free, f), min(total, t)
}

// close returns everything, once.
func (l *account) close() {
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
