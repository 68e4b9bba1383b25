package nvidia

import (
	"errors"
	"runtime"
	"testing"
	"time"

	"vgpud/gpu"
	"vgpud/gpu/nvidia/cuda"
)

// The GPU raises no interrupts for callers that poll. A caller that sleeps is woken even if it was
// not expected to sleep, and then commands raise interrupts for a while.
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
		t.Errorf("%d interrupts without a sleeper", n)
	}
	// A caller sleeps on the first of two launches, which has no event for it, so it polls at
	// intervals. A launch with nothing after it gets an event.
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
	x.unblock()
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
		t.Error("the sleeper was not woken")
	}
	for range 2 * interruptsAfterSleep {
		look()
	}
	if n := x.gpu.Interrupts() - woken; n == 0 || n > interruptsAfterSleep {
		t.Errorf("%d interrupts after that, want up to %d", n, interruptsAfterSleep)
	}
}

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// The approximate end of a launch, of a copy or of a train is known at once to a caller that polled all the time, and to no
// other.
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
	p, word := alloc(t, c, 64), make([]byte, 64)
	train := func() gpu.Fence {
		t.Helper()
		ch.Ahead(true)
		_, err := ch.CopyIn(p, word)
		ch.Ahead(true)
		launch()
		ch.Ahead(true)
		f, cerr := ch.CopyOut(word, p)
		if err := errors.Join(err, cerr); err != nil {
			t.Fatal(err)
		}
		return f
	}
	for name, queue := range map[string]func() (first, last gpu.Fence){
		"launch":  func() (first, last gpu.Fence) { f := launch(); return f, f },
		"copy in": func() (first, last gpu.Fence) { f, err := ch.CopyIn(p, word); noError(t, err); return f, f },
		"train":   func() (first, last gpu.Fence) { f := train(); return f - 2, f },
	} {
		known := 0
		for range 1000 {
			first, last := queue()
			for ch.Done() < last {
			}
			seen, before := x.gpu.Clock(), time.Duration(0)
			for f := first; f <= last; f++ {
				o, ok := ch.Glimpse(f)
				if !ok {
					continue // this thread, or the stream's, was preempted
				}
				known++
				exact := ch.Outcome(f)
				if o.Err != nil || o.Start > o.End || o.End > seen || f == last && o.End < exact.End-wordAfter-glimpseWithin {
					t.Fatalf("%s: %+v, seen at %v, where it is %+v", name, o, seen, exact)
				}
				if o.Start < before {
					t.Fatalf("%s: %+v, behind one that ended at %v", name, o, before)
				}
				before = o.End
			}
		}
		if known == 0 {
			t.Errorf("%s: nothing was ever known", name)
		}
	}
	f := launch()
	for ch.word.Load()-ch.base < uint64(f) {
		runtime.Gosched()
	}
	ch.Done()
	if o, ok := ch.Glimpse(f); ok {
		t.Errorf("%+v, which was not polled for", o)
	}
	if o, ok := ch.Glimpse(f + 1); ok {
		t.Errorf("%+v, which was never launched", o)
	}
}

// late is a driver on which a caller begins to sleep on a command while another command takes its
// slot.
type late struct {
	Driver
	begin  func() // called once, when the next command begins
	asleep chan struct{}
	wake   chan struct{}
}

func (d *late) CtxSetCurrent(c cuda.Context) error {
	if begin := d.begin; begin != nil {
		d.begin = nil
		begin()
	}
	return d.Driver.CtxSetCurrent(c)
}

func (d *late) EventSynchronize(e cuda.Event) error {
	close(d.asleep)
	<-d.wake
	return d.Driver.EventSynchronize(e)
}

// A caller that is too late to sleep on a command is not counted among the sleepers of the next
// command in its slot.
func TestLateSleeperIsNotCounted(t *testing.T) {
	x := newFake(t, Options{})
	c := x.context(t, gpu.ContextOptions{})
	ch := channelOf(t, c)
	add := kernel(t, c, "add", uint64(alloc(t, c, 8)))
	ch.interruptsLeft.Store(slotCount)
	var f gpu.Fence
	for range slotCount {
		var err error
		f, err = ch.Launch(add)
		ran(t, ch, f, err)
	}
	d := &late{Driver: c.drv, asleep: make(chan struct{}), wake: make(chan struct{})}
	over := make(chan error, 1)
	d.begin = func() {
		go func() { over <- ch.sleep(uint64(f)-slotCount+1, time.Now()) }()
		select {
		case <-d.asleep:
		case err := <-over:
			over <- err
		}
	}
	c.drv = d
	if _, err := ch.Launch(add); err != nil {
		t.Fatal(err)
	}
	close(d.wake)
	if err := <-over; err != nil {
		t.Error(err)
	}
	c.drv = d.Driver
	if n := ch.slots[(uint64(f)+1)%slotCount].sleepers; n != 0 {
		t.Errorf("%d sleep", n) // the slot would never be free again
	}
}

// If memory or the channel is freed while another goroutine is about to signal an end, the ends of
// the commands queued before are signalled first.
func TestSignalAllWaitsForItsTurn(t *testing.T) {
	x := newFake(t, Options{})
	c := x.context(t, gpu.ContextOptions{})
	ch := channelOf(t, c)
	p, q := alloc(t, c, 8), alloc(t, c, 8)
	for _, let := range []func() error{func() error { return c.Free(p) }, ch.Close} {
		f, err := ch.CopyIn(q, []byte{1, 2, 3, 4})
		if err != nil {
			t.Fatal(err)
		}
		ch.putting.Lock()
		over := make(chan error, 1)
		go func() { over <- let() }()
		for range 1000 { // enough time to fail in
			runtime.Gosched()
		}
		ch.putting.Unlock()
		if err := <-over; err != nil || ch.last.Load() != ch.base+uint64(f) {
			t.Errorf("behind command %d of %d, %v", ch.last.Load()-ch.base, f, err)
		}
	}
}

// The polling interval grows with the waiting time.
func TestPollInterval(t *testing.T) {
	for waited, want := range map[time.Duration]time.Duration{
		0:                      50 * time.Microsecond,
		800 * time.Microsecond: 50 * time.Microsecond,
		8 * time.Millisecond:   500 * time.Microsecond,
		time.Second:            time.Millisecond,
	} {
		if got := pollInterval(waited); got != want {
			t.Errorf("%v after %v, want %v", got, waited, want)
		}
	}
}
