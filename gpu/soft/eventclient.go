package soft

import (
	"fmt"
	"os"

	"vgpud/gpu"
)

var _ gpu.EventKernels = (*deviceContext)(nil)

// MapEvents implements [gpu.EventKernels].
func (c *deviceContext) MapEvents(f *os.File) (gpu.Ptr, error) {
	if err := c.check(); err != nil {
		return 0, err
	}
	return c.cd.MapEvents(f)
}

// RegisterEventKernel implements [gpu.EventKernels].
func (c *deviceContext) RegisterEventKernel(k *gpu.EventKernel) error {
	if err := c.check(); err != nil {
		return err
	}
	f, ok := k.Function.(*function)
	if !ok || f.m.c != c {
		return fmt.Errorf("register a function of another context: %w", gpu.ErrInvalidLaunch)
	}
	if err := f.checkLaunch(&k.Launch); err != nil {
		return err
	}
	return c.cd.RegisterEvents(EventKernel{
		Number: k.Number, Kernel: f.id, Function: k.Handle, Grid: k.Grid, Block: k.Block, Shared: k.SharedBytes,
		Params: k.Params[:f.attr.ParamBytes], Entries: k.Entries,
	})
}

// UnregisterEventKernel implements [gpu.EventKernels].
func (c *deviceContext) UnregisterEventKernel(number int) (gone bool, err error) {
	return c.cd.UnregisterEvents(number)
}

// KickEvents implements [gpu.EventKernels].
func (c *deviceContext) KickEvents() { c.d.d.Kick() }

// HoldEvents implements [gpu.EventKernels].
func (c *deviceContext) HoldEvents(on bool) error {
	if err := c.check(); err != nil {
		return err
	}
	return c.cd.HoldEvents(on)
}

// EventKernelCounts implements [gpu.EventKernels].
func (c *deviceContext) EventKernelCounts() ([]gpu.EventKernelCounts, error) {
	n, err := c.cd.EventCounts()
	if n.Faulted {
		c.faulted.Store(true)
	}
	return n.Kernels, err
}
