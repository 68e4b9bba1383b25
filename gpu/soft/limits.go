package soft

import (
	"errors"
	"fmt"

	"vgpud/gpu"
	"vgpud/gpu/soft/vram"
)

// limits are a context's limits, in bytes.
type limits struct {
	stack   uint64 // of modules that are loaded from now on
	printf  uint64
	heap    uint64
	heapSet bool   // the heap exists
	heapAt  uint64 // its offset in the context's memory
	l2Fetch uint64
}

var defaultLimits = limits{stack: 16 << 10, printf: printBytes, heap: 8 << 20, l2Fetch: 64}

// Bounds of limits that a program may set.
const (
	minStack   = 256
	maxStack   = 256 << 10
	maxPrintf  = 64 << 20 // of the host's memory
	minPrintf  = 1 << 10
	maxL2Fetch = 128
)

// Limit implements [gpu.Limited].
func (c *engineContext) Limit(l gpu.Limit) (uint64, error) {
	if err := c.usable(); err != nil {
		return 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch l {
	case gpu.LimitStack:
		return c.limits.stack, nil
	case gpu.LimitPrintf:
		return c.limits.printf, nil
	case gpu.LimitHeap:
		return c.limits.heap, nil
	case gpu.LimitL2Fetch:
		return c.limits.l2Fetch, nil
	case gpu.LimitPersistingL2:
		return 0, nil // there is no such cache
	}
	return 0, fmt.Errorf("limit %d: %w", l, gpu.ErrUnsupported)
}

// SetLimit implements [gpu.Limited]. The stack is that of modules loaded afterwards, and the heap's
// size is fixed once a module that allocates memory is loaded.
func (c *engineContext) SetLimit(l gpu.Limit, v uint64) error {
	if err := c.usable(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch l {
	case gpu.LimitStack:
		if v > maxStack {
			return fmt.Errorf("stack of %d bytes, at most %d: %w", v, maxStack, gpu.ErrInvalidLimit)
		}
		c.limits.stack = (max(v, minStack) + 15) &^ 15
	case gpu.LimitPrintf:
		return c.setPrintf(max(v, minPrintf))
	case gpu.LimitHeap:
		n := vram.Round(v)
		if n == 0 || n > c.table.Size() || c.limits.heapSet && n != c.limits.heap {
			return fmt.Errorf("heap of %d bytes, it has %d: %w", v, c.limits.heap, gpu.ErrInvalidLimit)
		}
		c.limits.heap = n
	case gpu.LimitL2Fetch:
		c.limits.l2Fetch = min(v, maxL2Fetch)
	case gpu.LimitPersistingL2:
	default:
		return fmt.Errorf("limit %d: %w", l, gpu.ErrUnsupported)
	}
	return nil
}

// setPrintf changes the size of the print buffer. The caller holds mu.
func (c *engineContext) setPrintf(n uint64) error {
	if n > maxPrintf {
		return fmt.Errorf("print buffer of %d bytes, at most %d: %w", n, maxPrintf, gpu.ErrInvalidLimit)
	}
	if c.freed {
		return fmt.Errorf("context is closed: %w", gpu.ErrLost)
	}
	// The memory of the usual buffer is not counted here.
	before, after := max(c.limits.printf, printBytes), max(n, printBytes)
	if after > before && !c.e.used.reserve(after-before) {
		return fmt.Errorf("print buffer of %d bytes: %w", n, gpu.ErrOutOfMemory)
	}
	if after < before {
		c.e.used.release(before - after)
	}
	c.limits.printf = n
	c.print.resize(int(n))
	return nil
}

// needHeap makes the context's heap if there is none yet, and returns its size.
func (c *engineContext) needHeap() (uint64, error) {
	c.mu.Lock()
	n, there := c.limits.heap, c.limits.heapSet
	c.limits.heapSet, c.limits.heapAt = true, c.table.Size()
	c.mu.Unlock()
	if there {
		return n, nil
	}
	r, err := c.take(n)
	if err == nil {
		var merr error
		err = c.e.do(func() {
			if c.over.Load() {
				merr = fmt.Errorf("context is closed: %w", gpu.ErrLost)
				return
			}
			at := c.base + r.Offset
			if merr = c.mem.Map(at, c.data[r.Offset:r.Offset+n:r.Offset+n]); merr == nil {
				c.mem.SetHeap(at, n)
			}
		})
		if err = errors.Join(err, merr); err != nil {
			err = errors.Join(err, c.give(r.Offset))
		}
	}
	if err != nil {
		c.mu.Lock()
		c.limits.heapSet = false
		c.mu.Unlock()
		return 0, fmt.Errorf("a heap for kernels: %w", err)
	}
	c.mu.Lock()
	c.limits.heapAt = r.Offset
	c.mu.Unlock()
	return n, nil
}

// Limit implements [gpu.Limited].
func (c *deviceContext) Limit(l gpu.Limit) (uint64, error) {
	if err := c.check(); err != nil {
		return 0, err
	}
	return c.cd.Limit(l)
}

// SetLimit implements [gpu.Limited].
func (c *deviceContext) SetLimit(l gpu.Limit, v uint64) error {
	if err := c.check(); err != nil {
		return err
	}
	if l != gpu.LimitPrintf {
		return c.cd.SetLimit(l, v)
	}
	c.loading.Lock()
	defer c.loading.Unlock()
	before, err := c.cd.Limit(l)
	if err != nil {
		return err
	}
	more := max(v, printBytes) - min(max(before, printBytes), max(v, printBytes))
	if err := c.account.reserve(more, "what kernels print"); err != nil {
		return err
	}
	if err := c.cd.SetLimit(l, v); err != nil {
		c.account.release(more)
		return err
	}
	c.account.release(max(before, printBytes) - min(max(before, printBytes), max(v, printBytes)))
	return nil
}
