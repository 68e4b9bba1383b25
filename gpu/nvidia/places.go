package nvidia

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"

	"vgpud/gpu"
	"vgpud/gpu/nvidia/cuda"
)

var _ gpu.Placer = (*Context)(nil)

// The range of addresses that users may choose from, if the driver finds it free. The driver keeps
// the same range of this process's addresses. It asks for less if that does not succeed.
const (
	placesBase  = 0x4800_0000_0000
	placesBytes = 1 << 40
	leastPlaces = 1 << 34
)

// places is memory at addresses of the user's choice.
type places struct {
	mu     sync.Mutex
	base   uint64
	bytes  uint64 // 0: not reserved yet
	grain  uint64
	placed []placement // by address; freed ones stay until they are unmapped
}

// placement is memory that is mapped at an address.
type placement struct {
	base, size uint64
	handle     cuda.MemHandle
}

// Places implements [gpu.Placer].
func (c *Context) Places() (base gpu.Ptr, bytes, grain uint64, err error) {
	if err := c.usable(); err != nil {
		return 0, 0, 0, err
	}
	w := &c.places
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.bytes == 0 {
		if err := c.do("reserve addresses", func() error { return w.reserve(c.drv, c.d.dev) }); err != nil {
			return 0, 0, 0, err
		}
	}
	return gpu.Ptr(w.base), w.bytes, w.grain, nil
}

// reserve reserves the range. The context is current.
func (w *places) reserve(d Driver, dev cuda.Device) error {
	grain, err := d.MemGetAllocationGranularity(dev)
	if err != nil {
		return err
	}
	for n := uint64(placesBytes); ; n /= 4 {
		p, err := d.MemAddressReserve(n, grain, placesBase)
		if err == nil {
			w.base, w.bytes, w.grain = uint64(p), n, grain
			return nil
		}
		if n <= leastPlaces {
			return err
		}
	}
}

// overlapping returns the placement that shares bytes with n bytes at p.
func (w *places) overlapping(p, n uint64) (placement, bool) {
	i, _ := slices.BinarySearchFunc(w.placed, p, func(a placement, p uint64) int { return cmp.Compare(a.base, p) })
	for _, j := range []int{i - 1, i} {
		if j >= 0 && j < len(w.placed) {
			if a := w.placed[j]; a.base < p+n && p < a.base+a.size {
				return a, true
			}
		}
	}
	return placement{}, false
}

// AllocAt implements [gpu.Placer]. Like Alloc it does not wait for the zeroing.
func (c *Context) AllocAt(at gpu.Ptr, size uint64) error {
	base, bytes, grain, err := c.Places()
	if err != nil {
		return err
	}
	p := uint64(at)
	if size == 0 || size > c.d.info.Properties.MemoryBytes {
		return fmt.Errorf("allocate %d bytes: %w", size, gpu.ErrOutOfMemory)
	}
	n := (size + grain - 1) / grain * grain
	if p%grain != 0 || at < base || p-uint64(base) > bytes || n > bytes-(p-uint64(base)) {
		return fmt.Errorf("allocate %d bytes at %#x: %w", size, p, gpu.ErrInvalidPtr)
	}
	c.settleFrees()
	c.unmapFreed()
	w := &c.places
	w.mu.Lock()
	defer w.mu.Unlock()
	if there, found := w.overlapping(p, n); found {
		err := gpu.ErrInvalidPtr
		if !c.table.has(there.base) {
			err = gpu.ErrOutOfMemory // it was freed, and commands may use it still
		}
		return fmt.Errorf("allocate %d bytes at %#x, where %d bytes are at %#x: %w", size, p, there.size, there.base, err)
	}
	if err := c.memory.take(n, "an allocation"); err != nil {
		return err
	}
	c.zeroes.Lock()
	defer c.zeroes.Unlock()
	m := placement{base: p, size: n}
	i, err := c.zero.begin(0)
	if err == nil {
		if err = m.take(c.drv, c.d.dev, c.pool.p); err == nil {
			if err = c.drv.MemsetAsync(cuda.DevicePtr(p), 0, 1, n, c.zero.stream); err != nil {
				err = errors.Join(err, m.release(c.drv))
			}
		}
	}
	f, err := c.zero.end(fmt.Sprintf("allocate %d bytes at %#x", size, p), i, err)
	if err != nil {
		c.memory.give(n)
		return err
	}
	at0, _ := slices.BinarySearchFunc(w.placed, p, func(a placement, p uint64) int { return cmp.Compare(a.base, p) })
	w.placed = slices.Insert(w.placed, at0, m)
	c.table.add(allocation{base: p, size: size, charge: n, zeroed: uint64(f), placed: true})
	return nil
}

// take takes memory of the GPU and maps it. The context is current.
func (m *placement) take(d Driver, dev cuda.Device, pool cuda.MemPool) (err error) {
	m.handle, err = d.MemCreate(m.size, dev)
	if errors.Is(err, cuda.ErrOutOfMemory) && pool != 0 {
		if err = d.MemPoolTrimTo(pool, 0); err == nil {
			m.handle, err = d.MemCreate(m.size, dev)
		}
	}
	if err != nil {
		return err
	}
	if err := d.MemMap(cuda.DevicePtr(m.base), m.size, m.handle); err != nil {
		return errors.Join(err, d.MemRelease(m.handle))
	}
	if err := d.MemSetAccess(cuda.DevicePtr(m.base), m.size, dev); err != nil {
		return errors.Join(err, m.release(d))
	}
	return nil
}

// release unmaps the memory and gives it back. The context is current.
func (m *placement) release(d Driver) error {
	if err := d.MemUnmap(cuda.DevicePtr(m.base), m.size); err != nil {
		return err
	}
	return d.MemRelease(m.handle)
}

// find returns the placement at an address.
func (w *places) find(base uint64) placement {
	w.mu.Lock()
	defer w.mu.Unlock()
	p, _ := w.overlapping(base, 1)
	return p
}

// unmapFreed gives back memory that was freed and that no command uses any more, and its addresses.
func (c *Context) unmapFreed() {
	unused := c.pendingFrees.takeUnused()
	if len(unused) == 0 {
		return
	}
	w := &c.places
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range unused {
		if err := c.do("give memory back", func() error { return m.release(c.drv) }); err != nil {
			c.d.o.Log.Debug("memory on the GPU was not given back", "label", c.o.Label, "err", err)
		}
		w.placed = slices.DeleteFunc(w.placed, func(p placement) bool { return p.base == m.base })
		c.memory.give(m.size)
		c.pendingFrees.bytes.Add(-m.size)
	}
}

// closePlaces gives all of it back. Nothing is on the GPU any more, and the context is current.
func (c *Context) closePlaces() error {
	w := &c.places
	w.mu.Lock()
	defer w.mu.Unlock()
	var errs []error
	for _, m := range w.placed {
		errs = append(errs, m.release(c.drv))
	}
	if w.bytes > 0 {
		errs = append(errs, c.drv.MemAddressFree(cuda.DevicePtr(w.base), w.bytes))
	}
	w.placed, w.bytes = nil, 0
	return errors.Join(errs...)
}
