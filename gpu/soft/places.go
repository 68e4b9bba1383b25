package soft

import (
	"errors"
	"fmt"

	"vgpud/gpu"
	"vgpud/gpu/soft/vram"
)

// The range of addresses that programs may choose from: above the memory of all contexts, below
// memory of the host.
const (
	placesBase  = 0x4800_0000_0000
	placesBytes = 1 << 40
)

var _ gpu.Movable = (*deviceContext)(nil)

// Places implements [gpu.Placer].
func (c *deviceContext) Places() (base gpu.Ptr, bytes, grain uint64, err error) {
	return placesBase, placesBytes, vram.Align, c.check()
}

// AllocAt implements [gpu.Placer].
func (c *deviceContext) AllocAt(p gpu.Ptr, size uint64) error {
	if err := c.check(); err != nil {
		return err
	}
	if err := c.account.reserve(vram.Round(size), "an allocation"); err != nil {
		return err
	}
	offset, err := c.cd.AllocAt(p, size)
	if err != nil {
		c.account.release(vram.Round(size))
		return err
	}
	return c.track(p, offset, size)
}

// LoadModuleAt implements [gpu.Movable].
func (c *deviceContext) LoadModuleAt(image []byte, p gpu.Ptr) (gpu.Module, error) {
	if !isPlace(p, 0) {
		return nil, fmt.Errorf("load a module at %#x: %w", uint64(p), gpu.ErrInvalidPtr)
	}
	return c.load(image, p)
}

// Stays implements [gpu.Movable].
func (c *deviceContext) Stays() error {
	c.loading.Lock()
	defer c.loading.Unlock()
	if c.heap > 0 {
		return fmt.Errorf("kernels may have allocated memory: %w", gpu.ErrUnsupported)
	}
	return c.check()
}

// Variables implements [gpu.Variables].
func (m *module) Variables() (p gpu.Ptr, bytes uint64) { return m.info.Image, m.info.ImageBytes }

// isPlace reports whether a program may choose p for n bytes.
func isPlace(p gpu.Ptr, n uint64) bool {
	return p >= placesBase && p-placesBase < placesBytes && p%vram.Align == 0 && n <= placesBytes-uint64(p-placesBase)
}

// AllocAt allocates zeroed memory at an address.
func (c *engineContext) AllocAt(p gpu.Ptr, size uint64) (offset uint64, err error) {
	if err := c.usable(); err != nil {
		return 0, err
	}
	if !isPlace(p, size) {
		return 0, fmt.Errorf("allocate %d bytes at %#x: %w", size, uint64(p), gpu.ErrInvalidPtr)
	}
	r, err := c.take(size)
	if err != nil {
		return 0, err
	}
	var merr error
	err = c.e.do(func() {
		if c.over.Load() {
			merr = fmt.Errorf("context is closed: %w", gpu.ErrLost)
		} else if merr = c.mem.Map(uint64(p), c.data[r.Offset:r.Offset+size:r.Offset+size]); merr != nil {
			merr = fmt.Errorf("%w: %w", merr, gpu.ErrInvalidPtr)
		}
	})
	if err = errors.Join(err, merr); err != nil {
		return 0, errors.Join(err, c.give(r.Offset))
	}
	c.mu.Lock()
	c.placed[p] = r.Offset
	c.mu.Unlock()
	return r.Offset, nil
}

// offsetOf returns the offset of an allocation in the context's memory. Where it is at an address of
// the program's choice, it is no longer there.
func (c *engineContext) offsetOf(p gpu.Ptr) (uint64, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if offset, ok := c.placed[p]; ok {
		delete(c.placed, p)
		return offset, true
	}
	return uint64(p) - c.base, uint64(p) >= c.base && uint64(p)-c.base < contextSpace
}
