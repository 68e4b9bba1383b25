package fairshare_test

import (
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"vgpud/fairshare"
)

// kernelPolicies returns the names of the policies that decide about launches.
func kernelPolicies() []string {
	return slices.DeleteFunc(fairshare.Names(), func(name string) bool { return !fairshare.ByKernel(name) })
}

func TestByKernel(t *testing.T) {
	if diff := cmp.Diff([]string{"dprr", "ffs", "fifo", "hpf", "piv", "reorder"}, kernelPolicies()); diff != "" {
		t.Errorf("policies about kernels (-want +got):\n%s", diff)
	}
}

// TestNoLaunchIsLost tests that whatever arrives, is evictable or not, finishes, and is reported to
// the policy or not, no launch is lost, each runs at most once at a time, verdicts are about
// existing launches, and no guest causes more evictions than it may. The simulated GPU checks every
// verdict for that.
func TestNoLaunchIsLost(t *testing.T) {
	for _, policy := range kernelPolicies() {
		t.Run(policy, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				rate := rapid.SampledFrom([]fairshare.Rate{{}, {PerSecond: 20, Burst: 3}, {PerSecond: 1000, Burst: 1}, {PerSecond: -1}}).Draw(t, "rate")
				o := fairshare.Options{Evictions: rate, Alone: rapid.Bool().Draw(t, "alone"), Temporal: rapid.Bool().Draw(t, "temporal")}
				s := newKernelSim(policy, o, guests(1, 2, 4)...)
				s.st.CoRuns = rapid.Bool().Draw(t, "co-runs")
				n := rapid.IntRange(1, 40).Draw(t, "launches")
				for range n {
					k := drawKernel(t, fairshare.GuestID(rapid.IntRange(1, 3).Draw(t, "guest")))
					k.at = time.Duration(rapid.IntRange(0, 40).Draw(t, "at")) * ms / 2
					s.submit(k)
				}
				s.run(2 * time.Second)
				s.report(t)
				if len(s.done) != n {
					t.Errorf("%d of %d launches finished", len(s.done), n)
				}
				if rate == (fairshare.Rate{}) {
					rate = fairshare.DefaultRate
				}
				last := time.Duration(0)
				for _, k := range s.done {
					last = max(last, k.finished)
				}
				for g, evicted := range s.evicted {
					if most := rate.Burst + 1 + rate.PerSecond*last.Seconds(); rate.PerSecond >= 0 && float64(evicted) > most {
						t.Errorf("guest %d caused %d evictions in %v, may %v", g, evicted, last, most)
					}
				}
				if policy == "fifo" || policy == "reorder" {
					for _, k := range s.done {
						if k.evicted > 0 {
							t.Errorf("%s evicted", policy)
						}
					}
				}
				if policy == "fifo" && !slices.IsSortedFunc(s.done, func(a, b *kernel) int { return int(a.Arrived - b.Arrived) }) {
					t.Error("fifo ran launches in another order than that of arrival")
				}
			})
		})
	}
}

// TestLostVerdicts tests verdicts that are lost and guests that vanish with their launches. The
// policies go by the state that they are shown, so that this costs time, but no launch.
func TestLostVerdicts(t *testing.T) {
	for _, policy := range kernelPolicies() {
		t.Run(policy, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				s := newKernelSim(policy, fairshare.Options{}, guests(1, 2, 4)...)
				n := rapid.IntRange(1, 20).Draw(t, "launches")
				for range n {
					k := drawKernel(t, fairshare.GuestID(rapid.IntRange(1, 3).Draw(t, "guest")))
					k.at = time.Duration(rapid.IntRange(0, 20).Draw(t, "at")) * ms
					s.submit(k)
				}
				s.lossy = func() bool { return rapid.IntRange(0, 3).Draw(t, "fate") == 0 }
				for s.now < 100*ms {
					s.run(s.now + 5*ms)
					s.decide(fairshare.Event{Kind: fairshare.Tick, Phase: fairshare.PollPhase})
				}
				s.lossy = nil
				for s.now < 2*time.Second {
					s.run(s.now + 20*ms)
					s.decide(fairshare.Event{Kind: fairshare.Tick, Phase: fairshare.PollPhase})
				}
				s.report(t)
				if len(s.done) != n {
					t.Errorf("%d of %d launches finished", len(s.done), n)
				}
			})
		})
	}
}

// TestQuotasHoldLaunches tests that quotas hold under policies about launches as under the others,
// and that a guest at its cap leaves the GPU to the rest.
func TestQuotasHoldLaunches(t *testing.T) {
	for _, policy := range kernelPolicies() {
		t.Run(policy, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				s := newKernelSim(policy, fairshare.Options{}, guests(1, 1)...)
				s.policy = fairshare.Bound(s.policy)
				quota := float64(rapid.IntRange(10, 40).Draw(t, "cap")) / 100
				s.st.Guests[0].Quota.Cap = quota
				for g := range 2 {
					for range 2 {
						s.submit(&kernel{Launch: fairshare.Launch{Guest: fairshare.GuestID(g + 1), Priority: 5 - 5*g, Evictable: rapid.Bool().Draw(t, "evictable")},
							work: time.Duration(rapid.IntRange(300, 3000).Draw(t, "work µs")) * us, leave: 40 * us, repeat: true})
					}
				}
				s.rounds(500 * ms)
				s.report(t)
				had := float64(s.had[1]) / float64(s.now)
				if had > quota+0.05 || policy != "fifo" && policy != "reorder" && had < quota-0.05 {
					t.Errorf("guest 1 has %.3f of the GPU, its cap is %v", had, quota)
				}
				if idle := float64(s.idle) / float64(s.now); idle > 0.05 {
					t.Errorf("idle for %.1f %% of the time", 100*idle)
				}
			})
		})
	}
}

// rounds runs for d, and reports usage to the policy every few milliseconds.
func (s *kernelSim) rounds(d time.Duration) {
	const length = 5 * ms
	had, noWork, idle := maps.Clone(s.had), maps.Clone(s.noWork), s.idle
	for end := s.now + d; s.now < end; {
		s.run(s.now + length)
		for i := range s.st.Guests {
			g := &s.st.Guests[i]
			g.Used, g.NoWork, g.Idle = s.had[g.ID]-had[g.ID], s.noWork[g.ID]-noWork[g.ID], s.idle-idle
			g.Active, g.Backlogged = g.NoWork < length, s.has(g.ID)
		}
		had, noWork, idle = maps.Clone(s.had), maps.Clone(s.noWork), s.idle
		s.decide(fairshare.Event{Kind: fairshare.Tick, Phase: fairshare.PollPhase, Length: length, Watched: length})
	}
}

// TestSpatialEviction tests FLEP §6.4: "FLEP preempts just enough SMs to host all CTAs launched by
// the high-priority kernel", if kernels can be on the GPU side by side. Otherwise the verdict says
// that spatial eviction is of no use. The SMs taken are given back at the end.
func TestSpatialEviction(t *testing.T) {
	long := fairshare.Launch{ID: 1, Guest: 1, Running: true, Evictable: true, Blocks: 10000, PerSM: 8, Context: 1}
	small := fairshare.Launch{ID: 2, Guest: 2, Priority: 1, Blocks: 40, PerSM: 8, Context: 1} // FLEP §6.1: 40 CTAs need 5 SMs
	change := func(l fairshare.Launch, f func(*fairshare.Launch)) fairshare.Launch {
		f(&l)
		return l
	}
	evict := func(below uint32, use fairshare.SpatialUse) []fairshare.Verdict {
		v := verdictEvict(1, 1, 2, use)
		v.BelowSM = below
		return []fairshare.Verdict{v, verdictRun(2, 2)}
	}
	const all = math.MaxUint32
	for _, test := range []struct {
		name     string
		coRuns   bool
		temporal bool
		launches []fairshare.Launch
		want     []fairshare.Verdict
	}{
		{"side by side", true, false, []fairshare.Launch{long, small}, evict(5, fairshare.SpatialUseful)},
		{"contexts take turns", false, false, []fairshare.Launch{long, small}, evict(all, fairshare.SpatialTakesTurns)},
		{"as configured", true, true, []fairshare.Launch{long, small}, evict(all, fairshare.SpatialNotConsidered)},
		{"it needs all SMs", true, false, []fairshare.Launch{long, change(small, func(l *fairshare.Launch) { l.Blocks = 121 })}, evict(all, fairshare.SpatialNeedsAll)},
		{"all but one", true, false, []fairshare.Launch{long, change(small, func(l *fairshare.Launch) { l.Blocks = 120 })}, evict(15, fairshare.SpatialUseful)},
		{"nobody knows how many blocks an SM holds", true, false, []fairshare.Launch{long, change(small, func(l *fairshare.Launch) { l.PerSM = 0 })}, evict(all, fairshare.SpatialUnknown)},
		{"one guest's own streams", false, false, []fairshare.Launch{long, change(small, func(l *fairshare.Launch) { l.Guest = 1 })},
			[]fairshare.Verdict{{Guest: 1, Launch: 1, Action: fairshare.Evict, BelowSM: 5, For: 1, Spatial: fairshare.SpatialUseful}, verdictRun(1, 2)}},
		{"the SMs are there already", true, false, []fairshare.Launch{change(long, func(l *fairshare.Launch) { l.BelowSM = 5 }), small}, []fairshare.Verdict{verdictRun(2, 2)}},
		{"beside another one", true, false, []fairshare.Launch{change(long, func(l *fairshare.Launch) { l.BelowSM = 2 }), small, {ID: 3, Guest: 3, Running: true, Blocks: 16, PerSM: 8}},
			evict(7, fairshare.SpatialUseful)},
		{"the freed SMs are refilled", true, false, []fairshare.Launch{change(long, func(l *fairshare.Launch) { l.BelowSM = 5 })}, []fairshare.Verdict{verdictRun(1, 1)}},
		{"not while they are in use", true, false, []fairshare.Launch{change(long, func(l *fairshare.Launch) { l.BelowSM = 5 }), change(small, func(l *fairshare.Launch) { l.Running = true })}, nil},
	} {
		for _, policy := range []string{"hpf", "piv"} {
			t.Run(policy+" "+test.name, func(t *testing.T) {
				p, err := fairshare.New(policy, fairshare.Options{Temporal: test.temporal})
				if err != nil {
					t.Fatal(err)
				}
				st := fairshare.State{Guests: guests(1, 1, 1), Launches: test.launches, SMs: 16, CoRuns: test.coRuns}
				got, _ := p.Decide(0, fairshare.Event{Kind: fairshare.Arrived}, st)
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("verdicts (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// TestSpatialCostsLess tests that a small urgent kernel beside a long one costs it less by taking
// some of the SMs than by taking all (FLEP figure 15), and takes no longer itself.
func TestSpatialCostsLess(t *testing.T) {
	run := func(temporal bool) (long, urgent time.Duration) {
		s := newKernelSim("hpf", fairshare.Options{Temporal: temporal}, guests(1, 1)...)
		s.st.CoRuns = true
		l := s.submit(&kernel{Launch: fairshare.Launch{Guest: 1, Evictable: true, Blocks: 1e6, PerSM: 8}, work: 10 * ms, leave: 50 * us, again: 20 * us})
		u := s.submit(&kernel{Launch: fairshare.Launch{Guest: 2, Priority: 1, Blocks: 40, PerSM: 8}, work: 80 * us, at: 1 * ms})
		s.run(time.Second)
		if len(s.errors) > 0 {
			t.Error(s.errors)
		}
		return l.finished, u.finished - u.at
	}
	temporal, waited := run(true)
	spatial, waitedToo := run(false)
	if spatial >= temporal || waitedToo > waited {
		t.Errorf("the long kernel ends at %v, at %v with temporal eviction; the urgent one takes %v and %v", spatial, temporal, waitedToo, waited)
	}
}

// TestDecideAllocatesNothing tests that deciding allocates nothing once a policy has run for a
// while.
func TestDecideAllocatesNothing(t *testing.T) {
	for _, policy := range kernelPolicies() {
		decide := busyDecide(t, policy)
		for range 100 {
			decide()
		}
		if n := testing.AllocsPerRun(100, decide); n > 0 {
			t.Errorf("%s: %v allocations for a decision", policy, n)
		}
	}
}

// busyDecide returns a function that decides among 256 launches of 16 guests as time passes. Each
// call handles one event and applies the policy's verdicts.
func busyDecide(tb testing.TB, policy string) func() {
	p, err := fairshare.New(policy, fairshare.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	p = fairshare.Bound(p)
	st := fairshare.State{Guests: guests(slices.Repeat([]float64{1, 2}, 8)...), SMs: 132}
	for i := range 256 {
		st.Launches = append(st.Launches, fairshare.Launch{ID: fairshare.LaunchID(i + 1), Guest: fairshare.GuestID(i%16 + 1), Priority: i % 32,
			Evictable: i%8 > 0, Predicted: time.Duration(i*37%251) * 100 * us, EvictionCost: 60 * us, Blocks: 1000, PerSM: 8})
	}
	now, id := time.Duration(0), fairshare.LaunchID(256)
	return func() {
		now += 300 * us
		ev := fairshare.Event{Kind: fairshare.Tick}
		for i := range st.Launches {
			l := &st.Launches[i]
			if !l.Running {
				continue
			}
			switch l.Used += 300 * us; {
			case l.Evicting:
				l.Running, l.Evicting = false, false
				ev = fairshare.Event{Kind: fairshare.Evicted, Guest: l.Guest, Launch: l.ID}
			case l.Used > l.Predicted:
				// The launch is done, and its guest launches the same again.
				ev = fairshare.Event{Kind: fairshare.Finished, Guest: l.Guest, Launch: l.ID}
				done := *l
				copy(st.Launches[i:], st.Launches[i+1:])
				id++
				done.ID, done.Used, done.Running, done.Arrived = id, 0, false, now
				st.Launches[len(st.Launches)-1] = done
			}
			break
		}
		verdicts, _ := p.Decide(now, ev, st)
		for _, v := range verdicts {
			for i := range st.Launches {
				if l := &st.Launches[i]; l.ID == v.Launch {
					l.Running = true
					l.Evicting = v.Action == fairshare.Evict
				}
			}
		}
	}
}

func BenchmarkDecideKernels(b *testing.B) {
	for _, policy := range kernelPolicies() {
		b.Run(policy, func(b *testing.B) {
			decide := busyDecide(b, policy)
			b.ReportAllocs()
			for b.Loop() {
				decide()
			}
		})
	}
}
