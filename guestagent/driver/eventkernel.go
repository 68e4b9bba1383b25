package driver

import (
	"context"
	"fmt"

	"vgpud/mediator/vgpu/abi"
	"vgpud/mediator/vgpu/abi/eventqueue"
)

// eventBus is a [Bus] to a device that may have an event area.
type eventBus interface {
	// Events returns BAR4, mapped, or nil if there is none. It stays valid until Close.
	Events() []byte
}

// Events returns the event area, where event kernels are launched by stores: all of it, those of
// other programs of the guest included. It stays valid until the device is closed. Without event
// kernels the error is [abi.StatusNotSupported].
func (d *Device) Events() ([]byte, error) {
	if err := d.offers(abi.FeatureEventKernels); err != nil {
		return nil, err
	}
	if b, ok := d.bus.(eventBus); ok {
		if area := b.Events(); len(area) == abi.EventAreaBytes {
			return area, nil
		}
	}
	return nil, fmt.Errorf("the event area can't be reached: %w", abi.StatusNotSupported)
}

// KickEvents writes the doorbell register of an event kernel. It launches nothing, but has the host
// look at the kernel's doorbell word where nobody polls.
func (d *Device) KickEvents(number int) error {
	if err := d.bus.Doorbell(uint32(abi.EventDoorbell(number))); err != nil {
		return fmt.Errorf("ring the doorbell of event kernel %d: %w", number, err)
	}
	return nil
}

// EventKernel is a registered event kernel (EDGE §III.E). It lives until Close or until its context
// ends. One goroutine at a time uses its queue; instead of this program, who has the event area may
// (package eventqueue), and then this one must not.
type EventKernel struct {
	ctx    *Context
	number int
	gpu    Ptr
	queue  *eventqueue.Launcher
}

// RegisterEventKernel registers a kernel. Its queue's entries begin with the launch's parameters;
// entries is how many events can be under way, 0 the host's usual number. The launch's attributes and
// priority apply to the events; see [Launch]. Cooperative launches and preemptible forms are refused.
func (c *Context) RegisterEventKernel(ctx context.Context, l *Launch, entries int) (*EventKernel, error) {
	area, err := c.dev.Events()
	if err != nil {
		return nil, fmt.Errorf("register %s: %w", l.Function.name, err)
	}
	attributes := l.Attributes
	if entries != 0 {
		a := abi.Attribute{ID: abi.AttributeEventEntries}
		a.PutUint32(0, uint32(entries))
		attributes = append(attributes[:len(attributes):len(attributes)], a)
	}
	if priority := c.Own().launchPriority(l); priority != 0 {
		a := abi.Attribute{ID: abi.AttributePriority}
		a.PutUint32(0, uint32(priority))
		attributes = append(attributes[:len(attributes):len(attributes)], a)
	}
	x := abi.Launch{
		Function: l.Function.handle, Grid: l.Grid.array(), Block: l.Block.array(), SharedBytes: l.SharedBytes, ParamBytes: uint32(len(l.Params)),
	}
	var e abi.Entry
	x.Encode(&e)
	var p Pending
	data := append(appendAttributes(nil, attributes), l.Params...)
	err = c.Own().enqueue(ctx, &p, &e, abi.Header{Op: abi.OpEventKernelRegister, Aux: uint16(len(attributes))}, data)
	if err == nil {
		err = p.Wait(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("register %s: %w", l.Function.name, err)
	}
	k := &EventKernel{ctx: c, number: int(p.value()[0]), gpu: Ptr(p.value()[1])}
	if k.queue, err = eventqueue.Attach(area, k.number); err != nil {
		return nil, fmt.Errorf("register %s: %w", l.Function.name, err)
	}
	return k, nil
}

// Number returns the kernel's number, by which who has the event area launches it.
func (k *EventKernel) Number() int { return k.number }

// Queue returns the end of the kernel's queue that launches. An event that it launches must be kicked
// for if it says so: see [EventKernel.Launch].
func (k *EventKernel) Queue() *eventqueue.Launcher { return k.queue }

// Area returns where kernels of the context reach the event area: its first byte.
func (k *EventKernel) Area() Ptr { return k.gpu }

// Launch launches an event with the parameters of the next entry, which [eventqueue.Launcher.Free]
// must have found free: by a store alone where the GPU polls.
func (k *EventKernel) Launch() error {
	if k.queue.Launch() {
		return k.ctx.dev.KickEvents(k.number)
	}
	return nil
}

// EventCounts are an event kernel's counts since it was registered.
type EventCounts struct {
	Ended   uint64
	Dropped uint64 // rings that found no free entry
	Stray   uint64 // rings while no kernel had the number
}

// Counts asks the host what has become of the kernel's rings.
func (k *EventKernel) Counts(ctx context.Context) (EventCounts, error) {
	v, err := k.ctx.Own().call(ctx, abi.OpEventKernelQuery, abi.Handle{Handle: uint64(k.number)})
	if err != nil {
		return EventCounts{}, fmt.Errorf("event kernel %d: %w", k.number, err)
	}
	return EventCounts{v[0], v[1], v[2]}, nil
}

// Close unregisters the kernel. It returns when the events have ended that were rung for before.
func (k *EventKernel) Close(ctx context.Context) error {
	if _, err := k.ctx.Own().call(ctx, abi.OpEventKernelUnregister, abi.Handle{Handle: uint64(k.number)}); err != nil {
		return fmt.Errorf("unregister event kernel %d: %w", k.number, err)
	}
	return nil
}
