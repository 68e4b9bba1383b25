package fairshare_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"vgpud/fairshare"
)

// TestPIV tests EffiSha §7 on priority-based immediate eviction, sentence by sentence.
func TestPIV(t *testing.T) {
	l := func(id fairshare.LaunchID, priority int, running bool) fairshare.Launch {
		return fairshare.Launch{ID: id, Guest: fairshare.GuestID(id), Priority: priority, Running: running, Evictable: true}
	}
	for _, test := range []struct {
		name     string
		launches []fairshare.Launch
		want     []fairshare.Verdict
	}{
		{"the kernels in the queue are ordered in their priorities; when the GPU becomes available, the scheduler always chooses the head of the queue",
			[]fairshare.Launch{l(1, 3, false), l(2, 7, false), l(3, 5, false)}, []fairshare.Verdict{verdictRun(2, 2)}},
		{"(of one priority, the one that came first)",
			[]fairshare.Launch{l(1, 3, false), l(2, 7, false), l(3, 7, false)}, []fairshare.Verdict{verdictRun(2, 2)}},
		{"if a new coming kernel has a higher priority than a currently running kernel, the scheduler immediately has the current kernel evicted and has the new kernel launched",
			[]fairshare.Launch{l(1, 3, true), l(2, 4, false)}, []fairshare.Verdict{verdictEvict(1, 1, 2, fairshare.SpatialTakesTurns), verdictRun(2, 2)}},
		{"otherwise, the currently running kernel runs to completion: equal", []fairshare.Launch{l(1, 3, true), l(2, 3, false)}, nil},
		{"otherwise, the currently running kernel runs to completion: lower", []fairshare.Launch{l(1, 3, true), l(2, 2, false)}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, decisions(t, "piv", fairshare.Event{Kind: fairshare.Arrived}, test.launches)); diff != "" {
				t.Errorf("verdicts (-want +got):\n%s", diff)
			}
		})
	}
}

// TestPIVNeverInverts tests "The EffiSha runtime daemon schedules kernels purely based on their
// initial priorities": no evictable launch is on the GPU while a more urgent one waits. This
// "leaves low-priority kernels facing the risk of starvation".
func TestPIVNeverInverts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newKernelSim("piv", fairshare.Options{Evictions: fairshare.Rate{PerSecond: -1}}, guests(1, 1, 1, 1)...)
		for g := range 4 {
			k := drawKernel(t, fairshare.GuestID(g+1))
			k.Evictable, k.repeat = true, g > 0
			s.submit(k)
		}
		s.watch = func(_ fairshare.Event, v []fairshare.Verdict) {
			s.eachDecided(v, func(waiting, running *kernel) {
				if waiting.Priority > running.Priority {
					s.failf("launch %d of priority %d waits for %d of %d", waiting.ID, waiting.Priority, running.ID, running.Priority)
				}
			})
		}
		s.run(40 * ms)
		s.report(t)
	})
}

func TestPIVStarves(t *testing.T) {
	s := newKernelSim("piv", fairshare.Options{}, guests(1, 1, 1)...)
	for g, priority := range []int{1, 5, 5} {
		s.submit(&kernel{Launch: fairshare.Launch{Guest: fairshare.GuestID(g + 1), Priority: priority, Evictable: true}, work: 1 * ms, repeat: true, leave: 10 * us})
	}
	s.run(200 * ms)
	if used := s.had[1]; used > 2*ms {
		t.Errorf("the launch of low priority ran for %v beside two guests that always have something more urgent", used)
	}
}

// TestPIVWithSlices tests kernel slicing (PKM in EffiSha §8.3: it "partitions the kernel grid into
// subgrids and launches subgrids as separate kernels. This way, the GPU kernel can be preempted at
// the subgrid granularity"). It is the same policy with launches that can't be evicted: an urgent
// one waits for at most a slice.
func TestPIVWithSlices(t *testing.T) {
	s := newKernelSim("piv", fairshare.Options{Alone: true}, guests(1, 1)...)
	slice := 250 * us
	s.submit(&kernel{Launch: fairshare.Launch{Guest: 1}, work: slice, repeat: true})
	s.submit(&kernel{Launch: fairshare.Launch{Guest: 2, Priority: 1}, work: 100 * us, repeat: true, at: 1 * ms, pause: 777 * us})
	s.run(100 * ms)
	if len(s.errors) > 0 {
		t.Error(s.errors)
	}
	for _, k := range s.done {
		if wait := k.started - k.at; k.Guest == 2 && wait > slice {
			t.Errorf("an urgent launch waited for %v, a slice is %v", wait, slice)
		}
	}
	if s.evicted[2] > 0 || s.had[2] < 8*ms {
		t.Errorf("%d evictions; the urgent guest had %v", s.evicted[2], s.had[2])
	}
}

// eachDecided applies the verdicts and calls f with each pair of a waiting and a running launch.
func (s *kernelSim) eachDecided(v []fairshare.Verdict, f func(waiting, running *kernel)) {
	said := map[fairshare.LaunchID]fairshare.Action{}
	for _, v := range v {
		said[v.Launch] = v.Action
	}
	for _, waiting := range s.here {
		if _, decided := said[waiting.ID]; waiting.Running || decided {
			continue
		}
		for _, running := range s.here {
			action, decided := said[running.ID]
			if decided && action == fairshare.Run || !decided && running.Running && !running.Evicting {
				f(waiting, running)
			}
		}
	}
}
