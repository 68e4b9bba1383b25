package driver

import (
	"context"
	"fmt"
	"time"

	"vgpud/mediator/vgpu/abi"
)

// Event is a point in a channel that other channels of the context can wait for, as CUDA's event.
type Event struct {
	ctx    *Context
	handle uint64
}

// NewEvent creates an event. It lives until Close or until its context ends.
func (c *Context) NewEvent(ctx context.Context) (*Event, error) {
	v, err := c.Own().call(ctx, abi.OpEventCreate, abi.Empty{})
	if err != nil {
		return nil, fmt.Errorf("make an event: %w", err)
	}
	return &Event{ctx: c, handle: v[0]}, nil
}

// Close frees the event.
func (ev *Event) Close(ctx context.Context) error {
	_, err := ev.ctx.Own().call(ctx, abi.OpEventDestroy, abi.Handle{Handle: ev.handle})
	return err
}

// Record signals the event when all commands enqueued so far on the channel have ended.
func (ch *Channel) Record(ctx context.Context, ev *Event) (*Pending, error) {
	return ch.onEvent(ctx, abi.OpEventRecord, ev)
}

// WaitEvent makes the channel's later commands wait for the event's latest Record.
func (ch *Channel) WaitEvent(ctx context.Context, ev *Event) (*Pending, error) {
	return ch.onEvent(ctx, abi.OpEventWait, ev)
}

func (ch *Channel) onEvent(ctx context.Context, op abi.Opcode, ev *Event) (*Pending, error) {
	p, err := ch.send(ctx, op, abi.Handle{Handle: ev.handle})
	if err != nil {
		return nil, fmt.Errorf("%v: %w", op, err)
	}
	return p, nil
}

// Since returns the GPU time from start to ev. Both events must have been reached.
func (ev *Event) Since(ctx context.Context, start *Event) (time.Duration, error) {
	v, err := ev.ctx.Own().call(ctx, abi.OpEventElapsed, abi.Elapsed{Start: start.handle, End: ev.handle})
	if err != nil {
		return 0, fmt.Errorf("time between events: %w", err)
	}
	return time.Duration(v[0]), nil
}
