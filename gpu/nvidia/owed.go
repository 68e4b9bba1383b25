package nvidia

import (
	"slices"
	"sync"
	"sync/atomic"

	"vgpud/gpu"
)

// owed is memory that was freed and is not yet back with the GPU. It counts as taken until then, because no more is really free
// for the GPU's other users. It is safe for concurrent use.
type owed struct {
	bytes atomic.Uint64
	mu    sync.Mutex
	debts []debt
}

// debt is one piece of memory, and how far the GPU must have come until it is back.
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

// take removes what is back with the GPU, and returns how much that is.
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

// giveOwed returns memory that was freed and is not in use any more. It is called whenever the GPU is found to have come further,
// and costs next to nothing if nothing is owed.
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
