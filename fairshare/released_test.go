package fairshare_test

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"vgpud/fairshare"
)

// released are the policies with the rule that LoGA's authors released.
var released = []string{"loga", "loga-spans"}

// TestReleasedRuleHolds tests that for two guests that always have work the released rule halves
// the GPU, whereas under the printed rule the longer kernels get only what they use in polling
// phases.
func TestReleasedRuleHolds(t *testing.T) {
	for _, policy := range released {
		for _, length := range []time.Duration{ms, 2 * ms} {
			s := newSim(policy, false, 1, &simGuest{weight: 1, length: length}, &simGuest{weight: 1, length: 500 * us})
			used, _ := s.use(s.rounds(20_000 * ms))
			if math.Abs(used[0]-0.5) > 0.03 {
				t.Errorf("%s gives kernels of %v beside those of 500 µs %.3f, want 0.5", policy, length, used[0])
			}
		}
	}
}

// TestReleasedRuleHoldsAnyLengths does the same with more guests and kernels of any lengths.
func TestReleasedRuleHoldsAnyLengths(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var guests []*simGuest
		for range rapid.IntRange(2, 3).Draw(t, "guests") {
			guests = append(guests, &simGuest{weight: 1, length: time.Duration(rapid.IntRange(50, 1000).Draw(t, "length")) * us})
		}
		s := newSim("loga", false, 1, guests...)
		used, _ := s.use(s.rounds(20_000 * ms))
		for i, u := range used {
			if want := 1 / float64(len(used)); math.Abs(u-want) > 0.05 {
				t.Errorf("guest %d has %.3f, want %.3f", i, u, want)
			}
		}
	})
}

// told drives a policy through rounds. In each, 1 ms of polling shows what the guests used, after 5
// ms of quiet time.
type told struct {
	t         *testing.T
	policy    fairshare.Policy
	now       time.Duration
	suspended map[fairshare.GuestID]bool
}

func newTold(t *testing.T, policy string) *told {
	p, err := fairshare.New(policy, fairshare.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return &told{t: t, policy: p, suspended: make(map[fairshare.GuestID]bool)}
}

// round reports a round in which guests 1, 2… used the given times, and returns the guests that are
// suspended after it.
func (x *told) round(used ...time.Duration) (suspended []fairshare.GuestID) {
	for _, ev := range []fairshare.Event{{Phase: fairshare.QuietPhase, Length: 5 * ms}, {Phase: fairshare.PollPhase, Length: ms, Watched: ms}} {
		st := fairshare.State{Round: 6 * ms}
		for i, u := range used {
			g := fairshare.Guest{ID: fairshare.GuestID(i + 1), Weight: 1, Active: true, Backlogged: true, Suspended: x.suspended[fairshare.GuestID(i+1)]}
			if ev.Phase == fairshare.PollPhase && u > 0 {
				g.Used, g.Runs = u, 1
			}
			st.Guests = append(st.Guests, g)
		}
		x.now += ev.Length
		verdicts, _ := x.policy.Decide(x.now, ev, st)
		if ev.Phase == fairshare.QuietPhase && len(verdicts) > 0 {
			x.t.Errorf("verdicts at the end of a quiet phase: %v", verdicts)
		}
		for _, v := range verdicts {
			x.suspended[v.Guest] = v.Action == fairshare.Suspend
		}
	}
	for i := range used {
		if id := fairshare.GuestID(i + 1); x.suspended[id] {
			suspended = append(suspended, id)
		}
	}
	return suspended
}

// TestReleasedKeepsWhoIsHeld has one guest use twice what the other uses. When it is more than a
// round ahead, it stays suspended through the next polling phase. The other guest is alone in that
// phase and is charged for it, so that the first is ahead by less than a round again.
func TestReleasedKeepsWhoIsHeld(t *testing.T) {
	for _, policy := range released {
		x := newTold(t, policy)
		var got [][]fairshare.GuestID
		for range 5 {
			used := []time.Duration{600 * us, 300 * us}
			if x.suspended[1] {
				used = []time.Duration{0, ms}
			}
			got = append(got, x.round(used...))
		}
		// It is ahead by 1/3 of a round more each time, until that is 4/3.
		if diff := cmp.Diff([][]fairshare.GuestID{nil, nil, nil, {1}, nil}, got); diff != "" {
			t.Errorf("%s: suspended after each round (-want +got):\n%s", policy, diff)
		}
	}
}

// TestReleasedDoesNotCountWhoNeverRan has a third guest that never executes although it has work.
// If it counted in the least virtual time, the first guest would be suspended forever for its sake.
func TestReleasedDoesNotCountWhoNeverRan(t *testing.T) {
	for _, policy := range released {
		x := newTold(t, policy)
		heldFor := 0
		for range 40 {
			used := []time.Duration{600 * us, 300 * us, 0}
			if x.suspended[1] {
				used = []time.Duration{0, ms, 0}
				heldFor++
			}
			x.round(used...)
		}
		if heldFor < 8 || heldFor > 11 {
			t.Errorf("%s: the first guest was suspended for %d rounds of 40, want every fourth", policy, heldFor)
		}
		if x.suspended[3] {
			t.Errorf("%s: the guest that never ran is suspended", policy)
		}
	}
}

// TestReleasedHoldsWhoIsAheadWhileNobodyRuns tests that the time of a round in which no guest
// executed does not count, so that a guest with any lead is suspended. It is resumed when another
// guest runs.
func TestReleasedHoldsWhoIsAheadWhileNobodyRuns(t *testing.T) {
	x := newTold(t, "loga")
	got := [][]fairshare.GuestID{
		x.round(600*us, 300*us),
		x.round(0, 0),
		x.round(0, 0),
		x.round(0, ms),
	}
	if diff := cmp.Diff([][]fairshare.GuestID{nil, {1}, {1}, nil}, got); diff != "" {
		t.Errorf("suspended after each round (-want +got):\n%s", diff)
	}
}

// TestReleasedMeasures has one guest with few long kernels and another with many short ones, which
// uses more. By GPU time the second is ahead, by mean length the first.
func TestReleasedMeasures(t *testing.T) {
	for policy, want := range map[string]fairshare.GuestID{"loga": 2, "loga-spans": 1} {
		p, err := fairshare.New(policy, fairshare.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var suspended []fairshare.GuestID
		for i := range 20 {
			st := fairshare.State{Guests: []fairshare.Guest{
				{ID: 1, Weight: 1, Active: true, Used: 300 * us, Runs: 1}, {ID: 2, Weight: 1, Active: true, Used: 600 * us, Runs: 6},
			}}
			verdicts, _ := p.Decide(time.Duration(i)*ms, fairshare.Event{Phase: fairshare.PollPhase, Length: ms, Watched: ms}, st)
			for _, v := range verdicts {
				suspended = append(suspended, v.Guest)
			}
			if suspended != nil {
				break
			}
		}
		if diff := cmp.Diff([]fairshare.GuestID{want}, suspended); diff != "" {
			t.Errorf("%s: first suspended (-want +got):\n%s", policy, diff)
		}
	}
}

// TestReleasedForgivesNothingToWhoWasAway tests that a guest that had no work for long begins at
// the others' virtual time: they are not suspended until it has caught up.
func TestReleasedForgivesNothingToWhoWasAway(t *testing.T) {
	for _, policy := range released {
		x := newTold(t, policy)
		for range 20 {
			x.round(600*us, 0)
		}
		for range 5 {
			if suspended := x.round(300*us, 300*us); suspended != nil {
				t.Fatalf("%s: %v suspended beside one that comes back", policy, suspended)
			}
		}
	}
}

// TestReleasedChargesTheWholeRound tests that usage in a polling phase also stands for the quiet
// phase before it.
func TestReleasedChargesTheWholeRound(t *testing.T) {
	x := newTold(t, "loga")
	var err error
	if x.policy, err = fairshare.New("loga", fairshare.Options{Threshold: 9 * ms}); err != nil {
		t.Fatal(err)
	}
	var got [][]fairshare.GuestID
	for range 5 {
		got = append(got, x.round(600*us, 300*us))
	}
	// The guest's lead grows by 2 ms of the 6 ms each time.
	if diff := cmp.Diff([][]fairshare.GuestID{nil, nil, nil, nil, {1}}, got); diff != "" {
		t.Errorf("suspended after each round (-want +got):\n%s", diff)
	}
}
