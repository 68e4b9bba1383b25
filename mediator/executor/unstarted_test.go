package executor

import (
	"math"
	"testing"

	"vgpud/gpu"
	"vgpud/mediator/ipc"
	"vgpud/mediator/ipc/slotstate"
	"vgpud/mediator/vgpu/abi"
)

// TestEvictedBeforeItStarted tells launches that have their turn to leave before the executor has
// put them on the GPU. One that is to leave all SMs waits for its next turn without having run; one
// that is to leave some, or may stay after all, runs.
func TestEvictedBeforeItStarted(t *testing.T) {
	prepare := func(t *testing.T, r *rig) {
		for _, ch := range r.x.channels {
			if j := ch.job; !j.hasTurn() || !j.takeRoom() || !j.prepare(turnCame) {
				t.Fatal("it does not prepare")
			}
		}
	}
	cases := map[string]struct {
		evict  uint32
		first  func(t *testing.T, r *rig) // between the turn and the eviction
		refill bool
		want   slotstate.State // after some steps
	}{
		"waiting":       {evict: math.MaxUint32, want: slotstate.Ready},
		"preparing":     {evict: math.MaxUint32, first: prepare, want: slotstate.Ready},
		"may stay":      {evict: math.MaxUint32, refill: true, want: slotstate.Running},
		"some SMs":      {evict: 1, want: slotstate.ToEvict},
		"some SMs late": {evict: 1, first: prepare, want: slotstate.ToEvict},
	}
	for _, k := range kernels {
		for name, tc := range cases {
			t.Run(k.Form.String()+" "+name, func(t *testing.T) {
				r := newRig(t, gpu.ContextOptions{})
				g := r.open()
				fn := g.load(testdata(t, k.file), k.name)
				c := g.counting(800)
				r.byKernel()
				c.preemptible(g, fn, k, 40)
				r.x.Step(false)
				r.runAll()
				if tc.first != nil {
					tc.first(t, r)
				}
				r.say(func(s *ipc.LaunchSlot, v ipc.Launch) {
					if !s.Evict(v.ID, tc.evict, r.x.o.Clock.Now(), 0) {
						t.Errorf("%v: it can't be told to leave", v.State)
					}
					if tc.refill && !s.Recall(v.ID) {
						t.Errorf("%v: it can't be told to stay", v.State)
					}
				})
				slot := r.page.Context(0)
				if tc.want == slotstate.Ready {
					for range 50 {
						r.x.Step(false)
					}
					if v := r.newest(); v.State != slotstate.Ready || v.Evictions != 1 || v.Started != 0 || slot.Outstanding() != 0 {
						t.Fatalf("%v, %d evictions, started %v, %d outstanding", v.State, v.Evictions, v.Started, slot.Outstanding())
					}
					if n := slot.Counters(); n.Evictions != 0 || n.Relaunches != 0 {
						t.Errorf("%d evictions and %d relaunches of a launch that never ran", n.Evictions, n.Relaunches)
					}
					r.runAll()
				}
				r.stepUntil("it runs", func() bool { return r.newest().Started != 0 })
				if v := r.newest(); tc.want != slotstate.Ready && v.State != tc.want {
					t.Errorf("on the GPU it is %v, want %v", v.State, tc.want)
				}
				r.stepUntil("it has ended, or left", func() bool { return len(r.launches()) == 0 || r.newest().State == slotstate.Ready })
				r.page.SetMode(ipc.ModeFree)
				if com := g.receive(1)[0]; com.Status != abi.StatusOK {
					t.Error(com.Status)
				}
				c.check()
			})
		}
	}
}

// TestPlainLaunchLeavesBeforeItStarted: a kernel that can't leave the GPU can still give up its
// turn.
func TestPlainLaunchLeavesBeforeItStarted(t *testing.T) {
	r := newRig(t, gpu.ContextOptions{})
	g := r.open()
	fn := g.load(spinPTX, "spin")
	r.byKernel()
	g.spin(fn, 1, 10)
	r.x.Step(false)
	r.runAll()
	r.evictAll(math.MaxUint32)
	r.x.Step(false)
	if v := r.newest(); v.State != slotstate.Ready || r.page.Context(0).Outstanding() != 0 {
		t.Fatalf("%v, %d outstanding", v.State, r.page.Context(0).Outstanding())
	}
	r.runAll()
	if com := g.receive(1)[0]; com.Status != abi.StatusOK {
		t.Error(com.Status)
	}
}
