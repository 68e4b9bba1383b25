package nvidia

import (
	"encoding/binary"
	"runtime"
	"testing"
	"time"

	"vgpud/gpu"
	"vgpud/mediator/vgpu/abi"
	"vgpud/mediator/vgpu/abi/eventqueue"
)

// tallyPTX has a kernel that adds its parameter, times a number in constant memory, to a variable, and
// notes what that was before in another, by an address that the driver filled in; and one that does the
// same and can't be called.
const tallyPTX = `.version 7.0
.target sm_70
.address_size 64
.visible .global .align 8 .u64 sum = 5;
.visible .global .align 8 .u64 before;
.visible .global .align 8 .u64 there = generic(before);
.global .align 8 .u64 hidden;
.visible .const .align 8 .u64 scale = 2;
.visible .entry tally(.param .u64 n)
{
	.reg .b64 %rd<8>;
	ld.param.u64 %rd1, [n];
	ld.const.u64 %rd2, [scale];
	mul.lo.u64 %rd3, %rd1, %rd2;
	atom.global.add.u64 %rd4, [sum], %rd3;
	ld.global.u64 %rd5, [there];
	st.u64 [%rd5], %rd4;
	ret;
}
.visible .entry kept(.param .u64 n)
{
	.reg .b64 %rd<8>;
	mov.u64 %rd6, %gridid;
	ld.param.u64 %rd1, [n];
	ld.const.u64 %rd2, [scale];
	mul.lo.u64 %rd3, %rd1, %rd2;
	atom.global.add.u64 %rd4, [sum], %rd3;
	ld.global.u64 %rd7, [hidden];
	add.u64 %rd4, %rd4, %rd7;
	mov.u64 %rd5, before;
	st.global.u64 [%rd5], %rd4;
	ret;
}
`

// tally is a context with tallyPTX's module and one of its kernels as an event kernel.
type tally struct {
	t  *testing.T
	c  *Context
	m  gpu.Module
	ch gpu.Channel
	f  gpu.Function
	l  *eventqueue.Launcher
}

func newTally(t *testing.T, c *Context, kernel string) *tally {
	t.Helper()
	f, area := sealedFile(t, abi.EventAreaBytes)
	if _, err := c.MapEvents(f); err != nil {
		t.Fatal(err)
	}
	v := &tally{t: t, c: c}
	var err error
	if v.m, err = c.LoadModule([]byte(tallyPTX)); err != nil {
		t.Fatal(err)
	}
	if v.ch, err = c.NewChannel(); err != nil {
		t.Fatal(err)
	}
	if v.f, err = v.m.Function(kernel); err != nil {
		t.Fatal(err)
	}
	if err := c.RegisterEventKernel(&gpu.EventKernel{Number: eventNumber, Handle: 9, Entries: 4, Launch: *v.once(0)}); err != nil {
		t.Fatal(err)
	}
	if v.l, err = eventqueue.Attach(area, eventNumber); err != nil {
		t.Fatal(err)
	}
	return v
}

// once returns a launch of one thread.
func (v *tally) once(n uint64) *gpu.Launch {
	one := gpu.Dim3{X: 1, Y: 1, Z: 1}
	return &gpu.Launch{Function: v.f, Grid: one, Block: one, Params: binary.LittleEndian.AppendUint64(nil, n)}
}

func (v *tally) done(f gpu.Fence, err error) {
	v.t.Helper()
	if o := ran(v.t, v.ch.(*Channel), f, err); o.Err != nil {
		v.t.Fatal(o.Err)
	}
}

func (v *tally) at(name string) gpu.Ptr {
	v.t.Helper()
	p, n, err := v.m.Global(name)
	if err != nil || n != 8 {
		v.t.Fatalf("%s: %d bytes, %v", name, n, err)
	}
	return p
}

// set has the host write a variable, and get read one.
func (v *tally) set(name string, value uint64) {
	v.t.Helper()
	v.done(v.ch.CopyIn(v.at(name), binary.LittleEndian.AppendUint64(nil, value)))
}

func (v *tally) get(name string) uint64 {
	v.t.Helper()
	b := make([]byte, 8)
	v.done(v.ch.CopyOut(b, v.at(name)))
	return binary.LittleEndian.Uint64(b)
}

func (v *tally) want(after string, sum, before uint64) {
	v.t.Helper()
	if s, b := v.get("sum"), v.get("before"); s != sum || b != before {
		v.t.Errorf("after %s the variables are %d and %d, want %d and %d", after, s, b, sum, before)
	}
}

// fire launches an event by a store, and waits for its end.
func (v *tally) fire(n uint64) {
	v.t.Helper()
	e, ok := v.l.Free()
	if !ok {
		v.t.Fatal("no free entry")
	}
	binary.LittleEndian.PutUint64(v.l.Params(e), n)
	if v.l.Launch() {
		v.c.KickEvents()
	}
	for end := time.Now().Add(2 * time.Minute); ; runtime.Gosched() {
		if _, ok := v.l.Done(); ok {
			v.l.Complete()
			return
		}
		if err := v.c.Fault(); err != nil || time.Now().After(end) {
			v.t.Fatalf("the event has not ended within two minutes: %+v, fault %v", v.counts(), err)
		}
	}
}

func (v *tally) counts() gpu.EventKernelCounts {
	v.t.Helper()
	return countsOf(v.t, v.c, eventNumber)
}

// check has events, launches and the host take turns at the variables.
func (v *tally) check(tier abi.EventTier) {
	v.t.Helper()
	if n := v.counts(); n.Tier != tier {
		v.t.Fatalf("%+v, want tier %v", n, tier)
	}
	v.fire(10)
	v.want("an event", 25, 5)
	v.fire(100)
	v.want("a second one", 225, 25)
	v.set("sum", 1<<40)
	v.set("scale", 3)
	v.fire(1)
	v.want("an event after the host wrote", 1<<40+3, 1<<40)
	v.done(v.ch.Launch(v.once(5)))
	v.want("a launch", 1<<40+18, 1<<40+3)
	v.fire(2)
	v.want("an event after a launch", 1<<40+24, 1<<40+18)
	v.set("scale", 0)
	for range 3 * v.l.Entries() {
		v.fire(2)
	}
	v.want("many events", 1<<40+24, 1<<40+24)
	if n := v.counts(); n.Started != uint64(4+3*v.l.Entries()) || n.Ended != n.Started || n.Dropped != 0 {
		v.t.Errorf("counts %+v", n)
	}
}

// tiers are what launches events of tallyPTX's kernels.
var tiers = map[string]abi.EventTier{"tally": abi.EventWarp, "kept": abi.EventHost}

// TestEventKernelVariables: an event kernel uses the variables of its module, as its launches and the
// host do, whether a dispatcher calls it or the host launches it.
func TestEventKernelVariables(t *testing.T) {
	for name, tier := range tiers {
		t.Run(name, func(t *testing.T) {
			d, err := Open(Options{Driver: newPTXDriver(t, "tally", "kept")})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := d.Close(); err != nil {
					t.Error(err)
				}
			})
			c, err := d.NewContext(t.Context(), gpu.ContextOptions{})
			if err != nil {
				t.Fatal(err)
			}
			newTally(t, c.(*Context), name).check(tier)
		})
	}
}

// TestHardwareEventVariables is TestEventKernelVariables on a GPU.
func TestHardwareEventVariables(t *testing.T) {
	for name, tier := range tiers {
		t.Run(name, func(t *testing.T) {
			_, c := hardwareContext(t, gpu.ContextOptions{KernelTimeLimit: 5 * time.Second})
			v := newTally(t, c, name)
			_, err := v.m.(*Module).place("hidden")
			t.Logf("a variable that is not visible has an address: %t (%v)", err == nil, err)
			v.check(tier)
			unregister(t, c, eventNumber)
		})
	}
}
