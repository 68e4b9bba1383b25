package executor

import (
	"math"
	"testing"
	"time"

	"vgpud/clock"
	"vgpud/gpu"
	"vgpud/gpu/soft"
	"vgpud/gpu/soft/machine"
	"vgpud/mediator/ipc"
	"vgpud/mediator/ipc/slotstate"
	"vgpud/mediator/vgpu/abi"
)

// standing is a context whose channels, also those for copies, all stand still while its executor
// has it off the GPU. It records the calls meanwhile for which a driver would wait.
type standing struct {
	gpu.Context
	x     *Executor
	calls []string
}

func (c *standing) stands() bool { return c.x != nil && c.x.preempted != nil }

func (c *standing) note(what string) {
	if c.stands() {
		c.calls = append(c.calls, what)
	}
}

func (c *standing) NewChannel() (gpu.Channel, error) {
	ch, err := c.Context.NewChannel()
	return &standingChannel{Channel: ch, c: c}, err
}

func (c *standing) LoadModule(image []byte) (gpu.Module, error) {
	c.note("load a module")
	m, err := c.Context.LoadModule(image)
	return standingModule{m, c}, err
}

type standingModule struct {
	gpu.Module
	c *standing
}

func (m standingModule) Unload() error {
	m.c.note("unload a module")
	return m.Module.Unload()
}

func (c *standing) Printf(most int) ([]byte, error) {
	c.note("read what was printed")
	return c.Context.Printf(most)
}

type standingChannel struct {
	gpu.Channel
	c    *standing
	done gpu.Fence
}

func (ch *standingChannel) Done() gpu.Fence {
	if !ch.c.stands() {
		ch.done = ch.Channel.Done()
	}
	return ch.done
}

func (ch *standingChannel) CopyIn(dst gpu.Ptr, src []byte) (gpu.Fence, error) {
	if len(src) > abi.ControlBytes {
		ch.c.note("copy in")
	}
	return ch.Channel.CopyIn(dst, src)
}

func (ch *standingChannel) CopyOut(dst []byte, src gpu.Ptr) (gpu.Fence, error) {
	if len(dst) > abi.ControlBytes {
		ch.c.note("copy out")
	}
	return ch.Channel.CopyOut(dst, src)
}

func (ch *standingChannel) Copy3D(b *gpu.Copy3D) (gpu.Fence, error) {
	ch.c.note("copy a box")
	return ch.Channel.Copy3D(b)
}

// standingDevice suspends the context in a standing one.
type standingDevice struct {
	gpu.Device
	c *standing
}

func (d standingDevice) Suspend(gpu.Context) error {
	return d.Device.(gpu.Suspender).Suspend(d.c.Context)
}

func (d standingDevice) Resume(gpu.Context) error {
	return d.Device.(gpu.Suspender).Resume(d.c.Context)
}

// newStandingRig is newRig on a GPU that preempts kernels, with such a context.
func newStandingRig(t testing.TB) (*rig, *standing) {
	t.Helper()
	c := &standing{}
	r := newRigIn(t, soft.Options{MemoryBytes: 64 << 20, Priority: -1, Machine: machine.Config{Mode: machine.Slices}}, gpu.ContextOptions{}, func(inner gpu.Context) gpu.Context {
		c.Context = inner
		return c
	})
	r.x.o.Device = standingDevice{r.x.o.Device, c}
	c.x = r.x
	return r, c
}

// only calls f with a launch's slot.
func (r *rig) only(launch uint64, f func(s *ipc.LaunchSlot, v ipc.Launch)) {
	r.t.Helper()
	r.say(func(s *ipc.LaunchSlot, v ipc.Launch) {
		if v.ID == launch {
			f(s, v)
		}
	})
}

// state returns a launch's state.
func (r *rig) state(launch uint64) (state slotstate.State) {
	r.t.Helper()
	r.only(launch, func(_ *ipc.LaunchSlot, v ipc.Launch) { state = v.State })
	return state
}

// preempt runs an unresponsive kernel of g's, under a policy about launches, until its context is
// off the GPU.
func (r *rig) preempt(g *guestEnd, sim *clock.Sim) {
	r.t.Helper()
	fn := g.load(testdata(r.t, "unresponsive"), "unresponsive")
	g.counting(8).preemptible(g, fn, kernels[0], 100_000) // some 500 ms
	r.x.Step(false)
	launch := r.newest().ID
	r.only(launch, func(s *ipc.LaunchSlot, _ ipc.Launch) { s.Run(launch) })
	r.x.Step(false)
	r.only(launch, func(s *ipc.LaunchSlot, _ ipc.Launch) {
		if !s.Evict(launch, math.MaxUint32, sim.Now(), sim.Now()+time.Millisecond) {
			r.t.Fatal("not told to leave")
		}
	})
	r.x.Step(false)
	sim.Advance(10 * time.Millisecond)
	r.page.Beat(sim.Now())
	r.x.Step(false)
	if r.x.preempted == nil {
		r.t.Fatal("not preempted")
	}
}

// TestTurnBesideAPreemptedJob: a launch whose turn has come, and which needs a list, finds its
// context on the GPU.
func TestTurnBesideAPreemptedJob(t *testing.T) {
	r, c := newStandingRig(t)
	a, b := r.open(), r.open()
	k := kernels[1]
	fn := b.load(testdata(t, k.file), k.name)
	counted := b.counting(800)
	sim := r.byKernel()
	counted.preemptible(b, fn, k, 40)
	r.x.Step(false)
	r.runAll()
	r.x.Step(false)
	left := r.newest().ID
	r.evictAll(math.MaxUint32)
	r.stepUntil("it has left", func() bool { return r.state(left) == slotstate.Ready })
	r.preempt(a, sim)
	r.only(left, func(s *ipc.LaunchSlot, v ipc.Launch) { s.Run(v.ID) })
	r.stepUntil("it uses its turn", func() bool { return r.state(left) != slotstate.ToRun })
	if s := r.state(left); s == slotstate.Ready {
		t.Errorf("%v", s)
	}
	r.page.SetMode(ipc.ModeFree)
	if com := b.receive(1)[0]; com.Status != abi.StatusOK {
		t.Error(com.Status)
	}
	if len(c.calls) > 0 {
		t.Errorf("while the context was off the GPU: %q", c.calls)
	}
	counted.check()
}

// TestPreemptedContextIsReadFrom: a job that waits, or is about to wait, for a copy puts its
// context back if another job has it off the GPU.
func TestPreemptedContextIsReadFrom(t *testing.T) {
	for state, want := range map[jobState]bool{waiting: false, preparing: true, readingControl: true, readingSkipped: true} {
		r := newFakeRig(t)
		driver := &nested{count: 1}
		r.x.o.Device = driver
		r.open()
		if err := r.x.ownChannels(); err != nil {
			t.Fatal(err)
		}
		j := &job{ch: r.x.channels[0], p: &pending{}, fn: new(function), state: state, copies: copies{words: 1}}
		other := &job{ch: j.ch, state: preempted}
		other.memory.block.at = fakeBase
		r.x.preempted = other
		r.byKernel()
		j.ch.job = j
		if j.step(); (driver.count == 0) != want {
			t.Errorf("while %v the context is back: %v, want %v", state, driver.count == 0, want)
		}
		r.x.preempted = nil
	}
}

// TestCommandsWhilePreempted: a command whose driver call may wait for the GPU waits until the
// context is back there.
func TestCommandsWhilePreempted(t *testing.T) {
	const out = staging + 1<<20
	image := abi.Module{Image: abi.Window{Offset: staging, Size: uint64(len(incPTX))}}
	for op, command := range map[abi.Opcode]func(mem, module uint64) payload{
		abi.OpModuleLoad:   func(_, _ uint64) payload { return image },
		abi.OpModuleUnload: func(_, module uint64) payload { return abi.Handle{Handle: module} },
		abi.OpPrintfDrain:  func(_, _ uint64) payload { return abi.WindowArg{Window: abi.Window{Offset: out, Size: 64}} },
		abi.OpCopyIn:       func(mem, _ uint64) payload { return abi.Transfer{Dst: mem, Src: staging, Size: 1 << 10} },
		abi.OpCopyOut:      func(mem, _ uint64) payload { return abi.Transfer{Dst: out, Src: mem, Size: 1 << 10} },
		abi.OpCopy3D: func(mem, _ uint64) payload {
			return abi.Copy3D{
				Width: 8, Height: 1, Depth: 1, Src: mem, SrcPlace: abi.PlaceMemory, SrcPitch: 8, SrcRows: 1,
				Dst: out, DstPlace: abi.PlaceWindow, DstPitch: 8, DstRows: 1,
			}
		},
	} {
		t.Run(op.String(), func(t *testing.T) {
			r, c := newStandingRig(t)
			a, b := r.open(), r.open()
			mem := b.must(abi.OpMemAlloc, abi.Alloc{Size: 1 << 10}).Value[0]
			copy(r.shared[staging:], incPTX)
			module := b.must(abi.OpModuleLoad, image).Value[0]
			r.preempt(a, r.byKernel())
			copy(r.shared[staging:], incPTX)
			b.send(abi.Header{Op: op}, command(mem, module))
			for range 50 {
				r.x.Step(false)
			}
			if n, err := b.com.Pending(); n != 0 || err != nil {
				t.Errorf("answered while the context is off the GPU: %d, %v", n, err)
			}
			r.page.SetMode(ipc.ModeFree)
			if com := b.receive(1)[0]; com.Status != abi.StatusOK {
				t.Error(com.Status)
			}
			if len(c.calls) > 0 {
				t.Errorf("while the context was off the GPU: %q", c.calls)
			}
		})
	}
}

// TestMemoryIsFreedLater: the executor does not wait in the driver for a launch's memory to be
// zero, which it never is while its context is off the GPU.
func TestMemoryIsFreedLater(t *testing.T) {
	r, let := newSlowRig(t)
	r.open()
	if err := r.x.ownChannels(); err != nil {
		t.Fatal(err)
	}
	base, err := r.ctx.Alloc(memoryUnit)
	if err != nil {
		t.Fatal(err)
	}
	wiped, err := r.x.words.gpu.CopyOut(nil, base)
	if err != nil {
		t.Fatal(err)
	}
	ch := r.x.channels[0]
	ch.jobs[0] = &job{ch: ch, memory: controlMemory{base: base, size: memoryUnit, wiped: wiped}}
	r.x.Shut(ch.index, func(err error) {
		if err != nil {
			t.Error(err)
		}
	})
	for range 10 {
		r.x.Step(false)
	}
	if len(r.x.draining) != 1 {
		t.Error("freed before it is zero")
	}
	if let(1); len(r.x.draining) != 0 {
		t.Error("not freed")
	}
}

// stuckOff is a GPU that takes contexts off and can't put them back.
type stuckOff struct{ gpu.Device }

func (stuckOff) Suspend(gpu.Context) error { return nil }
func (stuckOff) Resume(gpu.Context) error  { return gpu.ErrUnsupported }

// TestContextThatCannotBeResumed: a job whose context can't be put back does not keep the executor
// in a step.
func TestContextThatCannotBeResumed(t *testing.T) {
	r := newFakeRig(t)
	r.open()
	r.x.o.Device = stuckOff{r.x.o.Device}
	j := &job{ch: r.x.channels[0], p: &pending{fence: 1 << 30}, fn: new(function), state: preempted, run: run{read: 1 << 30}}
	r.x.preempted = j
	j.ch.job = j
	defer func() { j.ch.job = nil }()
	for range 3 {
		j.advance()
	}
	if r.x.poison == nil || r.x.preempted != nil || j.state != preempted {
		t.Errorf("poison %v, %v", r.x.poison, j.state)
	}
}

// TestPreemptedSecondLaunch: a kernel whose blocks came back as a second launch has not left while that
// is off the GPU in the midst of its blocks, also if the first has ended: blocks are inside.
func TestPreemptedSecondLaunch(t *testing.T) {
	r := newFakeRig(t)
	r.byKernel()
	r.open()
	ch := r.x.channels[0]
	if err := ch.corun.open(r.x); err != nil {
		t.Fatal(err)
	}
	first, err := ch.gpu.Launch(nil)
	if err != nil {
		t.Fatal(err)
	}
	j := &job{ch: ch, p: &pending{fence: first}, fn: new(function), state: preempted}
	j.run.corun = 1 // the channel has no fence yet
	r.x.preempted = j
	if j.step() || j.state != preempted || j.run.corun != 1 {
		t.Errorf("it is %v, and its second launch %d", j.state, j.run.corun)
	}
	r.x.preempted = nil
}

// TestPreemptedBehindOneThatLeaves: a launch behind one that was told to leave does nothing, also when
// its context was off the GPU meanwhile, whichever of the two happened first.
func TestPreemptedBehindOneThatLeaves(t *testing.T) {
	for _, firstLeaves := range []bool{true, false} {
		r, _ := newStandingRig(t)
		g := r.open()
		k := kernels[2]
		long, fn := g.load(testdata(t, "unresponsive"), "unresponsive"), g.load(testdata(t, k.file), k.name)
		for _, h := range []uint64{long, fn} {
			f, err := r.x.functions.get(h)
			if err != nil {
				t.Fatal(err)
			}
			f.mean = 100 * time.Microsecond
		}
		kept, c := g.counting(8), g.counting(800)
		sim := r.byKernel()
		r.page.SetTurn(ipc.Turn{Until: sim.Now() + time.Second, Behind: true})
		kept.preemptible(g, long, kernels[0], 100_000) // some 500 ms
		c.preemptible(g, fn, k, 40)
		r.x.Step(false)
		first, second := r.x.channels[0].job, r.x.channels[0].second
		if second == nil || second.state != running {
			t.Fatalf("the second launch is %+v", second)
		}
		r.page.SetTurn(ipc.Turn{})
		evict := func(j *job, deadline time.Duration) {
			id := j.slot.Launch()
			r.only(id, func(s *ipc.LaunchSlot, _ ipc.Launch) {
				if !s.Evict(id, math.MaxUint32, sim.Now(), deadline) {
					t.Error("not told to leave")
				}
			})
			r.x.Step(false)
		}
		if firstLeaves {
			evict(first, 0)
		}
		evict(second, sim.Now()+time.Millisecond)
		sim.Advance(10 * time.Millisecond)
		r.page.Beat(sim.Now())
		if r.x.Step(false); r.x.preempted != second {
			t.Fatalf("not preempted: %v and %v", first.state, second.state)
		}
		if !firstLeaves {
			evict(first, 0)
		}
		id := second.slot.Launch()
		r.only(id, func(s *ipc.LaunchSlot, _ ipc.Launch) { s.Run(id) })
		if r.x.Step(false); r.x.preempted != nil || second.state != deferred {
			t.Errorf("the first leaves first %v: the second is %v when its context is back", firstLeaves, second.state)
		}
		r.page.SetMode(ipc.ModeFree)
		for i, com := range g.receive(2) {
			if com.Status != abi.StatusOK {
				t.Errorf("launch %d: %v", i, com.Status)
			}
		}
		c.check()
	}
}
