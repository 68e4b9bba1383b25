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

// TestDFQEvicts tests that a guest that is ahead is suspended, and that its evictable launches on
// the GPU are evicted: for the guest itself, once, and not if they end sooner.
func TestDFQEvicts(t *testing.T) {
	type launch = fairshare.Launch
	const all = math.MaxUint32
	suspend := fairshare.Verdict{Guest: 1, Action: fairshare.Suspend}
	evict := func(id fairshare.LaunchID) fairshare.Verdict {
		return fairshare.Verdict{Guest: 1, Launch: id, Action: fairshare.Evict, BelowSM: all, For: 1}
	}
	for _, test := range []struct {
		name     string
		launches []launch
		want     []fairshare.Verdict
	}{
		{"none that the policy is told of", nil, []fairshare.Verdict{suspend}},
		{"evictable", []launch{{ID: 5, Guest: 1, Running: true, Evictable: true}}, []fairshare.Verdict{suspend, evict(5)}},
		{"two of them", []launch{{ID: 5, Guest: 1, Running: true, Evictable: true}, {ID: 6, Guest: 1, Running: true, Evictable: true}}, []fairshare.Verdict{suspend, evict(5), evict(6)}},
		{"not evictable: it is waited for", []launch{{ID: 5, Guest: 1, Running: true}}, []fairshare.Verdict{suspend}},
		{"leaving already", []launch{{ID: 5, Guest: 1, Running: true, Evicting: true, Evictable: true}}, []fairshare.Verdict{suspend}},
		{"waiting", []launch{{ID: 5, Guest: 1, Evictable: true}}, []fairshare.Verdict{suspend}},
		{"another guest's", []launch{{ID: 5, Guest: 2, Running: true, Evictable: true}}, []fairshare.Verdict{suspend}},
		{"done sooner than it could leave", []launch{{ID: 5, Guest: 1, Running: true, Evictable: true, Used: 900 * us, Predicted: 1 * ms, EvictionCost: 100 * us}}, []fairshare.Verdict{suspend}},
		{"longer", []launch{{ID: 5, Guest: 1, Running: true, Evictable: true, Used: 900 * us, Predicted: 1 * ms, EvictionCost: 99 * us}}, []fairshare.Verdict{suspend, evict(5)}},
		{"has outrun what was foreseen", []launch{{ID: 5, Guest: 1, Running: true, Evictable: true, Used: 3 * ms, Predicted: 1 * ms}}, []fairshare.Verdict{suspend, evict(5)}},
	} {
		for _, bound := range []bool{false, true} {
			p, err := fairshare.New("dfq", fairshare.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if bound {
				p = fairshare.Bound(p)
			}
			st := fairshare.State{Round: 24 * ms, Launches: test.launches, Guests: guests(1, 1)}
			st.Guests[0].Used = 20 * ms
			got, _ := p.Decide(20*ms, fairshare.Event{Kind: fairshare.Tick, Phase: fairshare.PollPhase, Length: 20 * ms, Watched: 20 * ms}, st)
			// Bound returns verdicts about guests last.
			want := slices.Clone(test.want)
			if bound {
				want = append(want[1:], want[0])
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s, bound %v: verdicts (-want +got):\n%s", test.name, bound, diff)
			}
		}
	}
}

// TestEvictionsAreCharged tests that a guest is charged for the time that evictions for its sake
// cost others.
func TestEvictionsAreCharged(t *testing.T) {
	suspended := func(policy string, charged time.Duration, quota fairshare.Quota) bool {
		p, err := fairshare.New(policy, fairshare.Options{})
		if err != nil {
			t.Fatal(err)
		}
		st := fairshare.State{Round: 24 * ms, Guests: guests(1, 1)}
		st.Guests[0].Charged, st.Guests[0].Quota = charged, quota
		for i := range st.Guests {
			st.Guests[i].Used = 5 * ms
		}
		v, _ := fairshare.Bound(p).Decide(10*ms, fairshare.Event{Kind: fairshare.Tick, Phase: fairshare.PollPhase, Length: 10 * ms, Watched: 10 * ms}, st)
		return slices.ContainsFunc(v, func(v fairshare.Verdict) bool { return v.Guest == 1 && v.Action == fairshare.Suspend })
	}
	for _, test := range []struct {
		policy  string
		charged time.Duration
		quota   fairshare.Quota
		want    bool
	}{
		{"dfq", 0, fairshare.Quota{}, false}, {"dfq", 10 * ms, fairshare.Quota{}, true}, {"dfq", -10 * ms, fairshare.Quota{}, false},
		{"none", 0, fairshare.Quota{Cap: 0.6}, false}, {"none", 10 * ms, fairshare.Quota{Cap: 0.6}, true}, {"hpf", 10 * ms, fairshare.Quota{Cap: 0.6}, true},
	} {
		if got := suspended(test.policy, test.charged, test.quota); got != test.want {
			t.Errorf("%s, charged %v, %+v: suspended %v", test.policy, test.charged, test.quota, got)
		}
	}
}

// TestCapsHoldLaunches tests that a guest at its cap has its launches on the GPU evicted and no
// further launch run, while others' launches run.
func TestCapsHoldLaunches(t *testing.T) {
	for _, policy := range kernelPolicies() {
		p, err := fairshare.New(policy, fairshare.Options{})
		if err != nil {
			t.Fatal(err)
		}
		p = fairshare.Bound(p)
		st := fairshare.State{Round: 24 * ms, Guests: guests(1, 1), SMs: 16, Launches: []fairshare.Launch{
			{ID: 1, Guest: 1, Running: true, Evictable: true, Priority: 9}, {ID: 2, Guest: 1, Priority: 8}, {ID: 3, Guest: 2}}}
		st.Guests[0].Quota.Cap, st.Guests[0].Used = 0.1, 20*ms
		v, next := p.Decide(20*ms, fairshare.Event{Kind: fairshare.Tick, Phase: fairshare.PollPhase, Length: 20 * ms, Watched: 20 * ms}, st)
		want := []fairshare.Verdict{{Guest: 1, Launch: 1, Action: fairshare.Evict, BelowSM: math.MaxUint32, For: 1}, {Guest: 1, Action: fairshare.Suspend, Reason: fairshare.AtCap}}
		if diff := cmp.Diff(want, v); diff != "" || next <= 0 {
			t.Errorf("%s: over its cap (-want +got), asked again in %v:\n%s", policy, next, diff)
		}
		st.Guests[0].Suspended, st.Launches[0].Evicting = true, true
		v, _ = p.Decide(20*ms+next, fairshare.Event{Kind: fairshare.Tick}, st)
		if diff := cmp.Diff([]fairshare.Verdict{verdictRun(2, 3)}, v); diff != "" {
			t.Errorf("%s: then (-want +got):\n%s", policy, diff)
		}
	}
}

// TestLedger tests that each eviction is charged to the guest for whose sake it was, and credited
// to the evicted guest if that is another one. An eviction that no guest asked for is charged to
// none. Pending evictions are kept only for guests and launches that exist.
func TestLedger(t *testing.T) {
	evict := func(guest fairshare.GuestID, id fairshare.LaunchID, cause fairshare.GuestID) fairshare.Verdict {
		return verdictEvict(guest, id, cause, fairshare.SpatialTakesTurns)
	}
	var l fairshare.EvictionCharges
	for _, v := range []fairshare.Verdict{evict(1, 10, 2), evict(1, 10, 3), evict(2, 20, 2), {Guest: 1, Launch: 30, Action: fairshare.Run}, evict(3, 40, 0), evict(3, 50, 2)} {
		l.Requested(v)
	}
	for _, left := range []struct {
		launch fairshare.LaunchID
		cost   time.Duration
		want   fairshare.GuestID
	}{{10, 5 * ms, 2}, {10, 5 * ms, 0}, {20, 1 * ms, 2}, {30, 1 * ms, 0}, {40, 1 * ms, 0}} {
		if got := l.Ended(left.launch, left.cost); got != left.want {
			t.Errorf("launch %d is charged to %d, want %d", left.launch, got, left.want)
		}
	}
	l.Forget(2) // for whose sake launch 50 is being evicted
	if got := l.Ended(50, 1*ms); got != 0 {
		t.Errorf("charged to guest %d, which left", got)
	}
	l.Requested(evict(1, 60, 3))
	l.Ended(60, 2*ms)
	var got []any
	for id := fairshare.GuestID(1); id <= 3; id++ {
		b := l.Bill(id)
		got = append(got, b.Caused, b.Suffered, b.Cost, l.Settle(id), l.Settle(id))
	}
	want := []any{
		uint64(0), uint64(2), 0 * ms, -7 * ms, 0 * ms,
		uint64(0), uint64(0), 0 * ms, 0 * ms, 0 * ms,
		uint64(1), uint64(2), 2 * ms, 2 * ms, 0 * ms,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("caused, suffered, cost, to settle, then (-want +got):\n%s", diff)
	}
}

// TestLedgerAddsUp tests that charges and credits add up to zero, whatever happens.
func TestLedgerAddsUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l fairshare.EvictionCharges
		var sum time.Duration
		settle := func() {
			for id := fairshare.GuestID(1); id <= 4; id++ {
				sum += l.Settle(id)
			}
		}
		id := func(name string) fairshare.GuestID { return fairshare.GuestID(rapid.IntRange(1, 4).Draw(t, name)) }
		launch := func() fairshare.LaunchID { return fairshare.LaunchID(rapid.IntRange(1, 6).Draw(t, "launch")) }
		t.Repeat(map[string]func(*rapid.T){
			"asked":  func(*rapid.T) { l.Requested(verdictEvict(id("guest"), launch(), id("cause"), 0)) },
			"left":   func(t *rapid.T) { l.Ended(launch(), time.Duration(rapid.IntRange(0, 1000).Draw(t, "cost"))) },
			"settle": func(*rapid.T) { settle() },
			"": func(t *rapid.T) {
				if settle(); sum != 0 {
					t.Fatalf("charges add up to %v", sum)
				}
			},
		})
	})
}

// TestEvictionsAreBounded tests that a guest that keeps launching urgent kernels causes no more
// evictions than it may, and that its launches wait instead. Another guest's launches are as prompt
// as before. The guests' pauses are too long for anticipation.
func TestEvictionsAreBounded(t *testing.T) {
	s := newKernelSim("hpf", fairshare.Options{Evictions: fairshare.Rate{PerSecond: 100, Burst: 10}}, guests(1, 1, 1)...)
	s.submit(&kernel{Launch: fairshare.Launch{Guest: 1, Evictable: true}, work: time.Hour, leave: 50 * us})
	for g, pause := range []time.Duration{0, 0, 20 * ms} {
		if g > 0 {
			s.submit(&kernel{Launch: fairshare.Launch{Guest: fairshare.GuestID(g + 1), Priority: 1, Evictable: true}, work: 20 * us, repeat: true, pause: pause + 600*us, leave: 5 * us, at: 1 * ms})
		}
	}
	s.run(2 * time.Second)
	if len(s.errors) > 0 {
		t.Error(s.errors)
	}
	if n := s.evicted[2]; n < 150 || n > 211 {
		t.Errorf("guest 2 caused %d evictions in 2 s, may 100 a second and 10", n)
	}
	var worst time.Duration
	for _, k := range s.done {
		if k.Guest == 3 {
			worst = max(worst, k.finished-k.at)
		}
	}
	if worst > 200*us {
		t.Errorf("guest 3, which causes few, waited for up to %v", worst)
	}
}
