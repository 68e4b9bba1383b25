package executor

import (
	"testing"
	"time"

	"vgpud/gpu"
	"vgpud/mediator/ipc"
	"vgpud/mediator/vgpu/abi"
)

// slowFills is a context whose channels finish commands only when let is called.
type slowFills struct {
	gpu.Context
	channels []*slowChannel
}

func (c *slowFills) NewChannel() (gpu.Channel, error) {
	ch, err := c.Context.NewChannel()
	s := &slowChannel{Channel: ch}
	c.channels = append(c.channels, s)
	return s, err
}

type slowChannel struct {
	gpu.Channel
	sent, done gpu.Fence
}

// queued returns a command's fence without touching memory.
func (c *slowChannel) queued() (gpu.Fence, error) { c.sent++; return c.sent, nil }

func (c *slowChannel) Set(gpu.Ptr, uint32, int, uint64) (gpu.Fence, error) { return c.queued() }
func (c *slowChannel) Set2D(gpu.Ptr, uint64, uint32, int, uint64, uint64) (gpu.Fence, error) {
	return c.queued()
}
func (c *slowChannel) Copy(gpu.Ptr, gpu.Ptr, uint64) (gpu.Fence, error) { return c.queued() }
func (c *slowChannel) Copy3D(*gpu.Copy3D) (gpu.Fence, error)            { return c.queued() }
func (c *slowChannel) CopyOut([]byte, gpu.Ptr) (gpu.Fence, error)       { return c.queued() }
func (c *slowChannel) Launch(*gpu.Launch) (gpu.Fence, error)            { return c.queued() }
func (c *slowChannel) Done() gpu.Fence                                  { return c.done }
func (c *slowChannel) Outcome(f gpu.Fence) gpu.Outcome {
	return gpu.Outcome{Start: 10 * time.Duration(f), End: 10*time.Duration(f) + 5}
}

// newSlowRig is a rig whose GPU finishes a command when let is called.
func newSlowRig(t testing.TB) (r *rig, let func(n int)) {
	t.Helper()
	r = newFakeRig(t)
	s := &slowFills{Context: r.ctx}
	r.x.o.Context = s
	return r, func(n int) {
		for _, ch := range s.channels {
			ch.done = min(ch.done+gpu.Fence(n), ch.sent)
		}
		for range 3 {
			r.x.Step(false)
		}
	}
}

// onGPU returns how many commands the GPU has.
func (r *rig) onGPU() (n gpu.Fence) {
	for _, ch := range r.x.o.Context.(*slowFills).channels {
		n += ch.sent - ch.done
	}
	return n
}

const giga = 1 << 30

func fillOf(n uint64) abi.Set { return abi.Set{Dst: fakeBase, Width: 1, Count: n, Rows: 1} }

// fillers are fills of n bytes.
var fillers = map[string]func(g *guestEnd, n uint64){
	"set": func(g *guestEnd, n uint64) { g.send(abi.Header{Op: abi.OpSet}, fillOf(n)) },
	"set of rows": func(g *guestEnd, n uint64) {
		g.send(abi.Header{Op: abi.OpSet}, abi.Set{Dst: fakeBase, Width: 4, Count: n / 64, Rows: 16, Pitch: n})
	},
	"copy": func(g *guestEnd, n uint64) {
		g.send(abi.Header{Op: abi.OpCopy}, abi.Transfer{Dst: fakeBase, Src: fakeBase + 64*giga, Size: n})
	},
	"box": func(g *guestEnd, n uint64) {
		g.send(abi.Header{Op: abi.OpCopy3D}, abi.Copy3D{
			Dst: fakeBase, DstPlace: abi.PlaceMemory, Src: fakeBase + 64*giga, SrcPlace: abi.PlaceMemory,
			Width: uint32(n / 16), Height: 16, Depth: 1, DstPitch: uint32(n / 16), SrcPitch: uint32(n / 16), DstRows: 16, SrcRows: 16,
		})
	},
}

// TestFillsAreWork: a fill takes the GPU's compute engine like a launch. The page says so, and
// since when, until it is done, and then when it was.
func TestFillsAreWork(t *testing.T) {
	for name, fill := range fillers {
		t.Run(name, func(t *testing.T) {
			r, let := newSlowRig(t)
			r.page.SetWorkLogWanted(true)
			slot, work := r.page.Context(0), r.page.WorkLog(0)
			a, b := r.open(), r.open()
			for range 10 {
				fill(a, 1<<10)
				fill(b, 1<<10)
			}
			r.x.Step(false)
			if n := r.onGPU(); n != 20 || !slot.OnGPU() || work.Since() == 0 {
				t.Errorf("%d commands on the GPU, the page says %v, since %v", n, slot.OnGPU(), work.Since())
			}
			let(9)
			if !slot.OnGPU() || work.Since() == 0 {
				t.Errorf("with two left the page says %v, since %v", slot.OnGPU(), work.Since())
			}
			let(1)
			spans := 0
			work.ReadAll(func(start, end time.Duration) {
				if end > start {
					spans++
				}
			})
			c := slot.Counters()
			if slot.OnGPU() || work.Since() != 0 || spans == 0 || c.GPUTime != 20*5 {
				t.Errorf("in the end the page says %v, since %v, %d spans, GPU time %v", slot.OnGPU(), work.Since(), spans, c.GPUTime)
			}
			if c.Kernels != 0 || slot.Outstanding() != 0 {
				t.Errorf("%d kernels, %d outstanding, of a guest that has launched none", c.Kernels, slot.Outstanding())
			}
		})
	}
}

// TestFillsWait: all channels together have as many long fills on the GPU as long launches, and
// short ones of about a millisecond.
func TestFillsWait(t *testing.T) {
	for name, fill := range fillers {
		t.Run(name, func(t *testing.T) {
			r, let := newSlowRig(t)
			var ends []*guestEnd
			for range testChannels {
				g := r.open()
				ends = append(ends, g)
				for range 20 {
					fill(g, 16*giga)
				}
			}
			r.x.Step(false)
			if n := r.onGPU(); n == 0 || n > longFills {
				t.Errorf("%d that take long are on the GPU, want up to %d", n, longFills)
			}
			for range testChannels * 20 {
				let(1)
				if n := r.onGPU(); n > longFills {
					t.Fatalf("%d that take long are on the GPU", n)
				}
			}
			for _, g := range ends {
				g.receive(20)
			}
			for _, g := range ends {
				for range 20 {
					fill(g, 64<<20)
				}
			}
			for range 3 {
				r.x.Step(false)
			}
			// One that goes although it does not fit counts as long.
			if n, most := r.onGPU(), gpu.Fence(shallowWork/fillTime(64<<20, 1)+longFills); n == 0 || n > most {
				t.Errorf("%d of 64 MiB are on the GPU, want up to %d", n, most)
			}
		})
	}
}

// TestFillsOfManyRows: a fill of many short rows is estimated by its rows.
func TestFillsOfManyRows(t *testing.T) {
	r, _ := newSlowRig(t)
	g := r.open()
	for range 20 {
		g.send(abi.Header{Op: abi.OpSet}, abi.Set{Dst: fakeBase, Width: 1, Count: 1, Rows: 1 << 30, Pitch: 32})
	}
	r.x.Step(false)
	if n := r.onGPU(); n > longFills {
		t.Errorf("%d fills of a billion rows are on the GPU", n)
	}
}

// TestShortFillsAreNotHeldBack: short fills, and copies from and to the host, take no launch's
// room, and wait for none.
func TestShortFillsAreNotHeldBack(t *testing.T) {
	r, let := newSlowRig(t)
	a, b := r.open(), r.open()
	fn := a.load("fake", "plain")
	for range shallowLaunches {
		l, params := launchOf(fn, 32, 1)
		a.send(abi.Header{Op: abi.OpLaunch}, l, params...)
	}
	for range 16 {
		b.send(abi.Header{Op: abi.OpSet}, fillOf(1<<10))
		b.send(abi.Header{Op: abi.OpCopyOut}, abi.Transfer{Dst: staging, Src: fakeBase, Size: 1 << 19})
	}
	r.x.Step(false)
	if n := r.onGPU(); n != shallowLaunches+32 {
		t.Errorf("%d commands are on the GPU, want %d launches and 32 beside them", n, shallowLaunches)
	}
	for range 40 {
		let(1)
	}
	for range 16 {
		b.send(abi.Header{Op: abi.OpSet}, fillOf(1<<10))
	}
	r.x.Step(false)
	for range shallowLaunches {
		l, params := launchOf(fn, 32, 1)
		a.send(abi.Header{Op: abi.OpLaunch}, l, params...)
	}
	r.x.Step(false)
	if n := r.onGPU(); n != shallowLaunches+16 {
		t.Errorf("%d commands are on the GPU, want 16 fills and %d launches beside them", n, shallowLaunches)
	}
}

// TestFillsOfOtherModes: where the daemon decides about launches one long fill is on the GPU at a
// time, and short ones as always.
func TestFillsOfOtherModes(t *testing.T) {
	r, _ := newSlowRig(t)
	r.byKernel()
	a, b := r.open(), r.open()
	for range 5 {
		a.send(abi.Header{Op: abi.OpSet}, fillOf(16*giga))
		b.send(abi.Header{Op: abi.OpSet}, fillOf(1<<10))
	}
	r.x.Step(false)
	if n := r.onGPU(); n != 6 || r.page.Mode() != ipc.ModeByKernel {
		t.Errorf("%d commands on the GPU, want one that takes long and five that don't", n)
	}
}

// TestFillsOfAFaultedContext: fills that a fault ended are not on the GPU any more.
func TestFillsOfAFaultedContext(t *testing.T) {
	r, let := newSlowRig(t)
	g := r.open()
	g.send(abi.Header{Op: abi.OpSet}, fillOf(16*giga))
	g.send(abi.Header{Op: abi.OpSet}, fillOf(1))
	r.x.Step(false)
	r.x.fail(gpu.ErrTimeLimit)
	let(2)
	if slot := r.page.Context(0); slot.OnGPU() || r.x.launches != 0 || r.x.fills != 0 || r.x.brief != 0 || r.x.filling != 0 {
		t.Errorf("page says %v; %d commands, %d of them short, taking %v", slot.OnGPU(), r.x.launches, r.x.brief, r.x.filling)
	}
}

// filler returns a function that sends one command, carries it out and takes its answer.
func (r *rig) filler(op abi.Opcode, p payload) func() {
	g := r.open()
	done := make([]abi.Completion, 1)
	return func() {
		if !g.sub.Reserve(1) {
			r.t.Fatal("no room")
		}
		e := g.sub.Next()
		p.Encode(e)
		abi.Header{Op: op}.Encode(e)
		g.sub.Publish()
		for n := 0; n == 0; {
			r.x.Step(false)
			var err error
			if n, _, err = g.com.Fetch(done); err != nil || n > 0 && done[0].Status != abi.StatusOK {
				r.t.Fatal(done[0].Status, err)
			}
		}
	}
}

// fast are commands that must not allocate.
var fast = []struct {
	name string
	op   abi.Opcode
	p    payload
}{
	{"set", abi.OpSet, fillOf(1 << 10)},
	{"copy", abi.OpCopy, abi.Transfer{Dst: fakeBase, Src: fakeBase + 1<<19, Size: 1 << 10}},
	{"copy in", abi.OpCopyIn, abi.Transfer{Dst: fakeBase, Src: staging, Size: 1 << 6}},
}

func TestFillsAllocateNothing(t *testing.T) {
	for _, c := range fast {
		r := newFakeRig(t)
		r.page.SetWorkLogWanted(true)
		f := r.filler(c.op, c.p)
		f()
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations", c.name, n)
		}
	}
}

// BenchmarkFill measures the executor's cost of short copies and fills.
func BenchmarkFill(b *testing.B) {
	for _, told := range []bool{false, true} {
		for _, c := range fast {
			name := c.name
			if told {
				name += ", told"
			}
			b.Run(name, func(b *testing.B) {
				r := newFakeRig(b)
				r.page.SetWorkLogWanted(told)
				f := r.filler(c.op, c.p)
				f()
				b.ReportAllocs()
				for b.Loop() {
					f()
				}
			})
		}
	}
}
