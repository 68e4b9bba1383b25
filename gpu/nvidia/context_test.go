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
	"vgpud/internal/proctest"
)

func TestTimeLimit(t *testing.T) {
	var used atomic.Int64
	x := newFake(t, Options{})
	c := x.context(t, gpu.ContextOptions{KernelTimeLimit: 40 * time.Millisecond, Elapsed: func() time.Duration { return time.Duration(used.Load()) }})
	ch := channelOf(t, c)
	f, err := ch.Launch(kernel(t, c, "hang", 0))
	if err != nil {
		t.Fatal(err)
	}
	// Other kernels' time does not count for it.
	ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
	defer cancel()
	if err := ch.Wait(ctx, f); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a kernel that has used no GPU time: %v", err)
	}
	used.Add(int64(time.Second))
	if err := ch.Wait(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	if o := ch.Outcome(f); !errors.Is(o.Err, gpu.ErrTimeLimit) {
		t.Errorf("%v", o.Err)
	}
	// Only the process's end stops the kernel.
	proctest.Until(t, "Hung is closed", func() bool {
		select {
		case <-c.Hung():
			return true
		default:
			return false
		}
	})
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// TestTimeLimitChanges tests that a limit that is set while an endless kernel runs ends it.
func TestTimeLimitChanges(t *testing.T) {
	x := newFake(t, Options{})
	c := x.context(t, gpu.ContextOptions{})
	ch := channelOf(t, c)
	f, err := ch.Launch(kernel(t, c, "hang", 0))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.SetKernelTimeLimit(20 * time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if err := ch.Wait(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	if o := ch.Outcome(f); !errors.Is(o.Err, gpu.ErrTimeLimit) {
		t.Errorf("%v", o.Err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// Close of a context with a running kernel gives up after a while and returns an error.
func TestCloseWithKernel(t *testing.T) {
	if testing.Short() {
		t.Skip("takes two seconds")
	}
	x := newFake(t, Options{})
	c := x.context(t, gpu.ContextOptions{})
	ch := channelOf(t, c)
	if _, err := ch.Launch(kernel(t, c, "hang", 0)); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); !errors.Is(err, gpu.ErrTimeLimit) {
		t.Error(err)
	}
	select {
	case <-c.Hung():
	default:
		t.Error("Hung is not closed, though only the process's end stops the kernel")
	}
}

// A channel's stream is reused once its remaining commands are done, not before.
func TestStreamsAreUsedAgain(t *testing.T) {
	x := newFake(t, Options{})
	c := x.context(t, gpu.ContextOptions{})
	p := alloc(t, c, 8)
	ch, err := c.NewChannel()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ch.Launch(kernel(t, c, "hang", 0)); err != nil {
		t.Fatal(err)
	}
	if err := ch.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := ch.Launch(kernel(t, c, "add", uint64(p))); !errors.Is(err, gpu.ErrLost) {
		t.Errorf("launch in a closed channel: %v", err)
	}
	second := channelOf(t, c)
	if second.lane == ch.(*Channel).lane {
		t.Error("a stream with a kernel in it is used again")
	}
	x.unblock()
	for ch.(*Channel).word.Load() != ch.(*Channel).last.Load() {
		runtime.Gosched()
	}
	third := channelOf(t, c)
	if third.lane != ch.(*Channel).lane {
		t.Error("a stream is not used again")
	}
	f, err := third.Launch(kernel(t, c, "add", uint64(p)))
	if o := ran(t, third, f, err); f != 1 || o.Err != nil {
		t.Errorf("fence %d, %v", f, o.Err)
	}
	if got := read(t, third, p, 8)[0]; got != 1 {
		t.Errorf("%d launches did their work", got)
	}
}

// A channel that can't be made leaks nothing, however often it is tried.
func TestChannelsThatAreRefused(t *testing.T) {
	x := newFake(t, Options{})
	c := x.context(t, gpu.ContextOptions{})
	locked, ended := x.gpu.Calls("MemHostRegister"), x.gpu.Calls("StreamDestroy")
	x.gpu.Fail("StreamCreate", cuda.ErrOutOfMemory)
	for range 3 {
		if _, err := c.NewChannel(); !errors.Is(err, gpu.ErrOutOfMemory) {
			t.Errorf("a channel without a stream: %v", err)
		}
	}
	if n := x.gpu.Calls("MemHostRegister") - locked; n != 0 {
		t.Errorf("%d pieces of memory stay page-locked", n)
	}
	x.gpu.Fail("StreamCreate", 0)
	x.gpu.Fail("MemHostRegister", cuda.ErrOutOfMemory)
	if _, err := c.NewChannel(); !errors.Is(err, gpu.ErrOutOfMemory) {
		t.Errorf("a channel without memory: %v", err)
	}
	if n := x.gpu.Calls("StreamDestroy") - ended; n != 1 {
		t.Errorf("%d streams ended, want that of the channel", n)
	}
	x.gpu.Fail("MemHostRegister", 0)
	channelOf(t, c)
}

// Time off the GPU does not count for a kernel.
func TestTimeLimitStandsStill(t *testing.T) {
	x := newFake(t, Options{})
	c := x.context(t, gpu.ContextOptions{KernelTimeLimit: 50 * time.Millisecond})
	ch := channelOf(t, c)
	l := kernel(t, c, "hang", 0)
	c.Pause(true)
	c.Pause(true)
	f, err := ch.Launch(l)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := ch.Wait(ctx, f); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a kernel that is off the GPU: %v, %v", err, ch.Outcome(f).Err)
	}
	c.Pause(false)
	if err := ch.Wait(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	if o := ch.Outcome(f); !errors.Is(o.Err, gpu.ErrTimeLimit) {
		t.Errorf("%v", o.Err)
	}
}

// Close notices a fault that nobody has waited for, and returns at once.
func TestCloseWithFault(t *testing.T) {
	x := newFake(t, Options{})
	c := x.context(t, gpu.ContextOptions{})
	ch := channelOf(t, c)
	if _, err := ch.Launch(kernel(t, c, "bad", 0)); err != nil {
		t.Fatal(err)
	}
	x.unblock()
	if err := c.Close(); err != nil { // gpu.ErrTimeLimit if it waits
		t.Error(err)
	}
}

// Users of a closed context's channel get an error.
func TestAfterClose(t *testing.T) {
	x := newFake(t, Options{})
	c := x.context(t, gpu.ContextOptions{})
	ch := channelOf(t, c)
	p := alloc(t, c, 8)
	l := kernel(t, c, "add", uint64(p))
	f, err := ch.Launch(l)
	ran(t, ch, f, err)
	if err := errors.Join(c.Close(), c.Close()); err != nil {
		t.Fatal(err)
	}
	if ch.Done() != f || ch.Wait(t.Context(), f) != nil {
		t.Error("a fence that was reached is not any more")
	}
	if o := ch.Outcome(f); !errors.Is(o.Err, gpu.ErrLost) {
		t.Errorf("outcome: %v", o.Err)
	}
	for what, call := range map[string]func() error{
		"launch":   func() error { _, err := ch.Launch(l); return err },
		"alloc":    func() error { _, err := c.Alloc(1); return err },
		"unload":   l.Function.(*Function).m.Unload,
		"register": func() error { _, err := c.RegisterHost(make([]byte, 1)); return err },
	} {
		if err := call(); !errors.Is(err, gpu.ErrLost) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if next, err := x.NewContext(t.Context(), gpu.ContextOptions{}); err != nil || next.Close() != nil {
		t.Errorf("a context after that: %v", err)
	}
}
