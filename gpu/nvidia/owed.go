package nvidia

import (
	"slices"
	"sync"
	"sync/atomic"

	"vgpud/gpu"
)

// owed is memory that was freed, and that the GPU does not have back yet: it counts as
// taken until then, for the GPU's other users have no more than is really free. It is safe
// for concurrent use.
type owed struct {
	bytes atomic.Uint64
	mu    sync.Mutex
	debts []debt
}

// debt is one piece of memory, and what the GPU must have come to.
type debt struct {
	charge uint64
	behind []mark
}

// mark is how far a lane must have come.
type mark struct {
	*lane
	upTo uint64
}

func (o *owed) add(d debt) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.debts = append(o.debts, d)
	o.bytes.Add(d.charge)
}

// take takes out what the GPU has back, and returns how much that is.
func (o *owed) take() (bytes uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.debts = slices.DeleteFunc(o.debts, func(d debt) bool {
		for _, m := range d.behind {
			if m.word.Load() < m.upTo {
				return false
			}
		}
		bytes += d.charge
		return true
	})
	o.bytes.Add(-bytes)
	return bytes
}

// giveOwed gives back what was freed and is not in use any more. Whoever finds that the
// GPU has come further calls it; it costs next to nothing where nothing is owed.
func (c *Context) giveOwed() {
	if c.owed.bytes.Load() == 0 {
		return
	}
	if n := c.owed.take(); n > 0 {
		c.pooled(n)
		c.memory.give(n)
	}
}

// Zeroes implements [gpu.Lazy].
func (c *Context) Zeroes() (gpu.Channel, gpu.Fence) { return c.zero, gpu.Fence(c.zero.sent.Load()) }

// Freed implements [gpu.Lazy].
func (c *Context) Freed() uint64 {
	c.giveOwed()
	return c.owed.bytes.Load()
}
