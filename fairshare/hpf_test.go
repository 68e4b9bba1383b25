package fairshare_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"vgpud/fairshare"
)

// verdictRun and verdictEvict return verdicts about one launch for another launch's guest.
func verdictRun(guest fairshare.GuestID, id fairshare.LaunchID) fairshare.Verdict {
	return fairshare.Verdict{Guest: guest, Launch: id, Action: fairshare.Run}
}

func verdictEvict(guest fairshare.GuestID, id fairshare.LaunchID, cause fairshare.GuestID, use fairshare.SpatialUse) fairshare.Verdict {
	return fairshare.Verdict{Guest: guest, Launch: id, Action: fairshare.Evict, BelowSM: math.MaxUint32, For: cause, Spatial: use}
}

// decisions calls a new policy once for each state of launches, and returns its last verdicts.
func decisions(t *testing.T, policy string, ev fairshare.Event, states ...[]fairshare.Launch) []fairshare.Verdict {
	t.Helper()
	p, err := fairshare.New(policy, fairshare.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var v []fairshare.Verdict
	for i, launches := range states {
		v, _ = p.Decide(time.Duration(i), ev, fairshare.State{Guests: guests(1, 1, 1), Launches: launches, SMs: 16})
	}
	return slices.Clone(v)
}

// TestHPFFigure6 tests FLEP figure 6, line by line, with K_r, launch 1, running.
func TestHPFFigure6(t *testing.T) {
	running := func(priority int, remaining time.Duration) fairshare.Launch {
		return fairshare.Launch{ID: 1, Guest: 1, Running: true, Evictable: true, Priority: priority,
			Predicted: 10 * ms, Used: 10*ms - remaining, EvictionCost: 1 * ms}
	}
	waiting := func(id fairshare.LaunchID, priority int, remaining time.Duration) fairshare.Launch {
		return fairshare.Launch{ID: id, Guest: fairshare.GuestID(id), Evictable: true, Priority: priority, Predicted: remaining}
	}
	arrived := fairshare.Event{Kind: fairshare.Arrived}
	finished := fairshare.Event{Kind: fairshare.Finished}
	take := func(id fairshare.LaunchID) []fairshare.Verdict {
		g := fairshare.GuestID(id)
		return []fairshare.Verdict{verdictEvict(1, 1, g, fairshare.SpatialTakesTurns), verdictRun(g, id)}
	}
	for _, test := range []struct {
		name     string
		ev       fairshare.Event
		launches []fairshare.Launch
		want     []fairshare.Verdict
	}{
		{"if (Kr.priority < Kn.priority) { Preempt(Kr) … Schedule_to_GPU(Kn) }", arrived,
			[]fairshare.Launch{running(1, 100*us), waiting(2, 2, 50*ms)}, take(2)},
		{"else if (Kr.priority > Kn.priority) { Enqueue(Kn, Kn.priority) }", arrived,
			[]fairshare.Launch{running(2, 9*ms), waiting(2, 1, 10*us)}, nil},
		{"Schedule_for_queue(Kn.priority): if (Kr.Tr > Ks.Tr + preemption_overhead) { Preempt(Kr) Schedule_to_GPU(Ks) }", arrived,
			[]fairshare.Launch{running(1, 9*ms), waiting(2, 1, 7*ms)}, take(2)},
		{"HPF preempts Kr only if Kr's remaining execution time is larger than the sum of Ks's and the preemption overhead", arrived,
			[]fairshare.Launch{running(1, 9*ms), waiting(2, 1, 8*ms)}, nil},
		{"find the kernel Ks in the queue of priority level p with smallest Tr", arrived,
			[]fairshare.Launch{running(1, 9*ms), waiting(2, 1, 5*ms), waiting(3, 1, 3*ms)}, take(3)},
		{"find the non-empty queue of highest priority hp; Schedule_for_queue(hp)", finished,
			[]fairshare.Launch{waiting(1, 1, 1*ms), waiting(2, 2, 9*ms), waiting(3, 2, 8*ms)}, []fairshare.Verdict{verdictRun(3, 3)}},
		{"} else { Schedule_to_GPU(Ks) }", arrived,
			[]fairshare.Launch{waiting(3, 1, 1*ms)}, []fairshare.Verdict{verdictRun(3, 3)}},
		{"nothing waits", finished, []fairshare.Launch{running(1, 1*ms)}, nil},
		{"a launch that can't be evicted runs on, beside one that is more urgent", arrived,
			[]fairshare.Launch{{ID: 1, Guest: 1, Running: true, Predicted: 10 * ms}, waiting(2, 1, 1*ms)}, []fairshare.Verdict{verdictRun(2, 2)}},
		{"a launch that can't be evicted runs on, and its equals wait", arrived,
			[]fairshare.Launch{{ID: 1, Guest: 1, Running: true, Predicted: 10 * ms}, waiting(2, 0, 1*ms)}, nil},
		{"nothing is known of K_r but that it has run long enough", arrived,
			[]fairshare.Launch{{ID: 1, Guest: 1, Running: true, Evictable: true, Used: 5 * ms, EvictionCost: 1 * ms}, waiting(2, 0, 3*ms)}, take(2)},
		{"nothing is known of K_n", arrived, []fairshare.Launch{running(0, 9*ms), waiting(2, 0, 0)}, nil},
		{"nothing is known of K_n, in the queue", finished,
			[]fairshare.Launch{waiting(2, 0, 0), waiting(3, 0, 20*ms)}, []fairshare.Verdict{verdictRun(3, 3)}},
		{"the cost of an eviction is unknown: AssumedCost", arrived,
			[]fairshare.Launch{{ID: 1, Guest: 1, Running: true, Evictable: true, Predicted: 1 * ms}, waiting(2, 0, 1*ms-fairshare.AssumedCost)}, nil},
		{"what leaves the GPU counts as gone", finished,
			[]fairshare.Launch{{ID: 1, Guest: 1, Running: true, Evicting: true, Evictable: true}, waiting(2, 0, 1*ms)}, []fairshare.Verdict{verdictRun(2, 2)}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, decisions(t, "hpf", test.ev, test.launches)); diff != "" {
				t.Errorf("verdicts (-want +got):\n%s", diff)
			}
		})
	}
}

// TestUrgentAmongRunning tests launches that are on the GPU together because executors let them go
// there while the daemon was silent: those that the most urgent one displaces leave.
func TestUrgentAmongRunning(t *testing.T) {
	launch := func(id fairshare.LaunchID, priority int) fairshare.Launch {
		return fairshare.Launch{ID: id, Guest: fairshare.GuestID(id), Running: true, Evictable: true, Priority: priority, Predicted: 5 * ms}
	}
	stays, spatial, waits, leaves := launch(1, 0), launch(1, 0), launch(1, 0), launch(1, 0)
	stays.Evictable, spatial.BelowSM, waits.Running, leaves.Evicting = false, 4, false, true
	evict := func(id fairshare.LaunchID, cause fairshare.GuestID) fairshare.Verdict {
		return verdictEvict(fairshare.GuestID(id), id, cause, fairshare.SpatialNotConsidered)
	}
	for _, test := range []struct {
		name, policy string
		launches     []fairshare.Launch
		want         []fairshare.Verdict
	}{
		{"two others", "hpf", []fairshare.Launch{launch(1, 0), launch(2, 2), launch(3, 1)}, []fairshare.Verdict{evict(1, 2), evict(3, 2)}},
		{"of one priority the longer one", "hpf", []fairshare.Launch{{ID: 1, Guest: 1, Running: true, Evictable: true, Predicted: 9 * ms}, launch(2, 0)}, []fairshare.Verdict{evict(1, 2)}},
		{"of one priority", "piv", []fairshare.Launch{launch(1, 0), launch(2, 0)}, nil},
		{"two priorities", "piv", []fairshare.Launch{launch(1, 0), launch(2, 1)}, []fairshare.Verdict{evict(1, 2)}},
		{"nothing is evicted", "fifo", []fairshare.Launch{launch(1, 0), launch(2, 1)}, nil},
		{"it can't be evicted", "hpf", []fairshare.Launch{stays, launch(2, 1)}, nil},
		{"it has left SMs", "hpf", []fairshare.Launch{spatial, launch(2, 1)}, nil},
		{"it waits", "hpf", []fairshare.Launch{waits, launch(2, 1)}, nil},
		{"it leaves", "hpf", []fairshare.Launch{leaves, launch(2, 1)}, nil},
	} {
		t.Run(test.policy+" "+test.name, func(t *testing.T) {
			got := decisions(t, test.policy, fairshare.Event{Kind: fairshare.Arrived}, test.launches)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("verdicts (-want +got):\n%s", diff)
			}
		})
	}
}

// TestHPFLosesNoKernel tests two cases in which figure 6 as printed loses a kernel: a new kernel of
// the running one's priority, which lines 13 and 14 never enqueue, and one that Schedule_for_queue
// preempts, which lines 28 to 30 never enqueue again. Here both finish.
func TestHPFLosesNoKernel(t *testing.T) {
	s := newKernelSim("hpf", fairshare.Options{}, guests(1, 1, 1)...)
	long := s.submit(&kernel{Launch: fairshare.Launch{Guest: 1, Evictable: true}, work: 10 * ms, leave: 50 * us, again: 10 * us})
	short := s.submit(&kernel{Launch: fairshare.Launch{Guest: 2, Evictable: true}, work: 1 * ms, at: 1 * ms, leave: 50 * us})
	longer := s.submit(&kernel{Launch: fairshare.Launch{Guest: 3, Evictable: true}, work: 15 * ms, at: 1100 * us, leave: 50 * us})
	s.run(time.Second)
	got := []time.Duration{short.finished, long.finished, longer.finished}
	want := []time.Duration{2050 * us, 11060 * us, 26060 * us}
	if diff := cmp.Diff(want, got); diff != "" || long.evicted != 1 {
		t.Errorf("finished (-want +got), %d evictions:\n%s", long.evicted, diff)
	}
}

// TestHPFUrgentLatency tests that the urgent launch waits for no more than an eviction, whatever
// else is there.
func TestHPFUrgentLatency(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newKernelSim("hpf", fairshare.Options{Evictions: fairshare.Rate{PerSecond: -1}}, guests(1, 1, 1, 1)...)
		var worst time.Duration // for evictions, and for sharing with launches that can't be evicted
		for g := range 3 {
			k := drawKernel(t, fairshare.GuestID(g+1))
			k.Priority, k.repeat, k.Evictable = rapid.IntRange(0, 3).Draw(t, "priority"), true, true
			worst = max(worst, k.leave)
			s.submit(k)
		}
		urgent := &kernel{Launch: fairshare.Launch{Guest: 4, Priority: 9, Evictable: true}, work: 300 * us, repeat: true, at: 2 * ms,
			pause: time.Duration(rapid.IntRange(100, 5000).Draw(t, "pause µs")) * us}
		s.submit(urgent)
		s.run(150 * ms)
		n := 0
		for _, k := range s.done {
			if k.Guest != 4 {
				continue
			}
			n++
			if latency := k.finished - k.at; latency > k.work+worst {
				t.Errorf("urgent launch took %v, alone %v, an eviction %v", latency, k.work, worst)
			}
		}
		if n < 25 {
			t.Errorf("%d urgent launches finished", n)
		}
		s.report(t)
	})
}

// TestHPFMinimizesDegradation tests that among equal priorities the short launch is done first,
// which lowers the mean of (T_w + T_e)/T_e: more than reordering without preemption does, which in
// turn is better than the order of arrival.
func TestHPFMinimizesDegradation(t *testing.T) {
	degradation := func(policy string) (mean float64) {
		s := newKernelSim(policy, fairshare.Options{}, guests(1, 1, 1)...)
		for i, work := range []time.Duration{30 * ms, 2 * ms, 500 * us} { // as FLEP's triplets (§6.3.2): a large input, then small ones
			s.submit(&kernel{Launch: fairshare.Launch{Guest: fairshare.GuestID(i + 1), Evictable: true}, work: work, at: time.Duration(i) * 10 * us, leave: 100 * us})
		}
		s.run(time.Second)
		for _, k := range s.done {
			mean += float64(k.finished-k.at) / float64(k.work) / 3
		}
		return mean
	}
	hpf, reorder, fifo := degradation("hpf"), degradation("reorder"), degradation("fifo")
	if !(hpf < 1.5 && hpf < reorder && reorder < fifo) {
		t.Errorf("mean degradation: hpf %.2f, reorder %.2f, fifo %.2f", hpf, reorder, fifo)
	}
}

// drawKernel draws a random kernel.
func drawKernel(t *rapid.T, guest fairshare.GuestID) *kernel {
	micros := func(name string, least, most int) time.Duration {
		return time.Duration(rapid.IntRange(least, most).Draw(t, name)) * us
	}
	return &kernel{
		Launch: fairshare.Launch{Guest: guest, Evictable: rapid.IntRange(0, 4).Draw(t, "evictable") > 0,
			Priority: rapid.IntRange(-2, 25).Draw(t, "priority"), Context: uint64(rapid.IntRange(0, 1).Draw(t, "context")),
			Blocks: uint64(rapid.IntRange(0, 200).Draw(t, "blocks")), PerSM: uint32(rapid.IntRange(0, 8).Draw(t, "per SM"))},
		work: micros("work", 1, 5000), leave: micros("leave", 1, 400), again: micros("again", 0, 100),
		unknown: rapid.Bool().Draw(t, "unknown"),
	}
}

// report fails the test if the policy returned a verdict that it must not return.
func (s *kernelSim) report(t *rapid.T) {
	t.Helper()
	for _, e := range s.errors {
		t.Error(e)
	}
}
