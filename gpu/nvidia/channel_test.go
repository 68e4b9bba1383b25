package nvidia

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"vgpud/gpu"
)

// Commands of a channel execute in order, and their times are the GPU's.
func TestCommandsInOrder(t *testing.T) {
	x := newFake(t, Options{})
	c := x.context(t, gpu.ContextOptions{})
	ch := channelOf(t, c)
	p := alloc(t, c, 8)
	l := kernel(t, c, "add", uint64(p))
	before := x.gpu.Clock()
	const n = 3 * slotCount
	var last gpu.Fence
	for i := range n {
		f, err := ch.Launch(l)
		if err != nil || f != last+1 {
			t.Fatalf("launch %d has fence %d, %v", i, f, err)
		}
		last = f
	}
	if err := ch.Wait(t.Context(), last); err != nil || ch.Done() != last {
		t.Fatalf("done %d, %v", ch.Done(), err)
	}
	end := before
	for f := last - gpu.OutcomesKept + 1; f <= last; f++ {
		o := ch.Outcome(f)
		if o.Err != nil || o.Start > o.End || o.Start < end-time.Microsecond || o.End > x.gpu.Clock()+time.Microsecond {
			t.Fatalf("fence %d: %+v, after one that ended at %v", f, o, end)
		}
		end = o.End
	}
	if o := ch.Outcome(last - gpu.OutcomesKept); !errors.Is(o.Err, gpu.ErrNotFound) {
		t.Errorf("an outcome that is not kept: %+v", o)
	}
	if o := ch.Outcome(last + 1); !errors.Is(o.Err, gpu.ErrNotFound) {
		t.Errorf("an outcome to come: %+v", o)
	}
	if err := ch.Wait(t.Context(), last+1); !errors.Is(err, gpu.ErrNotFound) {
		t.Errorf("wait for what was not queued: %v", err)
	}
	if got := binary.LittleEndian.Uint64(read(t, ch, p, 8)); got != n {
		t.Errorf("%d launches did their work, of %d", got, n)
	}
}

// Fresh memory is zero although the driver's is not, also for a channel that was idle before.
func TestFreshMemoryIsZero(t *testing.T) {
	x := newFake(t, Options{})
	c := x.context(t, gpu.ContextOptions{})
	a, b := channelOf(t, c), channelOf(t, c)
	for _, ch := range []*Channel{a, b, a, b} {
		p := alloc(t, c, 100_000)
		if got := read(t, ch, p, 100_000); !bytes.Equal(got, make([]byte, len(got))) {
			t.Fatal("fresh memory is not zero")
		}
		q := alloc(t, c, 8)
		f, err := ch.Launch(kernel(t, c, "add", uint64(q)))
		ran(t, ch, f, err)
		if got := binary.LittleEndian.Uint64(read(t, ch, q, 8)); got != 1 {
			t.Fatalf("a kernel found %d in fresh memory", got-1)
		}
	}
}

// A copy of a word waits only for the kernels of its own stream, wherever the word is.
func TestWordsOvertakeKernels(t *testing.T) {
	x := newFake(t, Options{})
	c := x.context(t, gpu.ContextOptions{})
	work, words := channelOf(t, c), channelOf(t, c)
	p := alloc(t, c, 128)
	f, err := work.Launch(kernel(t, c, "hang", 0))
	if err != nil {
		t.Fatal(err)
	}
	w := []byte{1, 2, 3, 4}
	g, err := words.CopyIn(p, w)
	if err != nil {
		t.Fatal(err)
	}
	clear(w) // it was copied already
	if o := ran(t, words, g, err); o.Err != nil {
		t.Fatal(o.Err)
	}
	if got := read(t, words, p, 4); !bytes.Equal(got, []byte{1, 2, 3, 4}) {
		t.Errorf("the word is %v", got)
	}
	if work.Done() >= f {
		t.Error("the kernel has ended")
	}
	// A copy out after the kernel doesn't block its caller, and finishes when the kernel is done.
	big := alloc(t, c, bounceBytes)
	f, err = words.Set(big, 7, 1, bounceBytes)
	ran(t, words, f, err)
	var out [4]byte
	long := make([]byte, bounceBytes)
	g, err = work.CopyOut(out[:], p)
	if err != nil {
		t.Fatal(err)
	}
	h, err := work.CopyOut(long, big)
	if err != nil {
		t.Fatal(err)
	}
	x.unblock()
	if o := ran(t, work, g, err); o.Err != nil || out != [4]byte{1, 2, 3, 4} {
		t.Errorf("copied %v, %v", out, o.Err)
	}
	if o := ran(t, work, h, err); o.Err != nil || long[0] != 7 || long[bounceBytes-1] != 7 {
		t.Errorf("copied %v, %v", long[:4], o.Err)
	}
	// With two such copies in a row, the second can't use the bounce buffer.
	first, second := make([]byte, bounceBytes), make([]byte, bounceBytes)
	if _, err = work.CopyOut(first, big); err != nil {
		t.Fatal(err)
	}
	h, err = work.CopyOut(second, big)
	ran(t, work, h, err)
	if !bytes.Equal(first, long) || !bytes.Equal(second, long) {
		t.Error("copied wrongly")
	}
}

// Wait ends with its context even if the command does not.
func TestWaitEndsWithContext(t *testing.T) {
	x := newFake(t, Options{})
	c := x.context(t, gpu.ContextOptions{})
	ch := channelOf(t, c)
	f, err := ch.Launch(kernel(t, c, "hang", 0))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := ch.Wait(ctx, f); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	x.unblock()
	if err := ch.Wait(t.Context(), f); err != nil {
		t.Error(err)
	}
}

func TestFaultPoisons(t *testing.T) {
	x := newFake(t, Options{})
	c := x.context(t, gpu.ContextOptions{})
	ch, beside := channelOf(t, c), channelOf(t, c)
	p := alloc(t, c, 8)
	one, err := ch.Launch(kernel(t, c, "add", uint64(p)))
	if err != nil {
		t.Fatal(err)
	}
	bad, err := ch.Launch(kernel(t, c, "bad", 0))
	if err != nil {
		t.Fatal(err)
	}
	x.unblock()
	if err := ch.Wait(t.Context(), bad); err != nil {
		t.Fatal(err)
	}
	var fault *gpu.Fault
	if o := ch.Outcome(bad); !errors.As(o.Err, &fault) || fault.Kind != gpu.FaultAddress || fault.Kernel != "bad" {
		t.Errorf("%+v", o)
	}
	if o := ch.Outcome(one); o.Err != nil {
		t.Errorf("what came before: %v", o.Err)
	}
	for what, call := range map[string]func() error{
		"launch": func() error { _, err := beside.Launch(&gpu.Launch{}); return err },
		"alloc":  func() error { _, err := c.Alloc(1); return err },
		"free":   func() error { return c.Free(p) },
		"memory": func() error { _, _, err := c.Memory(); return err },
		"load":   func() error { _, err := c.LoadModule(nil); return err },
		"printf": func() error { _, err := c.Printf(1); return err },
		"new":    func() error { _, err := c.NewChannel(); return err },
		"set":    func() error { _, err := ch.Set(p, 0, 1, 1); return err },
	} {
		if err := call(); !errors.As(err, &fault) {
			t.Errorf("%s in a poisoned context: %v", what, err)
		}
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// The next call detects a fault even if nobody waits for the launch that caused it. Launches queued
// after it are dropped.
func TestFaultDropsWhatIsBehind(t *testing.T) {
	x := newFake(t, Options{})
	c := x.context(t, gpu.ContextOptions{})
	ch := channelOf(t, c)
	hang, bad, add := kernel(t, c, "hang", 0), kernel(t, c, "bad", 0), kernel(t, c, "add", uint64(alloc(t, c, 8)))
	for _, l := range []*gpu.Launch{hang, bad, add} {
		if _, err := ch.Launch(l); err != nil {
			t.Fatal(err)
		}
	}
	x.unblock()
	if err := ch.Wait(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	if ch.Done() != 3 {
		t.Errorf("%d fences reached, of 3", ch.Done())
	}
	if o := ch.Outcome(3); !errors.Is(o.Err, gpu.ErrPoisoned) {
		t.Errorf("what was behind: %v", o.Err)
	}
	var fault *gpu.Fault
	if o := ch.Outcome(2); !errors.As(o.Err, &fault) {
		t.Errorf("what faulted: %v", o.Err)
	}
}

// A launch on an idle GPU starts after its call, not when the event before it was reached. A launch
// on a GPU busy with another context starts at the event. None starts after its end.
func TestLaunchBeginsAfterItsCall(t *testing.T) {
	x := newFake(t, Options{})
	c := x.context(t, gpu.ContextOptions{})
	if c.lag < 0 || c.lag > maxLag {
		t.Errorf("a lag of %v", c.lag)
	}
	ch := channelOf(t, c)
	before := time.Now()
	f, err := ch.Launch(kernel(t, c, "hang", 0))
	called := time.Since(before)
	if err != nil {
		t.Fatal(err)
	}
	s := &ch.slots[uint64(f)%slotCount]
	if s.called == 0 || s.began != recorded || s.took <= 0 || s.took > called {
		t.Fatalf("called at %v, for %v of %v, began %v", s.called, s.took, called, s.began)
	}
	x.unblock()
	if err := ch.Wait(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	s.took = 0
	stamped := ch.Outcome(f)
	half := min((stamped.End-stamped.Start)/2, maxCallTime)
	c.lag = half / 2
	for _, l := range []struct{ called, took, want time.Duration }{
		{stamped.Start + time.Microsecond, half, stamped.Start + half + half/2},
		{stamped.Start - otherContextDelay/2, half, stamped.Start + half + half/2}, // the clocks differ a little
		{stamped.Start - 2*otherContextDelay, half, stamped.Start},                 // the GPU ran another context
		{stamped.Start, time.Hour, min(stamped.Start+maxCallTime+half/2, stamped.End)},
		{0, half, stamped.Start}, // unknown
	} {
		s.called, s.took = l.called, l.took
		if o := ch.Outcome(f); o.Err != nil || o.Start != l.want || o.End != stamped.End {
			t.Errorf("called %v after the event, for %v: %+v, want a start at %v", l.called-stamped.Start, l.took, o, l.want)
		}
	}
}

// While other contexts are made, most calls are delayed, some for longer than the kernel needs to
// begin. That does not give a lag below 0, nor does a GPU that others occupy for a while.
func TestLagOfCallsThatWereHeldUp(t *testing.T) {
	const held = 33 * time.Microsecond
	µs := func(took, lag float64) lagTry {
		return lagTry{time.Duration(took * 1e3), time.Duration(lag * 1e3)}
	}
	var tries []lagTry
	for i := range lagTries {
		try := µs(4+float64(i%3)/10, 1.8+float64(i%2)/10)
		switch {
		case i%5 < 3: // nearly two in three
			try.took, try.lag = try.took+held, try.lag-held
		case i%5 == 3 && i < 10:
			try.lag += 2 * held
		}
		tries = append(tries, try)
	}
	if l := lagOf(tries); l < 1800*time.Nanosecond || l > 1900*time.Nanosecond {
		t.Errorf("a lag of %v, want 1.8 to 1.9 µs", l)
	}
	for i := range tries {
		tries[i] = µs(40, -20)
	}
	if l := lagOf(tries); l != 0 {
		t.Errorf("a lag of %v where all calls were held up", l)
	}
	for i := range tries {
		tries[i] = µs(4, 300)
	}
	if l := lagOf(tries); l != maxLag {
		t.Errorf("a lag of %v where others had the GPU", l)
	}
}

// A word copy is one call of the driver. Its end is signalled on request, or with the next
// command's.
func TestWordsAreOneCall(t *testing.T) {
	x := newFake(t, Options{})
	c := x.context(t, gpu.ContextOptions{})
	ch := channelOf(t, c)
	p := alloc(t, c, 8)
	calls := func() (n int) {
		for _, method := range []string{"MemcpyHtoDAsync", "EventRecord", "StreamWriteValue64"} {
			n += x.gpu.Calls(method)
		}
		return n
	}
	write := func(b byte) gpu.Fence {
		t.Helper()
		before := calls()
		f, err := ch.CopyIn(p, []byte{b, 0, 0, 0})
		if err != nil {
			t.Fatal(err)
		}
		if n := calls() - before; n != 1 {
			t.Errorf("%d calls of the driver", n)
		}
		return f
	}
	first := write(1)
	second := write(2)
	if o := ran(t, ch, first, nil); o.Err != nil || o.End == 0 {
		t.Errorf("signalled by the command after it: %+v", o)
	}
	if o := ran(t, ch, second, nil); o.Err != nil || o.End == 0 || ch.Done() != second {
		t.Errorf("%+v, done %d", o, ch.Done())
	}
	third := write(3)
	f, err := ch.Launch(kernel(t, c, "add", uint64(p)))
	after := ran(t, ch, f, err)
	if o := ch.Outcome(third); o.Err != nil || o.End != after.End || after.Start > after.End {
		t.Errorf("%+v, before a launch %+v", o, after)
	}
	if got := read(t, ch, p, 8); got[0] != 4 {
		t.Errorf("the word is %d", got[0])
	}
	// More of them than the channel remembers, and memory that is freed after one.
	for range 2 * slotCount {
		if second, err = ch.CopyIn(p, []byte{5, 0, 0, 0}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Free(p); err != nil {
		t.Fatal(err)
	}
	if l := ch.lane; l.last.Load() != ch.base+uint64(second) {
		t.Errorf("freed behind command %d of %d", l.last.Load()-ch.base, second)
	}
	q := alloc(t, c, 8)
	f, err = ch.CopyIn(q, []byte{1, 2, 3, 4})
	if err != nil {
		t.Fatal(err)
	}
	if err := ch.Close(); err != nil {
		t.Fatal(err)
	}
	if l := ch.lane; l.last.Load() != ch.base+uint64(f) {
		t.Errorf("closed behind command %d of %d", l.last.Load()-ch.base, f)
	}
}

// A kernel after an unsignalled word copy has its time limit and its fault like any other.
func TestKernelBehindWord(t *testing.T) {
	x := newFake(t, Options{})
	defer x.unblock()
	c := x.context(t, gpu.ContextOptions{KernelTimeLimit: 50 * time.Millisecond})
	ch := channelOf(t, c)
	if _, err := ch.CopyIn(alloc(t, c, 64), make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	f, err := ch.Launch(kernel(t, c, "hang", 0))
	if err != nil {
		t.Fatal(err)
	}
	<-ch.gone
	var fault *gpu.Fault
	if o := ch.Outcome(f); !errors.As(o.Err, &fault) || fault.Kind != gpu.FaultTimeLimit || fault.Kernel != "hang" {
		t.Errorf("the kernel's outcome: %v", o.Err)
	}
}

// A kernel's time does not include delays of its launch call.
func TestHeldUpCallsAreNotTheKernels(t *testing.T) {
	x := newFake(t, Options{})
	c := x.context(t, gpu.ContextOptions{})
	ch := channelOf(t, c)
	f, err := ch.Launch(kernel(t, c, "hang", 0))
	if err != nil {
		t.Fatal(err)
	}
	for at := time.Now(); time.Since(at) < time.Millisecond; { // a kernel of at least this length
	}
	x.unblock()
	if err := ch.Wait(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	s := &ch.slots[uint64(f)%slotCount]
	s.took = 0
	stamped := ch.Outcome(f)
	s.called, s.took = stamped.Start, time.Hour
	if o := ch.Outcome(f); o.Err != nil || o.Start > stamped.Start+maxCallTime+c.lag {
		t.Errorf("the kernel began %v after its event: %v", o.Start-stamped.Start, o.Err)
	}
}
