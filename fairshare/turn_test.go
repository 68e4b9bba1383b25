package fairshare_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"vgpud/fairshare"
)

// turnsOf calls a new policy within quotas once for each state of launches, a microsecond apart, and
// returns the turn after the last.
func turnsOf(t *testing.T, policy string, st fairshare.State, states ...[]fairshare.Launch) fairshare.Turn {
	t.Helper()
	inner, err := fairshare.New(policy, fairshare.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p := fairshare.Bound(inner)
	for i, launches := range states {
		st.Launches = launches
		p.Decide(time.Duration(i)*us, fairshare.Event{Kind: fairshare.Arrived}, st)
	}
	return p.(fairshare.TurnTaker).Turn()
}

// TestTurns tests when it is a guest's turn, and until when.
func TestTurns(t *testing.T) {
	const most = 10 * ms
	runs := func(id fairshare.LaunchID, guest fairshare.GuestID) fairshare.Launch {
		return fairshare.Launch{ID: id, Guest: guest, Running: true, Predicted: 1 * ms, EvictionCost: 100 * us}
	}
	waits := func(id fairshare.LaunchID, guest fairshare.GuestID) fairshare.Launch {
		return fairshare.Launch{ID: id, Guest: guest, Predicted: 1 * ms, EvictionCost: 100 * us}
	}
	leaves := runs(1, 1)
	leaves.Evicting = true
	suspended, urgent, held := guests(1, 1), guests(1, 1), guests(1, 1)
	suspended[1].Suspended = true
	suspended[1].Quota.Cap = 0.5
	urgent[1].Urgency = 1
	held[0].Held = true
	for _, test := range []struct {
		name, policy string
		st           fairshare.State
		launches     [][]fairshare.Launch
		want         fairshare.Turn
	}{
		{"alone", "hpf", fairshare.State{Guests: guests(1, 1)}, [][]fairshare.Launch{{waits(1, 1)}}, fairshare.Turn{Guest: 1, Lasts: most, Behind: true}},
		{"between two launches", "hpf", fairshare.State{Guests: guests(1, 1)}, [][]fairshare.Launch{{waits(1, 1)}, {}}, fairshare.Turn{Guest: 1, Lasts: most, Behind: true}},
		{"another guest waits", "hpf", fairshare.State{Guests: guests(1, 1)}, [][]fairshare.Launch{{runs(1, 1), waits(2, 2)}}, fairshare.Turn{}},
		{"another launch of its own waits", "hpf", fairshare.State{Guests: guests(1, 1)}, [][]fairshare.Launch{{runs(1, 1), waits(2, 1)}}, fairshare.Turn{}},
		{"a suspended guest waits", "hpf", fairshare.State{Guests: suspended}, [][]fairshare.Launch{{runs(1, 1), waits(2, 2)}}, fairshare.Turn{Guest: 1, Lasts: most, Behind: true}},
		{"another guest may be more urgent", "hpf", fairshare.State{Guests: urgent}, [][]fairshare.Launch{{waits(1, 1)}}, fairshare.Turn{Guest: 1, Lasts: most}},
		{"it is the most urgent", "hpf", fairshare.State{Guests: urgent}, [][]fairshare.Launch{{waits(1, 2)}}, fairshare.Turn{Guest: 2, Lasts: most, Behind: true}},
		{"kernels run side by side", "hpf", fairshare.State{Guests: guests(1, 1), CoRuns: true}, [][]fairshare.Launch{{waits(1, 1)}}, fairshare.Turn{Guest: 1, Lasts: most}},
		{"two guests run", "hpf", fairshare.State{Guests: guests(1, 1)}, [][]fairshare.Launch{{runs(1, 1), runs(2, 2)}}, fairshare.Turn{}},
		{"another guest's launch leaves", "hpf", fairshare.State{Guests: guests(1, 1)}, [][]fairshare.Launch{{leaves, runs(2, 2)}}, fairshare.Turn{}},
		{"its budget is spent", "hpf", fairshare.State{Guests: held}, [][]fairshare.Launch{{runs(1, 1)}}, fairshare.Turn{}},
		{"alone", "ffs", fairshare.State{Guests: guests(1, 1)}, [][]fairshare.Launch{{waits(1, 1)}}, fairshare.Turn{Guest: 1, Lasts: most, Behind: true}},
		// T = 200 µs / (0.1 · 2), and at least 1 s / (500 · 2); an eviction at its end costs 100 µs.
		{"its epoch", "ffs", fairshare.State{Guests: guests(1, 1)}, [][]fairshare.Launch{{waits(1, 1), waits(2, 2)}}, fairshare.Turn{Guest: 1, Lasts: 900 * us, Behind: true}},
		{"later", "ffs", fairshare.State{Guests: guests(1, 1)}, [][]fairshare.Launch{{waits(1, 1), waits(2, 2)}, {runs(1, 1), waits(2, 2)}}, fairshare.Turn{Guest: 1, Lasts: 899 * us, Behind: true}},
		{"another launch of its own waits", "ffs", fairshare.State{Guests: guests(1, 1)}, [][]fairshare.Launch{{waits(1, 1), waits(3, 1), waits(2, 2)}}, fairshare.Turn{}},
		{"kernels run side by side", "ffs", fairshare.State{Guests: guests(1, 1), CoRuns: true}, [][]fairshare.Launch{{waits(1, 1)}}, fairshare.Turn{Guest: 1, Lasts: most}},
		{"its budget is spent", "ffs", fairshare.State{Guests: held}, [][]fairshare.Launch{{runs(1, 1)}}, fairshare.Turn{}},
		{"others decide about guests", "dfq", fairshare.State{Guests: guests(1, 1)}, [][]fairshare.Launch{{runs(1, 1)}}, fairshare.Turn{}},
	} {
		t.Run(test.policy+", "+test.name, func(t *testing.T) {
			test.st.SMs = 16
			if diff := cmp.Diff(test.want, turnsOf(t, test.policy, test.st, test.launches...)); diff != "" {
				t.Errorf("the turn (-want +got):\n%s", diff)
			}
		})
	}
}

// TestEpochEndsForAll tests that at the end of its epoch a guest's launches leave the GPU that are
// behind the running one.
func TestEpochEndsForAll(t *testing.T) {
	p, err := fairshare.New("ffs", fairshare.Options{})
	if err != nil {
		t.Fatal(err)
	}
	launch := func(id fairshare.LaunchID, guest fairshare.GuestID, runs bool) fairshare.Launch {
		return fairshare.Launch{ID: id, Guest: guest, Running: runs, Evictable: true, Predicted: 1 * ms, EvictionCost: 100 * us}
	}
	var v []fairshare.Verdict
	for i, launches := range [][]fairshare.Launch{
		{launch(1, 1, false), launch(2, 2, false)},
		{launch(1, 1, true), launch(2, 2, false), launch(3, 1, true)},
	} {
		v, _ = p.Decide(time.Duration(i)*5*ms, fairshare.Event{}, fairshare.State{Guests: guests(1, 1), Launches: launches, SMs: 16})
	}
	want := []fairshare.Verdict{verdictEvict(1, 1, 1, 0), verdictEvict(1, 3, 1, 0), verdictRun(2, 2)}
	if diff := cmp.Diff(want, v); diff != "" {
		t.Errorf("verdicts (-want +got):\n%s", diff)
	}
}

// TestTurnsHoldWeights tests that launches that go to the GPU in their guests' turns, some of them
// behind others, leave every guest its weight under ffs, whether or not they leave when told.
func TestTurnsHoldWeights(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weights := drawWeights(t, 5)
		s := newKernelSim("ffs", fairshare.Options{}, guests(weights...)...)
		s.turns = true
		for g := range weights {
			s.submit(&kernel{
				Launch: fairshare.Launch{Guest: fairshare.GuestID(g + 1), Evictable: rapid.Bool().Draw(t, "evictable")}, repeat: true, stream: true,
				work:  time.Duration(rapid.IntRange(50, 2000).Draw(t, "kernel µs")) * us,
				leave: time.Duration(rapid.IntRange(5, 100).Draw(t, "leave µs")) * us,
			})
		}
		s.run(1200 * ms)
		s.report(t)
		s.checkWeights(t, weights)
		if s.went == 0 {
			t.Error("no launch went in its guest's turn")
		}
	})
}

// TestTurnsEndForUrgent tests that an urgent launch has the GPU from when it arrives under hpf,
// although launches of another guest go in its turns, and ends as soon as if it were alone once that one has left; and
// that none is there behind another then.
func TestTurnsEndForUrgent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newKernelSim("hpf", fairshare.Options{}, guests(1, 1)...)
		s.turns = true
		s.st.Guests[1].Urgency = 1
		s.submit(&kernel{Launch: fairshare.Launch{Guest: 1, Evictable: true}, repeat: true, stream: true, leave: 20 * us,
			work: time.Duration(rapid.IntRange(50, 500).Draw(t, "kernel µs")) * us, pause: time.Duration(rapid.IntRange(0, 300).Draw(t, "pause µs")) * us})
		for range 20 {
			s.run(s.now + time.Duration(rapid.IntRange(500, 3000).Draw(t, "until it arrives µs"))*us)
			k := s.submit(&kernel{Launch: fairshare.Launch{Guest: 2, Priority: 1, Evictable: true}, at: s.now, work: 100 * us, leave: 20 * us})
			s.run(s.now + 1)
			if k.started < 0 || k.started > k.Arrived {
				t.Fatalf("an urgent launch of %v runs at %v", k.Arrived, k.started)
			}
			s.run(s.now + 120*us)
			if !slices.Contains(s.done, k) {
				t.Fatalf("an urgent launch of %v has %v left at %v", k.Arrived, time.Duration(k.left), s.now)
			}
		}
		s.report(t)
		if s.went == 0 || s.wentOn > 0 {
			t.Errorf("%d launches went in their guests' turns, %d of them behind others", s.went, s.wentOn)
		}
	})
}

// TestHandOverHoldsWeights tests that guests whose launches are let run shortly before the last one of
// another's epoch ends have their weights under ffs: its time is still the other's.
func TestHandOverHoldsWeights(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weights := []float64{1, float64(rapid.IntRange(1, 4).Draw(t, "weight")), float64(rapid.IntRange(1, 4).Draw(t, "weight"))}
		s := newKernelSim("ffs", fairshare.Options{HandOver: 250 * us}, guests(weights...)...)
		s.queues = true
		for g := range weights {
			s.submit(&kernel{
				Launch: fairshare.Launch{Guest: fairshare.GuestID(g + 1), Evictable: rapid.Bool().Draw(t, "evictable")}, repeat: true,
				work:  time.Duration(rapid.IntRange(300, 2000).Draw(t, "kernel µs")) * us,
				leave: time.Duration(rapid.IntRange(5, 100).Draw(t, "leave µs")) * us,
			})
		}
		s.run(1200 * ms)
		s.report(t)
		s.checkWeights(t, weights)
		if s.early == 0 {
			t.Error("no launch was let run early")
		}
	})
}

// TestEpochIsHandedOver tests when ffs lets the next guest's launch run: shortly before the last of an
// epoch ends, and not before another one of the guest's would have its turn.
func TestEpochIsHandedOver(t *testing.T) {
	p, err := fairshare.New("ffs", fairshare.Options{HandOver: 250 * us})
	if err != nil {
		t.Fatal(err)
	}
	// T = 200 µs / (0.1 · 2): an epoch is 1 ms, and worth an eviction to its last 100 µs.
	launch := func(id fairshare.LaunchID, guest fairshare.GuestID, predicted, used time.Duration) fairshare.Launch {
		return fairshare.Launch{ID: id, Guest: guest, Running: used > 0, Predicted: predicted, Used: used, EvictionCost: 100 * us}
	}
	waits := launch(2, 2, 1*ms, 0)
	for _, step := range []struct {
		name     string
		at       time.Duration
		launches []fairshare.Launch
		want     []fairshare.Verdict
		next     time.Duration
	}{
		{"the epoch begins", 0, []fairshare.Launch{launch(1, 1, 400*us, 0), waits}, []fairshare.Verdict{verdictRun(1, 1)}, 1 * ms},
		{"another one will have its turn", 300 * us, []fairshare.Launch{launch(1, 1, 400*us, 300*us), waits}, nil, 700 * us},
		{"that is the last", 400 * us, []fairshare.Launch{launch(3, 1, 550*us, 0), waits}, []fairshare.Verdict{verdictRun(1, 3)}, 600 * us},
		{"not yet", 600 * us, []fairshare.Launch{launch(3, 1, 550*us, 200*us), waits}, nil, 100 * us},
		{"soon", 710 * us, []fairshare.Launch{launch(3, 1, 550*us, 310*us), waits}, []fairshare.Verdict{verdictRun(2, 2)}, 0},
		{"it ends", 940 * us, []fairshare.Launch{launch(3, 1, 550*us, 540*us), launch(2, 2, 1*ms, 1)}, nil, 0},
		{"it has ended", 950 * us, []fairshare.Launch{launch(2, 2, 1*ms, 1)}, nil, 0},
		{"the time since is guest 2's", 1250 * us, []fairshare.Launch{launch(2, 2, 5*ms, 300*us), launch(4, 1, 400*us, 0)}, nil, 700 * us},
	} {
		v, next := p.Decide(step.at, fairshare.Event{Kind: fairshare.Arrived}, fairshare.State{Guests: guests(1, 1), Launches: step.launches, SMs: 16})
		if diff := cmp.Diff(step.want, v, cmpopts.EquateEmpty()); diff != "" || next != step.next {
			t.Errorf("%s: next in %v, want %v; verdicts (-want +got):\n%s", step.name, next, step.next, diff)
		}
	}
}

// TestHandOver tests when hpf lets another guest's launch run before the running one has ended.
func TestHandOver(t *testing.T) {
	launch := func(id fairshare.LaunchID, predicted, used time.Duration) fairshare.Launch {
		return fairshare.Launch{ID: id, Guest: fairshare.GuestID(id), Running: used > 0, Predicted: predicted, Used: used}
	}
	with := func(l fairshare.Launch, change func(*fairshare.Launch)) fairshare.Launch {
		change(&l)
		return l
	}
	urgent := guests(1, 1, 1)
	urgent[2].Urgency = 1
	run2 := []fairshare.Verdict{verdictRun(2, 2)}
	for _, test := range []struct {
		name     string
		guests   []fairshare.Guest
		coRuns   bool
		launches []fairshare.Launch
		want     []fairshare.Verdict
		next     time.Duration
	}{
		{"soon", nil, false, []fairshare.Launch{launch(1, 1*ms, 800*us), launch(2, 2*ms, 0)}, run2, 0},
		{"not yet", nil, false, []fairshare.Launch{launch(1, 1*ms, 500*us), launch(2, 2*ms, 0)}, nil, 250 * us},
		{"it should have ended", nil, false, []fairshare.Launch{launch(1, 1*ms, 1500*us), launch(2, 2*ms, 0)}, run2, 0},
		{"the prediction was wrong", nil, false, []fairshare.Launch{launch(1, 1*ms, 2*ms), launch(2, 2*ms, 0)}, nil, 0},
		{"nothing is known", nil, false, []fairshare.Launch{launch(1, 0, 5*ms), launch(2, 2*ms, 0)}, nil, 0},
		{"the first in rank", nil, false, []fairshare.Launch{launch(1, 1*ms, 800*us), launch(3, 3*ms, 0), launch(2, 2*ms, 0)}, run2, 0},
		{"one is let run already", nil, false, []fairshare.Launch{launch(1, 1*ms, 800*us), launch(2, 2*ms, 1), launch(3, 3*ms, 0)}, nil, 0},
		{"of the same guest", nil, false, []fairshare.Launch{launch(1, 1*ms, 800*us), with(launch(2, 2*ms, 0), func(l *fairshare.Launch) { l.Guest = 1 })}, nil, 0},
		{"a less urgent one", nil, false, []fairshare.Launch{with(launch(1, 1*ms, 800*us), func(l *fairshare.Launch) { l.Priority = 1 }), launch(2, 2*ms, 0)}, nil, 0},
		{"a third guest may be more urgent", urgent, false, []fairshare.Launch{launch(1, 1*ms, 800*us), launch(2, 2*ms, 0)}, nil, 0},
		{"one that leaves for the next of the running one's guest", nil, false, []fairshare.Launch{launch(1, 1*ms, 800*us), with(launch(2, 2*ms, 0), func(l *fairshare.Launch) { l.Evictable = true })}, nil, 0},
		{"one that is not worth that", nil, false, []fairshare.Launch{launch(1, 1*ms, 800*us), with(launch(2, 1200*us, 0), func(l *fairshare.Launch) { l.Evictable = true })}, run2, 0},
		{"kernels run side by side", nil, true, []fairshare.Launch{launch(1, 1*ms, 800*us), launch(2, 2*ms, 0)}, nil, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, err := fairshare.New("hpf", fairshare.Options{HandOver: 250 * us})
			if err != nil {
				t.Fatal(err)
			}
			st := fairshare.State{Guests: test.guests, Launches: test.launches, SMs: 16, CoRuns: test.coRuns}
			if st.Guests == nil {
				st.Guests = guests(1, 1, 1)
			}
			v, next := p.Decide(0, fairshare.Event{Kind: fairshare.Arrived}, st)
			if diff := cmp.Diff(test.want, v); diff != "" || next != test.next {
				t.Errorf("next in %v, want %v; verdicts (-want +got):\n%s", next, test.next, diff)
			}
		})
	}
}

// TestHandedOverStays tests that the launch that is let run before another one ends is not told to
// leave for the rest of that one, although it is longer and has not begun; but leaves for others.
func TestHandedOverStays(t *testing.T) {
	p, err := fairshare.New("hpf", fairshare.Options{HandOver: 250 * us})
	if err != nil {
		t.Fatal(err)
	}
	decide := func(now time.Duration, launches ...fairshare.Launch) []fairshare.Verdict {
		v, _ := p.Decide(now, fairshare.Event{Kind: fairshare.Arrived}, fairshare.State{Guests: guests(1, 1, 1), Launches: launches, SMs: 16})
		return slices.Clone(v)
	}
	short := fairshare.Launch{ID: 1, Guest: 1, Running: true, Predicted: 1 * ms, Used: 900 * us}
	long := fairshare.Launch{ID: 2, Guest: 2, Evictable: true, Predicted: 1300 * us} // or it would not be let run
	if diff := cmp.Diff([]fairshare.Verdict{verdictRun(2, 2)}, decide(0, short, long)); diff != "" {
		t.Fatalf("-want +got:\n%s", diff)
	}
	long.Running = true
	if v := decide(1*us, short, long); len(v) > 0 {
		t.Errorf("while the other ends: %+v", v)
	}
	third := fairshare.Launch{ID: 3, Guest: 3, Predicted: 100 * us}
	want := []fairshare.Verdict{verdictEvict(2, 2, 3, fairshare.SpatialTakesTurns), verdictRun(3, 3)}
	if diff := cmp.Diff(want, decide(300*us, long, third)); diff != "" {
		t.Errorf("a shorter one has come (-want +got):\n%s", diff)
	}
}

// TestHandedOverCountsFromItsStart tests that the time for which a launch that was let run early waited
// for another one is no part of what it has run.
func TestHandedOverCountsFromItsStart(t *testing.T) {
	p, err := fairshare.New("hpf", fairshare.Options{HandOver: 250 * us})
	if err != nil {
		t.Fatal(err)
	}
	launch := func(id fairshare.LaunchID, used time.Duration) fairshare.Launch {
		return fairshare.Launch{ID: id, Guest: fairshare.GuestID(id), Running: used > 0, Predicted: 1 * ms, Used: used}
	}
	for i, step := range []struct {
		launches []fairshare.Launch
		want     time.Duration
	}{
		{[]fairshare.Launch{launch(1, 800*us), launch(2, 0)}, 0},
		{[]fairshare.Launch{launch(2, 200*us), launch(3, 0)}, 750 * us},
		{[]fairshare.Launch{launch(2, 500*us), launch(3, 0)}, 450 * us},
	} {
		_, next := p.Decide(time.Duration(i)*us, fairshare.Event{Kind: fairshare.Finished}, fairshare.State{Guests: guests(1, 1, 1), Launches: step.launches, SMs: 16})
		if next != step.want {
			t.Errorf("step %d: next in %v, want %v", i, next, step.want)
		}
	}
}
