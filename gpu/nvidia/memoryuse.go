package nvidia

import (
	"fmt"
	"sync"

	"vgpud/gpu"
)

// memoryUse counts the memory that a context uses, within its own limit and within the budget that
// it shares with its owner's other contexts. It is safe for concurrent use.
type memoryUse struct {
	limit  uint64     // 0: none
	budget gpu.Budget // nil: none

	mu     sync.Mutex
	taken  uint64
	closed bool
}

// take charges n bytes for the named purpose.
func (l *memoryUse) take(n uint64, what string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return fmt.Errorf("%s: the context is closed: %w", what, gpu.ErrLost)
	case l.limit > 0 && n > l.limit-l.taken:
		return fmt.Errorf("%s takes %d bytes, %d of %d are left: %w", what, n, l.limit-l.taken, l.limit, gpu.ErrMemoryLimit)
	case l.budget != nil && !l.budget.Take(n):
		free, total := l.budget.Room()
		return fmt.Errorf("%s takes %d bytes, %d of %d are left: %w", what, n, free, total, gpu.ErrMemoryLimit)
	}
	l.taken += n
	return nil
}

// give returns n bytes. It does nothing after close, which returned everything.
func (l *memoryUse) give(n uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.taken -= n
	if l.budget != nil {
		l.budget.Give(n)
	}
}

// available limits the GPU's free and total memory to what the context may take.
func (l *memoryUse) available(free, total uint64) (uint64, uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.limit > 0 {
		free, total = min(free, l.limit-l.taken), min(total, l.limit)
	}
	if l.budget != nil {
		f, t := l.budget.Room()
		free, total = min(free, f), min(total, t)
	}
	return free, total
}

// close returns everything, once.
func (l *memoryUse) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.closed = true
	if l.budget != nil {
		l.budget.Give(l.taken)
	}
}
