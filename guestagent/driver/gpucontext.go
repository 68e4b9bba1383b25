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

// ContextOptions are what a context may be made with; the zero value will do.
type ContextOptions struct {
	// Tag is shown to the host's operator beside the context; 0: this process's id.
	Tag uint32
	// Channel is how the context's own channel is made, over which its methods
	// work.
	Channel ChannelOptions
	// Priority is that of launches which have none of their own, nor their channel:
	// as CUDA's, lower is more urgent.
	Priority int32
	// Preempt says whether kernels are made preemptible; nil: as the agent says for a
	// device that it shares, else not.
	Preempt *PreemptOptions
}

// Context is a GPU address space with its modules and channels, as CUDA's context.
// A kernel's fault poisons it: every command fails until Reset. Close must be
// called to free it.
type Context struct {
	dev  *Device
	slot int
	opts ContextOptions

	preempt *preempting

	mu       sync.Mutex
	own      *Channel // the context's own channel
	channels map[*Channel]struct{}
	fault    string // text of the fault that poisoned it, once asked for
	closed   bool
}

// NewContext makes a context and waits until the host is ready to run it.
func (d *Device) NewContext(ctx context.Context, opts ContextOptions) (*Context, error) {
	if opts.Tag == 0 {
		opts.Tag = uint32(os.Getpid())
	}
	c := &Context{dev: d, opts: opts, channels: map[*Channel]struct{}{}}
	c.preempt = c.newPreempting()
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
	for _, slot := range d.mine.Contexts {
		var state abi.ContextState
		if err := d.touch(func() { state, _ = abi.UnpackState[abi.ContextState](d.word(abi.ContextWord(slot))) }); err != nil {
			return err
		}
		if state != abi.ContextFree {
			continue
		}
		if err := d.set(uint32(abi.ContextSlot(slot, abi.ContextTag)), c.opts.Tag); err != nil {
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

// awaitState waits until the context is in that state, or in the faulted one.
func (c *Context) awaitState(ctx context.Context, want abi.ContextState) error {
	var state abi.ContextState
	var code abi.ErrorCode
	err := c.dev.await(ctx, func() bool {
		state, code = abi.UnpackState[abi.ContextState](c.dev.word(abi.ContextWord(c.slot)))
		return state == want || state == abi.ContextFaulted && want != abi.ContextFree
	})
	if err == nil && state != want {
		return &Error{Status: statusOf(code), Code: code}
	}
	return err
}

// Device returns the device that the context is on.
func (c *Context) Device() *Device { return c.dev }

// Own returns the channel that the context's own methods use.
func (c *Context) Own() *Channel {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.own
}

// Reset drops everything in the context, memory, modules, channels and a fault, and
// makes it anew with one channel of its own. Other channels are closed. ctx bounds
// the wait for the host.
func (c *Context) Reset(ctx context.Context) error {
	c.forgetChannels(&Error{Status: abi.StatusCanceled, Code: abi.ErrorReset})
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

// Close destroys the context with everything in it and waits until the host has let
// go of it.
func (c *Context) Close() error {
	c.mu.Lock()
	closed := c.closed
	c.closed = true
	c.mu.Unlock()
	if closed {
		return nil
	}
	d := c.dev
	c.preempt.end()
	c.forgetChannels(ErrClosed)
	d.regs.Lock()
	err := d.set(uint32(abi.ContextSlot(c.slot, abi.ContextControl)), uint32(abi.ControlDestroy))
	delete(d.contexts, c)
	d.regs.Unlock()
	if err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), closePatience)
		defer cancel()
		err = c.awaitState(ctx, abi.ContextFree)
	}
	// Of a device that is gone there is nothing left to close.
	if err == nil || d.gone() != nil || d.ended() != nil {
		c.releaseChannels()
		return nil
	}
	// The host may still write to the rings, so they are not used again.
	return fmt.Errorf("close context %d: %w", c.slot, err)
}

// closePatience bounds the wait for a host that does not let go.
const closePatience = 10 * time.Second

// forgetChannels makes every call on the context's channels return err.
func (c *Context) forgetChannels(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for ch := range c.channels {
		ch.fail(err)
	}
}

// releaseChannels frees what the channels hold in shared memory; the host must not
// use it any more.
func (c *Context) releaseChannels() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for ch := range c.channels {
		ch.release()
	}
	clear(c.channels)
}
