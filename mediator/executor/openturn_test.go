package executor

import (
	"runtime"
	"testing"
	"time"

	"vgpud/clock"
	"vgpud/gpu"
	"vgpud/mediator/ipc"
	"vgpud/mediator/ipc/slotstate"
	"vgpud/mediator/vgpu/abi"
)

// steps lets the executor do what it can.
func (r *rig) steps(suspended bool) {
	for range 50 {
		r.x.Step(suspended)
		runtime.Gosched()
	}
}

// TestLaunchGoesInTurn: a launch needs no verdict in its guest's turn, if it begins before the turn
// ends and nothing else of the guest is on the GPU.
func TestLaunchGoesInTurn(t *testing.T) {
	const length = 10 * time.Millisecond
	for _, test := range []struct {
		name      string
		lasts     time.Duration
		prepare   func(r *rig)
		suspended bool
		goes      bool
	}{
		{name: "in turn", lasts: length, goes: true},
		{name: "no turn"},
		{name: "the turn is over", lasts: 1, prepare: func(r *rig) { r.x.o.Clock.(interface{ Advance(time.Duration) }).Advance(1) }},
		{name: "another context has something there", lasts: length, prepare: func(r *rig) { r.page.Context(1).AddFetched() }},
		{name: "the guest is suspended", lasts: length, suspended: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newRig(t, gpu.ContextOptions{})
			g := r.open()
			fn := g.load(spinPTX, "spin")
			sim := r.byKernel()
			g.spin(fn, 1, 10)
			r.x.Step(false)
			if v := r.newest(); v.State != slotstate.Ready {
				t.Fatalf("%v, want it ready", v.State)
			}
			if test.lasts > 0 {
				r.page.SetTurn(ipc.Turn{Until: sim.Now() + test.lasts})
			}
			if test.prepare != nil {
				test.prepare(r)
			}
			r.steps(test.suspended)
			if got := r.newest().State; (got != slotstate.Ready) != test.goes {
				t.Fatalf("it is %v", got)
			}
			r.runAll()
			if com := g.receive(1)[0]; com.Status != abi.StatusOK {
				t.Error(com.Status)
			}
		})
	}
}

// TestLaunchGoesBehind: in its guest's turn one short launch is put on the GPU behind another, and
// announced then; others are announced when the one before has ended.
func TestLaunchGoesBehind(t *testing.T) {
	const length = 10 * time.Millisecond
	for _, test := range []struct {
		name     string
		expected time.Duration // of a launch; 0: unknown
		turn     ipc.Turn      // from now on
		ceiling  int
		goes     bool
	}{
		{"in turn", 400 * time.Microsecond, ipc.Turn{Until: length, Behind: true}, 0, true},
		{"not behind others", 400 * time.Microsecond, ipc.Turn{Until: length}, 0, false},
		{"nothing is known of it", 0, ipc.Turn{Until: length, Behind: true}, 0, false},
		{"two are long", 600 * time.Microsecond, ipc.Turn{Until: length, Behind: true}, 0, false},
		{"the turn ends before it begins", 400 * time.Microsecond, ipc.Turn{Until: 400 * time.Microsecond, Behind: true}, 0, false},
		{"it is less urgent than others may be", 400 * time.Microsecond, ipc.Turn{Until: length, Behind: true}, 1, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newRig(t, gpu.ContextOptions{})
			g := r.open()
			fn := g.load(spinPTX, "spin")
			f, err := r.x.functions.get(fn)
			if err != nil {
				t.Fatal(err)
			}
			f.mean = test.expected
			sim := r.byKernel()
			r.page.SetTerms(ipc.Terms{Weight: 1, PriorityCeiling: test.ceiling})
			test.turn.Until += sim.Now()
			r.page.SetTurn(test.turn)
			priority := abi.Attribute{ID: abi.AttributePriority}
			l, params := launchOf(fn, 1, 20_000)
			for range 3 {
				g.send(abi.Header{Op: abi.OpLaunch, Aux: 1}, l, attributed(params, priority)...)
			}
			r.x.Step(false)
			live, want := r.launches(), 1
			if test.goes {
				want = 2
			}
			if n := r.page.Context(0).Outstanding(); len(live) != want || n != uint64(want) {
				t.Fatalf("%d launches are announced and %d on the GPU, want %d", len(live), n, want)
			}
			for _, v := range live {
				if v.State != slotstate.Running {
					t.Errorf("launch %d is %v", v.ID, v.State)
				}
			}
			// It has the GPU from when the one before has left it.
			r.page.SetTurn(ipc.Turn{})
			sim.Advance(time.Millisecond)
			if test.goes {
				r.stepUntil("the first has ended", func() bool { return len(r.launches()) == 1 })
				if v := r.launches()[0]; v.ID != live[1].ID || v.Started != sim.Now() {
					t.Errorf("launch %d began at %v, want the second, %d, at %v", v.ID, v.Started, live[1].ID, sim.Now())
				}
			}
			g.runToEnd(3)
		})
	}
}

// TestTurnEndsWithTwo: two launches that are on the GPU in their guest's turn leave it when told, and
// neither goes on by itself. They compute the same as one after the other.
func TestTurnEndsWithTwo(t *testing.T) {
	for _, k := range kernels {
		t.Run(k.Form.String(), func(t *testing.T) {
			r := newRig(t, gpu.ContextOptions{})
			g := r.open()
			fn := g.load(testdata(t, k.file), k.name)
			f, err := r.x.functions.get(fn)
			if err != nil {
				t.Fatal(err)
			}
			c := g.counting(800)
			f.mean = 100 * time.Microsecond
			sim := r.byKernel()
			r.page.SetTurn(ipc.Turn{Until: sim.Now() + time.Second, Behind: true})
			c.preemptible(g, fn, k, 400)
			c.preemptible(g, fn, k, 300)
			r.stepUntil("both are there", func() bool { return r.page.Context(0).Outstanding() == 2 })
			r.page.SetTurn(ipc.Turn{})
			r.evictAll(abi.EvictAll)
			r.stepUntil("both have left", func() bool {
				live := r.launches()
				return len(live) == 2 && live[0].State == slotstate.Ready && live[1].State == slotstate.Ready
			})
			r.steps(false)
			if n := r.page.Context(0).Outstanding(); n != 0 {
				t.Errorf("%d launches are on the GPU out of turn", n)
			}
			g.runToEnd(2)
			r.page.SetMode(ipc.ModeFree)
			c.check()
		})
	}
}

// TestCommandsBehindALaunchThatWaits: what comes behind a launch that was to go behind another, and
// has lost its turn before it went, waits for it.
func TestCommandsBehindALaunchThatWaits(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{})
	g := r.open()
	spin, inc := g.load(spinPTX, "spin"), g.load(incPTX, "inc")
	for _, h := range []uint64{spin, inc} {
		f, err := r.x.functions.get(h)
		if err != nil {
			t.Fatal(err)
		}
		f.mean = 100 * time.Microsecond
	}
	mem := g.must(abi.OpMemAlloc, abi.Alloc{Size: 128}).Value[0]
	sim := r.byKernel()
	r.page.SetTurn(ipc.Turn{Until: sim.Now() + time.Second, Behind: true})
	// Another context has all slots but one, so the second launch gets none.
	var others []ipc.Claim
	for range ipc.MaxLaunchSlots - 1 {
		c, ok := r.page.Claim(1, &ipc.Launch{})
		if !ok {
			t.Fatal("no slot")
		}
		others = append(others, c)
	}
	g.spin(spin, 1, 200_000)
	l, params := launchOf(inc, 32, mem)
	g.send(abi.Header{Op: abi.OpLaunch}, l, params...)
	g.send(abi.Header{Op: abi.OpCopyOut}, abi.Transfer{Dst: staging, Src: mem, Size: 128})
	r.x.Step(false)
	ch := r.x.channels[0]
	if ch.second == nil || ch.second.state.onGPU() {
		t.Fatalf("second launch %+v, want one that waits", ch.second)
	}
	r.steps(false)
	r.page.SetTurn(ipc.Turn{})
	for _, c := range others {
		c.Abandon(0)
	}
	g.runToEnd(3)
	if got := r.word(staging); got != 1 {
		t.Errorf("the copy reads %d, want what the launch before it wrote", got)
	}
}

// runToEnd lets every launch run until so many commands are answered, and checks that they succeeded.
func (g *guestEnd) runToEnd(commands int) {
	g.r.t.Helper()
	for {
		n, err := g.com.Pending()
		if err != nil {
			g.r.t.Fatal(err)
		}
		if n >= commands {
			break
		}
		g.r.runAll()
		g.r.x.Step(false)
		runtime.Gosched()
	}
	for i, com := range g.receive(commands) {
		if com.Status != abi.StatusOK {
			g.r.t.Errorf("command %d: %v", i, com.Status)
		}
	}
}

// midway calls a function whenever the time is asked for.
type midway struct {
	clock.Clock
	call func()
}

func (m midway) Now() time.Duration {
	m.call()
	return m.Clock.Now()
}

// TestOneContextGoesInTurn: of the launches that the guest's contexts have at the same time one goes to
// the GPU without a verdict, however far the executors are apart.
func TestOneContextGoesInTurn(t *testing.T) {
	for name, mode := range map[string]ipc.Mode{"in turn": ipc.ModeByKernel, "ahead": ipc.ModeAhead} {
		t.Run(name, func(t *testing.T) {
			c := newManyContexts(t, 4, 1)
			c.page.Beat(c.sim.Now())
			c.page.SetMode(mode)
			c.page.SetTurn(ipc.Turn{Until: c.sim.Now() + 10*time.Millisecond, Behind: true})
			c.launch(1)
			first, met := c.all[0].x, false
			first.o.Clock = midway{&c.sim, func() {
				for i := range ipc.MaxLaunchSlots {
					if v, ok := c.page.LaunchSlot(i).Read(); ok && v.State == slotstate.ToRun && !met {
						// It has its turn, and is not on the GPU.
						met = true
						for _, m := range c.all[1:] {
							m.x.Step(false)
						}
					}
				}
			}}
			c.step(false)
			if n := c.onGPU(); !met || n != 1 {
				t.Fatalf("%d launches on the GPU (met %v), want 1", n, met)
			}
			// The others go when it has left, as do those for which the daemon's verdict comes.
			for n := 1; n < len(c.all); n++ {
				c.let()
				if c.step(false); c.onGPU() != 1 {
					t.Fatalf("%d launches on the GPU after %d", c.onGPU(), n)
				}
			}
			c.let()
			c.step(false)
			for i, m := range c.all {
				if a := c.page.Context(i).FetchAhead(); a != (ipc.FetchAhead{}) || m.x.admitted != 0 {
					t.Errorf("context %d: in the end %+v, %d", i, a, m.x.admitted)
				}
			}
		})
	}
}
