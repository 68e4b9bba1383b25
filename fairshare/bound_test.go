package fairshare_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"vgpud/fairshare"
)

// anyPolicy draws a policy, and whether quiet time is measured. It is not NEON's, which itself
// keeps the GPU from all guests but one for a sixth of the time.
func anyPolicy(t *rapid.T) (name string, measured bool) {
	names := slices.DeleteFunc(fairshare.Names(), func(name string) bool { return name == "neon" })
	return rapid.SampledFrom(names).Draw(t, "policy"), rapid.Bool().Draw(t, "measured")
}

// part draws a part of the GPU's time.
func part(t *rapid.T, least, most int, label string) float64 {
	return float64(rapid.IntRange(least, most).Draw(t, label)) / 100
}

func (s *simGPU) quotas() (q []fairshare.Quota) {
	for _, g := range s.guests {
		q = append(q, g.quota)
	}
	return q
}

func ones(n int) []float64 {
	d := make([]float64, n)
	for i := range d {
		d[i] = 1
	}
	return d
}

// TestCapAlone tests that a guest with a cap that has the GPU to itself gets exactly its cap under
// any policy, and that its duty cycle is not too short to be efficient.
func TestCapAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		policy, measured := anyPolicy(t)
		g := &simGuest{weight: 1, quota: fairshare.Quota{Cap: part(t, 2, 98, "cap")}, length: time.Duration(rapid.IntRange(50, 5000).Draw(t, "kernel µs")) * us}
		s := newSim(policy, measured, rapid.Uint64().Draw(t, "seed"), g)
		used, _ := s.use(s.rounds(5 * time.Second))
		if off := math.Abs(used[0] - g.quota.Cap); off > 0.02 {
			t.Errorf("%s: used %.3f of the GPU with a cap of %v", policy, used[0], g.quota.Cap)
		}
		if least := s.now / time.Duration(max(s.suspensions, 1)); least < 10*ms {
			t.Errorf("%d suspensions in %v", s.suspensions, s.now)
		}
	})
}

// TestCapIsPaidBackInTheEnd tests that a guest's reported use, even if it is years, keeps it off
// the GPU for as long as a cap may, and no longer.
func TestCapIsPaidBackInTheEnd(t *testing.T) {
	inner, err := fairshare.New("none", fairshare.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p := fairshare.Bound(inner)
	st := fairshare.State{Round: 20 * ms, Guests: []fairshare.Guest{{ID: 1, Weight: 1, Quota: fairshare.Quota{Cap: 0.1}, Active: true, Backlogged: true, Charged: 10 * 365 * 24 * time.Hour}}}
	now, suspended := time.Hour, time.Duration(0)
	for range 100 {
		now += 10 * time.Second
		v, _ := p.Decide(now, fairshare.Event{Kind: fairshare.Tick, Phase: fairshare.PollPhase, Length: 10 * time.Second, Watched: 10 * time.Second}, st)
		for _, v := range v {
			st.Guests[0].Suspended = v.Action == fairshare.Suspend
		}
		st.Guests[0].Charged = 0
		if st.Guests[0].Suspended {
			suspended += 10 * time.Second
		}
	}
	if suspended < 9*time.Minute || suspended > 11*time.Minute {
		t.Errorf("suspended for %v", suspended)
	}
}

// TestGuaranteeHolds tests that a guest with a guarantee gets it beside guests of any weight, under
// any policy.
func TestGuaranteeHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		policy, measured := anyPolicy(t)
		guests := backlogged(t, 5)
		guests[0].weight, guests[0].quota.Guarantee = 0.1, part(t, 5, 90, "guarantee")
		s := newSim(policy, measured, rapid.Uint64().Draw(t, "seed"), guests...)
		used, _ := s.use(s.rounds(5 * time.Second))
		if used[0] < guests[0].quota.Guarantee-0.02 {
			t.Errorf("%s: used %.3f of the GPU with a guarantee of %v", policy, used[0], guests[0].quota.Guarantee)
		}
		if s.idle > 0 {
			t.Errorf("idle for %v", s.idle)
		}
	})
}

// TestQuotasAndWeights tests that under dfq guests get what weights and quotas entitle them to:
// those at no bound share by weight, and the GPU is idle only if all are capped.
func TestQuotasAndWeights(t *testing.T) {
	for _, test := range []struct {
		name     string
		measured bool
		most     float64
	}{
		{"quiet time measured", true, 0.03},
		{"quiet time estimated", false, 0.03},
	} {
		t.Run(test.name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				guests := backlogged(t, 6)
				left, uncapped := 100, false
				for _, g := range guests {
					if rapid.Bool().Draw(t, "guaranteed") {
						p := rapid.IntRange(0, left).Draw(t, "guarantee")
						left -= p
						g.quota.Guarantee = float64(p) / 100
					}
					if rapid.Bool().Draw(t, "capped") {
						g.quota.Cap = part(t, max(int(math.Round(100*g.quota.Guarantee)), 2), 100, "cap")
					}
					uncapped = uncapped || g.quota.Cap == 0 || g.quota.Cap == 1
				}
				s := newSim("dfq", test.measured, rapid.Uint64().Draw(t, "seed"), guests...)
				used, _ := s.use(s.rounds(5 * time.Second))
				for i, e := range fairshare.Entitlement(s.weights(), ones(len(guests)), s.quotas()) {
					if math.Abs(used[i]-e) > test.most {
						t.Errorf("guest %d used %.3f, is entitled to %.3f: used %.3f, weights %v, quotas %v", i, used[i], e, used, s.weights(), s.quotas())
					}
				}
				if uncapped && s.idle > 0 {
					t.Errorf("idle for %v", s.idle)
				}
			})
		})
	}
}

// TestQuotasChange tests that quotas may change at any time, and apply from then on.
func TestQuotasChange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		guests := backlogged(t, 4)
		g := guests[0]
		s := newSim("dfq", rapid.Bool().Draw(t, "measured"), rapid.Uint64().Draw(t, "seed"), guests...)
		for range 3 {
			g.quota = rapid.SampledFrom([]fairshare.Quota{{}, {Cap: 0.05}, {Guarantee: 0.6}, {Cap: 0.5, Guarantee: 0.5}}).Draw(t, "quota")
			s.changed(g)
			s.rounds(500 * ms)()
			used, _ := s.use(s.rounds(3 * time.Second))
			for i, e := range fairshare.Entitlement(s.weights(), ones(len(guests)), s.quotas()) {
				if math.Abs(used[i]-e) > 0.04 {
					t.Errorf("guest %d used %.3f, is entitled to %.3f: used %.3f, weights %v, quotas %v", i, used[i], e, used, s.weights(), s.quotas())
				}
			}
		}
	})
}

// TestQuotaLeavesNoDebt tests that a removed quota leaves nothing to make up for, however long it
// applied.
func TestQuotaLeavesNoDebt(t *testing.T) {
	for _, quota := range []fairshare.Quota{{Cap: 0.5, Guarantee: 0.5}, {Cap: 0.6, Guarantee: 0.5}, {Guarantee: 0.6}, {Cap: 0.5}, {Cap: 0.1}} {
		guests := []*simGuest{{weight: 1, length: 200 * us}, {weight: 1, length: 200 * us}, {weight: 1, length: 200 * us}}
		s := newSim("dfq", true, 0, guests...)
		guests[0].quota = quota
		s.changed(guests[0])
		s.rounds(time.Minute)()
		guests[0].quota = fairshare.Quota{}
		s.changed(guests[0])
		s.rounds(300 * ms)()
		used, _ := s.use(s.rounds(500 * ms))
		for i, u := range used {
			if math.Abs(u-1./3) > 0.03 {
				t.Errorf("after %v: guest %d used %.3f of half a second", quota, i, u)
			}
		}
	}
}

// TestGuaranteeThatIsNotUsed tests that hardly any guest is suspended for one that can't use its
// guarantee, or only shows work.
func TestGuaranteeThatIsNotUsed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		policy := rapid.SampledFrom([]string{"none", "dfq"}).Draw(t, "policy")
		guests := append(backlogged(t, 3), &simGuest{
			weight: 1, quota: fairshare.Quota{Guarantee: part(t, 10, 90, "guarantee")},
			length:  time.Duration(rapid.IntRange(20, 100).Draw(t, "its kernel µs")) * us,
			think:   rapid.SampledFrom([]time.Duration{5 * ms, 20 * ms, time.Hour}).Draw(t, "its sleep"),
			pretend: rapid.Bool().Draw(t, "pretends"),
		})
		last := guests[len(guests)-1]
		if last.think == time.Hour {
			last.ready = time.Hour
		}
		s := newSim(policy, rapid.Bool().Draw(t, "measured"), rapid.Uint64().Draw(t, "seed"), guests...)
		s.rounds(500 * ms)()
		before := s.idle
		s.rounds(2 * time.Second)()
		if idle := s.idle - before; idle > 500*ms || idle > 0 && last.think == time.Hour {
			t.Errorf("%s: idle for %v of 2s", policy, idle)
		}
	})
}

// TestGuaranteeAfterLoading tests that a guest has its guarantee from when it begins, even right
// after it loaded its data and left the GPU idle meanwhile.
func TestGuaranteeAfterLoading(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		policy := rapid.SampledFrom([]string{"none", "dfq"}).Draw(t, "policy")
		guests := backlogged(t, 4)
		g := guests[0]
		g.weight, g.quota.Guarantee = 0.1, part(t, 30, 80, "guarantee")
		s := newSim(policy, true, rapid.Uint64().Draw(t, "seed"), guests...)
		for _, o := range guests {
			o.attached = false
		}
		g.attached, g.pretend, g.ready = true, true, time.Hour
		s.rounds(time.Duration(rapid.IntRange(100, 1000).Draw(t, "loads ms")) * ms)()
		for _, o := range guests {
			o.attached = true
		}
		g.pretend, g.ready = false, s.now
		used, _ := s.use(s.rounds(500 * ms))
		if used[0] < g.quota.Guarantee-0.16 {
			t.Errorf("%s: used %.3f of the first half second with a guarantee of %v", policy, used[0], g.quota.Guarantee)
		}
	})
}

// TestGuaranteeIsNotSavedUp tests that a guest without work lacks nothing: when it returns it gets
// its guarantee, and no compensation for the time in which it had no work.
func TestGuaranteeIsNotSavedUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		guests := backlogged(t, 4)
		g := guests[0]
		g.weight, g.quota.Guarantee, g.attached = 0.1, part(t, 10, 50, "guarantee"), false
		s := newSim("dfq", rapid.Bool().Draw(t, "measured"), rapid.Uint64().Draw(t, "seed"), guests...)
		s.rounds(3 * time.Second)()
		g.attached = true
		used, _ := s.use(s.rounds(time.Second))
		if used[0] > g.quota.Guarantee+0.1 {
			t.Errorf("used %.3f in the first second with a guarantee of %v", used[0], g.quota.Guarantee)
		}
	})
}

// TestBoundWithoutQuotas tests that a policy is unchanged if no guest has a quota.
func TestBoundWithoutQuotas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		policy, measured := anyPolicy(t)
		seed := rapid.Uint64().Draw(t, "seed")
		bound, plain := backlogged(t, 5), []*simGuest(nil)
		for _, g := range bound {
			twin := *g
			plain = append(plain, &twin)
		}
		run := func(bind func(fairshare.Policy) fairshare.Policy, guests []*simGuest) (used []float64, suspensions int) {
			s := newSim(policy, measured, seed, guests...)
			p, err := fairshare.New(policy, fairshare.Options{})
			if err != nil {
				t.Fatal(err)
			}
			s.policy = bind(p)
			used, _ = s.use(s.rounds(time.Second))
			return used, s.suspensions
		}
		gotUsed, got := run(fairshare.Bound, bound)
		wantUsed, want := run(func(p fairshare.Policy) fairshare.Policy { return p }, plain)
		if got != want || !slices.Equal(gotUsed, wantUsed) {
			t.Errorf("%s: %v and %d suspensions, want %v and %d", policy, gotUsed, got, wantUsed, want)
		}
	})
}

// TestBoundPassesOnAndReleases tests that all verdicts about launches pass, and that a guest is
// resumed when no quota is left for which to suspend it.
func TestBoundPassesOnAndReleases(t *testing.T) {
	launch := fairshare.Verdict{Guest: 1, Launch: 7, Action: fairshare.Evict}
	p := fairshare.Bound(policyFunc(func() []fairshare.Verdict { return []fairshare.Verdict{launch} }))
	g := fairshare.Guest{ID: 1, Weight: 1, Active: true, Backlogged: true, Used: 20 * ms, Quota: fairshare.Quota{Cap: 0.1}}
	poll := fairshare.Event{Kind: fairshare.Tick, Phase: fairshare.PollPhase, Length: 20 * ms, Watched: 20 * ms}
	ask := func(now time.Duration, ev fairshare.Event) []fairshare.Verdict {
		v, _ := p.Decide(now, ev, fairshare.State{Guests: []fairshare.Guest{g}, Round: 24 * ms})
		return slices.Clone(v)
	}
	suspend := fairshare.Verdict{Guest: 1, Action: fairshare.Suspend, Reason: fairshare.AtCap}
	if diff := cmp.Diff([]fairshare.Verdict{launch, suspend}, ask(20*ms, poll)); diff != "" {
		t.Errorf("over its cap (-want +got):\n%s", diff)
	}
	g.Suspended, g.Quota = true, fairshare.Quota{}
	resume := fairshare.Verdict{Guest: 1, Action: fairshare.Resume}
	if diff := cmp.Diff([]fairshare.Verdict{launch, resume}, ask(21*ms, fairshare.Event{Kind: fairshare.Changed, Guest: 1})); diff != "" {
		t.Errorf("without the cap (-want +got):\n%s", diff)
	}
}

// policyFunc is a policy that returns the same verdicts each time.
type policyFunc func() []fairshare.Verdict

func (f policyFunc) Decide(time.Duration, fairshare.Event, fairshare.State) ([]fairshare.Verdict, time.Duration) {
	return f(), 0
}

func TestEntitlementWithQuotas(t *testing.T) {
	type q = fairshare.Quota
	for _, test := range []struct {
		name             string
		weights, demands []float64
		quotas           []q
		want             []float64
	}{
		{"no quotas", []float64{1, 3}, []float64{1, 1}, []q{{}, {}}, []float64{0.25, 0.75}},
		{"a cap alone", []float64{1}, []float64{1}, []q{{Cap: 0.4}}, []float64{0.4}},
		{"a cap leaves the rest by weight", []float64{8, 1, 3}, []float64{1, 1, 1}, []q{{Cap: 0.2}, {}, {}}, []float64{0.2, 0.2, 0.6}},
		{"a guarantee takes from the rest by weight", []float64{1, 2, 7}, []float64{1, 1, 1}, []q{{Guarantee: 0.4}, {}, {}}, []float64{0.4, 0.6 * 2 / 9, 0.6 * 7 / 9}},
		{"a guarantee below the part by weight", []float64{1, 1}, []float64{1, 1}, []q{{Guarantee: 0.4}, {}}, []float64{0.5, 0.5}},
		{"a guarantee of more than is wanted", []float64{1, 9}, []float64{0.3, 1}, []q{{Guarantee: 0.6}, {}}, []float64{0.3, 0.7}},
		{"all of it guaranteed", []float64{1, 1, 1}, []float64{1, 1, 1}, []q{{Guarantee: 0.5}, {Guarantee: 0.3}, {Guarantee: 0.2}}, []float64{0.5, 0.3, 0.2}},
		{"one of each", []float64{1, 9, 1}, []float64{1, 1, 1}, []q{{Guarantee: 0.4}, {Cap: 0.3}, {}}, []float64{0.4, 0.3, 0.3}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, fairshare.Entitlement(test.weights, test.demands, test.quotas), cmpopts.EquateApprox(0, 1e-9)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestEntitlementWithQuotasProperties tests that entitlements respect all bounds, waste nothing,
// and are by weight among guests at no bound. A guest at its upper bound has no more per weight
// than those, and one at its lower bound no less.
func TestEntitlementWithQuotasProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 12).Draw(t, "guests")
		weights := rapid.SliceOfN(rapid.Float64Range(0.01, 100), n, n).Draw(t, "weights")
		demands := rapid.SliceOfN(rapid.Float64Range(0, 1), n, n).Draw(t, "demands")
		quotas, left := make([]fairshare.Quota, n), 1.0
		for i := range quotas {
			quotas[i].Guarantee = left * rapid.Float64Range(0, 1).Draw(t, "guarantee")
			left -= quotas[i].Guarantee
			if rapid.Bool().Draw(t, "capped") {
				quotas[i].Cap = rapid.Float64Range(max(quotas[i].Guarantee, 0.001), 1).Draw(t, "cap")
			}
		}
		got := fairshare.Entitlement(weights, demands, quotas)
		const off = 1e-9
		var sum, most float64
		free, low, high := math.NaN(), 0.0, math.Inf(1) // parts per weight
		for i, e := range got {
			ceiling := demands[i]
			if c := quotas[i].Cap; c > 0 {
				ceiling = min(ceiling, c)
			}
			floor := min(quotas[i].Guarantee, ceiling)
			sum, most = sum+e, most+ceiling
			per := e / weights[i]
			switch {
			case e < floor-off || e > ceiling+off:
				t.Errorf("guest %d gets %v, bounds are %v and %v", i, e, floor, ceiling)
			case e <= floor+off && e >= ceiling-off:
			case e <= floor+off:
				high = min(high, per)
			case e >= ceiling-off:
				low = max(low, per)
			case !math.IsNaN(free) && math.Abs(per-free) > 1e-6*free:
				t.Errorf("guest %d gets %v per weight, another %v", i, per, free)
			default:
				free = per
			}
		}
		if math.Abs(sum-min(most, 1)) > 1e-6 {
			t.Errorf("%v handed out, want %v", sum, min(most, 1))
		}
		if low > high*(1+1e-6) || free < low*(1-1e-6) || free > high*(1+1e-6) {
			t.Errorf("per weight: %v at the most, %v at the least, %v at no bound: %v", low, high, free, got)
		}
	})
}

func BenchmarkDecideWithQuotas(b *testing.B) {
	guests := make([]*simGuest, 64)
	for i := range guests {
		guests[i] = &simGuest{weight: float64(1 + i%4), length: 100 * us, quota: fairshare.Quota{Cap: 0.5, Guarantee: 0.01}}
	}
	s := newSim("dfq", true, 1, guests...)
	s.rounds(100 * ms)()
	p, st := s.policy, s.state
	b.ReportAllocs()
	for b.Loop() {
		p.Decide(0, fairshare.Event{Kind: fairshare.Tick, Phase: fairshare.PollPhase, Length: simPoll, Watched: simPoll}, st)
	}
}
