package fairshare_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"vgpud/fairshare"
)

// turns lists which launch got the GPU at which time, if launches leave at once when told to.
func turns(policy string, until time.Duration, kernels ...*kernel) (list []string) {
	s := newKernelSim(policy, fairshare.Options{Evictions: fairshare.Rate{PerSecond: -1}}, guests(1, 1, 1, 1)...)
	for _, k := range kernels {
		k.leave = 1 // a nanosecond
		s.submit(k)
	}
	s.watch = func(_ fairshare.Event, verdicts []fairshare.Verdict) {
		for _, v := range verdicts {
			if v.Action == fairshare.Run {
				list = append(list, fmt.Sprintf("%d at %v", v.Guest, s.now.Round(us)))
			}
		}
	}
	s.run(until)
	return append(list, s.errors...)
}

// TestDPRR tests EffiSha §7 on the dynamic priority-based round-robin policy, sentence by sentence.
func TestDPRR(t *testing.T) {
	launch := func(guest fairshare.GuestID, priority int, at, work time.Duration) *kernel {
		return &kernel{Launch: fairshare.Launch{Guest: guest, Priority: priority, Evictable: true}, at: at, work: work}
	}
	for _, test := range []struct {
		name    string
		kernels []*kernel
		want    []string
	}{
		{"the length of the time slice is weighted by the priority; it is set to (p+1)/2 ms",
			[]*kernel{launch(1, 9, 0, 6*ms), launch(2, 5, 0, 6*ms)},
			// Launch 1 runs for 5 ms. Launch 2 has then waited 5 ms, so that p = 10 and it gets 5.5
			// ms. Then the queues switch, and launch 1, which has just entered the active queue,
			// has 5 ms again.
			[]string{"1 at 0s", "2 at 5ms", "1 at 10.5ms", "2 at 11.5ms"}},
		{"the dynamic priority equals its initial (static) priority when that kernel just arrives",
			[]*kernel{launch(1, 0, 0, 500*us), launch(2, 3, 0, 500*us), launch(3, 4, 400*us, 500*us)},
			[]string{"1 at 0s", "3 at 500µs", "2 at 1ms"}},
		{"but gets increased by one for every millisecond the kernel waits in the active queue",
			[]*kernel{launch(1, 9, 0, 5*ms), launch(2, 3, 0, 1*ms), launch(3, 7, 4900*us, 1*ms)},
			[]string{"1 at 0s", "2 at 5ms", "3 at 6ms"}}, // 3+5 against 7
		{"for every whole millisecond",
			[]*kernel{launch(1, 9, 0, 4900*us), launch(2, 3, 0, 1*ms), launch(3, 8, 4800*us, 1*ms)},
			[]string{"1 at 0s", "3 at 4.9ms", "2 at 5.9ms"}}, // 3+4 against 8
		{"the increase is capped at 20",
			[]*kernel{launch(1, 79, 0, 39*ms), launch(2, 3, 0, 1*ms), launch(3, 24, 38*ms, 1*ms)},
			[]string{"1 at 0s", "3 at 39ms", "2 at 40ms"}}, // 3+20 against 24+1
		{"at the expiration of its time quota, the kernel goes into the inactive waiting queue: others go first, however low",
			[]*kernel{launch(1, 30, 0, 20*ms), launch(2, 0, 0, 100*us), launch(3, 1, 0, 100*us)},
			[]string{"1 at 0s", "3 at 15.5ms", "2 at 15.6ms", "1 at 15.7ms"}},
		{"a new coming kernel is put into the active queue",
			[]*kernel{launch(1, 9, 0, 10*ms), launch(2, 0, 5100*us, 400*us), launch(3, 0, 0, 500*us)},
			// Launch 1 is in the inactive queue from 5 ms on. Launch 2 arrives later and goes
			// first.
			[]string{"1 at 0s", "3 at 5ms", "2 at 5.5ms", "1 at 5.9ms"}},
		{"its dynamic priority is reset to its initial (static) priority",
			[]*kernel{launch(1, 9, 0, 6*ms), launch(2, 0, 0, 9*ms), launch(3, 0, 8500*us, 100*us)},
			// Launch 2 waits for 5 ms and gets 3 ms with p = 5. Its p is 0 again when the queues
			// switch, so that it gets 1 ms after another millisecond.
			[]string{"1 at 0s", "2 at 5ms", "1 at 8ms", "2 at 9ms", "3 at 10ms", "2 at 10.1ms"}},
		{"arrivals never preempt", []*kernel{launch(1, 9, 0, 4*ms), launch(2, 90, 1*ms, 1*ms)}, []string{"1 at 0s", "2 at 4ms"}},
		{"one that is alone does not leave; its slices follow one another",
			[]*kernel{launch(1, 1, 0, 9*ms), launch(2, 0, 4500*us, 1*ms)}, []string{"1 at 0s", "2 at 5ms", "1 at 5.5ms", "2 at 6.5ms", "1 at 7ms"}},
		{"one that can't be evicted runs on",
			[]*kernel{{Launch: fairshare.Launch{Guest: 1, Priority: 1}, work: 5 * ms}, launch(2, 20, 1*ms, 1*ms)}, []string{"1 at 0s", "2 at 5ms"}},
		{"priorities below 0 have the slice of 0",
			[]*kernel{launch(1, -5, 0, 1*ms), launch(2, -9, 0, 1*ms)}, []string{"1 at 0s", "2 at 500µs", "1 at 1ms", "2 at 1.5ms"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, turns("dprr", 200*ms, test.kernels...)); diff != "" {
				t.Errorf("who has the GPU from when (-want +got):\n%s", diff)
			}
		})
	}
}

// TestDPRRStarves tests "When the active queue becomes empty, the two queues switch the role": a
// launch whose slice is over starves while two guests' new launches keep the active queue from
// becoming empty.
func TestDPRRStarves(t *testing.T) {
	s := newKernelSim("dprr", fairshare.Options{}, guests(1, 1, 1)...)
	s.submit(&kernel{Launch: fairshare.Launch{Guest: 1, Priority: 9, Evictable: true}, work: time.Hour, leave: 10 * us})
	for range 2 {
		for g := range fairshare.GuestID(2) {
			s.submit(&kernel{Launch: fairshare.Launch{Guest: g + 2, Evictable: true}, work: 100 * us, repeat: true})
		}
	}
	s.run(500 * ms)
	if s.had[1] > 6*ms {
		t.Errorf("the launch whose slice of 5 ms was over has had %v", s.had[1])
	}
}

// TestDPRRRounds tests "When the active queue becomes empty, the two queues switch the role": if no
// launches arrive, each has one slice before any has its second. So none starves, and no slice is
// shorter than (p+1)/2 ms with p static.
func TestDPRRRounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 12).Draw(t, "launches")
		s := newKernelSim("dprr", fairshare.Options{Evictions: fairshare.Rate{PerSecond: -1}}, guests(1, 1, 1)...)
		for range n {
			k := drawKernel(t, fairshare.GuestID(rapid.IntRange(1, 3).Draw(t, "guest")))
			k.Evictable, k.work = true, time.Hour
			s.submit(k)
		}
		began := map[fairshare.LaunchID]time.Duration{}
		runs := map[fairshare.LaunchID]int{}      // of each launch
		others := map[[2]fairshare.LaunchID]int{} // runs of one since another last had the GPU
		s.watch = func(ev fairshare.Event, verdicts []fairshare.Verdict) {
			for _, v := range verdicts {
				k := s.here[slices.IndexFunc(s.here, func(k *kernel) bool { return k.ID == v.Launch })]
				switch v.Action {
				case fairshare.Run:
					began[v.Launch] = k.Used
					runs[v.Launch]++
					for id := range fairshare.LaunchID(n) {
						others[[2]fairshare.LaunchID{id + 1, v.Launch}] = 0
						o := [2]fairshare.LaunchID{v.Launch, id + 1}
						// A launch that would leave only to come back at once has two slices in a
						// row.
						if others[o]++; id+1 != v.Launch && others[o] > 3 {
							s.failf("launch %d had the GPU %d times while %d waited", v.Launch, others[o], id+1)
						}
					}
				case fairshare.Evict:
					least := time.Duration(max(k.Priority, 0)+1) * ms / 2
					if had := k.Used - began[v.Launch]; had < least || had > 2*least+10*ms {
						s.failf("launch %d of priority %d had a slice of %v, and is told to leave", v.Launch, k.Priority, had)
					}
					if ev.Kind == fairshare.Arrived {
						s.failf("an arrival evicts %d", v.Launch)
					}
				}
			}
		}
		s.run(2 * time.Second)
		s.report(t)
		if len(runs) < n {
			t.Errorf("%d of %d launches had a slice in 2 s", len(runs), n)
		}
	})
}
