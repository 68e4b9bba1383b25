package nvidia

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"vgpud/gpu"
	"vgpud/gpu/nvidia/cuda"
	"vgpud/gpu/nvidia/cuda/cudatest"
)

// kernelsPTX has the kernels that newFake gives the driver.
const kernelsPTX = `.version 7.0
.target sm_70
.address_size 64
.global .b8 table[64];
.visible .entry add(.param .u64 at) {}
.visible .entry hang(.param .u64 at) {}
.visible .entry bad(.param .u64 at) {}
`

// fake is a device on the driver in software. Its kernel "add" adds 1 to the word
// that it is given, and "hang" runs until let is called, as "bad" does, which faults
// then.
type fake struct {
	*Device
	gpu     *cudatest.GPU
	release chan struct{}
}

func newFake(t testing.TB, o Options) *fake {
	t.Helper()
	g := cudatest.New()
	x := &fake{gpu: g, release: make(chan struct{})}
	g.Kernels["add"] = func(l *cudatest.Launch) error {
		b, err := g.Bytes(cuda.DevicePtr(l.Param(0)), 8)
		if err != nil {
			return err
		}
		binary.LittleEndian.PutUint64(b, binary.LittleEndian.Uint64(b)+1)
		return nil
	}
	g.Kernels["hang"] = func(*cudatest.Launch) error {
		<-x.release
		return nil
	}
	g.Kernels["bad"] = func(*cudatest.Launch) error {
		<-x.release // else it could fault before the launch call has returned
		return cuda.ErrIllegalAddress
	}
	o.Driver = g
	d, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	x.Device = d
	t.Cleanup(func() {
		x.let()
		if err := d.Close(); err != nil && !errors.Is(err, gpu.ErrTimeLimit) {
			t.Error(err)
		}
	})
	return x
}

// let ends kernels that hang.
func (x *fake) let() {
	select {
	case <-x.release:
	default:
		close(x.release)
	}
}

func (x *fake) context(t testing.TB, o gpu.ContextOptions) *Context {
	t.Helper()
	c, err := x.NewContext(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return c.(*Context)
}

// kernel is a launch of one of the kernels.
func kernel(t testing.TB, c *Context, name string, param uint64) *gpu.Launch {
	t.Helper()
	m, err := c.LoadModule([]byte(kernelsPTX))
	if err != nil {
		t.Fatal(err)
	}
	f, err := m.Function(name)
	if err != nil {
		t.Fatal(err)
	}
	one := gpu.Dim3{X: 1, Y: 1, Z: 1}
	return &gpu.Launch{Function: f, Grid: one, Block: one, Params: binary.LittleEndian.AppendUint64(nil, param)}
}

func alloc(t testing.TB, c *Context, n uint64) gpu.Ptr {
	t.Helper()
	p, err := c.Alloc(n)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// read copies n bytes out.
func read(t testing.TB, ch *Channel, p gpu.Ptr, n int) []byte {
	t.Helper()
	b := make([]byte, n)
	f, err := ch.CopyOut(b, p)
	if o := ran(t, ch, f, err); o.Err != nil {
		t.Fatal(o.Err)
	}
	return b
}

// Commands of a channel happen in order, and their times are the GPU's.
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

// Memory is zero, though what the driver hands out is not, also for a channel that
// was idle since before.
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

// A copy of a word waits for no kernel but its own stream's, wherever the word is.
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
	clear(w) // it was taken
	if o := ran(t, words, g, err); o.Err != nil {
		t.Fatal(o.Err)
	}
	if got := read(t, words, p, 4); !bytes.Equal(got, []byte{1, 2, 3, 4}) {
		t.Errorf("the word is %v", got)
	}
	if work.Done() >= f {
		t.Error("the kernel has ended")
	}
	// A copy out behind the kernel doesn't hold its caller up, and lands when the
	// kernel is done.
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
	x.let()
	if o := ran(t, work, g, err); o.Err != nil || out != [4]byte{1, 2, 3, 4} {
		t.Errorf("copied %v, %v", out, o.Err)
	}
	if o := ran(t, work, h, err); o.Err != nil || long[0] != 7 || long[bounceBytes-1] != 7 {
		t.Errorf("copied %v, %v", long[:4], o.Err)
	}
	// Of two such one after the other the second has to go another way.
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

// Wait ends with its context though the command does not.
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
	x.let()
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
	x.let()
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

// A fault is found out though nobody waits for the launch that caused it, by the
// next call; those queued behind it are dropped.
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
	x.let()
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

func TestTimeLimit(t *testing.T) {
	var used atomic.Int64
	x := newFake(t, Options{})
	c := x.context(t, gpu.ContextOptions{KernelTimeLimit: 40 * time.Millisecond, Elapsed: func() time.Duration { return time.Duration(used.Load()) }})
	ch := channelOf(t, c)
	f, err := ch.Launch(kernel(t, c, "hang", 0))
	if err != nil {
		t.Fatal(err)
	}
	// The time of its neighbours is not its own.
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
	select {
	case <-c.Hung():
	default:
		t.Error("it is not told that only the process's end stops the kernel")
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// Close of a context whose kernel runs gives up after a while, and says so.
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
		t.Error("it is not told that only the process's end stops the kernel")
	}
}

// A channel's stream is used again when what was left in it is done, not before.
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
	x.let()
	for ch.(*Channel).word.Load() != ch.(*Channel).last.Load() {
		time.Sleep(time.Millisecond)
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

// Time off the GPU is no kernel's.
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

// Close notices a fault that nobody has waited for, and waits no longer.
func TestCloseWithFault(t *testing.T) {
	x := newFake(t, Options{})
	c := x.context(t, gpu.ContextOptions{})
	ch := channelOf(t, c)
	if _, err := ch.Launch(kernel(t, c, "bad", 0)); err != nil {
		t.Fatal(err)
	}
	x.let()
	start := time.Now()
	if err := c.Close(); err != nil || time.Since(start) > closingLimit/2 {
		t.Errorf("closed in %v, %v", time.Since(start), err)
	}
}

// Whoever still has a channel of a closed context is told that it is gone.
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
