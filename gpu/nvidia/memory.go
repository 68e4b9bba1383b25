package nvidia

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"vgpud/gpu"
	"vgpud/gpu/nvidia/cuda"
)

// allocation is memory that commands may name: an allocation, or a module's variable.
type allocation struct {
	base, size uint64
	charge     uint64
	zeroed     uint64  // value of Context.zero's word from which on the memory is zero
	module     *Module // the module whose variable it is; nil: an allocation
	kept       bool    // it belongs to the context itself, and ends with it
	placed     bool    // it is at an address of the program's choice
}

// table holds allocations in the order of their addresses. It is safe for concurrent use.
type table struct {
	mu  sync.RWMutex
	all []allocation
}

// search returns the index of the allocation at base, or the index at which to insert it.
func (t *table) search(base uint64) (int, bool) {
	return slices.BinarySearchFunc(t.all, base, func(a allocation, base uint64) int {
		switch {
		case a.base < base:
			return -1
		case a.base > base:
			return 1
		}
		return 0
	})
}

// add adds an allocation, or replaces the one at the same address.
func (t *table) add(a allocation) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i, found := t.search(a.base)
	if found {
		t.all[i] = a
		return
	}
	t.all = slices.Insert(t.all, i, a)
}

// has reports whether an allocation begins at base.
func (t *table) has(base uint64) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	_, found := t.search(base)
	return found
}

// remove removes the program's own allocation at base.
func (t *table) remove(base uint64) (allocation, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i, found := t.search(base)
	if !found || t.all[i].module != nil || t.all[i].kept {
		return allocation{}, false
	}
	a := t.all[i]
	t.all = slices.Delete(t.all, i, i+1)
	return a, true
}

// forget removes a module's variables.
func (t *table) forget(m *Module) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = slices.DeleteFunc(t.all, func(a allocation) bool { return a.module == m })
}

// find finds the allocation that contains n bytes at p. Zero bytes are valid anywhere.
func (t *table) find(p gpu.Ptr, n uint64) (zeroed uint64, err error) {
	if n == 0 {
		return 0, nil
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	i, found := t.search(uint64(p))
	if !found {
		i--
	}
	if i >= 0 {
		a := &t.all[i]
		if at := uint64(p) - a.base; at < a.size && n <= a.size-at {
			return a.zeroed, nil
		}
	}
	return 0, fmt.Errorf("%d bytes at %#x: %w", n, uint64(p), gpu.ErrInvalidPtr)
}

// The driver rounds allocations up to these sizes: small ones share pages.
const (
	smallGrain = 512
	largeGrain = 2 << 20
	largeFrom  = 1 << 20
)

// charged returns the charge of an allocation of n bytes.
func charged(n uint64) uint64 {
	grain := uint64(smallGrain)
	if n >= largeFrom {
		grain = largeGrain
	}
	return (n + grain - 1) / grain * grain
}

// Alloc returns zeroed memory. It does not wait for the zeroing: commands that can see the memory
// are ordered after it on the GPU.
//
// Where there are event kernels, which nobody orders after anything, it waits.
func (c *Context) Alloc(size uint64) (gpu.Ptr, error) {
	p, f, err := c.allocate(size)
	if err == nil && c.hasEvents() {
		err = c.zero.Wait(context.Background(), f)
	}
	return p, err
}

// allocate is Alloc without waiting. It returns the zeroing, a command of c.zero.
func (c *Context) allocate(size uint64) (gpu.Ptr, gpu.Fence, error) {
	if err := c.usable(); err != nil {
		return 0, 0, err
	}
	if size == 0 || size > c.d.info.Properties.MemoryBytes {
		return 0, 0, fmt.Errorf("allocate %d bytes: %w", size, gpu.ErrOutOfMemory)
	}
	charge := charged(size)
	c.settleFrees()
	if err := c.memory.take(charge, "an allocation"); err != nil {
		return 0, 0, err
	}
	c.zeroes.Lock()
	defer c.zeroes.Unlock()
	var p cuda.DevicePtr
	i, err := c.zero.begin(0)
	if err == nil {
		p, err = c.drv.MemAllocAsync(size, c.zero.stream)
	}
	if err == nil {
		if err = c.drv.MemsetAsync(p, 0, 1, size, c.zero.stream); err != nil { // nobody knows of it
			err = errors.Join(err, c.drv.MemFreeAsync(p, c.zero.stream))
		}
	}
	f, err := c.zero.end(fmt.Sprintf("allocate %d bytes", size), i, err)
	if err != nil {
		c.memory.give(charge)
		return 0, 0, err
	}
	c.table.add(allocation{base: uint64(p), size: size, charge: charge, zeroed: uint64(f)})
	return gpu.Ptr(p), f, nil
}

// Free frees memory once all commands queued before are done.
func (c *Context) Free(p gpu.Ptr) error {
	if err := c.usable(); err != nil {
		return err
	}
	return c.parked(func() error { return c.release(p) })
}

// release is Free while no event kernel uses anything.
func (c *Context) release(p gpu.Ptr) error {
	a, ok := c.table.remove(uint64(p))
	if !ok {
		return fmt.Errorf("free %#x: %w", uint64(p), gpu.ErrInvalidPtr)
	}
	c.mu.Lock()
	channels := slices.Clone(c.channels)
	c.mu.Unlock()
	for _, ch := range channels {
		ch.signalAll()
	}
	d := pendingFree{charge: a.charge}
	if a.placed {
		// Nothing on the GPU frees it: it is unmapped once all that is there has ended.
		d.placed = c.places.find(a.base)
		c.busyLanes(&d)
		c.pendingFrees.add(d)
		c.settleFrees()
		c.unmapFreed()
		return nil
	}
	if err := c.do("free memory", func() error { return c.freeBehindAll(cuda.DevicePtr(p), &d) }); err != nil {
		c.table.add(a) // it is not freed
		return err
	}
	c.pendingFrees.add(d)
	c.settleFrees()
	return nil
}

// freeBehindAll frees memory on the GPU when all commands queued there now are done, and records
// them in d. If at most one channel is busy, no extra stream waits: the hardware has channels for
// few streams, and streams that share one with a waiting stream would wait too.
func (c *Context) freeBehindAll(p cuda.DevicePtr, d *pendingFree) error {
	c.frees.Lock()
	defer c.frees.Unlock()
	busy := c.busyLanes(d)
	switch len(busy) {
	case 0:
		return c.drv.MemFreeAsync(p, c.zero.stream)
	case 1:
		if err := c.drv.StreamWaitEvent(busy[0].stream, cuda.Event(c.zero.tail.Load())); err != nil {
			return err
		}
		return c.drv.MemFreeAsync(p, busy[0].stream)
	}
	if c.free == 0 {
		s, err := c.drv.StreamCreate(cuda.StreamNonBlocking, 0)
		if err != nil {
			return err
		}
		c.free = s
	}
	for _, l := range busy {
		if err := c.drv.StreamWaitEvent(c.free, cuda.Event(l.tail.Load())); err != nil {
			return err
		}
	}
	if err := c.drv.StreamWaitEvent(c.free, cuda.Event(c.zero.tail.Load())); err != nil {
		return err
	}
	return c.drv.MemFreeAsync(p, c.free)
}

// busyLanes returns the lanes with unfinished commands, and records in d the commands that the free
// comes after.
func (c *Context) busyLanes(d *pendingFree) (busy []*lane) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.lanes() {
		if l.word.Load() != l.last.Load() {
			busy = append(busy, l)
		}
	}
	for _, l := range append(busy, c.zero.lane) {
		d.behind = append(d.behind, mark{l, l.last.Load()})
	}
	return busy
}

// Memory returns the memory that may still be allocated, and the total.
func (c *Context) Memory() (free, total uint64, err error) {
	if err := c.usable(); err != nil {
		return 0, 0, err
	}
	err = c.do("ask for free memory", func() (err error) {
		free, total, err = c.drv.MemGetInfo()
		return err
	})
	c.noticeCopies()
	c.settleFrees()
	c.unmapFreed()
	c.destroyEnded()
	free, total = c.memory.available(free, total)
	return free, total, err
}

// ranges are parts of the program's memory. They are safe for concurrent use.
type ranges struct {
	mu  sync.RWMutex
	all [][]byte
}

func (r *ranges) add(mem []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, mem)
}

func (r *ranges) remove(mem []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = slices.DeleteFunc(r.all, func(m []byte) bool { return &m[0] == &mem[0] })
}

// contains reports whether mem lies in one of them.
func (r *ranges) contains(mem []byte) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, m := range r.all {
		if within(mem, m) {
			return true
		}
	}
	return false
}

// RegisterHost locks mem's pages so that the GPU copies from and to them by itself. release waits
// for copies under way.
func (c *Context) RegisterHost(mem []byte) (release func() error, err error) {
	if err := c.usable(); err != nil {
		return nil, err
	}
	if len(mem) == 0 {
		return func() error { return nil }, nil
	}
	what := fmt.Sprintf("register %d bytes with the GPU", len(mem))
	if err := c.do(what, func() error {
		return c.drv.MemHostRegister(mem, cuda.HostPortable|cuda.HostDeviceMap)
	}); err != nil {
		return nil, err
	}
	c.host.add(mem)
	return sync.OnceValue(func() error {
		c.host.remove(mem)
		if c.over.Load() || c.fault.Load() != nil {
			return nil // gone with the context or the process
		}
		return c.parked(func() error {
			return c.do("unregister memory", func() error { return c.drv.MemHostUnregister(mem) })
		})
	}), nil
}
