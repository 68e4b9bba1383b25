package nvidia

import (
	"sync/atomic"

	"vgpud/gpu/nvidia/cuda"
)

// pool is the driver's memory pool, from which allocations come and to which freed memory returns.
// The driver keeps freed memory until a caller synchronises with it, which is rare here. The memory
// is no longer the guest's, and other guests and contexts can't use it.
type pool struct {
	p cuda.MemPool // 0: unknown
	// kept is an upper bound of the memory that returned to the pool since it was last trimmed.
	kept atomic.Uint64
}

// openPool finds the pool and keeps it from reusing memory that a kernel still has to release: the
// stream that zeroes all memory would wait for the kernel, and everything else waits for that
// stream. Without that setting, allocations use the driver's default.
func (c *Context) openPool() {
	p, err := c.drv.DeviceGetDefaultMemPool(c.d.dev)
	if err == nil {
		c.pool.p = p
		err = c.drv.MemPoolSetAttribute(p, cuda.PoolReuseAllowInternalDependencies, 0)
	}
	if err != nil {
		c.d.o.Log.Warn("the driver's memory pool keeps its default settings", "error", err)
	}
}

// trimThreshold is the amount of returned memory at which the pool is trimmed at once instead of by
// the next watch: trimming takes the driver some time, and small pieces are soon reused.
const trimThreshold = 32 << 20

// pooled records that n bytes were freed and are unused.
func (c *Context) pooled(n uint64) {
	if c.pool.p == 0 {
		return
	}
	// The watch trims it again: the GPU may not have executed the free itself yet.
	if kept := c.pool.kept.Add(n); kept/trimThreshold != (kept-n)/trimThreshold {
		c.trim()
	}
}

// full reports whether there is memory to trim.
func (p *pool) full() bool { return p.kept.Load() > 0 }

// empty returns the pool's unused memory to the GPU.
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
		c.d.o.Log.Debug("the driver's memory pool was not trimmed", "error", err)
	}
}
