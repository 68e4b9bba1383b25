package soft

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"vgpud/accounting"
	"vgpud/gpu"
	"vgpud/gpu/soft/machine"
)

// source has a kernel for each thing that a device must survive.
const source = `
.version 7.0
.target sm_80
.address_size 64

.global .align 4 .u32 counter = 41;

.visible .entry vecadd(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n)
{
	.reg .pred %p<2>;
	.reg .b32 %r<8>;
	.reg .b64 %rd<12>;
	ld.param.u64 %rd1, [a];
	ld.param.u64 %rd2, [b];
	ld.param.u64 %rd3, [c];
	ld.param.u32 %r1, [n];
	mov.u32 %r2, %ctaid.x;
	mov.u32 %r3, %ntid.x;
	mov.u32 %r4, %tid.x;
	mad.lo.s32 %r5, %r2, %r3, %r4;
	setp.ge.u32 %p1, %r5, %r1;
	@%p1 bra done;
	cvta.to.global.u64 %rd4, %rd1;
	cvta.to.global.u64 %rd5, %rd2;
	cvta.to.global.u64 %rd6, %rd3;
	mul.wide.u32 %rd7, %r5, 4;
	add.s64 %rd8, %rd4, %rd7;
	add.s64 %rd9, %rd5, %rd7;
	add.s64 %rd10, %rd6, %rd7;
	ld.global.u32 %r6, [%rd8];
	ld.global.u32 %r7, [%rd9];
	add.s32 %r6, %r6, %r7;
	st.global.u32 [%rd10], %r6;
done:
	ret;
}

.visible .entry empty()
{
	ret;
}

.visible .entry store(.param .u64 p)
{
	.reg .b64 %rd<2>;
	.reg .b32 %r<2>;
	ld.param.u64 %rd1, [p];
	mov.u32 %r1, 7;
	st.global.u32 [%rd1], %r1;
	ret;
}

.visible .entry forever()
{
again:
	bra again;
}

.visible .entry count()
{
	.reg .b32 %r<3>;
	ld.global.u32 %r1, [counter];
	add.s32 %r1, %r1, 1;
	st.global.u32 [counter], %r1;
	ret;
}

.visible .entry spin(.param .u64 nanos)
{
	.reg .pred %p<2>;
	.reg .b64 %rd<5>;
	ld.param.u64 %rd1, [nanos];
	mov.u64 %rd2, %globaltimer;
more:
	mov.u64 %rd3, %globaltimer;
	sub.s64 %rd4, %rd3, %rd2;
	setp.lt.u64 %p1, %rd4, %rd1;
	@%p1 bra more;
	ret;
}
`

func newDevice(t testing.TB, o Options) *Device {
	t.Helper()
	if o.MemoryBytes == 0 {
		o.MemoryBytes = 64 << 20
	}
	d, err := NewLocal(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("close the device: %v", err)
		}
	})
	return d
}

// rig is a context with a channel and the test's kernels.
type rig struct {
	t   testing.TB
	ctx gpu.Context
	ch  gpu.Channel
	m   gpu.Module
}

func newRig(t testing.TB, d gpu.Device, o gpu.ContextOptions) *rig {
	t.Helper()
	r := &rig{t: t}
	var err error
	if r.ctx, err = d.NewContext(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if r.m, err = r.ctx.LoadModule([]byte(source)); err != nil {
		t.Fatal(err)
	}
	if r.ch, err = r.ctx.NewChannel(); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) function(name string) gpu.Function {
	r.t.Helper()
	f, err := r.m.Function(name)
	if err != nil {
		r.t.Fatal(err)
	}
	return f
}

func (r *rig) alloc(n uint64) gpu.Ptr {
	r.t.Helper()
	p, err := r.ctx.Alloc(n)
	if err != nil {
		r.t.Fatal(err)
	}
	return p
}

func (r *rig) launch(name string, blocks, threads uint32, args ...any) gpu.Fence {
	r.t.Helper()
	f, err := r.ch.Launch(&gpu.Launch{Function: r.function(name), Grid: gpu.Dim3{X: blocks, Y: 1, Z: 1},
		Block: gpu.Dim3{X: threads, Y: 1, Z: 1}, Params: params(args...)})
	if err != nil {
		r.t.Fatal(err)
	}
	return f
}

// wait waits for a fence and returns how it ended.
func (r *rig) wait(f gpu.Fence) gpu.Outcome {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	if err := r.ch.Wait(ctx, f); err != nil {
		r.t.Fatalf("wait for fence %d: %v", f, err)
	}
	return r.ch.Outcome(f)
}

func (r *rig) must(f gpu.Fence, err error) gpu.Fence {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
	return f
}

// params lays arguments out as C would.
func params(args ...any) []byte {
	var b []byte
	for _, a := range args {
		switch a := a.(type) {
		case gpu.Ptr:
			b = binary.LittleEndian.AppendUint64(pad(b, 8), uint64(a))
		case uint64:
			b = binary.LittleEndian.AppendUint64(pad(b, 8), a)
		case uint32:
			b = binary.LittleEndian.AppendUint32(pad(b, 4), a)
		default:
			panic(fmt.Sprintf("argument %T", a))
		}
	}
	return b
}

func pad(b []byte, n int) []byte {
	for len(b)%n != 0 {
		b = append(b, 0)
	}
	return b
}

// vecadd runs the kernel on fresh memory and checks every sum.
func (r *rig) vecadd(n uint32) {
	r.t.Helper()
	a, b, c := r.alloc(uint64(n)*4), r.alloc(uint64(n)*4), r.alloc(uint64(n)*4)
	x, y := make([]byte, n*4), make([]byte, n*4)
	for i := range n {
		binary.LittleEndian.PutUint32(x[4*i:], i*3)
		binary.LittleEndian.PutUint32(y[4*i:], i^0x55)
	}
	got := make([]byte, n*4)
	r.must(r.ch.CopyIn(a, x))
	r.must(r.ch.CopyIn(b, y))
	k := r.launch("vecadd", (n+127)/128, 128, a, b, c, n)
	f := r.must(r.ch.CopyOut(got, c))
	if o := r.wait(f); o.Err != nil {
		r.t.Fatalf("copy out: %v", o.Err)
	}
	o := r.ch.Outcome(k)
	if o.Err != nil || o.End <= o.Start {
		r.t.Fatalf("launch: %+v", o)
	}
	for i := range n {
		if s := binary.LittleEndian.Uint32(got[4*i:]); s != i*3+(i^0x55) {
			r.t.Fatalf("sum %d is %d, want %d", i, s, i*3+(i^0x55))
		}
	}
	for _, p := range []gpu.Ptr{a, b, c} {
		if err := r.ctx.Free(p); err != nil {
			r.t.Fatal(err)
		}
	}
}

func TestVecaddInEveryMode(t *testing.T) {
	for _, mode := range []machine.Mode{machine.Exclusive, machine.Slices, machine.CoRun} {
		t.Run(mode.String(), func(t *testing.T) {
			d := newDevice(t, Options{Machine: machine.Config{Mode: mode}})
			var wg sync.WaitGroup
			for i := range 3 {
				r := newRig(t, d, gpu.ContextOptions{Label: fmt.Sprint("guest", i)})
				wg.Go(func() {
					for n := range 5 {
						r.vecadd(uint32(1000*i + 77*n + 1))
					}
				})
			}
			wg.Wait()
			u, err := d.Usage()
			if err != nil {
				t.Fatal(err)
			}
			if len(u.Groups) != 3 || len(u.Labels) != 3 {
				t.Errorf("%d groups and %d labels, want 3 of each", len(u.Groups), len(u.Labels))
			}
			var busy time.Duration
			for _, g := range u.Groups {
				if g.Launches != 5 {
					t.Errorf("%s: %d launches, want 5", g.Label, g.Launches)
				}
				busy += g.Busy
			}
			if busy != u.Machine.Busy || u.Machine.Busy+u.Machine.Idle+u.Machine.Switching != u.Machine.Elapsed {
				t.Errorf("groups were busy %v; %+v", busy, u.Machine)
			}
		})
	}
}

func TestModuleVariables(t *testing.T) {
	r := newRig(t, newDevice(t, Options{}), gpu.ContextOptions{})
	r.launch("count", 1, 1)
	p, n, err := r.m.Global("counter")
	if err != nil || n != 4 {
		t.Fatalf("counter: %d bytes, %v", n, err)
	}
	got := make([]byte, 4)
	if o := r.wait(r.must(r.ch.CopyOut(got, p))); o.Err != nil {
		t.Fatal(o.Err)
	}
	if v := binary.LittleEndian.Uint32(got); v != 42 {
		t.Errorf("counter is %d, want 42", v)
	}
	if err := r.ctx.Free(p); !errors.Is(err, gpu.ErrInvalidPtr) {
		t.Errorf("free a module's variables: %v", err)
	}
	if _, err := r.m.Function("nothing"); !errors.Is(err, gpu.ErrNotFound) {
		t.Errorf("a function that isn't there: %v", err)
	}
	if _, _, err := r.m.Global("nothing"); !errors.Is(err, gpu.ErrNotFound) {
		t.Errorf("a variable that isn't there: %v", err)
	}
	if err := r.m.Unload(); err != nil {
		t.Fatal(err)
	}
	if err := r.m.Unload(); !errors.Is(err, gpu.ErrNotFound) {
		t.Errorf("unload twice: %v", err)
	}
}

// Copies and launches of a channel run in the order in which they were queued.
func TestCommandsKeepTheirOrder(t *testing.T) {
	r := newRig(t, newDevice(t, Options{}), gpu.ContextOptions{})
	const n = 1 << 18 // bytes: more than is copied at once in the caller
	p, q := r.alloc(n), r.alloc(n)
	first, second, third := make([]byte, n), make([]byte, n), make([]byte, 4)
	for i := range 4 {
		r.launch("spin", 1, 32, uint64(200_000))
		r.must(r.ch.Set(p, uint32(i+1), 1, n))
		r.must(r.ch.Copy(q, p, n))
		r.must(r.ch.CopyOut(first, q))
		r.launch("store", 1, 1, q)
		r.must(r.ch.CopyOut(third, q))
		f := r.must(r.ch.CopyOut(second, p))
		if o := r.wait(f); o.Err != nil {
			t.Fatal(o.Err)
		}
		if want := bytes.Repeat([]byte{byte(i + 1)}, n); !bytes.Equal(first, want) || !bytes.Equal(second, want) {
			t.Fatalf("round %d: what was set did not come back", i)
		}
		if v := binary.LittleEndian.Uint32(third); v != 7 {
			t.Fatalf("round %d: stored %d, want 7", i, v)
		}
	}
}

func TestMoreCommandsThanRoom(t *testing.T) {
	r := newRig(t, newDevice(t, Options{}), gpu.ContextOptions{})
	var f gpu.Fence
	for range 5 * gpu.OutcomesKept {
		f = r.launch("empty", 1, 32)
	}
	if o := r.wait(f); o.Err != nil {
		t.Fatal(o.Err)
	}
	if done := r.ch.Done(); done != f {
		t.Errorf("fence %d is reached, want %d", done, f)
	}
	if o := r.ch.Outcome(1); !errors.Is(o.Err, gpu.ErrNotFound) {
		t.Errorf("the first of %d commands is still remembered: %v", f, o.Err)
	}
}

// A fault ends its context and no other, and says where it was.
func TestFaultPoisonsOneContext(t *testing.T) {
	for _, mode := range []machine.Mode{machine.Exclusive, machine.Slices, machine.CoRun} {
		t.Run(mode.String(), func(t *testing.T) {
			d := newDevice(t, Options{Machine: machine.Config{Mode: mode}})
			bad, good := newRig(t, d, gpu.ContextOptions{}), newRig(t, d, gpu.ContextOptions{})
			other, err := bad.ctx.NewChannel()
			if err != nil {
				t.Fatal(err)
			}
			p := bad.alloc(4)
			waits, err := other.Launch(&gpu.Launch{Function: bad.function("forever"), Grid: gpu.Dim3{X: 1, Y: 1, Z: 1}, Block: gpu.Dim3{X: 1, Y: 1, Z: 1}})
			if err != nil {
				t.Fatal(err)
			}
			if mode == machine.Exclusive {
				// Without preemption the endless kernel keeps the others out for good: have a fault first.
				if err := other.Close(); err != nil {
					t.Fatal(err)
				}
				if err := bad.ctx.Close(); err != nil {
					t.Fatal(err)
				}
				bad = newRig(t, d, gpu.ContextOptions{})
				p = bad.alloc(4)
			}
			f := bad.launch("store", 1, 1, p+4)
			dropped := bad.launch("empty", 1, 1)
			o := bad.wait(f)
			var fault *gpu.Fault
			if !errors.As(o.Err, &fault) {
				t.Fatalf("a bad store ended with %v", o.Err)
			}
			if fault.Kind != gpu.FaultAddress || fault.Kernel != "store" || fault.Address != uint64(p+4) || !fault.Write {
				t.Errorf("fault %+v", fault)
			}
			if o := bad.wait(dropped); !errors.Is(o.Err, gpu.ErrPoisoned) {
				t.Errorf("the launch behind it ended with %v", o.Err)
			}
			if mode != machine.Exclusive {
				if err := other.Wait(t.Context(), waits); err != nil {
					t.Error(err)
				}
				if o := other.Outcome(waits); !errors.Is(o.Err, gpu.ErrPoisoned) {
					t.Errorf("the other channel's launch ended with %v", o.Err)
				}
			}
			if _, err := bad.ctx.Alloc(4); !errors.As(err, &fault) {
				t.Errorf("alloc in a poisoned context: %v", err)
			}
			if !errors.As(bad.ctx.Fault(), &fault) {
				t.Errorf("the context's fault is %v", bad.ctx.Fault())
			}
			good.vecadd(500)
			if err := good.ctx.Fault(); err != nil {
				t.Errorf("the other context: %v", err)
			}
			if err := bad.ctx.Close(); err != nil {
				t.Error(err)
			}
			good.vecadd(500)
		})
	}
}

func TestKernelTimeLimit(t *testing.T) {
	for _, mode := range []machine.Mode{machine.Exclusive, machine.Slices, machine.CoRun} {
		d := newDevice(t, Options{Machine: machine.Config{Mode: mode}})
		bad := newRig(t, d, gpu.ContextOptions{KernelTimeLimit: 3 * time.Millisecond})
		good := newRig(t, d, gpu.ContextOptions{})
		f := bad.launch("forever", 1, 32)
		good.vecadd(100)
		o := bad.wait(f)
		if !errors.Is(o.Err, gpu.ErrTimeLimit) {
			t.Errorf("%v: an endless kernel ended with %v", mode, o.Err)
		}
		good.vecadd(100)
	}
}

// A kernel lasts as long as it says, on the GPU's clock, and not less.
func TestDurationIsGPUTime(t *testing.T) {
	r := newRig(t, newDevice(t, Options{}), gpu.ContextOptions{})
	for _, want := range []time.Duration{50 * time.Microsecond, time.Millisecond, 5 * time.Millisecond} {
		o := r.wait(r.launch("spin", 1, 32, uint64(want)))
		if o.Err != nil || o.End-o.Start < want {
			t.Errorf("a kernel of %v: %v to %v, %v", want, o.Start, o.End, o.Err)
		}
	}
}

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
	// The device's memory is shared: what one has, another can't.
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
		"in":        func() (gpu.Fence, error) { return r.ch.CopyIn(p, buf) },
		"out":       func() (gpu.Fence, error) { return r.ch.CopyOut(buf, p) },
		"across":    func() (gpu.Fence, error) { return r.ch.Copy(p, p+50, 51) },
		"set":       func() (gpu.Fence, error) { return r.ch.Set(p, 1, 4, 26) },
		"set huge":  func() (gpu.Fence, error) { return r.ch.Set(p, 1, 4, 1<<62) },
		"null":      func() (gpu.Fence, error) { return r.ch.CopyOut(buf[:1], 0) },
		"wrapping":  func() (gpu.Fence, error) { return r.ch.CopyOut(buf[:1], ^gpu.Ptr(0)) },
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
	for name, text := range map[string]string{"empty": "", "not PTX": "hello", "half": source[:len(source)/2]} {
		if _, err := r.ctx.LoadModule([]byte(text)); err == nil {
			t.Errorf("a module that is %s was loaded", name)
		}
	}
	r.vecadd(100)
}

// The source over the register page sees who executes, and that nobody does.
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

// The pacing thread sleeps without telling Go's scheduler. A collection must reach it all the same.
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
	endless := a.launch("spin", 1, 32, uint64(20_000_000))
	if err := d.Suspend(a.ctx); err != nil {
		t.Fatal(err)
	}
	b.vecadd(3000)
	if a.ch.Done() >= endless {
		t.Error("the suspended context's kernel ended")
	}
	if err := d.SetTimeslice(a.ctx, time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if err := d.Resume(a.ctx); err != nil {
		t.Fatal(err)
	}
	if o := a.wait(endless); o.Err != nil {
		t.Error(o.Err)
	}
}

// A closed channel's kernel runs on; its channel's place is free only when it has ended.
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
	spin := &gpu.Launch{Function: r.function("spin"), Grid: gpu.Dim3{X: 1, Y: 1, Z: 1}, Block: gpu.Dim3{X: 32, Y: 1, Z: 1}, Params: params(uint64(200_000_000))}
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
	// In turn after it, and the two that were queued are gone.
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
	<-waited // either is right, an answer is what matters
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
	var p printBuffer
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
