package driver

import (
	"context"
	"fmt"

	"vgpud/mediator/vgpu/abi"
)

// Trigger is an event that the program itself triggers, so that commands wait on the device for what
// the program does. It has a value, 0 at first, that only grows. Commands behind a function of the
// program's:
//
//	f, err := ch.Fence(ctx)         // all before has ended
//	_, err = ch.Await(ctx, done, n) // what follows waits
//	...
//	err = f.Wait(ctx)
//	function()
//	_, err = other.Trigger(ctx, done, n)
//
// The channel that triggers must not itself wait behind that.
type Trigger struct {
	ctx    *Context
	handle uint64
}

// NewTrigger creates an event that is triggered. It lives until Close or until its context ends.
func (c *Context) NewTrigger(ctx context.Context) (*Trigger, error) {
	if err := c.dev.offers(abi.FeatureTriggeredEvents); err != nil {
		return nil, err
	}
	var p Pending
	var e abi.Entry
	abi.Empty{}.Encode(&e)
	own := c.Own()
	err := own.enqueue(ctx, &p, &e, abi.Header{Op: abi.OpEventCreate, Aux: abi.EventTriggered}, nil)
	if err == nil {
		err = p.Wait(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("make an event to trigger: %w", err)
	}
	return &Trigger{ctx: c, handle: p.value()[0]}, nil
}

// Close frees the event. Commands that await it end with [abi.StatusInvalidHandle].
func (t *Trigger) Close(ctx context.Context) error {
	_, err := t.ctx.Own().call(ctx, abi.OpEventDestroy, abi.Handle{Handle: t.handle})
	return err
}

// Trigger raises the event's value, once the channel's earlier commands have ended.
func (ch *Channel) Trigger(ctx context.Context, t *Trigger, value uint64) (*Pending, error) {
	p, err := ch.send(ctx, abi.OpEventTrigger, abi.Point{Handle: t.handle, Value: value})
	if err != nil {
		return nil, fmt.Errorf("%v: %w", abi.OpEventTrigger, err)
	}
	return p, nil
}

// Await makes the channel's later commands wait until the event's value is at least value.
func (ch *Channel) Await(ctx context.Context, t *Trigger, value uint64) (*Pending, error) {
	p, err := ch.send(ctx, abi.OpEventAwait, abi.Point{Handle: t.handle, Value: value})
	if err != nil {
		return nil, fmt.Errorf("%v: %w", abi.OpEventAwait, err)
	}
	return p, nil
}
