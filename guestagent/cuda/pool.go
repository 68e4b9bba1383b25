package cuda

import (
	"math/bits"
	"sync"
)

// memPool is a CUmemoryPool. Memory that is freed in a stream's order stays with the pool for later
// allocations: at once for those in the same stream, for others when the stream has come that far.
// More than the threshold is given back at the next synchronization.
type memPool struct {
	handle    Handle
	destroyed bool // it ends with the last of its memory
	threshold uint64
	most      uint64    // bytes that it may have; 0 is any
	reuse     [3]uint32 // attributes that change nothing here, kept for programs that ask
	free      []*poolBlock
	reserved  usage // of the GPU's memory
	used      usage
}

// usage is an amount and the largest that it was since that was last reset.
type usage struct{ now, high uint64 }

func (u *usage) add(n uint64) {
	u.now += n
	u.high = max(u.high, u.now)
}

// poolBlock is memory of a pool.
type poolBlock struct {
	pool       *memPool
	x          *Context
	base, size uint64
	s          *stream // that it was freed in
	ready      []point // when other streams may have it
}

// pools are a process's. The lock comes before Context.mu.
type pools struct {
	mu       sync.Mutex
	standard *memPool // the device's own
	current  *memPool // that of cuMemAllocAsync
	all      map[*memPool]struct{}
	used     map[uint64]*poolBlock
}

// smallest and largest sizes that are rounded up to a power of two.
const (
	poolLeast = 512
	poolPiece = 2 << 20
)

// poolSize returns how much memory serves a request: of similar requests the same, so that one can
// have what another has freed.
func poolSize(n uint64) uint64 {
	switch {
	case n <= poolLeast:
		return poolLeast
	case n < poolPiece:
		return 1 << bits.Len64(n-1)
	}
	return (n + poolPiece - 1) &^ (poolPiece - 1)
}

// device returns the pools, with the device's own. The lock is held.
func (p *pools) device(d *Driver) *memPool {
	if p.standard == nil {
		p.standard = &memPool{reuse: [3]uint32{1, 1, 1}}
		p.standard.handle = d.objects.add(p.standard)
		p.current, p.all, p.used = p.standard, map[*memPool]struct{}{p.standard: {}}, map[uint64]*poolBlock{}
	}
	return p.standard
}

// pool returns a pool by its handle.
func (c *Call) pool(h Handle) *memPool {
	m := get[memPool](&c.d.objects, h)
	if m == nil || m.destroyed {
		return nil
	}
	return m
}

// take takes memory of a size that the pool has and a stream may use. The pools' lock is held.
func (m *memPool) take(s *stream, size uint64) *poolBlock {
	s.x.mu.Lock()
	defer s.x.mu.Unlock()
	for i, b := range m.free {
		if b.x == s.x && b.size == size && (b.s == s || b.reached()) {
			m.free[i] = m.free[len(m.free)-1]
			m.free = m.free[:len(m.free)-1]
			return b
		}
	}
	return nil
}

// reached reports whether any stream may use the memory. Context.mu is held.
func (b *poolBlock) reached() bool {
	for len(b.ready) > 0 {
		if !b.ready[0].reached() {
			return false
		}
		b.ready = b.ready[1:]
	}
	return true
}

// allocateFrom is cuMemAllocFromPoolAsync. A nil pool is the current one.
func (c *Call) allocateFrom(out *uint64, n uint64, m *memPool, h Handle) Result {
	s, r := c.stream(h)
	if r != Success {
		return r
	}
	if out == nil || n == 0 || n > 1<<46 {
		return ErrorInvalidValue
	}
	if c.captures(s) {
		if r, done := c.captureAlloc(out, n, s); done {
			return r
		}
	}
	size := poolSize(n)
	p := &c.d.pools
	p.mu.Lock()
	defer p.mu.Unlock()
	p.device(c.d)
	if m == nil {
		m = p.current
	}
	b := m.take(s, size)
	if b == nil {
		if m.most != 0 && m.reserved.now+size > m.most {
			return ErrorOutOfMemory
		}
		base, r := s.x.allocate(size)
		if r == ErrorOutOfMemory { // other pools may have what nobody uses
			for o := range p.all {
				o.trim(c.d, 0)
			}
			base, r = s.x.allocate(size)
		}
		if r == beginFirst {
			p.mu.Unlock()
			r = c.beginTask(s.x, func() Result { return c.allocateFrom(out, n, m, h) })
			p.mu.Lock() // for the deferred unlock
			return r
		}
		if r != Success {
			return r
		}
		b = &poolBlock{pool: m, x: s.x, base: base, size: size}
		m.reserved.add(size)
	}
	b.s, b.ready = nil, nil
	p.used[b.base] = b
	m.used.add(size)
	put(out, b.base)
	return Success
}

// freeIn frees memory of a pool when a stream has carried out what was enqueued before. It reports
// whether the memory is a pool's.
func (p *pools) freeIn(d *Driver, s *stream, base uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.used[base]
	if b == nil || b.x != s.x {
		return false
	}
	delete(p.used, base)
	b.pool.used.now -= b.size
	s.x.mu.Lock()
	b.s, b.ready = s, append([]point{{ch: s.ch, sent: s.last}}, s.waits...)
	if s.call != nil {
		b.ready = append(b.ready, point{call: s.call})
	}
	s.x.mu.Unlock()
	if b.pool.free = append(b.pool.free, b); b.pool.destroyed {
		b.pool.trim(d, 0)
	}
	return true
}

// takeOut makes memory of a pool an ordinary allocation, which cuMemFree is about to free.
func (p *pools) takeOut(base uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if b := p.used[base]; b != nil {
		delete(p.used, base)
		b.pool.used.now -= b.size
		b.pool.reserved.now -= b.size
	}
}

// trim gives memory back that nobody uses, until the pool has no more than keep bytes. The pools'
// lock is held.
func (m *memPool) trim(d *Driver, keep uint64) {
	kept := m.free[:0]
	for _, b := range m.free {
		b.x.mu.Lock()
		reached := b.reached()
		b.x.mu.Unlock()
		if m.reserved.now <= keep || !reached {
			kept = append(kept, b)
			continue
		}
		m.reserved.now -= b.size
		if _, ok := b.x.memory.remove(b.base); ok {
			_ = b.x.free(b.base) // or the context has ended
			d.reserved.release(b.base, b.size)
		}
	}
	clear(m.free[len(kept):])
	m.free = kept
}

// settle gives back what is above the pools' thresholds, at a synchronization.
func (p *pools) settle(d *Driver) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for m := range p.all {
		if len(m.free) > 0 && m.reserved.now > m.threshold {
			m.trim(d, m.threshold)
		}
	}
}

// forget forgets a context's memory, which ends with it.
func (p *pools) forget(x *Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for m := range p.all {
		kept := m.free[:0]
		for _, b := range m.free {
			if b.x != x {
				kept = append(kept, b)
			} else {
				m.reserved.now -= b.size
			}
		}
		m.free = kept
	}
	for base, b := range p.used {
		if b.x == x {
			delete(p.used, base)
			b.pool.used.now -= b.size
			b.pool.reserved.now -= b.size
		}
	}
}

// MemAllocAsync is cuMemAllocAsync.
func (c *Call) MemAllocAsync(out *uint64, n uint64, h Handle) Result {
	return c.allocateFrom(out, n, nil, h)
}

// MemAllocFromPoolAsync is cuMemAllocFromPoolAsync.
func (c *Call) MemAllocFromPoolAsync(out *uint64, n uint64, pool, h Handle) Result {
	m := c.pool(pool)
	if m == nil {
		return ErrorInvalidValue
	}
	return c.allocateFrom(out, n, m, h)
}

// MemFreeAsync is cuMemFreeAsync.
func (c *Call) MemFreeAsync(p uint64, h Handle) Result {
	s, r := c.stream(h)
	if r != Success {
		return r
	}
	if c.captures(s) {
		if r, done := c.captureFree(p, s); done {
			return r
		}
	}
	if r, done := c.freeGraphMemory(p, s); done {
		return r
	}
	if !c.d.pools.freeIn(c.d, s, p) {
		return ErrorInvalidValue
	}
	return Success
}
