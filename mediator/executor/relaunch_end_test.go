package executor

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"runtime"
	"slices"
	"testing"

	"vgpud/clock"
	"vgpud/gpu"
	"vgpud/internal/proctest"
	"vgpud/mediator/ipc"
	"vgpud/mediator/ipc/slotstate"
	"vgpud/mediator/vgpu/abi"
)

// bring takes a preemptible launch of g to a state, under a daemon that decides about launches.
func (r *rig) bring(g *guestEnd, state slotstate.State) *counting {
	r.t.Helper()
	k := kernels[1]
	fn := g.load(testdata(r.t, k.file), k.name)
	c := g.counting(800)
	r.byKernel()
	c.preemptible(g, fn, k, 40)
	r.x.Step(false)
	if state >= slotstate.Running {
		r.runAll()
		r.x.Step(false)
	}
	if state == slotstate.ToEvict {
		r.evictAll(math.MaxUint32)
	}
	if v := r.newest(); v.State != state {
		r.t.Fatalf("%v, want %v", v.State, state)
	}
	return c
}

// TestClosedChannelsLaunch: a channel is closed with a launch in any state; its launch slot and
// memory are freed.
func TestClosedChannelsLaunch(t *testing.T) {
	for _, state := range []slotstate.State{slotstate.Ready, slotstate.Running, slotstate.ToEvict} {
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
			if len(r.launches()) != 0 || slot.Outstanding() != 0 || r.x.launches != 0 {
				t.Errorf("slots %+v, %d outstanding, %d launches", r.launches(), slot.Outstanding(), r.x.launches)
			}
			if v := r.newest(); v.State != slotstate.Done || v.Used != slot.Counters().GPUTime {
				t.Errorf("%+v, of %+v", v, slot.Counters())
			}
			other.must(abi.OpNop, abi.Empty{})
		})
	}
}

// TestDeadChannelsLaunch: the same for a channel whose guest broke the rules of its rings.
func TestDeadChannelsLaunch(t *testing.T) {
	for _, state := range []slotstate.State{slotstate.Ready, slotstate.Running, slotstate.ToEvict} {
		t.Run(state.String(), func(t *testing.T) {
			r := newRig(t, gpu.ContextOptions{})
			r.bring(r.open(), state)
			page := r.shared[abi.ChannelPage(0) : abi.ChannelPage(0)+abi.PageSize]
			abi.StoreWord(page, abi.SubmissionPutWord, 1<<20)
			r.stepUntil("its slot is free", func() bool { return len(r.launches()) == 0 })
			if len(r.failures) != 1 || r.page.Context(0).Outstanding() != 0 {
				t.Errorf("failures %v, %d outstanding", r.failures, r.page.Context(0).Outstanding())
			}
		})
	}
}

// TestFaultBesideALaunch: a fault ends launches of the context in any state.
func TestFaultBesideALaunch(t *testing.T) {
	for _, state := range []slotstate.State{slotstate.Ready, slotstate.Running, slotstate.ToEvict} {
		t.Run(state.String(), func(t *testing.T) {
			r := newRig(t, gpu.ContextOptions{})
			g, other := r.open(), r.open()
			inc := g.load(incPTX, "inc")
			r.bring(g, state)
			r.page.SetMode(ipc.ModeFree)
			held := state == slotstate.Ready
			bad, params := launchOf(inc, 1, 0xdead0000)
			other.send(abi.Header{Op: abi.OpLaunch}, bad, params...)
			if held {
				// Only the other's launch: it is not this one's turn.
				r.page.SetMode(ipc.ModeByKernel)
				r.x.Step(false)
				r.say(func(s *ipc.LaunchSlot, v ipc.Launch) {
					if v.Form == 0 {
						s.Run(v.ID)
					}
				})
			}
			if com := other.receive(1)[0]; com.Status != abi.StatusIllegalAddress {
				t.Errorf("the bad one: %v", com.Status)
			}
			if com := g.receive(1)[0]; com.Status != abi.StatusIllegalAddress && (held || com.Status != abi.StatusOK) {
				t.Errorf("the one beside it: %v", com.Status)
			}
			if len(r.launches()) != 0 || r.page.Context(0).Outstanding() != 0 || r.x.launches != 0 {
				t.Errorf("slots %+v, %d outstanding, %d launches", r.launches(), r.page.Context(0).Outstanding(), r.x.launches)
			}
		})
	}
}

// TestTimeLimitOfAllRuns: the kernel time limit holds for all runs of a launch together.
func TestTimeLimitOfAllRuns(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{})
	g := r.open()
	k := kernels[0]
	fn := g.load(testdata(t, k.file), k.name)
	g.counting(2000).preemptible(g, fn, k, 100) // more than three runs do
	counters := r.page.Context(0).Counters
	evict := func() {
		r.evictAll(math.MaxUint32)
		r.x.Step(false)
		runtime.Gosched()
	}
	for counters().Evictions < 2 && counters().Kernels == 0 {
		evict()
	}
	// Two runs are within the limit, and none has to be as long as it: on a busy machine some are
	// long, others short.
	limit := counters().GPUTime
	r.x.o.KernelTimeLimit = limit
	buf := make([]abi.Completion, 1)
	for n := 0; n == 0; {
		evict()
		var err error
		if n, _, err = g.com.Fetch(buf); err != nil {
			t.Fatal(err)
		}
	}
	if buf[0].Status != abi.StatusTimeLimit {
		t.Errorf("%v, after %+v", buf[0].Status, counters())
	}
	if n := counters(); n.GPUTime <= limit || n.Evictions != 2 {
		t.Errorf("%+v, with a limit of %v", n, limit)
	}
}

// TestSleepersHearTheDaemon: a sleeping executor wakes for its launch's turn and for its eviction.
func TestSleepersHearTheDaemon(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{})
	g := r.open()
	k := kernels[1]
	fn := g.load(testdata(t, k.file), k.name)
	c := g.counting(800)
	r.byKernel()
	turns := uint32(60)
	c.preemptible(g, fn, k, turns)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.x.Run(ctx) }()
	until := func(what string, ok func() bool) {
		t.Helper()
		var w proctest.Wait
		for !ok() {
			if err := w.Over(); err != nil {
				t.Fatalf("never: %s (%v)", what, err)
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
	is := func(all ...slotstate.State) func() bool {
		return func() bool { return slices.Contains(all, r.newest().State) }
	}
	buf := make([]abi.Completion, 1)
	answered := func() {
		t.Helper()
		until("done", func() bool { n, _, err := g.com.Fetch(buf); return n == 1 || err != nil })
		if buf[0].Status != abi.StatusOK {
			t.Error(buf[0].Status)
		}
	}
	for {
		until("ready", is(slotstate.Ready))
		asleep()
		r.runAll()
		until("running", is(slotstate.Running, slotstate.Done))
		r.evictAll(math.MaxUint32)
		until("left", is(slotstate.Ready, slotstate.Done))
		if r.newest().State == slotstate.Ready {
			break
		}
		// This goroutine got no processor before the kernel had ended.
		answered()
		if turns *= 4; turns > 1<<20 {
			t.Fatal("each kernel ends before its eviction")
		}
		c.preemptible(g, fn, k, turns)
		slot.Wake()
	}
	asleep()
	r.runAll()
	answered()
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	r.page.SetMode(ipc.ModeFree)
	c.check()
}

// TestEventBehindAPreemptibleLaunch: an event that is recorded behind a launch is reached when all
// of the launch is done.
func TestEventBehindAPreemptibleLaunch(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{})
	a, b := r.open(), r.open()
	ev := a.must(abi.OpEventCreate, abi.Empty{}).Value[0]
	inc := a.load(incPTX, "inc")
	c := r.bring(a, slotstate.ToEvict)
	a.send(abi.Header{Op: abi.OpEventRecord}, abi.Handle{Handle: ev})
	b.send(abi.Header{Op: abi.OpTimestamp}, abi.Empty{})
	r.stepUntil("it has left", func() bool { return r.newest().State == slotstate.Ready })
	b.receive(1)
	r.page.SetMode(ipc.ModeFree)
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
