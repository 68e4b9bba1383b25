package nvidia

import (
	"slices"
	"sync"
	"sync/atomic"

	"vgpud/gpu"
)

// pendingFrees holds memory that was freed and that the GPU has not returned yet. It counts as used
// until then, because the GPU's other users get only what is really free. It is safe for concurrent
// use.
type pendingFrees struct {
	bytes atomic.Uint64
	mu    sync.Mutex
	frees []pendingFree
	// unused is memory that no command uses any more and that is to be unmapped.
	unused []placement
	// ended are objects that no command uses any more and that are to be destroyed.
	ended []pendingFree
}

// pendingFree is one piece of memory, and the progress that the GPU must have made to free it.
type pendingFree struct {
	charge uint64
	behind []mark
	placed placement // at an address of the program's choice; size 0: the driver frees it by itself
	// destroy, if set, frees an array, texture or surface, which the driver does not do in order.
	destroy func() error
}

// mark is a lane with the progress that it must have made.
type mark struct {
	*lane
	upTo uint64
}

func (o *pendingFrees) add(d pendingFree) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.frees = append(o.frees, d)
	o.bytes.Add(d.charge)
}

// settle removes the memory that the GPU has returned, has give release its charge, and returns its
// size. It stays counted until it is released: whoever finds nothing counted may count on the room.
// Memory that is to be unmapped stays counted, for takeUnused.
func (o *pendingFrees) settle(give func(bytes uint64)) (bytes uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.frees = slices.DeleteFunc(o.frees, func(d pendingFree) bool {
		for _, m := range d.behind {
			if m.word.Load() < m.upTo {
				return false
			}
		}
		switch {
		case d.placed.size > 0:
			o.unused = append(o.unused, d.placed)
		case d.destroy != nil:
			o.ended = append(o.ended, d)
		default:
			bytes += d.charge
		}
		return true
	})
	if bytes > 0 {
		give(bytes)
		o.bytes.Add(-bytes)
	}
	return bytes
}

// takeUnused removes the memory that is to be unmapped. It stays counted until the caller has
// unmapped it.
func (o *pendingFrees) takeUnused() []placement {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := o.unused
	o.unused = nil
	return all
}

// settleFrees releases the charge of freed memory that is not in use any more. It is called
// wherever progress of the GPU is noticed, and costs almost nothing if no memory is pending.
func (c *Context) settleFrees() {
	if c.pendingFrees.bytes.Load() == 0 {
		return
	}
	if n := c.pendingFrees.settle(c.memory.give); n > 0 {
		c.pooled(n)
	}
}

// noticeCopies has the words of all channels tell of copies that are done, as far as memory waits for
// that: where an event alone signals a copy's end, nobody else may ever ask for it.
func (c *Context) noticeCopies() {
	if c.pendingFrees.bytes.Load() == 0 {
		return
	}
	c.mu.Lock()
	channels := slices.Clone(c.channels)
	c.mu.Unlock()
	for _, ch := range channels {
		ch.progress()
	}
}

// Zeroes implements [gpu.Lazy].
func (c *Context) Zeroes() (gpu.Channel, gpu.Fence) { return c.zero, gpu.Fence(c.zero.sent.Load()) }

// Freed implements [gpu.Lazy].
func (c *Context) Freed() uint64 {
	c.noticeCopies()
	c.settleFrees()
	c.unmapFreed()
	c.destroyEnded()
	return c.pendingFrees.bytes.Load()
}
