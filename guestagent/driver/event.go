package driver

import (
	"context"
	"fmt"
	"time"

	"vgpud/mediator/vgpu/abi"
)

// Event is a point in a channel that other channels of the context can wait for, as
// CUDA's event.
type Event struct {
	ctx    *Context
	handle uint64
}

// NewEvent makes an event. It lives as long as its context, or until Close.
func (c *Context) NewEvent(ctx context.Context) (*Event, error) {
	var e abi.Entry
	abi.Empty{}.Encode(&e)
	v, err := c.Own().call(ctx, &e, abi.OpEventCreate, 0, nil)
	if err != nil {
		return nil, fmt.Errorf("make an event: %w", err)
	}
	return &Event{ctx: c, handle: v[0]}, nil
}

// Close frees the event.
func (ev *Event) Close(ctx context.Context) error {
	var e abi.Entry
	abi.Handle{Handle: ev.handle}.Encode(&e)
	_, err := ev.ctx.Own().call(ctx, &e, abi.OpEventDestroy, 0, nil)
	return err
}

// Record makes the event happen when the channel's commands so far have ended.
func (ch *Channel) Record(ctx context.Context, ev *Event) (*Pending, error) {
	return ch.onEvent(ctx, abi.OpEventRecord, ev)
}

// WaitEvent makes the channel's later commands wait until the event's latest Record
// is reached.
func (ch *Channel) WaitEvent(ctx context.Context, ev *Event) (*Pending, error) {
	return ch.onEvent(ctx, abi.OpEventWait, ev)
}

func (ch *Channel) onEvent(ctx context.Context, op abi.Opcode, ev *Event) (*Pending, error) {
	var e abi.Entry
	abi.Handle{Handle: ev.handle}.Encode(&e)
	p := new(Pending)
	if err := ch.enqueue(ctx, p, &e, abi.Header{Op: op}, nil); err != nil {
		return nil, fmt.Errorf("%v: %w", op, err)
	}
	return p, nil
}

// Since returns the GPU time from start to ev, which must both have been reached.
func (ev *Event) Since(ctx context.Context, start *Event) (time.Duration, error) {
	var e abi.Entry
	abi.Elapsed{Start: start.handle, End: ev.handle}.Encode(&e)
	v, err := ev.ctx.Own().call(ctx, &e, abi.OpEventElapsed, 0, nil)
	if err != nil {
		return 0, fmt.Errorf("time between events: %w", err)
	}
	return time.Duration(v[0]), nil
}
