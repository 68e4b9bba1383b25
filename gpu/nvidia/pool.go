package nvidia

import (
	"sync/atomic"

	"vgpud/gpu/nvidia/cuda"
)

// pool is the driver's, where allocations come from and what is freed goes to. By itself it
// keeps that until somebody synchronises with the driver, which nobody here does for long
// times; it is the guest's no more, and other guests' and contexts' that find no room.
type pool struct {
	p cuda.MemPool // 0: none is known
	// kept is how much went back there, at most, since it was emptied.
	kept atomic.Uint64
}

// openPool finds the pool, and has it give no memory that a kernel still has to let go of:
// what would wait for that is the stream in which all memory is zeroed, and all else waits
// for that. Where it can't be done allocations go on as the driver has them.
func (c *Context) openPool() {
	p, err := c.drv.DeviceGetDefaultMemPool(c.d.dev)
	if err == nil {
		c.pool.p = p
		err = c.drv.MemPoolSetAttribute(p, cuda.PoolReuseAllowInternalDependencies, 0)
	}
	if err != nil {
		c.d.o.Log.Warn("the driver's pool of memory is left as it is", "error", err)
	}
}

// emptyFrom is how much has to come back for the pool to be emptied at once, and not when
// the watch comes by: it takes the driver some time, and small pieces are soon used again.
const emptyFrom = 32 << 20

// pooled notes that n bytes were freed and nobody uses them.
func (c *Context) pooled(n uint64) {
	if c.pool.p == 0 {
		return
	}
	// The watch empties it once more: the GPU may not have come to the freeing itself.
	if kept := c.pool.kept.Add(n); kept/emptyFrom != (kept-n)/emptyFrom {
		c.trim()
	}
}

// full reports whether there is anything to give back.
func (p *pool) full() bool { return p.kept.Load() > 0 }

// empty returns unused memory of the pool to the GPU.
func (c *Context) empty() {
	if c.pool.kept.Swap(0) > 0 {
		c.trim()
	}
}

func (c *Context) trim() {
	if c.usable() != nil {
		return
	}
	if err := c.do("give memory back", func() error { return c.drv.MemPoolTrimTo(c.pool.p, 0) }); err != nil {
		c.d.o.Log.Debug("the driver's pool of memory was not emptied", "error", err)
	}
}
