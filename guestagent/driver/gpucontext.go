package driver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"vgpud/mediator/vgpu/abi"
)

// ContextOptions configure a context. The zero value is usable.
type ContextOptions struct {
	// Tag is shown to the host's operator beside the context; 0 means this process's ID.
	Tag uint32
	// Channel configures the context's own channel, which its methods use.
	Channel ChannelOptions
	// Priority is for launches whose own and whose channel's priority are 0. As CUDA's, lower is
	// more urgent.
	Priority int32
	// Preempt configures preemptible kernels. nil means the agent's setting for a device that it
	// shares, and otherwise no preemptible kernels.
	Preempt *PreemptOptions
	// Task is what the context needs, if the guest floats ([abi.FeatureFloating]): the host places it
	// on one of its GPUs that has room for that, and NewContext waits until one has. nil is all the
	// memory that the guest may have.
	Task *Task
}

// Context is a GPU address space with its modules and channels, as CUDA's context. A fault of a
// kernel poisons it: every command fails until Reset. Close must be called to free it.
type Context struct {
	dev  *Device
	slot int
	opts ContextOptions

	preempt *preemption

	mu       sync.Mutex
	own      *Channel // used by the context's methods
	channels map[*Channel]struct{}
	fault    string // text of the fault that poisoned it, once it was read
	closed   bool
}

// NewContext creates a context and waits until the host is ready to run it. If the context floats,
// that is when a GPU has room, which may take as long as other programs run; ctx ends the wait.
func (d *Device) NewContext(ctx context.Context, opts ContextOptions) (*Context, error) {
	if opts.Tag == 0 {
		opts.Tag = uint32(os.Getpid())
	}
	if opts.Task != nil && d.info.Features&abi.FeatureFloating == 0 {
		return nil, fmt.Errorf("make a context that floats: %w", &Error{Status: abi.StatusNotSupported})
	}
	c := &Context{dev: d, opts: opts, channels: map[*Channel]struct{}{}}
	c.preempt = c.newPreemption()
	if err := d.claimContext(c); err != nil {
		return nil, fmt.Errorf("make a context: %w", err)
	}
	err := c.awaitState(ctx, abi.ContextReady)
	if err == nil {
		c.own, err = c.NewChannel(ctx, opts.Channel)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make a context: %w", err), c.Close())
	}
	return c, nil
}

// claimContext creates a context in a free slot.
func (d *Device) claimContext(c *Context) error {
	d.regs.Lock()
	defer d.regs.Unlock()
	if err := d.ended(); err != nil {
		return err
	}
	var refused error = abi.ErrorLimit
	for _, slot := range d.allotment.Contexts {
		var state abi.ContextState
		if err := d.touch(func() { state, _ = abi.UnpackState[abi.ContextState](d.word(abi.ContextWord(slot))) }); err != nil {
			return err
		}
		if state != abi.ContextFree {
			continue
		}
		if err := d.describe(slot, &c.opts); err != nil {
			return err
		}
		refused = d.set(uint32(abi.ContextSlot(slot, abi.ContextControl)), uint32(abi.ControlCreate))
		if refused == nil {
			c.slot = slot
			d.contexts[c] = struct{}{}
			return nil
		}
		if !errors.Is(refused, abi.ErrorBadState) {
			return refused
		}
	}
	return refused
}

// awaitState waits until the context is in the state want, or faulted.
func (c *Context) awaitState(ctx context.Context, want abi.ContextState) error {
	var state abi.ContextState
	var code abi.ErrorCode
	err := c.dev.awaitWords(ctx, func() bool {
		state, code = abi.UnpackState[abi.ContextState](c.dev.word(abi.ContextWord(c.slot)))
		return state == want || state == abi.ContextFaulted && want != abi.ContextFree
	})
	if err == nil && state != want {
		return &Error{Status: statusOf(code), Code: code}
	}
	return err
}

// Device returns the context's device.
func (c *Context) Device() *Device { return c.dev }

// Own returns the channel that the context's own methods use.
func (c *Context) Own() *Channel {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.own
}

// Reset discards everything in the context: memory, modules, channels and a fault. It then creates
// a new own channel; other channels are closed. ctx bounds the wait for the host.
func (c *Context) Reset(ctx context.Context) error {
	c.failChannels(&Error{Status: abi.StatusCanceled, Code: abi.ErrorReset})
	d := c.dev
	d.regs.Lock()
	err := d.set(uint32(abi.ContextSlot(c.slot, abi.ContextControl)), uint32(abi.ControlReset))
	d.regs.Unlock()
	if err == nil {
		err = c.awaitState(ctx, abi.ContextReady)
	}
	if err != nil {
		return fmt.Errorf("reset context %d: %w", c.slot, err)
	}
	c.releaseChannels()
	c.mu.Lock()
	c.fault = ""
	c.mu.Unlock()
	own, err := c.NewChannel(ctx, c.opts.Channel)
	if err != nil {
		return fmt.Errorf("reset context %d: %w", c.slot, err)
	}
	c.mu.Lock()
	c.own = own
	c.mu.Unlock()
	return nil
}

// Close destroys the context with everything in it and waits until the host has released it.
func (c *Context) Close() error {
	c.mu.Lock()
	closed := c.closed
	c.closed = true
	c.mu.Unlock()
	if closed {
		return nil
	}
	d := c.dev
	c.preempt.stopFlusher()
	c.failChannels(ErrClosed)
	d.regs.Lock()
	err := d.set(uint32(abi.ContextSlot(c.slot, abi.ContextControl)), uint32(abi.ControlDestroy))
	delete(d.contexts, c)
	d.regs.Unlock()
	if err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		err = c.awaitState(ctx, abi.ContextFree)
	}
	// If the device is gone there is nothing to close.
	if err == nil || d.gone() != nil || d.ended() != nil {
		c.releaseChannels()
		return nil
	}
	// The host may still write to the rings, so they are not reused.
	return fmt.Errorf("close context %d: %w", c.slot, err)
}

// closeTimeout bounds the wait for a host that does not release a channel or context: much longer
// than a busy host takes, since what is not released by then can never be used again.
const closeTimeout = time.Minute

// failChannels makes every call on the context's channels return err.
func (c *Context) failChannels(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for ch := range c.channels {
		ch.fail(err)
	}
}

// releaseChannels frees the channels' shared memory, which the host must not use any more.
func (c *Context) releaseChannels() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for ch := range c.channels {
		ch.release()
	}
	clear(c.channels)
}
