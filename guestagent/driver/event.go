package driver

import (
	"context"
	"fmt"
	"sync"
	"time"

	"vgpud/mediator/vgpu/abi"
)

// Event is a point in a channel that other channels of the context can wait for, as CUDA's event.
type Event struct {
	ctx    *Context
	handle uint64

	mu      sync.Mutex
	records int // how often it was recorded; only the last counts
	last    *Channel
	reached bool
	at      time.Duration // on the GPU's clock, once it was reached
	failed  abi.Status    // of the last record
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
	ev.mu.Lock()
	ev.records++
	ev.last, ev.reached, ev.failed = ch, false, abi.StatusOK
	p := &Pending{event: ev, record: ev.records}
	ev.mu.Unlock()
	var e abi.Entry
	abi.Handle{Handle: ev.handle}.Encode(&e)
	if err := ch.enqueue(ctx, p, &e, abi.Header{Op: abi.OpEventRecord}, nil); err != nil {
		return nil, fmt.Errorf("%v: %w", abi.OpEventRecord, err)
	}
	return p, nil
}

// recorded takes the completion of a record.
func (ev *Event) recorded(record int, c *abi.Completion) {
	ev.mu.Lock()
	defer ev.mu.Unlock()
	if record != ev.records {
		return
	}
	ev.reached, ev.at, ev.failed = c.Status == abi.StatusOK, time.Duration(c.Value[0]), c.Status
}

// WaitEvent makes the channel's later commands wait for the event's latest Record.
func (ch *Channel) WaitEvent(ctx context.Context, ev *Event) (*Pending, error) {
	p, err := ch.send(ctx, abi.OpEventWait, abi.Handle{Handle: ev.handle})
	if err != nil {
		return nil, fmt.Errorf("%v: %w", abi.OpEventWait, err)
	}
	return p, nil
}

// Reached returns when the event's latest Record was reached, on the GPU's clock. It reads the
// completions that have come and asks the host nothing. The error is [abi.StatusNotReady] if it is
// not reached yet, [abi.StatusInvalidHandle] if it was never recorded, or else that of the record.
func (ev *Event) Reached() (time.Duration, error) {
	ev.mu.Lock()
	ch, waits := ev.last, ev.last != nil && !ev.reached && ev.failed == abi.StatusOK
	ev.mu.Unlock()
	if waits {
		ch.tryReap()
	}
	ev.mu.Lock()
	defer ev.mu.Unlock()
	switch {
	case ev.last == nil:
		return 0, abi.StatusInvalidHandle
	case ev.failed != abi.StatusOK:
		return 0, ev.failed
	case !ev.reached && ev.last.failed.Load():
		return 0, ev.last.err
	case !ev.reached:
		return 0, abi.StatusNotReady
	}
	return ev.at, nil
}

// Since returns the GPU time from start to ev. Both events must have been reached. It asks the host
// only if the completions that have come don't tell.
func (ev *Event) Since(ctx context.Context, start *Event) (time.Duration, error) {
	from, err := start.Reached()
	if err == nil {
		var to time.Duration
		if to, err = ev.Reached(); err == nil {
			return to - from, nil
		}
	}
	v, err := ev.ctx.Own().call(ctx, abi.OpEventElapsed, abi.Elapsed{Start: start.handle, End: ev.handle})
	if err != nil {
		return 0, fmt.Errorf("time between events: %w", err)
	}
	return time.Duration(v[0]), nil
}
