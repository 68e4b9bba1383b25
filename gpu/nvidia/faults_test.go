package nvidia

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"vgpud/gpu"
	"vgpud/gpu/nvidia/cuda"
)

// faultOf returns the fault that has ended the context, or nil.
func faultOf(c *Context) *gpu.Fault {
	f, _ := errors.AsType[*gpu.Fault](c.Fault())
	return f
}

// A caller that waits for the older of two commands, which has no event to sleep on, gets a fault.
func TestFaultOfTheOlder(t *testing.T) {
	x := newFake(t, Options{})
	c := x.context(t, gpu.ContextOptions{})
	ch := channelOf(t, c)
	add := kernel(t, c, "add", uint64(alloc(t, c, 8)))
	older, err := ch.Launch(kernel(t, c, "bad", 0))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ch.Launch(add); err != nil {
		t.Fatal(err)
	}
	close(c.stop) // without watch, which would notice it too
	c.watching.Wait()
	c.stop = make(chan struct{})
	x.unblock()
	_ = ch.Wait(t.Context(), older) // the result is the fault, or nil if the command was first
	if f := faultOf(c); f == nil || f.Kind != gpu.FaultAddress || f.Kernel != "bad" {
		t.Errorf("%v", c.Fault())
	}
}

// A caller that only polls gets a fault.
func TestFaultIsSeen(t *testing.T) {
	x := newFake(t, Options{})
	c := x.context(t, gpu.ContextOptions{})
	ch := channelOf(t, c)
	f, err := ch.Launch(kernel(t, c, "bad", 0))
	if err != nil {
		t.Fatal(err)
	}
	x.unblock()
	for ch.Done() < f {
		runtime.Gosched()
	}
	if f := faultOf(c); f == nil || f.Kind != gpu.FaultAddress {
		t.Errorf("%v", c.Fault())
	}
}

// An error of running work ends the context, even an error that no driver had when this was
// written.
func TestUnknownErrorEndsTheContext(t *testing.T) {
	for _, e := range []cuda.Error{cuda.ErrContained, cuda.ErrNVLinkUncorrectable, 987} {
		x := newFake(t, Options{})
		c := x.context(t, gpu.ContextOptions{})
		ch := channelOf(t, c)
		f, err := ch.Launch(kernel(t, c, "hang", 0))
		if err != nil {
			t.Fatal(err)
		}
		x.gpu.Fault(e)
		_ = ch.Wait(t.Context(), f) // as above
		if err := c.Fault(); !errors.Is(err, gpu.ErrPoisoned) || ch.Done() != f {
			t.Errorf("%v: fault %v, done %d of %d", e, err, ch.Done(), f)
		}
	}
}

// blocking is a driver in which synchronising with a stream blocks until it is released.
type blocking struct {
	Driver
	stream cuda.Stream
	inside chan struct{}
	let    chan struct{}
}

func (d *blocking) StreamSynchronize(s cuda.Stream) error {
	if s == d.stream {
		close(d.inside)
		<-d.let
	}
	return d.Driver.StreamSynchronize(s)
}

// A kernel's time is limited even while the driver blocks a caller that fetches output.
func TestLimitHoldsBesideABlockedCall(t *testing.T) {
	x := newFake(t, Options{})
	c := x.context(t, gpu.ContextOptions{KernelTimeLimit: 50 * time.Millisecond})
	hangs, prints := channelOf(t, c), channelOf(t, c)
	p, hang := alloc(t, c, 8), kernel(t, c, "hang", 0)
	f, err := prints.CopyIn(p, make([]byte, 8))
	ran(t, prints, f, err)
	d := &blocking{Driver: c.drv, stream: prints.stream, inside: make(chan struct{}), let: make(chan struct{})}
	c.drv = d
	if _, err := hangs.Launch(hang); err != nil {
		t.Fatal(err)
	}
	over := make(chan error)
	go func() { over <- c.do("fetch", c.fetchOutput) }()
	<-d.inside
	<-c.Hung()
	close(d.let)
	<-over
	x.unblock()
}

// An unsignalled word copy may be under way: its lane is not waited for.
func TestWordsArePrintedBehind(t *testing.T) {
	x := newFake(t, Options{})
	c := x.context(t, gpu.ContextOptions{})
	ch := channelOf(t, c)
	p := alloc(t, c, 8)
	f, err := ch.CopyIn(p, make([]byte, 8))
	ran(t, ch, f, err)
	if _, err := ch.CopyIn(p, []byte{1, 2, 3, 4}); err != nil {
		t.Fatal(err)
	}
	if all := c.printed(); len(all) != 0 {
		t.Errorf("%d lanes would be waited for", len(all))
	}
	ch.signalAll()
	if err := ch.Wait(t.Context(), gpu.Fence(ch.sent.Load())); err != nil {
		t.Fatal(err)
	}
	if all := c.printed(); len(all) != 1 {
		t.Errorf("%d lanes may have printed, want 1", len(all))
	}
}

// slowToWake is a driver that returns late from waiting for an event.
type slowToWake struct {
	Driver
	asleep chan struct{}
	wake   chan struct{}
	inside atomic.Int32
	torn   atomic.Bool // the context was destroyed during a call
}

func (d *slowToWake) EventSynchronize(e cuda.Event) error {
	d.inside.Add(1)
	defer d.inside.Add(-1)
	close(d.asleep)
	err := d.Driver.EventSynchronize(e)
	<-d.wake
	return err
}

func (d *slowToWake) CtxDestroy(c cuda.Context) error {
	d.torn.Store(d.inside.Load() > 0)
	return d.Driver.CtxDestroy(c)
}

// A context stays until all callers that slept on its commands have returned from the driver, even
// those that nobody waits for.
func TestContextOutlivesItsSleepers(t *testing.T) {
	x := newFake(t, Options{})
	c := x.context(t, gpu.ContextOptions{})
	ch := channelOf(t, c)
	d := &slowToWake{Driver: c.drv, asleep: make(chan struct{}), wake: make(chan struct{})}
	f, err := ch.Launch(kernel(t, c, "hang", 0))
	if err != nil {
		t.Fatal(err)
	}
	c.drv = d
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error)
	go func() { over <- ch.Wait(ctx, f) }()
	<-d.asleep
	cancel()
	<-over
	x.unblock()
	for ch.word.Load() != ch.last.Load() {
		runtime.Gosched()
	}
	closed := make(chan error)
	go func() { closed <- c.Close() }()
	for !c.over.Load() {
		runtime.Gosched()
	}
	for range 1000 { // enough time to fail in
		runtime.Gosched()
	}
	close(d.wake)
	if err := <-closed; err != nil || d.torn.Load() {
		t.Errorf("%v, destroyed under a sleeper: %v", err, d.torn.Load())
	}
}
