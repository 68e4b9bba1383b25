package executor

import (
	"encoding/binary"
	"flag"
	"fmt"
	"math"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"vgpud/clock"
	"vgpud/gpu"
	"vgpud/mediator/ipc"
	"vgpud/mediator/ipc/slotstate"
	"vgpud/mediator/vgpu/abi"
)

// byKernel has the daemon decide about launches, in simulated time that does not pass by itself.
func (r *rig) byKernel() *clock.Sim {
	sim := &clock.Sim{}
	r.x.o.Clock = sim
	sim.Advance(time.Hour)
	r.page.Beat(sim.Now())
	r.page.SetMode(ipc.ModeByKernel)
	return sim
}

// TestLaunchesWaitForTheirTurn: where the daemon decides about launches each waits for its turn,
// plain ones too, in its channel's order and independently of other channels.
func TestLaunchesWaitForTheirTurn(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{})
	a, b := r.open(), r.open()
	inc, spin := a.load(incPTX, "inc"), a.load(spinPTX, "spin")
	mem := a.must(abi.OpMemAlloc, abi.Alloc{Size: 128}).Value[0]
	ev := a.must(abi.OpEventCreate, abi.Empty{}).Value[0]
	r.byKernel()
	l, params := launchOf(inc, 32, mem)
	a.send(abi.Header{Op: abi.OpLaunch}, l, params...)
	a.send(abi.Header{Op: abi.OpLaunch}, l, params...)
	a.send(abi.Header{Op: abi.OpEventRecord}, abi.Handle{Handle: ev})
	a.send(abi.Header{Op: abi.OpCopyOut}, abi.Transfer{Dst: staging, Src: mem, Size: 128})
	b.spin(spin, 1, 10)
	for range 50 {
		r.x.Step(false)
	}
	slot := r.page.Context(0)
	if n, err := a.com.Pending(); n != 0 || err != nil || slot.Outstanding() != 0 || !slot.Backlog() {
		t.Fatalf("%d completions (%v), %d outstanding, backlog %v, before anybody said run", n, err, slot.Outstanding(), slot.Backlog())
	}
	live := r.launches()
	if len(live) != 2 || live[0].State != slotstate.Ready || live[1].State != slotstate.Ready || live[0].Form != 0 || live[0].Evictable {
		t.Fatalf("the daemon sees %+v, want one launch of each channel", live)
	}
	// The other channel's goes first, though it came last. A suspended guest's goes, too, if the
	// daemon says so.
	other := live[0]
	if live[1].ID > other.ID {
		other = live[1]
	}
	r.say(func(s *ipc.LaunchSlot, v ipc.Launch) {
		if v.ID == other.ID && !s.Run(v.ID) {
			t.Error("not ready")
		}
	})
	for n := 0; n == 0; n, _ = b.com.Pending() {
		r.x.Step(true)
		runtime.Gosched()
	}
	b.receive(1)
	if n, err := a.com.Pending(); n != 0 || err != nil {
		t.Errorf("%d completions of the channel that waits, %v", n, err)
	}
	for n := range 2 {
		r.stepUntil("the next is ready", func() bool { return len(r.launches()) == 1 && r.launches()[0].State == slotstate.Ready })
		if slot.Counters().Kernels != uint64(1+n) {
			t.Errorf("%d kernels have run", slot.Counters().Kernels)
		}
		r.runAll()
	}
	for i, com := range a.receive(4) {
		if com.Status != abi.StatusOK {
			t.Errorf("command %d: %v", i, com.Status)
		}
	}
	if got := binary.LittleEndian.Uint32(r.shared[staging:]); got != 2 {
		t.Errorf("the copy behind two launches sees %d", got)
	}
}

// TestTurnIsTakenBack: an executor that is late for a turn waits for the next. A launch that was
// being started is on the GPU, and its slot says so.
func TestTurnIsTakenBack(t *testing.T) {
	for _, k := range kernels {
		t.Run(k.Form.String(), func(t *testing.T) {
			r := newRig(t, gpu.ContextOptions{})
			g := r.open()
			fn := g.load(testdata(t, k.file), k.name)
			c := g.counting(800)
			r.byKernel()
			c.preemptible(g, fn, k, 40)
			r.x.Step(false)
			withdraw := func(s *ipc.LaunchSlot, v ipc.Launch) {
				if !s.Run(v.ID) || !s.Withdraw(v.ID) {
					t.Errorf("%v, want it let to the GPU, and its turn taken back", v.State)
				}
			}
			r.say(withdraw)
			for range 50 {
				r.x.Step(false)
			}
			if v := r.newest(); v.State != slotstate.Ready || r.page.Context(0).Outstanding() != 0 {
				t.Fatalf("%v, %d outstanding", v.State, r.page.Context(0).Outstanding())
			}
			// Again, while it prepares.
			var j *job
			for _, ch := range r.x.channels {
				j = ch.job
			}
			r.say(func(s *ipc.LaunchSlot, v ipc.Launch) { s.Run(v.ID) })
			if !j.hasTurn() || !j.takeRoom() || !j.prepare(turnCame) {
				t.Fatal("it does not prepare")
			}
			r.say(func(s *ipc.LaunchSlot, v ipc.Launch) { s.Withdraw(v.ID) })
			for range 50 {
				r.x.Step(false)
			}
			if v := r.newest(); v.State != slotstate.Ready || r.page.Context(0).Outstanding() != 0 {
				t.Fatalf("%v, %d outstanding", v.State, r.page.Context(0).Outstanding())
			}
			// And while it is started.
			r.stepUntil("it waits again", func() bool { return j.state == waiting })
			r.say(func(s *ipc.LaunchSlot, v ipc.Launch) { s.Run(v.ID) })
			if !j.hasTurn() || !j.takeRoom() || !j.prepare(turnCame) {
				t.Fatal("it does not prepare")
			}
			for !r.x.reached(&j.copies) {
				runtime.Gosched()
			}
			r.say(func(s *ipc.LaunchSlot, v ipc.Launch) { s.Withdraw(v.ID) })
			if !j.start() || r.newest().State != slotstate.Ready || r.page.Context(0).Outstanding() != 0 {
				t.Fatalf("%v, %d outstanding, without a turn", r.newest().State, r.page.Context(0).Outstanding())
			}
			r.say(func(s *ipc.LaunchSlot, v ipc.Launch) { s.Run(v.ID) })
			r.stepUntil("it has ended", func() bool { return len(r.launches()) == 0 })
			if com := g.receive(1)[0]; com.Status != abi.StatusOK {
				t.Error(com.Status)
			}
			r.page.SetMode(ipc.ModeFree)
			c.check()
		})
	}
}

// TestEvictedWaitsForItsTurn: an evicted launch is ready again, and goes on in its next turn.
func TestEvictedWaitsForItsTurn(t *testing.T) {
	for _, k := range kernels {
		t.Run(k.Form.String(), func(t *testing.T) {
			r := newRigOn(t, slowGPU, gpu.ContextOptions{})
			g := r.open()
			fn := g.load(testdata(t, k.file), k.name)
			c := g.counting(800)
			r.byKernel()
			c.preemptible(g, fn, k, 40)
			r.x.Step(false)
			for range 2 {
				r.runAll()
				r.x.Step(false)
				if v := r.newest(); v.State != slotstate.Running {
					t.Fatalf("%v, want it running", v.State)
				}
				r.evictAll(math.MaxUint32)
				r.stepUntil("it has left", func() bool { return r.newest().State == slotstate.Ready })
				for range 50 {
					r.x.Step(false)
				}
				if v := r.newest(); v.State != slotstate.Ready || r.page.Context(0).Outstanding() != 0 {
					t.Fatalf("%v, %d outstanding", v.State, r.page.Context(0).Outstanding())
				}
			}
			r.runAll()
			if com := g.receive(1)[0]; com.Status != abi.StatusOK {
				t.Error(com.Status)
			}
			r.page.SetMode(ipc.ModeFree)
			c.check()
			if n := r.page.Context(0).Counters(); n.Kernels != 1 || n.Evictions != 2 || n.Relaunches != 2 {
				t.Errorf("%+v", n)
			}
		})
	}
}

// TestDaemonsDeath: in whatever state the daemon leaves a launch, it runs to its end without the
// daemon.
func TestDaemonsDeath(t *testing.T) {
	for _, state := range []slotstate.State{slotstate.Ready, slotstate.ToRun, slotstate.Running, slotstate.ToEvict} {
		for _, suspended := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v, suspended %v", state, suspended), func(t *testing.T) {
				r := newRigOn(t, slowGPU, gpu.ContextOptions{})
				g := r.open()
				k := kernels[0]
				fn := g.load(testdata(t, k.file), k.name)
				c := g.counting(100)
				sim := r.byKernel()
				c.preemptible(g, fn, k, 40)
				r.x.Step(false)
				if state >= slotstate.ToRun {
					r.runAll()
				}
				if state >= slotstate.Running {
					r.x.Step(false)
				}
				if state == slotstate.ToEvict {
					r.evictAll(math.MaxUint32)
				}
				if v := r.newest(); v.State != state {
					t.Fatalf("%v, want %v", v.State, state)
				}
				if suspended {
					r.page.SetSuspendWord(ipc.Suspend)
				}
				// As Run does, while the daemon's last heartbeat gets older.
				wait := ipc.SilenceLimit
				if suspended {
					wait = ipc.SuspensionLimit
				}
				step := func() { r.x.Step(r.page.SuspendWord(sim.Now()) == ipc.Suspend); runtime.Gosched() }
				for range 20 {
					step()
				}
				sim.Advance(wait + 1)
				for n := 0; n == 0; n, _ = g.com.Pending() {
					step()
				}
				if com := g.receive(1)[0]; com.Status != abi.StatusOK {
					t.Error(com.Status)
				}
				c.check()
			})
		}
	}
}

// TestLateDaemon: a launch waits for the turn of a daemon that is late, and goes on without one as soon
// as the daemon has ended.
func TestLateDaemon(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{})
	path := filepath.Join(t.TempDir(), "until")
	f, err := ipc.NewSuspensionFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r.page.SetSuspensionFile(f)
	daemon, err := ipc.LockSuspensionFile(path)
	if err != nil {
		t.Fatal(err)
	}
	g := r.open()
	fn := g.load(spinPTX, "spin")
	sim := r.byKernel()
	g.spin(fn, 1, 10)
	for range 10 {
		r.x.Step(false)
		sim.Advance(ipc.SilenceLimit)
	}
	if v := r.newest(); v.State != slotstate.Ready {
		t.Errorf("with a late daemon the launch is %v, want %v", v.State, slotstate.Ready)
	}
	if err := daemon.Close(); err != nil {
		t.Fatal(err)
	}
	sim.Advance(ipc.SilenceLimit) // what the file says is read every now and then
	if com := g.receive(1)[0]; com.Status != abi.StatusOK {
		t.Error(com.Status)
	}
}

// TestModeEnds: launches that wait go on when the daemon no longer decides about them.
func TestModeEnds(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{})
	g := r.open()
	fn := g.load(spinPTX, "spin")
	r.byKernel()
	g.spin(fn, 2, 10)
	r.x.Step(false)
	if len(r.launches()) != 1 {
		t.Fatal("nobody waits")
	}
	r.page.SetMode(ipc.ModeFree)
	for _, com := range g.receive(2) {
		if com.Status != abi.StatusOK {
			t.Error(com.Status)
		}
	}
	if len(r.launches()) != 0 {
		t.Errorf("slots left: %+v", r.launches())
	}
}

// TestPriorities: a launch has at most its guest's priority.
func TestPriorities(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{})
	g := r.open()
	fn := g.load(spinPTX, "spin")
	r.byKernel()
	r.page.SetTerms(ipc.Terms{Weight: 1, PriorityCeiling: 7})
	slot := r.page.Context(0)
	for i, want := range []struct {
		asks    []int32
		urgency int
		ignored uint64
	}{
		{nil, 7, 0}, {[]int32{-3}, 3, 0}, {[]int32{-7}, 7, 0}, {[]int32{0}, 0, 0}, {[]int32{5}, 0, 0},
		{[]int32{-8}, 7, 1}, {[]int32{math.MinInt32}, 7, 2},
	} {
		var attributes []abi.Attribute
		for _, p := range want.asks {
			a := abi.Attribute{ID: abi.AttributePriority}
			a.PutUint32(0, uint32(p))
			attributes = append(attributes, a)
		}
		l, params := launchOf(fn, 1, 1)
		g.send(abi.Header{Op: abi.OpLaunch, Aux: uint16(len(attributes))}, l, attributed(params, attributes...)...)
		r.stepUntil("it is ready", func() bool { return len(r.launches()) == 1 })
		if v := r.newest(); v.Priority != want.urgency || slot.Counters().IgnoredPriorities != want.ignored {
			t.Errorf("launch %d, which asks for %v: urgency %d, %d ignored; want %d, %d",
				i, want.asks, v.Priority, slot.Counters().IgnoredPriorities, want.urgency, want.ignored)
		}
		r.runAll()
		g.receive(1)
	}
}

// TestSlotsRunOut: a launch for which there is no slot waits for one only where the daemon decides
// about launches.
func TestSlotsRunOut(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{})
	g := r.open()
	k := kernels[0]
	fn := g.load(testdata(t, k.file), k.name)
	c := g.counting(8)
	var others []ipc.Claim
	for range ipc.MaxLaunchSlots {
		claim, ok := r.page.Claim(5, &ipc.Launch{})
		if !ok {
			t.Fatal("no slot")
		}
		others = append(others, claim)
	}
	c.preemptible(g, fn, k, 1)
	if com := g.receive(1)[0]; com.Status != abi.StatusOK {
		t.Fatal(com.Status)
	}
	c.check()
	r.byKernel()
	c.preemptible(g, fn, k, 1)
	for range 50 {
		r.x.Step(false)
	}
	if n, err := g.com.Pending(); n != 0 || err != nil || r.x.sleepFor(0) != slotSleep {
		t.Errorf("%d completions, %v; sleeps for %v", n, err, r.x.sleepFor(0))
	}
	others[3].Abandon(0)
	r.x.Step(false)
	r.runAll()
	if com := g.receive(1)[0]; com.Status != abi.StatusOK {
		t.Error(com.Status)
	}
	r.page.SetMode(ipc.ModeFree)
	c.check()
}

var seeds = flag.Uint64("turns", 4, "how many random daemons TestRandomTurns has")

// TestRandomTurns drives launches of all forms on several channels by a daemon that makes random
// calls.
func TestRandomTurns(t *testing.T) {
	for seed := range *seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { randomTurns(t, seed) })
	}
}

func randomTurns(t *testing.T, seed uint64) {
	r := newRig(t, gpu.ContextOptions{})
	rnd := newRand(seed)
	const channels, launches = 3, 4
	var counts []*counting
	var ends []*guestEnd
	var fns []uint64
	for range channels {
		ends = append(ends, r.open())
	}
	for _, k := range kernels {
		fns = append(fns, ends[0].load(testdata(t, k.file), k.name))
	}
	for _, g := range ends {
		counts = append(counts, g.counting(40+rnd.IntN(60)))
	}
	sim := r.byKernel()
	r.page.SetMode(ipc.ModeFree)
	for range launches {
		for i, g := range ends {
			k := rnd.IntN(len(kernels))
			kk := kernels[k]
			if kk.Form != abi.PreemptSingle {
				kk.Group = 1 + rnd.Uint32N(9)
			}
			counts[i].preemptible(g, fns[k], kk, 20+rnd.Uint32N(80))
		}
	}
	done := make([]int, channels)
	buf := make([]abi.Completion, 1)
	finished := 0
	suspended := false
	for turn := 0; finished < channels*launches; turn++ {
		if turn > 1<<24 {
			t.Fatalf("never ends: %v done, %+v", done, r.launches())
		}
		switch rnd.IntN(200) {
		case 0:
			r.page.SetMode(ipc.Mode(rnd.IntN(2)))
		case 1:
			suspended = rnd.IntN(3) == 0
		case 2:
			r.evictAll([]uint32{1, 3, math.MaxUint32}[rnd.IntN(3)])
		case 3, 4, 5:
			r.runAll()
		case 6:
			sim.Advance(ipc.SilenceLimit / 2)
		case 7:
			r.page.Beat(sim.Now())
		case 8:
			r.say(func(s *ipc.LaunchSlot, v ipc.Launch) { s.Recall(v.ID) })
		}
		r.x.Step(suspended)
		for i, g := range ends {
			n, _, err := g.com.Fetch(buf)
			if err != nil {
				t.Fatal(err)
			}
			if n == 1 {
				if done[i]++; buf[0].Status != abi.StatusOK {
					t.Fatalf("channel %d: %v", i, buf[0].Status)
				}
				finished++
			}
		}
		runtime.Gosched()
	}
	r.page.SetMode(ipc.ModeFree)
	for i := range counts {
		counts[i].check()
	}
	slot := r.page.Context(0)
	if n := slot.Counters(); n.Kernels != channels*launches || slot.Outstanding() != 0 || r.x.launches != 0 || r.x.admittedWork != 0 {
		t.Errorf("%+v, %d outstanding, %d launches of %v", n, slot.Outstanding(), r.x.launches, r.x.admittedWork)
	}
	if live := r.launches(); len(live) != 0 {
		t.Errorf("slots left: %+v", live)
	}
	if slices.ContainsFunc(r.x.channels, func(ch *channel) bool { return ch.job != nil }) {
		t.Error("a job is left")
	}
}

// TestSecondsTurn: the daemon, which does not know the order of two launches, gives the second the
// turn. The first takes it.
func TestSecondsTurn(t *testing.T) {
	var sim *clock.Sim
	r, g, c := two(t, func(t testing.TB) *rig {
		r := newRig(t, gpu.ContextOptions{})
		sim = r.byKernel()
		r.page.SetMode(ipc.ModeFree)
		return r
	}, kernels[1])
	r.evictAll(math.MaxUint32)
	r.x.Step(false)
	r.page.Beat(sim.Now())
	r.page.SetMode(ipc.ModeByKernel)
	r.stepUntil("both have left", func() bool {
		live := r.launches()
		return len(live) == 2 && live[0].State == slotstate.Ready && live[1].State == slotstate.Ready
	})
	r.say(func(s *ipc.LaunchSlot, v ipc.Launch) {
		if v.ID == 2 && !s.Run(2) {
			t.Error("the second is not ready")
		}
	})
	for i, com := range g.receive(2) {
		if com.Status != abi.StatusOK {
			t.Errorf("launch %d: %v", i, com.Status)
		}
	}
	r.page.SetMode(ipc.ModeFree)
	g.receive(1)
	c.check()
}

// TestAhead: where no guest's launch goes before a guest's most urgent one, that one waits for no
// turn. A less urgent one does, and one of a suspended guest.
func TestAhead(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{})
	g := r.open()
	inc := g.load(incPTX, "inc")
	mem := g.must(abi.OpMemAlloc, abi.Alloc{Size: 128}).Value[0]
	r.byKernel()
	r.page.SetTerms(ipc.Terms{Weight: 1, PriorityCeiling: 2})
	l, params := launchOf(inc, 32, mem)
	waits := func(why string, suspended bool) {
		t.Helper()
		for range 50 {
			r.x.Step(suspended)
		}
		if live := r.launches(); len(live) != 1 || live[0].State != slotstate.Ready {
			t.Fatalf("%s: the daemon sees %+v", why, live)
		}
	}
	g.send(abi.Header{Op: abi.OpLaunch}, l, params...)
	waits("by kernel", false)
	r.page.SetMode(ipc.ModeAhead)
	waits("suspended", true)
	if com := g.receive(1)[0]; com.Status != abi.StatusOK {
		t.Fatalf("ahead: %v", com.Status)
	}
	r.page.SetTerms(ipc.Terms{Weight: 1, PriorityCeiling: 3})
	asks := abi.Attribute{ID: abi.AttributePriority}
	asks.PutUint32(0, uint32(0xffff_fffe)) // -2
	g.send(abi.Header{Op: abi.OpLaunch, Aux: 1}, l, attributed(params, asks)...)
	waits("less urgent than it might be", false)
}

// TestAwaitsEviction: an executor polls for a request to leave only if the daemon asks for that,
// decides about its launches, and one is there that would leave.
func TestAwaitsEviction(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{})
	r.byKernel()
	r.open()
	j := &job{state: running, form: abi.PreemptSingle, p: new(pending)}
	r.x.channels[0].job = j
	defer func() { r.x.channels[0].job = nil }()
	check := func(why string, want bool) {
		t.Helper()
		if got := r.x.awaitsEviction(); got != want {
			t.Errorf("%s: %v", why, got)
		}
	}
	check("nobody asked", false)
	r.page.SetBusyWait(true)
	check("a kernel that leaves", true)
	r.page.SetMode(ipc.ModeAhead)
	check("nobody is more urgent", false)
	r.page.SetMode(ipc.ModeByKernel)
	j.total.unresponsive = true
	check("an unresponsive kernel", false)
	j.total.unresponsive, j.form = false, 0
	check("a kernel that stays", false)
	j.form, j.state = abi.PreemptSingle, waiting
	check("a kernel that is not on the GPU", false)
	j.state = running
	r.page.SetBusyWait(false)
	check("nobody asks any more", false)
}

// TestAwaitsUrgentLaunch: an executor polls for its guest's next launch only if the daemon asks for
// that, no guest is more urgent, and there is a channel.
func TestAwaitsUrgentLaunch(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{})
	check := func(why string, want bool) {
		t.Helper()
		if got := r.x.awaitsUrgentLaunch(); got != want {
			t.Errorf("%s: %v", why, got)
		}
	}
	r.page.SetMode(ipc.ModeAhead)
	r.page.SetBusyWait(true)
	check("no channel", false)
	r.open()
	check("the most urgent guest", true)
	r.page.SetMode(ipc.ModeByKernel)
	check("others may be as urgent", false)
	r.page.SetMode(ipc.ModeAhead)
	r.page.SetBusyWait(false)
	check("nobody asks", false)
}
