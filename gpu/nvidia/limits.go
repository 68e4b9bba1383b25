package nvidia

import (
	"errors"
	"fmt"

	"vgpud/gpu"
	"vgpud/gpu/nvidia/cuda"
)

var (
	_ gpu.Attributed = (*Device)(nil)
	_ gpu.Limited    = (*Context)(nil)
)

// Attributes implements [gpu.Attributed].
func (d *Device) Attributes() (a [gpu.AttributeCount]int32, err error) {
	for i := 1; i < len(a); i++ {
		v, err := d.drv.DeviceGetAttribute(d.dev, cuda.Attribute(i))
		if errors.Is(err, cuda.ErrInvalidValue) {
			continue // this driver does not know it
		}
		if err != nil {
			return a, fmt.Errorf("device attribute %d: %w", i, meaning(err))
		}
		a[i] = int32(v)
	}
	return a, nil
}

// Limit implements [gpu.Limited].
func (c *Context) Limit(l gpu.Limit) (v uint64, err error) {
	if err := c.usable(); err != nil {
		return 0, err
	}
	err = c.do("ask for a limit", func() (err error) {
		v, err = c.drv.CtxGetLimit(int(l))
		return limitError(l, err)
	})
	return v, err
}

// limitError gives the driver's refusals of a limit their meaning.
func limitError(l gpu.Limit, err error) error {
	switch {
	case errors.Is(err, cuda.ErrUnsupportedLimit):
		return fmt.Errorf("limit %d: %w", l, gpu.ErrUnsupported)
	case errors.Is(err, cuda.ErrInvalidValue):
		return fmt.Errorf("limit %d: %w", l, gpu.ErrInvalidLimit)
	}
	return err
}

// SetLimit implements [gpu.Limited]. The memory is charged before the driver takes it. Memory for
// stacks stays charged, since the driver keeps it.
func (c *Context) SetLimit(l gpu.Limit, v uint64) error {
	before, err := c.Limit(l)
	if err != nil {
		return err
	}
	var taken uint64
	switch l {
	case gpu.LimitStack:
		if err := c.takeStack(v); err != nil {
			return err
		}
	case gpu.LimitPrintf, gpu.LimitHeap:
		taken = v - min(v, before)
		if err := c.memory.take(taken, "what kernels print, or their heap"); err != nil {
			return err
		}
	case gpu.LimitPersistingL2:
		return nil // a part of the cache that all guests share
	}
	if err := c.do("set a limit", func() error { return limitError(l, c.drv.CtxSetLimit(int(l), v)) }); err != nil {
		c.memory.give(taken)
		return err
	}
	if l != gpu.LimitPrintf && l != gpu.LimitHeap {
		return nil
	}
	after, err := c.Limit(l)
	if err != nil {
		return err
	}
	// The driver rounds. The memory for the rounded limit is charged even if it exceeds the context's
	// limit.
	if now := before + taken; after > now {
		return c.memory.take(after-now, "what kernels print, or their heap")
	} else {
		c.memory.give(now - after)
	}
	return nil
}

// takeStack charges a stack of n bytes for all threads that the GPU holds.
func (c *Context) takeStack(n uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := &c.d.info.Properties
	threads := uint64(p.SMs) * uint64(p.ThreadsPerSM)
	if n > c.d.info.Properties.MemoryBytes/max(threads, 1) {
		return fmt.Errorf("stack of %d bytes a thread: %w", n, gpu.ErrInvalidLimit)
	}
	if need := n * threads; n > usualStack && need > c.local {
		if err := c.memory.take(need-c.local, fmt.Sprintf("a stack of %d bytes a thread", n)); err != nil {
			return err
		}
		c.local = need
	}
	return nil
}

// usualStack is the driver's stack of a thread, in bytes, which is not charged.
const usualStack = 1 << 10
