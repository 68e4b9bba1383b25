package soft

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"vgpud/accounting"
	"vgpud/gpu"
	"vgpud/gpu/soft/machine"
)

func TestMemoryIsBoundedAndZero(t *testing.T) {
	d := newDevice(t, Options{MemoryBytes: 8 << 20})
	r := newRig(t, d, gpu.ContextOptions{MemoryLimit: 4 << 20})
	free, total, err := r.ctx.Memory()
	if err != nil || total != 4<<20 || free > total {
		t.Fatalf("%d of %d free, %v", free, total, err)
	}
	if _, err := r.ctx.Alloc(5 << 20); !errors.Is(err, gpu.ErrOutOfMemory) {
		t.Errorf("more than the limit: %v", err)
	}
	for _, size := range []uint64{0, 1 << 63, ^uint64(0)} {
		if _, err := r.ctx.Alloc(size); !errors.Is(err, gpu.ErrOutOfMemory) {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
	for _, size := range []uint64{300, 100_000, 3 << 20} {
		p := r.alloc(size)
		r.must(r.ch.Set(p, 0xff, 1, size))
		r.wait(r.must(r.ch.Set(p, 0xff, 1, size)))
		if err := r.ctx.Free(p); err != nil {
			t.Fatal(err)
		}
		if q := r.alloc(size); q != p {
			t.Fatalf("freed %#x, got %#x", p, q)
		}
		got := make([]byte, size)
		r.wait(r.must(r.ch.CopyOut(got, p)))
		if !bytes.Equal(got, make([]byte, size)) {
			t.Errorf("%d bytes handed out again are not zero", size)
		}
		if err := r.ctx.Free(p); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.ctx.Free(12345); !errors.Is(err, gpu.ErrInvalidPtr) {
		t.Errorf("free a wild pointer: %v", err)
	}
	// Contexts share the device's memory.
	big := newRig(t, d, gpu.ContextOptions{})
	big.alloc(7 << 20)
	if _, err := r.ctx.Alloc(3 << 20); !errors.Is(err, gpu.ErrOutOfMemory) {
		t.Errorf("more than the device has left: %v", err)
	}
	if err := big.ctx.Close(); err != nil {
		t.Fatal(err)
	}
	r.alloc(3 << 20)
}

func TestBadCopiesAndLaunches(t *testing.T) {
	r := newRig(t, newDevice(t, Options{}), gpu.ContextOptions{})
	p := r.alloc(100)
	buf := make([]byte, 101)
	for name, do := range map[string]func() (gpu.Fence, error){
		"in":       func() (gpu.Fence, error) { return r.ch.CopyIn(p, buf) },
		"out":      func() (gpu.Fence, error) { return r.ch.CopyOut(buf, p) },
		"across":   func() (gpu.Fence, error) { return r.ch.Copy(p, p+50, 51) },
		"set":      func() (gpu.Fence, error) { return r.ch.Set(p, 1, 4, 26) },
		"set huge": func() (gpu.Fence, error) { return r.ch.Set(p, 1, 4, 1<<62) },
		"null":     func() (gpu.Fence, error) { return r.ch.CopyOut(buf[:1], 0) },
		"wrapping": func() (gpu.Fence, error) { return r.ch.CopyOut(buf[:1], ^gpu.Ptr(0)) },
		"box in": func() (gpu.Fence, error) {
			return r.ch.Copy3D(&gpu.Copy3D{Width: 10, Height: 10, Depth: 1, Dst: gpu.Side{Ptr: p + 1, Pitch: 10}, Src: gpu.Side{Host: buf, Pitch: 10}})
		},
		"box out": func() (gpu.Fence, error) {
			return r.ch.Copy3D(&gpu.Copy3D{Width: 1, Height: 2, Depth: 2, Dst: gpu.Side{Host: buf, Pitch: 1, Rows: 2}, Src: gpu.Side{Ptr: p, Pitch: 30, Rows: 3}})
		},
		"set rows":  func() (gpu.Fence, error) { return r.ch.Set2D(p, 32, 1, 4, 2, 4) },
		"unaligned": func() (gpu.Fence, error) { return r.ch.Set(p+1, 1, 4, 1) },
	} {
		if _, err := do(); !errors.Is(err, gpu.ErrInvalidPtr) {
			t.Errorf("copy %s: %v, want ErrInvalidPtr", name, err)
		}
	}
	for name, l := range map[string]gpu.Launch{
		"no grid":       {Grid: gpu.Dim3{X: 0, Y: 1, Z: 1}, Block: gpu.Dim3{X: 1, Y: 1, Z: 1}, Params: make([]byte, 8)},
		"large block":   {Grid: gpu.Dim3{X: 1, Y: 1, Z: 1}, Block: gpu.Dim3{X: 1025, Y: 1, Z: 1}, Params: make([]byte, 8)},
		"overflow":      {Grid: gpu.Dim3{X: 1, Y: 1, Z: 1}, Block: gpu.Dim3{X: 1 << 31, Y: 1 << 31, Z: 4}, Params: make([]byte, 8)},
		"few params":    {Grid: gpu.Dim3{X: 1, Y: 1, Z: 1}, Block: gpu.Dim3{X: 1, Y: 1, Z: 1}, Params: make([]byte, 7)},
		"much shared":   {Grid: gpu.Dim3{X: 1, Y: 1, Z: 1}, Block: gpu.Dim3{X: 1, Y: 1, Z: 1}, Params: make([]byte, 8), SharedBytes: 1 << 30},
		"shared beyond": {Grid: gpu.Dim3{X: 1, Y: 1, Z: 1}, Block: gpu.Dim3{X: 1, Y: 1, Z: 1}, Params: make([]byte, 8), SharedBytes: ^uint64(0)},
	} {
		l.Function = r.function("store")
		if _, err := r.ch.Launch(&l); !errors.Is(err, gpu.ErrInvalidLaunch) {
			t.Errorf("launch with %s: %v, want ErrInvalidLaunch", name, err)
		}
	}
	for name, text := range map[string]string{"empty": "", "not PTX": "hello", "cut off": source[:strings.LastIndex(source, "}")]} {
		if _, err := r.ctx.LoadModule([]byte(text)); err == nil {
			t.Errorf("a module that is %s was loaded", name)
		}
	}
	r.vecadd(100)
}

// A source over the register page sees which context executes, and that none does.
func TestSourceSeesWhoExecutes(t *testing.T) {
	d := newDevice(t, Options{})
	src, err := d.Source()
	if err != nil {
		t.Fatal(err)
	}
	until := func(what string, is func(accounting.Status) bool) {
		t.Helper()
		for last := time.Duration(0); ; runtime.Gosched() {
			st, err := src.Sample()
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if st.Clock < last {
				t.Fatalf("%s: the clock went back from %v to %v", what, last, st.Clock)
			}
			if last = st.Clock; is(st) {
				return
			}
		}
	}
	for range 3 {
		r := newRig(t, d, gpu.ContextOptions{})
		r.launch("forever", 1, 32)
		until("executing", func(st accounting.Status) bool {
			return st.Valid && st.Busy && st.Switch == accounting.NoSwitch && gpu.GroupID(st.Group) == r.ctx.Group()
		})
		if err := r.ctx.Close(); err != nil {
			t.Fatal(err)
		}
		until("idle", func(st accounting.Status) bool { return !st.Busy })
	}
}

// The pacing thread sleeps without telling Go's scheduler, but a collection can still stop it.
func TestCollectionsWhileExecuting(t *testing.T) {
	r := newRig(t, newDevice(t, Options{}), gpu.ContextOptions{})
	for range 4 {
		f := r.launch("spin", 1, 32, uint64(20_000_000))
		for n := 0; r.ch.Done() < f; n++ {
			runtime.GC()
		}
		if o := r.wait(f); o.Err != nil {
			t.Fatal(o.Err)
		}
	}
}

func TestSuspendedContextWaits(t *testing.T) {
	d := newDevice(t, Options{Machine: machine.Config{Mode: machine.Slices}})
	a, b := newRig(t, d, gpu.ContextOptions{}), newRig(t, d, gpu.ContextOptions{})
	flag := a.alloc(4)
	waits := a.launch("await", 1, 32, uint64(flag))
	if err := d.Suspend(a.ctx); err != nil {
		t.Fatal(err)
	}
	b.vecadd(3000)
	// Work has arrived, and the thread does not notice.
	side, err := a.ctx.NewChannel()
	if err != nil {
		t.Fatal(err)
	}
	f := a.must(side.Set(flag, 1, 4, 1))
	if err := side.Wait(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	b.vecadd(3000)
	if a.ch.Done() >= waits {
		t.Error("the suspended context's kernel ended")
	}
	if err := d.SetTimeslice(a.ctx, time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if err := d.Resume(a.ctx); err != nil {
		t.Fatal(err)
	}
	if o := a.wait(waits); o.Err != nil {
		t.Error(o.Err)
	}
}

// The kernel of a closed channel runs on, and the channel's place is free only when it has ended.
func TestClosedChannelRunsOn(t *testing.T) {
	d := newDevice(t, Options{Channels: 2})
	r := newRig(t, d, gpu.ContextOptions{})
	ch, err := r.ctx.NewChannel()
	if err != nil {
		t.Fatal(err)
	}
	p := r.alloc(4)
	launches := func() uint64 {
		u, err := d.Usage()
		if err != nil {
			t.Fatal(err)
		}
		return u.Groups[0].Launches
	}
	spin := &gpu.Launch{Function: r.function("spin"), Grid: gpu.Dim3{X: 1, Y: 1, Z: 1}, Block: gpu.Dim3{X: 32, Y: 1, Z: 1}, Params: params(uint64(1_000_000_000))}
	for range 3 {
		if _, err := ch.Launch(spin); err != nil {
			t.Fatal(err)
		}
	}
	src, err := d.Source()
	if err != nil {
		t.Fatal(err)
	}
	for st, _ := src.Sample(); !st.Busy; st, _ = src.Sample() {
		runtime.Gosched()
	}
	if err := ch.Close(); err != nil {
		t.Fatal(err)
	}
	for launches() == 0 {
		runtime.Gosched()
	}
	// It runs after the first, and the two queued launches are gone.
	if o := r.wait(r.launch("store", 1, 1, p)); o.Err != nil {
		t.Error(o.Err)
	}
	if n := launches(); n < 2 || n > 3 {
		t.Errorf("%d launches ended, want what executed and the one after it", n)
	}
	if _, err := r.ctx.NewChannel(); err != nil {
		t.Errorf("the closed channel's place: %v", err)
	}
}

func TestClosedDeviceAnswers(t *testing.T) {
	d, err := NewLocal(Options{MemoryBytes: 16 << 20})
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, d, gpu.ContextOptions{})
	r.launch("forever", 1, 32)
	f := r.launch("empty", 1, 32)
	waited := make(chan error)
	go func() { waited <- r.ch.Wait(context.Background(), f) }()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	<-waited // any result is valid, but there must be one
	if _, err := r.ch.Launch(&gpu.Launch{Function: r.function("empty"), Grid: gpu.Dim3{X: 1, Y: 1, Z: 1}, Block: gpu.Dim3{X: 1, Y: 1, Z: 1}}); err == nil {
		t.Error("a launch on a closed device was taken")
	}
	if _, err := d.NewContext(t.Context(), gpu.ContextOptions{}); err == nil {
		t.Error("a closed device gave a context")
	}
	if err := d.Close(); err != nil {
		t.Errorf("close twice: %v", err)
	}
}

func TestLimitsOnContextsAndChannels(t *testing.T) {
	d := newDevice(t, Options{Contexts: 2, Channels: 2, Modules: 2})
	a := newRig(t, d, gpu.ContextOptions{})
	b := newRig(t, d, gpu.ContextOptions{})
	if _, err := d.NewContext(t.Context(), gpu.ContextOptions{}); !errors.Is(err, gpu.ErrOutOfMemory) {
		t.Errorf("a third of two contexts: %v", err)
	}
	if err := b.ctx.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := d.NewContext(t.Context(), gpu.ContextOptions{}); err != nil {
		t.Errorf("after one was closed: %v", err)
	}
	ch, err := a.ctx.NewChannel()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.ctx.NewChannel(); !errors.Is(err, gpu.ErrOutOfMemory) {
		t.Errorf("a third of two channels: %v", err)
	}
	if err := ch.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := a.ctx.NewChannel(); err != nil {
		t.Errorf("after one was closed: %v", err)
	}
	if _, err := a.ctx.LoadModule([]byte(source)); err != nil {
		t.Fatal(err)
	}
	if _, err := a.ctx.LoadModule([]byte(source)); !errors.Is(err, gpu.ErrOutOfMemory) {
		t.Errorf("a third of two modules: %v", err)
	}
}

func TestPrintBufferKeepsLines(t *testing.T) {
	p := printBuffer{max: printBytes}
	fmt.Fprint(&p, "one\ntwo\nthree\n")
	if got := string(p.take(9)); got != "one\ntwo\n" {
		t.Errorf("took %q", got)
	}
	if got := string(p.take(3)); got != "thr" {
		t.Errorf("of a line that is longer: %q", got)
	}
	if got := string(p.take(100)); got != "ee\n" {
		t.Errorf("took %q", got)
	}
	fmt.Fprint(&p, strings.Repeat("x", printBytes+1))
	if got := len(p.take(2 * printBytes)); got != 0 {
		t.Errorf("kept %d bytes of a line that is too long", got)
	}
}

func BenchmarkEmptyKernel(b *testing.B) {
	d := newDevice(b, Options{})
	r := newRig(b, d, gpu.ContextOptions{})
	l := &gpu.Launch{Function: r.function("empty"), Grid: gpu.Dim3{X: 1, Y: 1, Z: 1}, Block: gpu.Dim3{X: 32, Y: 1, Z: 1}}
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		f, err := r.ch.Launch(l)
		if err != nil {
			b.Fatal(err)
		}
		if err := r.ch.Wait(ctx, f); err != nil {
			b.Fatal(err)
		}
	}
	u, err := d.Usage()
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(u.Machine.Overrun.Nanoseconds())/float64(max(u.Machine.Launches, 1)), "overrun-ns/launch")
	b.ReportMetric(float64(u.Machine.Busy.Nanoseconds())/float64(max(u.Machine.Launches, 1)), "gpu-ns/launch")
}

// One owner gets no more than its part of the channels, whatever the labels of its contexts, and
// can use closed channels again.
func TestChannelsPerOwner(t *testing.T) {
	e := startEngine(t, Options{Machine: machine.Config{Channels: 8}})
	contexts := func(owner string) (made int, last ContextDriver, id uint32) {
		for i := range 3 {
			c, info, err := e.NewContextOf(owner, gpu.ContextOptions{Label: string(rune('a' + i)), MemoryLimit: 1 << 16})
			if err != nil {
				t.Fatal(err)
			}
			if err := info.Memory.Close(); err != nil {
				t.Fatal(err)
			}
			ch, err := c.NewChannel()
			switch {
			case err == nil:
				made, last, id = made+1, c, ch.ID
				if err := ch.Ring.Close(); err != nil {
					t.Fatal(err)
				}
			case !errors.Is(err, gpu.ErrFull):
				t.Errorf("%s: %v", owner, err)
			}
		}
		return made, last, id
	}
	made, c, id := contexts("user 1")
	if made != 2 {
		t.Errorf("one owner has %d of 8 channels, want a quarter", made)
	}
	if made, _, _ := contexts("user 2"); made != 2 {
		t.Errorf("another has %d", made)
	}
	if err := c.CloseChannel(id); err != nil {
		t.Fatal(err)
	}
	ch, err := c.NewChannel()
	if err != nil {
		t.Fatalf("in place of one that was closed: %v", err)
	}
	if err := ch.Ring.Close(); err != nil {
		t.Error(err)
	}
}

// TestManyModules loads as many modules as programs do that load one for each of their kernels.
func TestManyModules(t *testing.T) {
	r := newRig(t, newDevice(t, Options{}), gpu.ContextOptions{})
	for i := range 1000 {
		if _, err := r.ctx.LoadModule([]byte(".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry k() { ret; }\n")); err != nil {
			t.Fatalf("module %d: %v", i, err)
		}
	}
}
