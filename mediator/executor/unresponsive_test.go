package executor

import (
	"math"
	"runtime"
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

// ignore launches a kernel that ignores its evict word, and tells it to leave within 10 ms.
func (r *rig) ignore(g *guestEnd, turns uint32) (sim *clock.Sim, slot *ipc.LaunchSlot) {
	r.t.Helper()
	fn := g.load(testdata(r.t, "unresponsive"), "unresponsive")
	c := g.counting(8)
	sim = r.byKernel()
	r.page.SetMode(ipc.ModeFree)
	c.preemptible(g, fn, kernels[0], turns)
	r.x.Step(false)
	v := r.newest()
	if v.State != slotstate.Running || !v.Evictable {
		r.t.Fatalf("launched: %+v", v)
	}
	r.say(func(s *ipc.LaunchSlot, v ipc.Launch) {
		if slot = s; !s.Evict(v.ID, math.MaxUint32, sim.Now(), sim.Now()+10*time.Millisecond) {
			r.t.Fatal("not told to leave")
		}
	})
	return sim, slot
}

// TestUnresponsiveIsEnded: if the GPU can't preempt an unresponsive kernel, the kernel is counted
// at the deadline and ended at the limit, and its time is charged.
func TestUnresponsiveIsEnded(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{})
	g := r.open()
	sim, s := r.ignore(g, math.MaxUint32)
	slot := r.page.Context(0)
	for range 10 {
		r.x.Step(false)
	}
	if n := slot.Counters().Unresponsive; n != 0 {
		t.Errorf("%d unresponsive kernels before the deadline", n)
	}
	if d := r.x.sleepFor(sim.Now()); d != 10*time.Millisecond {
		t.Errorf("sleeps for %v, the deadline is in 10ms", d)
	}
	sim.Advance(10 * time.Millisecond)
	for range 10 {
		r.x.Step(false)
	}
	v, _ := s.Read()
	if n := slot.Counters().Unresponsive; n != 1 || v.Evictable || v.State != slotstate.ToEvict || len(r.faults) != 0 {
		t.Fatalf("at the deadline: %d unresponsive kernels, %+v, faults %v", n, v, r.faults)
	}
	sim.Advance(ipc.UnresponsiveLimit - 10*time.Millisecond - 1)
	r.x.Step(false)
	if len(r.faults) != 0 {
		t.Fatal("ended too early")
	}
	sim.Advance(1)
	if com := g.receive(1)[0]; com.Status != abi.StatusTimeLimit {
		t.Errorf("the launch: %v", com.Status)
	}
	if len(r.faults) != 1 || r.faults[0].Code != uint32(abi.ErrorTimeLimit) {
		t.Errorf("reported: %+v", r.faults)
	}
	n := slot.Counters()
	if v, _ = s.Read(); v.State != slotstate.Done || !v.Failed || n.Unresponsive != 1 || n.GPUTime < ipc.UnresponsiveLimit || v.Used != n.GPUTime || slot.Outstanding() != 0 {
		t.Errorf("at its end: %+v, %+v, %d outstanding", v, n, slot.Outstanding())
	}
	if c := g.call(abi.Header{Op: abi.OpMemAlloc}, abi.Alloc{Size: 8}); c.Status != abi.StatusTimeLimit {
		t.Errorf("afterwards: %v", c.Status)
	}
}

// TestDeadlineOfLateExecutor: a kernel has its time to leave from when it is told to. On a busy host
// its executor may get a processor later than the daemon asks, which is not the kernel's fault.
func TestDeadlineOfLateExecutor(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{})
	g := r.open()
	sim, _ := r.ignore(g, math.MaxUint32)
	slot := r.page.Context(0)
	const late = 3 * time.Second
	sim.Advance(late)
	r.x.Step(false) // tells it
	sim.Advance(10*time.Millisecond - 1)
	r.x.Step(false)
	if n := slot.Counters().Unresponsive; n != 0 || len(r.faults) != 0 {
		t.Fatalf("before the deadline: %d unresponsive kernels, faults %v", n, r.faults)
	}
	sim.Advance(1)
	r.x.Step(false)
	if n := slot.Counters().Unresponsive; n != 1 {
		t.Errorf("at the deadline: %d unresponsive kernels", n)
	}
	sim.Advance(ipc.UnresponsiveLimit - 10*time.Millisecond - 1)
	r.x.Step(false)
	if len(r.faults) != 0 {
		t.Error("ended too early")
	}
	sim.Advance(1)
	if com := g.receive(1)[0]; com.Status != abi.StatusTimeLimit {
		t.Errorf("the launch: %v", com.Status)
	}
}

// TestLongBlocksHaveTime: a kernel whose blocks are known to be long has as much time to leave as
// they need, up to a limit.
func TestLongBlocksHaveTime(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{})
	g := r.open()
	sim, s := r.ignore(g, math.MaxUint32)
	j := r.x.channels[0].job
	for _, c := range []struct{ mean, due time.Duration }{
		{0, 10 * time.Millisecond}, {time.Millisecond, 10 * time.Millisecond}, {100 * time.Millisecond, 400 * time.Millisecond}, {time.Hour, ipc.UnresponsiveLimit},
	} {
		j.fn.mean = c.mean
		if got := j.evictionDeadline(sim.Now()) - sim.Now(); got != c.due {
			t.Errorf("a block takes %v: unresponsive after %v, want %v", c.mean, got, c.due)
		}
	}
	// Each of many blocks that run in waves takes a part of the time.
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

// TestUnresponsiveIsPreempted: if the GPU can preempt kernels it takes the kernel off, which goes
// on in its next turn. It does not count as preemptible again.
func TestUnresponsiveIsPreempted(t *testing.T) {
	r := newRigOn(t, soft.Options{MemoryBytes: 64 << 20, Priority: -1, Machine: machine.Config{Mode: machine.Slices}}, gpu.ContextOptions{})
	g := r.open()
	const turns = 100_000 // some 500 ms: not over before it is told to leave
	sim, s := r.ignore(g, turns)
	r.page.SetMode(ipc.ModeByKernel)
	r.x.Step(false)
	sim.Advance(10 * time.Millisecond)
	r.page.Beat(sim.Now())
	r.x.Step(false)
	slot := r.page.Context(0)
	v, _ := s.Read()
	if n := slot.Counters(); n.Unresponsive != 1 || n.Evictions != 1 || v.State != slotstate.Ready || v.Evictable || len(r.faults) != 0 {
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
	if n := slot.Counters(); n.GPUTime > time.Duration(com.End-com.Start) || n.GPUTime == 0 || n.Kernels != 1 || n.Unresponsive != 1 || slot.Outstanding() != 0 {
		t.Errorf("%+v, from start to end %v", n, time.Duration(com.End-com.Start))
	}
	r.page.SetMode(ipc.ModeFree)
	g.counting(8).preemptible(g, g.functionOf(1, "unresponsive"), kernels[0], 1)
	if com := g.receive(1)[0]; com.Status != abi.StatusOK {
		t.Fatal(com.Status)
	}
	if v := r.newest(); v.Evictable {
		t.Error("the kernel counts as preemptible again")
	}
}

// functionOf looks up a function again.
func (g *guestEnd) functionOf(module uint64, name string) uint64 {
	return g.must(abi.OpFunction, abi.Lookup{Module: module, NameBytes: uint32(len(name))}, []byte(name)...).Value[0]
}

// TestOtherChannelResumesTheContext: the hardware preempts whole contexts, so a launch of another
// channel brings the unresponsive kernel back.
func TestOtherChannelResumesTheContext(t *testing.T) {
	r := newRigOn(t, soft.Options{MemoryBytes: 64 << 20, Priority: -1, Machine: machine.Config{Mode: machine.Slices}}, gpu.ContextOptions{})
	a, b := r.open(), r.open()
	inc := a.load(incPTX, "inc")
	mem := a.must(abi.OpMemAlloc, abi.Alloc{Size: 128}).Value[0]
	fn := a.load(testdata(t, "unresponsive"), "unresponsive")
	sim := r.byKernel()
	r.page.SetMode(ipc.ModeFree)
	a.counting(8).preemptible(a, fn, kernels[0], 100_000)
	r.x.Step(false)
	r.say(func(s *ipc.LaunchSlot, v ipc.Launch) { s.Evict(v.ID, math.MaxUint32, sim.Now(), sim.Now()+1) })
	r.x.Step(true)
	sim.Advance(time.Millisecond)
	r.page.Beat(sim.Now())
	r.x.Step(true)
	if v := r.newest(); v.State != slotstate.Ready || r.x.preempted == nil {
		t.Fatalf("suspended: %+v", v)
	}
	l, params := launchOf(inc, 32, mem)
	b.send(abi.Header{Op: abi.OpLaunch}, l, params...)
	for _, g := range []*guestEnd{b, a} {
		if com := g.receive(1)[0]; com.Status != abi.StatusOK {
			t.Error(com.Status)
		}
	}
	if r.x.preempted != nil {
		t.Error("still suspended")
	}
}

// TestTwoUnresponsiveInAContext: the second of two can't leave while the first has their context
// off the GPU, which happens once.
func TestTwoUnresponsiveInAContext(t *testing.T) {
	r := newRigOn(t, soft.Options{MemoryBytes: 64 << 20, Priority: -1, Machine: machine.Config{Mode: machine.Slices}}, gpu.ContextOptions{})
	a, b := r.open(), r.open()
	fn := a.load(testdata(t, "unresponsive"), "unresponsive")
	sim := r.byKernel()
	counts := []*counting{a.counting(8), b.counting(8)}
	for i, g := range []*guestEnd{a, b} {
		counts[i].preemptible(g, fn, kernels[0], 100_000)
	}
	r.x.Step(false)
	r.runAll()
	r.x.Step(false)
	asked := 0
	r.say(func(s *ipc.LaunchSlot, v ipc.Launch) {
		if s.Evict(v.ID, math.MaxUint32, sim.Now(), sim.Now()+10*time.Millisecond) {
			asked++
		}
	})
	if asked != 2 {
		t.Fatalf("%d launches told to leave", asked)
	}
	r.x.Step(false)
	for range 20 {
		sim.Advance(ipc.UnresponsiveLimit / 4)
		r.page.Beat(sim.Now())
		r.x.Step(false)
	}
	if n := r.page.Context(0).Counters(); n.Evictions != 1 || n.Unresponsive != 1 || len(r.faults) != 0 {
		t.Fatalf("while one has both off the GPU: %+v, faults %v", n, r.faults)
	}
	r.page.SetMode(ipc.ModeFree)
	for _, g := range []*guestEnd{a, b} {
		if com := g.receive(1)[0]; com.Status != abi.StatusOK {
			t.Error(com.Status)
		}
	}
	if r.x.preempted != nil || r.x.offGPU.off {
		t.Error("still suspended")
	}
}

// TestPreemptedEndsWithItsContext: the context is enabled when it ends, so that what waits for its
// kernels goes on.
func TestPreemptedEndsWithItsContext(t *testing.T) {
	r := newRigOn(t, soft.Options{MemoryBytes: 64 << 20, Priority: -1, Machine: machine.Config{Mode: machine.Slices}}, gpu.ContextOptions{})
	g := r.open()
	sim, _ := r.ignore(g, math.MaxUint32)
	r.page.SetMode(ipc.ModeByKernel)
	r.x.Step(false)
	sim.Advance(10 * time.Millisecond)
	r.page.Beat(sim.Now())
	r.x.Step(false)
	if r.x.preempted == nil {
		t.Fatal("not suspended")
	}
	driver := &nested{count: 1}
	r.x.o.Device = &struct {
		gpu.Device
		gpu.Suspender
	}{r.x.o.Device, driver}
	r.x.preempted.finish(abi.StatusTimeLimit)
	if r.x.preempted != nil || driver.count != 0 {
		t.Errorf("preempted %v, %d disables left", r.x.preempted != nil, driver.count)
	}
}
