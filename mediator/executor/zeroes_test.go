package executor

import (
	"testing"
	"time"

	"vgpud/clock"
	"vgpud/gpu"
	"vgpud/mediator/vgpu/abi"
)

// lazyMemory is a context whose memory is zeroed when let is called, and some of which was freed
// and is still in use.
type lazyMemory struct {
	slowFills
	zero  *slowChannel
	owed  uint64
	limit uint64 // of the next allocation, and module
	tries int
	loads int
}

func (c *lazyMemory) Alloc(size uint64) (gpu.Ptr, error) {
	c.tries++
	if size > c.limit-c.owed {
		return 0, gpu.ErrMemoryLimit
	}
	if _, err := c.zero.queued(); err != nil {
		return 0, err
	}
	return c.slowFills.Alloc(size)
}
func (c *lazyMemory) LoadModule(image []byte) (gpu.Module, error) {
	if c.loads++; uint64(len(image)) > c.limit-c.owed {
		return nil, gpu.ErrMemoryLimit
	}
	return c.slowFills.LoadModule(image)
}
func (c *lazyMemory) Zeroes() (gpu.Channel, gpu.Fence) { return c.zero, c.zero.sent }
func (c *lazyMemory) Freed() uint64                    { return c.owed }

// newLazyRig is newSlowRig with such memory, in simulated time.
func newLazyRig(t testing.TB) (r *rig, c *lazyMemory, let func(n int)) {
	t.Helper()
	r = newFakeRig(t)
	c = &lazyMemory{slowFills: slowFills{Context: r.ctx}, limit: 1 << 62}
	ch, err := c.NewChannel()
	if err != nil {
		t.Fatal(err)
	}
	c.zero = ch.(*slowChannel)
	r.x.o.Context = c
	sim := &clock.Sim{}
	sim.Advance(time.Hour)
	r.x.o.Clock = sim
	return r, c, func(n int) {
		for _, ch := range c.channels {
			ch.done = min(ch.done+gpu.Fence(n), ch.sent)
		}
		for range 3 {
			r.x.Step(false)
		}
	}
}

func (g *guestEnd) alloc(size uint64) { g.send(abi.Header{Op: abi.OpMemAlloc}, abi.Alloc{Size: size}) }

// TestZeroingIsWork: an allocation is answered at once. The zeroing of its memory is recorded as
// work on the GPU while it lasts, and afterwards.
func TestZeroingIsWork(t *testing.T) {
	r, _, let := newLazyRig(t)
	r.page.SetWorkLogWanted(true)
	slot, work := r.page.Context(0), r.page.WorkLog(0)
	g := r.open()
	for range 3 {
		g.must(abi.OpMemAlloc, abi.Alloc{Size: 1 << 10})
	}
	if !slot.OnGPU() || work.Since() == 0 || slot.Outstanding() != 0 {
		t.Errorf("while memory is zeroed the page says %v, since %v, and %d launches", slot.OnGPU(), work.Since(), slot.Outstanding())
	}
	let(2)
	if !slot.OnGPU() || work.Since() == 0 {
		t.Errorf("while the last is zeroed the page says %v, since %v", slot.OnGPU(), work.Since())
	}
	let(1)
	var sum time.Duration
	work.ReadAll(func(start, end time.Duration) { sum += end - start })
	if c := slot.Counters(); slot.OnGPU() || work.Since() != 0 || sum != 15 || c.GPUTime != 15 || c.Kernels != 0 {
		t.Errorf("in the end the page says %v, since %v, %v of work, counters %+v", slot.OnGPU(), work.Since(), sum, c)
	}
}

// TestAllocationBesideAKernel: a kernel that runs already, and could be given the address, never
// sees memory that is not zero. Only the answer waits for that.
func TestAllocationBesideAKernel(t *testing.T) {
	for _, k := range []struct {
		name       string
		attributes []abi.Attribute
	}{{"plain", nil}, {"preemptible", []abi.Attribute{kernels[0].Attribute()}}} {
		t.Run(k.name, func(t *testing.T) {
			r, c, let := newLazyRig(t)
			a, b, other := r.open(), r.open(), r.open()
			l := abi.Launch{Function: a.load("fake", k.name), Grid: [3]uint32{100, 1, 1}, Block: [3]uint32{32, 1, 1}, ParamBytes: 8}
			launch := func(g *guestEnd) {
				g.send(abi.Header{Op: abi.OpLaunch, Aux: uint16(len(k.attributes))}, l, attributed(make([]byte, 8), k.attributes...)...)
			}
			f, err := r.x.functions.get(l.Function)
			if err != nil {
				t.Fatal(err)
			}
			f.ran(time.Microsecond) // it is known to be brief
			slot := r.page.Context(0)
			launch(a)
			r.stepUntil("it is on the GPU", func() bool { return slot.Outstanding() == 1 })
			b.alloc(1 << 10)
			if !b.waits() || c.zero.sent == c.zero.done {
				t.Fatal("answered before it is zero")
			}
			other.must(abi.OpNop, abi.Empty{})
			launch(b)
			if b.waits(); slot.Outstanding() != 2 {
				t.Errorf("%d launches on the GPU, want the one behind the allocation too", slot.Outstanding())
			}
			c.zero.done = c.zero.sent
			r.x.Step(false)
			if done := b.receive(1)[0]; done.Op != abi.OpMemAlloc || done.Status != abi.StatusOK || done.Value[0] == 0 {
				t.Errorf("%v: %v, at %#x", done.Op, done.Status, done.Value[0])
			}
			for slot.Outstanding() > 0 {
				let(1)
			}
			a.receive(1)
			b.receive(1)
			if b.alloc(1 << 10); b.waits() {
				t.Error("with nothing on the GPU it waits")
			}
		})
	}
}

// TestAllocationsWait: a guest that allocates and frees in a loop has as little zeroing on the GPU
// as launches or fills.
func TestAllocationsWait(t *testing.T) {
	r, c, let := newLazyRig(t)
	a, b := r.open(), r.open()
	loop := func(size uint64) {
		for range 20 {
			for _, g := range []*guestEnd{a, b} {
				g.alloc(size)
			}
		}
		r.x.Step(false)
	}
	loop(16 * giga)
	for range 40 {
		if n := c.zero.sent - c.zero.done; n > longFills {
			t.Fatalf("%d that take long are zeroed at a time, want up to %d", n, longFills)
		}
		let(1)
	}
	for _, done := range append(a.receive(20), b.receive(20)...) {
		if done.Status != abi.StatusOK {
			t.Error(done.Status)
		}
	}
	for range 2 {
		loop(1)
	}
	if n := c.zero.sent - c.zero.done; n != maxZeroes {
		t.Errorf("%d short ones are zeroed at a time, want %d", n, maxZeroes)
	}
}

// TestZeroingEndsWithItsContext: a context that is over has nothing on the GPU.
func TestZeroingEndsWithItsContext(t *testing.T) {
	r, _, _ := newLazyRig(t)
	g := r.open()
	fn := g.load("fake", "plain")
	g.must(abi.OpMemAlloc, abi.Alloc{Size: 1 << 10})
	g.must(abi.OpMemAlloc, abi.Alloc{Size: 16 * giga})
	l := abi.Launch{Function: fn, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{32, 1, 1}, ParamBytes: 8}
	r.open().send(abi.Header{Op: abi.OpLaunch}, l, make([]byte, 8)...)
	r.x.Step(false)
	g.alloc(1 << 10)
	if !g.waits() {
		t.Error("answered before it is zero")
	}
	r.x.o.Context.(*lazyMemory).Context = faulted{r.ctx}
	r.x.fail(gpu.ErrTimeLimit)
	r.x.Step(false)
	if done := g.receive(1)[0]; done.Status != abi.StatusTimeLimit {
		t.Errorf("what is not zero is answered with %v", done.Status)
	}
	if slot := r.page.Context(0); slot.OnGPU() || r.x.launches != 0 || r.x.filling != 0 {
		t.Errorf("page says %v, %d commands taking %v", slot.OnGPU(), r.x.launches, r.x.filling)
	}
}

type faulted struct{ gpu.Context }

func (faulted) Fault() error { return gpu.ErrTimeLimit }
