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

// faultOf is the fault that has ended the context, nil for none of that kind.
func faultOf(c *Context) *gpu.Fault {
	f, _ := errors.AsType[*gpu.Fault](c.Fault())
	return f
}

// A fault comes to who waits for the older of two commands, for whom there is no event to
// sleep for.
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
	close(c.stop) // without the watch, which would notice it too
	c.watching.Wait()
	c.stop = make(chan struct{})
	x.let()
	_ = ch.Wait(t.Context(), older) // what it answers is the fault, or nil where that was first
	if f := faultOf(c); f == nil || f.Kind != gpu.FaultAddress || f.Kernel != "bad" {
		t.Errorf("%v", c.Fault())
	}
}

// A fault comes to who only looks.
func TestFaultIsSeen(t *testing.T) {
	x := newFake(t, Options{})
	c := x.context(t, gpu.ContextOptions{})
	ch := channelOf(t, c)
	f, err := ch.Launch(kernel(t, c, "bad", 0))
	if err != nil {
		t.Fatal(err)
	}
	x.let()
	for ch.Done() < f {
		runtime.Gosched()
	}
	if f := faultOf(c); f == nil || f.Kind != gpu.FaultAddress {
		t.Errorf("%v", c.Fault())
	}
}

// An error of what runs ends the context, also one that no driver had when this was written.
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

// blocking is a driver in which a stream can't be synchronised with until it is let.
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

// A kernel's time is limited also while the driver keeps who fetches what others print.
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
	x.let()
}

// A word that nobody was told the end of may be under way: its lane is not waited for.
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
	ch.tellAll()
	if err := ch.Wait(t.Context(), gpu.Fence(ch.sent.Load())); err != nil {
		t.Fatal(err)
	}
	if all := c.printed(); len(all) != 1 {
		t.Errorf("%d lanes may have printed, want 1", len(all))
	}
}

// slowToWake is a driver that comes back late from waiting for an event.
type slowToWake struct {
	Driver
	asleep chan struct{}
	wake   chan struct{}
	inside atomic.Int32
	torn   atomic.Bool // the context went from under somebody
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

// A context is there until all who slept for what it did have come back from the driver,
// also those whom nobody waits for.
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
	x.let()
	for ch.word.Load() != ch.last.Load() {
		runtime.Gosched()
	}
	closed := make(chan error)
	go func() { closed <- c.Close() }()
	for !c.over.Load() {
		runtime.Gosched()
	}
	for range 1000 { // time enough to be wrong in
		runtime.Gosched()
	}
	close(d.wake)
	if err := <-closed; err != nil || d.torn.Load() {
		t.Errorf("%v, destroyed under a sleeper: %v", err, d.torn.Load())
	}
}
