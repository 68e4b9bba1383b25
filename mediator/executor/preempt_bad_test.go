package executor

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/clock"
	"vgpud/gpu"
	"vgpud/gpu/soft"
	"vgpud/gpu/soft/machine"
	"vgpud/mediator/link"
	"vgpud/mediator/stub"
	"vgpud/mediator/vgpu/abi"
)

// lie launches a kernel that never looks, and tells it to leave within 10 ms.
func (r *rig) lie(g *guestEnd, turns uint32) (sim *clock.Sim, slot *link.StubSlot) {
	r.t.Helper()
	fn := g.load(testdata(r.t, "liar"), "liar")
	c := g.counting(8)
	sim = r.byKernel()
	r.page.SetMode(link.ModeFree)
	c.preemptible(g, fn, kernels[0], turns)
	r.x.Step(false)
	v := r.newest()
	if v.State != stub.Running || !v.Evictable {
		r.t.Fatalf("launched: %+v", v)
	}
	r.say(func(s *link.StubSlot, v link.Stub) {
		if slot = s; !s.Evict(v.Launch, math.MaxUint32, sim.Now(), sim.Now()+10*time.Millisecond) {
			r.t.Fatal("not told to leave")
		}
	})
	return sim, slot
}

// TestLiarIsEnded: where the GPU can't be made to let go of a kernel that stays
// against its word, that is counted at the deadline and ended at the limit, and
// the time is charged.
func TestLiarIsEnded(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{})
	g := r.open()
	sim, s := r.lie(g, math.MaxUint32)
	slot := r.page.Context(0)
	for range 10 {
		r.x.Step(false)
	}
	if n := slot.Counters().Liars; n != 0 {
		t.Errorf("%d liars before the deadline", n)
	}
	if d := r.x.sleepFor(sim.Now()); d != 10*time.Millisecond {
		t.Errorf("sleeps for %v, the deadline is in 10ms", d)
	}
	sim.Advance(10 * time.Millisecond)
	for range 10 {
		r.x.Step(false)
	}
	v, _ := s.Read()
	if n := slot.Counters().Liars; n != 1 || v.Evictable || v.State != stub.ToEvict || len(r.faults) != 0 {
		t.Fatalf("at the deadline: %d liars, %+v, faults %v", n, v, r.faults)
	}
	sim.Advance(link.LiarLimit - 10*time.Millisecond - 1)
	r.x.Step(false)
	if len(r.faults) != 0 {
		t.Fatal("ended too early")
	}
	sim.Advance(1)
	if com := g.receive(1)[0]; com.Status != abi.StatusTimeLimit {
		t.Errorf("the liar's launch: %v", com.Status)
	}
	if len(r.faults) != 1 || r.faults[0].Code != uint32(abi.ErrorTimeLimit) {
		t.Errorf("reported: %+v", r.faults)
	}
	n := slot.Counters()
	if v, _ = s.Read(); v.State != stub.Done || !v.Failed || n.Liars != 1 || n.GPUTime < link.LiarLimit || v.Used != n.GPUTime || slot.Outstanding() != 0 {
		t.Errorf("at its end: %+v, %+v, %d outstanding", v, n, slot.Outstanding())
	}
	if c := g.call(abi.Header{Op: abi.OpMemAlloc}, abi.Alloc{Size: 8}); c.Status != abi.StatusTimeLimit {
		t.Errorf("afterwards: %v", c.Status)
	}
}

// TestLongBlocksAreNoLie: a kernel whose blocks are known to be long has as much
// time as they need to leave, up to a limit.
func TestLongBlocksAreNoLie(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{})
	g := r.open()
	sim, s := r.lie(g, math.MaxUint32)
	j := r.x.channels[0].job
	for _, c := range []struct{ mean, due time.Duration }{
		{0, 10 * time.Millisecond}, {time.Millisecond, 10 * time.Millisecond}, {100 * time.Millisecond, 400 * time.Millisecond}, {time.Hour, link.LiarLimit},
	} {
		j.fn.mean = c.mean
		if got := j.due() - sim.Now(); got != c.due {
			t.Errorf("a block takes %v: found to lie after %v, want %v", c.mean, got, c.due)
		}
	}
	// Of many that take turns on the GPU each takes a part of the time.
	for _, c := range []struct {
		args abi.PreemptArgs
		want time.Duration
	}{
		{abi.PreemptArgs{Tasks: 1280, Group: 1, Every: 1}, 100 * time.Millisecond},
		{abi.PreemptArgs{Tasks: 1280, Group: 5, Every: 1}, 500 * time.Millisecond},
		{abi.PreemptArgs{Tasks: 1280, Group: 1, Every: 2}, 200 * time.Millisecond},
	} {
		j.plan.Args, j.fn.mean = c.args, time.Second
		if v, _ := s.Read(); v.PerSM != 32 {
			t.Fatalf("%d blocks an SM", v.PerSM)
		}
		if got := j.blockTime(); got != c.want {
			t.Errorf("%+v: a block takes %v, want %v", c.args, got, c.want)
		}
	}
	sim.Advance(time.Hour) // so that it ends
	g.receive(1)
}

// TestLiarIsSuspended: where the GPU takes kernels off by itself, that is done, and
// the kernel goes on when it is its turn again. It is not believed a second time.
func TestLiarIsSuspended(t *testing.T) {
	r := newRigOn(t, soft.Options{MemoryBytes: 64 << 20, Priority: -1, Machine: machine.Config{Mode: machine.Slices}}, gpu.ContextOptions{})
	g := r.open()
	const turns = 10_000 // some 50 ms
	sim, s := r.lie(g, turns)
	r.page.SetMode(link.ModeByKernel)
	r.x.Step(false)
	sim.Advance(10 * time.Millisecond)
	r.page.Beat(sim.Now())
	r.x.Step(false)
	slot := r.page.Context(0)
	v, _ := s.Read()
	if n := slot.Counters(); n.Liars != 1 || n.Evictions != 1 || v.State != stub.Ready || v.Evictable || len(r.faults) != 0 {
		t.Fatalf("at the deadline: %+v, %+v, faults %v", n, v, r.faults)
	}
	for range 100 {
		r.x.Step(false)
		runtime.Gosched()
	}
	if n, err := g.com.Pending(); n != 0 || err != nil || !slot.Backlog() {
		t.Errorf("%d completions, %v, backlog %v", n, err, slot.Backlog())
	}
	r.runAll()
	com := g.receive(1)[0]
	if com.Status != abi.StatusOK {
		t.Fatal(com.Status)
	}
	if n := slot.Counters(); n.GPUTime > time.Duration(com.End-com.Start) || n.GPUTime == 0 || n.Kernels != 1 || n.Liars != 1 || slot.Outstanding() != 0 {
		t.Errorf("%+v, from start to end %v", n, time.Duration(com.End-com.Start))
	}
	r.page.SetMode(link.ModeFree)
	g.counting(8).preemptible(g, g.functionOf(1, "liar"), kernels[0], 1)
	if com := g.receive(1)[0]; com.Status != abi.StatusOK {
		t.Fatal(com.Status)
	}
	if v := r.newest(); v.Evictable {
		t.Error("the kernel is believed again")
	}
}

// functionOf finds a function that was found before.
func (g *guestEnd) functionOf(module uint64, name string) uint64 {
	return g.must(abi.OpFunction, abi.Lookup{Module: module, NameBytes: uint32(len(name))}, []byte(name)...).Value[0]
}

// TestOtherChannelPutsASuspendedContextBack: the hardware knows contexts only, so a
// launch of another channel brings the liar back with it.
func TestOtherChannelPutsASuspendedContextBack(t *testing.T) {
	r := newRigOn(t, soft.Options{MemoryBytes: 64 << 20, Priority: -1, Machine: machine.Config{Mode: machine.Slices}}, gpu.ContextOptions{})
	a, b := r.open(), r.open()
	inc := a.load(incPTX, "inc")
	mem := a.must(abi.OpMemAlloc, abi.Alloc{Size: 128}).Value[0]
	fn := a.load(testdata(t, "liar"), "liar")
	sim := r.byKernel()
	r.page.SetMode(link.ModeFree)
	a.counting(8).preemptible(a, fn, kernels[0], 10_000)
	r.x.Step(false)
	r.say(func(s *link.StubSlot, v link.Stub) { s.Evict(v.Launch, math.MaxUint32, sim.Now(), sim.Now()+1) })
	r.x.Step(true)
	sim.Advance(time.Millisecond)
	r.page.Beat(sim.Now())
	r.x.Step(true)
	if v := r.newest(); v.State != stub.Ready || r.x.parked == nil {
		t.Fatalf("suspended: %+v", v)
	}
	l, params := launchOf(inc, 32, mem)
	b.send(abi.Header{Op: abi.OpLaunch}, l, params...)
	for _, g := range []*guestEnd{b, a} {
		if com := g.receive(1)[0]; com.Status != abi.StatusOK {
			t.Error(com.Status)
		}
	}
	if r.x.parked != nil {
		t.Error("still suspended")
	}
}

// TestHostileControlBlocks: whatever a kernel writes to its control block is an
// error of its own launch's at most, and the next one is none the worse.
func TestHostileControlBlocks(t *testing.T) {
	for _, form := range []abi.Preempt{kernels[0].Preempt, kernels[1].Preempt, kernels[2].Preempt} {
		t.Run(form.Form.String(), func(t *testing.T) {
			r := newRig(t, gpu.ContextOptions{})
			g := r.open()
			fiddler := g.load(testdata(t, "liar"), "fiddler")
			good := g.load(testdata(t, "early"), "count_coarse")
			c := g.counting(100)
			n := uint32(0)
			for _, w := range abi.ControlWords {
				for _, value := range []uint32{1, 101, math.MaxUint32} {
					l := abi.Launch{Function: fiddler, Grid: [3]uint32{100, 1, 1}, Block: [3]uint32{1, 1, 1}, ParamBytes: 12}
					params := binary.LittleEndian.AppendUint64(nil, uint64(value))
					params = binary.LittleEndian.AppendUint32(params, uint32(w.Offset))
					com := g.call(abi.Header{Op: abi.OpLaunch, Aux: 1}, l, attributed(params, form.Attribute())...)
					if com.Status != abi.StatusOK && com.Status != abi.StatusPreemptState {
						t.Errorf("%s = %d: %v", w.Name, value, com.Status)
					}
					if n++; n%5 == 0 {
						c.preemptible(g, good, kernels[1], 1)
						if com := g.receive(1)[0]; com.Status != abi.StatusOK {
							t.Errorf("a good launch after %s = %d: %v", w.Name, value, com.Status)
						}
					}
				}
			}
			c.check()
			if len(r.faults) != 0 || len(r.stubs()) != 0 {
				t.Errorf("faults %v, stubs %+v", r.faults, r.stubs())
			}
			if form.Form == abi.PreemptPersistent {
				// It ran to its end and says that it finished nothing.
				l := abi.Launch{Function: fiddler, Grid: [3]uint32{100, 1, 1}, Block: [3]uint32{1, 1, 1}, ParamBytes: 12}
				params := binary.LittleEndian.AppendUint32(make([]byte, 8), abi.ControlInside)
				if com := g.call(abi.Header{Op: abi.OpLaunch, Aux: 1}, l, attributed(params, form.Attribute())...); com.Status != abi.StatusPreemptState {
					t.Errorf("a kernel that leaves all undone unasked: %v", com.Status)
				}
			}
		})
	}
}

// TestExecutorsMemoryIsNotTheGuests: a guest can't free what its launches need.
func TestExecutorsMemoryIsNotTheGuests(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{})
	g := r.open()
	k := kernels[0]
	fn := g.load(testdata(t, k.file), k.name)
	c := g.counting(8)
	c.preemptible(g, fn, k, 1)
	g.receive(1)
	own := uint64(r.x.channels[0].jobs[0].memory.base)
	if own == 0 {
		t.Fatal("no memory")
	}
	if com := g.call(abi.Header{Op: abi.OpMemFree}, abi.Handle{Handle: own}); com.Status != abi.StatusInvalidAddress {
		t.Errorf("freed: %v", com.Status)
	}
	c.preemptible(g, fn, k, 1)
	g.receive(1)
	c.check()
}

// TestMemoryIsTheGuestsAccount: what launches need is taken from the guest's
// limit, kept from launch to launch, and given back with the channel; a launch for
// which there is none fails alone.
func TestMemoryIsTheGuestsAccount(t *testing.T) {
	page, err := link.NewPage()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := page.Close(); err != nil {
			t.Error(err)
		}
	})
	r := newRig(t, gpu.ContextOptions{Budget: page.Memory(0, 16<<20)})
	a, b := r.open(), r.open()
	k := kernels[1]
	fn := a.load(testdata(t, k.file), k.name)
	c := a.counting(4000)
	before := page.MemoryTaken()
	var after uint64
	for n := range 3 {
		c.preemptible(a, fn, k, 1)
		a.receive(1)
		if taken := page.MemoryTaken(); n == 0 {
			if after = taken; after <= before {
				t.Errorf("%d bytes taken, %d before", after, before)
			}
		} else if taken != after {
			t.Errorf("launch %d: %d bytes taken, %d after the first", n, taken, after)
		}
	}
	// A larger one takes more in place of it, and a smaller one none.
	for range 2 {
		c.preemptible(a, fn, kernel{"", "", abi.Preempt{Form: abi.PreemptCoarse, Group: 1, Every: 1}}, 1)
		a.receive(1)
		c.preemptible(a, fn, k, 1)
		a.receive(1)
	}
	if taken := page.MemoryTaken(); taken <= after || taken > after+64<<10 {
		t.Errorf("%d bytes taken, %d before", taken, after)
	}
	c.check()
	var rest []uint64
	for size := b.must(abi.OpMemInfo, abi.Empty{}).Value[0]; size >= 256; {
		if com := b.call(abi.Header{Op: abi.OpMemAlloc}, abi.Alloc{Size: size}); com.Status == abi.StatusOK {
			rest = append(rest, com.Value[0])
		} else {
			size /= 2
		}
	}
	refused := *c
	refused.preemptible(b, fn, k, 1)
	if com := b.receive(1)[0]; com.Status != abi.StatusMemoryLimit {
		t.Errorf("without memory: %v", com.Status)
	}
	for _, p := range rest {
		b.must(abi.OpMemFree, abi.Handle{Handle: p})
	}
	r.x.Shut(0, func(err error) {
		if err != nil {
			t.Error(err)
		}
	})
	r.stepUntil("the channel is let go", func() bool { return len(r.x.draining) == 0 && len(r.x.channels) == 1 })
	if taken := page.MemoryTaken(); taken != before {
		t.Errorf("%d bytes taken once the channel is closed, %d before its first launch", taken, before)
	}
}

// bring takes a preemptible launch of g to a state, with a daemon that decides
// about launches.
func (r *rig) bring(g *guestEnd, state stub.State) *counting {
	r.t.Helper()
	k := kernels[1]
	fn := g.load(testdata(r.t, k.file), k.name)
	c := g.counting(800)
	r.byKernel()
	c.preemptible(g, fn, k, 40)
	r.x.Step(false)
	if state >= stub.Running {
		r.runAll()
		r.x.Step(false)
	}
	if state == stub.ToEvict {
		r.evictAll(math.MaxUint32)
	}
	if v := r.newest(); v.State != state {
		r.t.Fatalf("%v, want %v", v.State, state)
	}
	return c
}

// TestClosedChannelsLaunch: a channel that is closed with a launch in whatever
// state goes, with its stub and its memory.
func TestClosedChannelsLaunch(t *testing.T) {
	for _, state := range []stub.State{stub.Ready, stub.Running, stub.ToEvict} {
		t.Run(state.String(), func(t *testing.T) {
			r := newRig(t, gpu.ContextOptions{})
			g, other := r.open(), r.open()
			r.bring(g, state)
			r.x.Shut(0, func(err error) {
				if err != nil {
					t.Error(err)
				}
			})
			r.stepUntil("the channel is let go", func() bool { return len(r.x.draining) == 0 && len(r.x.channels) == 1 })
			slot := r.page.Context(0)
			if len(r.stubs()) != 0 || slot.Outstanding() != 0 || r.x.launches != 0 {
				t.Errorf("stubs %+v, %d outstanding, %d launches", r.stubs(), slot.Outstanding(), r.x.launches)
			}
			if v := r.newest(); v.State != stub.Done || v.Used != slot.Counters().GPUTime {
				t.Errorf("%+v, of %+v", v, slot.Counters())
			}
			other.must(abi.OpNop, abi.Empty{})
		})
	}
}

// TestDeadChannelsLaunch: the same for one whose rings its guest broke.
func TestDeadChannelsLaunch(t *testing.T) {
	for _, state := range []stub.State{stub.Ready, stub.Running, stub.ToEvict} {
		t.Run(state.String(), func(t *testing.T) {
			r := newRig(t, gpu.ContextOptions{})
			r.bring(r.open(), state)
			page := r.shared[abi.ChannelPage(0) : abi.ChannelPage(0)+abi.PageSize]
			abi.StoreWord(page, abi.SubmissionPutWord, 1<<20)
			r.stepUntil("its stub is free", func() bool { return len(r.stubs()) == 0 })
			if len(r.failures) != 1 || r.page.Context(0).Outstanding() != 0 {
				t.Errorf("failures %v, %d outstanding", r.failures, r.page.Context(0).Outstanding())
			}
		})
	}
}

// TestFaultBesideALaunch: a fault ends launches of the context in whatever state.
func TestFaultBesideALaunch(t *testing.T) {
	for _, state := range []stub.State{stub.Ready, stub.Running, stub.ToEvict} {
		t.Run(state.String(), func(t *testing.T) {
			r := newRig(t, gpu.ContextOptions{})
			g, other := r.open(), r.open()
			inc := g.load(incPTX, "inc")
			r.bring(g, state)
			r.page.SetMode(link.ModeFree)
			held := state == stub.Ready
			bad, params := launchOf(inc, 1, 0xdead0000)
			other.send(abi.Header{Op: abi.OpLaunch}, bad, params...)
			if held {
				// The other's launch alone: this one's turn has not come.
				r.page.SetMode(link.ModeByKernel)
				r.x.Step(false)
				r.say(func(s *link.StubSlot, v link.Stub) {
					if v.Form == 0 {
						s.Run(v.Launch)
					}
				})
			}
			if com := other.receive(1)[0]; com.Status != abi.StatusIllegalAddress {
				t.Errorf("the bad one: %v", com.Status)
			}
			if com := g.receive(1)[0]; com.Status != abi.StatusIllegalAddress && (held || com.Status != abi.StatusOK) {
				t.Errorf("the one beside it: %v", com.Status)
			}
			if len(r.stubs()) != 0 || r.page.Context(0).Outstanding() != 0 || r.x.launches != 0 {
				t.Errorf("stubs %+v, %d outstanding, %d launches", r.stubs(), r.page.Context(0).Outstanding(), r.x.launches)
			}
		})
	}
}

// TestTimeLimitOfAllRuns: eviction is no way around the kernel time limit.
func TestTimeLimitOfAllRuns(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{})
	r.x.o.KernelTimeLimit = 30 * time.Millisecond
	g := r.open()
	k := kernels[0]
	fn := g.load(testdata(t, k.file), k.name)
	g.counting(2000).preemptible(g, fn, k, 100)
	var coms []abi.Completion
	buf := make([]abi.Completion, 1)
	for len(coms) == 0 {
		r.evictAll(math.MaxUint32)
		r.x.Step(false)
		n, _, err := g.com.Fetch(buf)
		if err != nil {
			t.Fatal(err)
		}
		coms = append(coms, buf[:n]...)
		runtime.Gosched()
	}
	if coms[0].Status != abi.StatusTimeLimit {
		t.Errorf("%v, after %v", coms[0].Status, r.page.Context(0).Counters())
	}
	if n := r.page.Context(0).Counters(); n.GPUTime < 30*time.Millisecond || n.Evictions == 0 {
		t.Errorf("%+v", n)
	}
}

// TestOldPagesLaunches: under a vm of the version before, whose page has no stubs,
// launches don't wait and preemptible ones run.
func TestOldPagesLaunches(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{})
	r.x.o.Page = oldPage(t)
	g := r.open()
	for _, k := range kernels {
		fn := g.load(testdata(t, k.file), k.name)
		c := g.counting(40)
		c.preemptible(g, fn, k, 1)
		if com := g.receive(1)[0]; com.Status != abi.StatusOK {
			t.Error(com.Status)
		}
		c.check()
	}
}

// oldPage is a page of the version before: shorter, and of version 1.
func oldPage(t *testing.T) *link.Page {
	t.Helper()
	fd, err := unix.MemfdCreate("old", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "old")
	if err := f.Truncate(3*64 + link.MaxContexts*256); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{0x76, 0x76, 0x70, 0x67, 1, 0, 0, 0}, 0); err != nil {
		t.Fatal(err)
	}
	p, err := link.OpenPage(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// TestSleepersHearTheDaemon: an executor that sleeps wakes for its launch's turn
// and for its eviction.
func TestSleepersHearTheDaemon(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{})
	g := r.open()
	k := kernels[1]
	fn := g.load(testdata(t, k.file), k.name)
	c := g.counting(800)
	r.byKernel()
	c.preemptible(g, fn, k, 60)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.x.Run(ctx) }()
	until := func(what string, ok func() bool) {
		t.Helper()
		for i := 0; !ok(); i++ {
			if i > 1<<28 {
				t.Fatal("never: ", what)
			}
			runtime.Gosched()
		}
	}
	slot := r.page.Context(0)
	sim := r.x.o.Clock.(*clock.Sim)
	asleep := func() {
		n := slot.Counters().Wakeups
		until("it sleeps", func() bool { sim.Advance(PollWindow); r.page.Beat(sim.Now()); return slot.Counters().Wakeups > n })
	}
	until("ready", func() bool { return r.newest().State == stub.Ready })
	asleep()
	r.runAll()
	until("running", func() bool { return r.newest().State == stub.Running })
	r.evictAll(math.MaxUint32)
	until("left", func() bool { return r.newest().State == stub.Ready })
	asleep()
	r.runAll()
	buf := make([]abi.Completion, 1)
	until("done", func() bool { n, _, err := g.com.Fetch(buf); return n == 1 || err != nil })
	if buf[0].Status != abi.StatusOK {
		t.Error(buf[0].Status)
	}
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	r.page.SetMode(link.ModeFree)
	c.check()
}

// TestEventBehindAPreemptibleLaunch: an event that is recorded behind a launch is
// reached when all of that is done.
func TestEventBehindAPreemptibleLaunch(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{})
	a, b := r.open(), r.open()
	ev := a.must(abi.OpEventCreate, abi.Empty{}).Value[0]
	inc := a.load(incPTX, "inc")
	c := r.bring(a, stub.ToEvict)
	a.send(abi.Header{Op: abi.OpEventRecord}, abi.Handle{Handle: ev})
	b.send(abi.Header{Op: abi.OpTimestamp}, abi.Empty{})
	r.stepUntil("it has left", func() bool { return r.newest().State == stub.Ready })
	b.receive(1)
	r.page.SetMode(link.ModeFree)
	cs := a.receive(2)
	if cs[0].Status != abi.StatusOK || cs[1].Value[0] < cs[0].End {
		t.Errorf("launch ended at %d (%v), the event behind it was at %d", cs[0].End, cs[0].Status, cs[1].Value[0])
	}
	l, params := launchOf(inc, 32, c.mem) // a plain one behind it
	a.send(abi.Header{Op: abi.OpLaunch}, l, params...)
	a.receive(1)
	const out = staging + 2<<20
	a.must(abi.OpCopyOut, abi.Transfer{Dst: out, Src: c.mem, Size: 3200})
	var got []uint32
	for i := range 800 {
		got = append(got, binary.LittleEndian.Uint32(r.shared[out+4*i:]))
	}
	if want := append(slices.Repeat([]uint32{c.want + 1}, 32), slices.Repeat([]uint32{c.want}, 768)...); !slices.Equal(got, want) {
		t.Error(fmt.Sprint("counts ", got[:40]))
	}
}
