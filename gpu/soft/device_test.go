package soft

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"vgpud/gpu"
	"vgpud/gpu/soft/machine"
)

// source has a kernel for each situation that a device must handle.
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

.visible .entry await(.param .u64 p)
{
	.reg .pred %p<2>;
	.reg .b64 %rd<2>;
	.reg .b32 %r<2>;
	ld.param.u64 %rd1, [p];
more:
	ld.volatile.global.u32 %r1, [%rd1];
	setp.eq.u32 %p1, %r1, 0;
	@%p1 bra more;
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

// wait waits for a fence and returns its outcome.
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

// params lays out arguments like C.
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

// vecadd runs the kernel on new memory and checks every sum.
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
	const n = 1 << 18 // in bytes, more than is copied at once in the caller
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

// A fault ends only its context, and reports where it was.
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
				// Without preemption the endless kernel would block the other contexts, so the
				// fault must come first.
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
			if _, err := bad.ctx.Printf(100); err != nil {
				t.Errorf("what a poisoned context printed: %v", err)
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

// TestKernelTimeLimitChanges tests that a limit that is set while an endless kernel runs ends it.
func TestKernelTimeLimitChanges(t *testing.T) {
	for _, mode := range []machine.Mode{machine.Exclusive, machine.Slices, machine.CoRun} {
		d := newDevice(t, Options{Machine: machine.Config{Mode: mode}})
		r := newRig(t, d, gpu.ContextOptions{})
		f := r.launch("forever", 1, 32)
		if err := r.ctx.(gpu.TimeLimited).SetKernelTimeLimit(time.Millisecond); err != nil {
			t.Fatal(err)
		}
		if o := r.wait(f); !errors.Is(o.Err, gpu.ErrTimeLimit) {
			t.Errorf("%v: an endless kernel ended with %v", mode, o.Err)
		}
	}
}

// A kernel lasts as long as its duration on the GPU's clock, and not less.
func TestDurationIsGPUTime(t *testing.T) {
	r := newRig(t, newDevice(t, Options{}), gpu.ContextOptions{})
	for _, want := range []time.Duration{50 * time.Microsecond, time.Millisecond, 5 * time.Millisecond} {
		o := r.wait(r.launch("spin", 1, 32, uint64(want)))
		if o.Err != nil || o.End-o.Start < want {
			t.Errorf("a kernel of %v: %v to %v, %v", want, o.Start, o.End, o.Err)
		}
	}
}
