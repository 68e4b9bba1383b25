package nvidia

import (
	"runtime"
	"testing"
	"time"

	"vgpud/gpu"
)

// The GPU interrupts nobody for what is looked for; who sleeps is woken, also where he
// was not expected to, and what comes after that raises interrupts for a while.
func TestInterruptsAreForSleepers(t *testing.T) {
	x := newFake(t, Options{})
	c := x.context(t, gpu.ContextOptions{})
	ch := channelOf(t, c)
	hang, add := kernel(t, c, "hang", 0), kernel(t, c, "add", uint64(alloc(t, c, 8)))
	look := func() {
		t.Helper()
		f, err := ch.Launch(add)
		if err != nil {
			t.Fatal(err)
		}
		for ch.Done() < f {
			runtime.Gosched()
		}
		if o := ch.Outcome(f); o.Err != nil || o.Start > o.End || o.End == 0 {
			t.Errorf("%+v", o)
		}
	}
	for range 2 * slotCount {
		look()
	}
	if n := x.gpu.Interrupts(); n != 0 {
		t.Errorf("%d interrupts for nobody", n)
	}
	// The first of two launches is slept for without an event that wakes: naps have to
	// do. With nothing behind it there is one.
	sleep := func(f gpu.Fence) chan error {
		done := make(chan error, 1)
		go func() { done <- ch.Wait(t.Context(), f) }()
		return done
	}
	first, err := ch.Launch(hang)
	if err != nil {
		t.Fatal(err)
	}
	second, err := ch.Launch(add)
	if err != nil {
		t.Fatal(err)
	}
	asleep := x.gpu.Calls("EventSynchronize")
	one, two := sleep(first), sleep(second)
	for x.gpu.Calls("EventSynchronize") == asleep {
		runtime.Gosched()
	}
	x.let()
	for _, done := range []chan error{one, two} {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if ch.Done() != second {
		t.Errorf("done %d of %d", ch.Done(), second)
	}
	woken := x.gpu.Interrupts()
	if woken == 0 {
		t.Error("nobody was woken")
	}
	for range 2 * drowsyFor {
		look()
	}
	if n := x.gpu.Interrupts() - woken; n == 0 || n > drowsyFor {
		t.Errorf("%d interrupts after that, want up to %d", n, drowsyFor)
	}
}

// About when a launch ended is known at once to who looked for it all the time, and to
// nobody else.
func TestGlimpse(t *testing.T) {
	x := newFake(t, Options{})
	x.o.GPUClock = func() (time.Duration, error) { return x.gpu.Clock(), nil }
	c := x.context(t, gpu.ContextOptions{})
	ch := channelOf(t, c)
	add := kernel(t, c, "add", uint64(alloc(t, c, 8)))
	launch := func() gpu.Fence {
		t.Helper()
		f, err := ch.Launch(add)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	known := 0
	for range 1000 {
		f := launch()
		for ch.Done() < f {
		}
		seen := x.gpu.Clock()
		o, ok := ch.Glimpse(f)
		if !ok {
			continue // this thread, or the stream's, had to wait for a processor
		}
		known++
		exact := ch.Outcome(f)
		if o.Err != nil || o.Start > o.End || o.End > seen || o.End < exact.End-wordAfter-glimpseWithin {
			t.Fatalf("%+v, seen at %v, where it is %+v", o, seen, exact)
		}
	}
	if known == 0 {
		t.Error("nothing was ever known")
	}
	f := launch()
	for ch.word.Load()-ch.base < uint64(f) {
		runtime.Gosched()
	}
	ch.Done()
	if o, ok := ch.Glimpse(f); ok {
		t.Errorf("%+v, which nobody looked for", o)
	}
	if o, ok := ch.Glimpse(f + 1); ok {
		t.Errorf("%+v, which was never launched", o)
	}
}
