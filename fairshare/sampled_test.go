package fairshare_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vgpud/fairshare"
)

// asker is a guest that, in every millisecond in which it may, issues some requests at
// its begin, of which all complete within it.
type asker struct{ requests, calls uint64 }

// sampling is NEON's policy over askers, asked whenever it wants to be.
type sampling struct {
	t      *testing.T
	policy fairshare.Policy
	now    time.Duration
	askers []asker
	guests []fairshare.Guest
	stuck  bool // whether requests do not end any more
}

func newSampling(t *testing.T, askers ...asker) *sampling {
	p, err := fairshare.New("neon", fairshare.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := &sampling{t: t, policy: p, askers: askers}
	for i := range askers {
		s.guests = append(s.guests, fairshare.Guest{ID: fairshare.GuestID(i + 1), Weight: 1, Backlogged: askers[i].requests > 0})
	}
	return s
}

// step asks the policy once, and returns for how long it wants what it said to hold, and
// for whom.
func (s *sampling) step() (length time.Duration, running []fairshare.GuestID) {
	verdicts, next := s.policy.Decide(s.now, fairshare.Event{Kind: fairshare.Tick}, fairshare.State{Guests: s.guests})
	if next <= 0 {
		s.t.Fatalf("asked at %v, the policy does not want to be asked again", s.now)
	}
	for _, v := range verdicts {
		s.guests[v.Guest-1].Suspended = v.Action == fairshare.Suspend
	}
	for i := range s.guests {
		g := &s.guests[i]
		if g.Suspended {
			continue
		}
		running = append(running, g.ID)
		n := uint64(next / ms)
		if g.Requests.First = s.now; s.stuck {
			g.Requests.UnderWay = true
			continue
		}
		g.Requests.Completed += n * s.askers[i].requests
		g.Requests.Calls += n * s.askers[i].calls
	}
	s.now += next
	return next, running
}

// freeRun goes on to the end of the next free run, and returns how long that was, who
// ran in it, and who alone before it.
func (s *sampling) freeRun() (length time.Duration, running, alone []fairshare.GuestID) {
	for range 1000 {
		length, running := s.step()
		if length > ms {
			return length, running, alone
		}
		if len(running) > 1 {
			s.t.Fatalf("%v run side by side while guests are sampled", running)
		}
		alone = append(alone, running...)
	}
	s.t.Fatal("there is no free run")
	return 0, nil, nil
}

// TestNeonSharesByCalls has two guests that always have work: the one with the longer
// kernels is held back for about as long as makes up for them. It is somewhat too long,
// since with a look each millisecond its kernels seem to take half of one longer.
func TestNeonSharesByCalls(t *testing.T) {
	s := newSim("neon", false, 1, &simGuest{weight: 1, length: ms}, &simGuest{weight: 1, length: 500 * us})
	used, _ := s.use(s.rounds(20_000 * ms))
	if part := used[0] / (used[0] + used[1]); part < 0.37 || part > 0.5 {
		t.Errorf("kernels of 1 ms have %.3f of the GPU, those of 500 µs %.3f, want nearly as much", used[0], used[1])
	}
}

// TestNeonSamplesOneByOne: each guest is alone for a millisecond, and then all run for
// five times as long as that took together.
func TestNeonSamplesOneByOne(t *testing.T) {
	s := newSampling(t, asker{4, 4}, asker{4, 4}, asker{4, 4})
	for range 3 {
		length, running, alone := s.freeRun()
		if diff := cmp.Diff([]fairshare.GuestID{1, 2, 3}, alone); diff != "" {
			t.Errorf("sampled (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]fairshare.GuestID{1, 2, 3}, running); diff != "" || length != 15*ms {
			t.Errorf("a free run of %v, want 15 ms; of (-want +got):\n%s", length, diff)
		}
	}
}

// TestNeonSkipsWhoIsHeld has one guest with calls of twice the length: it is ahead by a
// third of a free run more each time, and held back when it is ahead by 4/3 of one. Then
// it is skipped in the next sampling, and charged nothing; the free run after that is as
// long as if it had been sampled.
func TestNeonSkipsWhoIsHeld(t *testing.T) {
	s := newSampling(t, asker{2, 2}, asker{4, 4})
	type round struct {
		Length         time.Duration
		Running, Alone []fairshare.GuestID
	}
	var got []round
	for range 5 {
		length, running, alone := s.freeRun()
		got = append(got, round{length, running, alone})
	}
	both := []fairshare.GuestID{1, 2}
	want := []round{
		{10 * ms, both, both}, {10 * ms, both, both}, {10 * ms, both, both},
		{10 * ms, []fairshare.GuestID{2}, both},
		{10 * ms, both, []fairshare.GuestID{2}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("free runs (-want +got):\n%s", diff)
	}
}

// TestNeonChargesCalls: a call of several requests counts as one, in whole requests for
// each call. Both guests' requests take a millisecond together.
func TestNeonChargesCalls(t *testing.T) {
	for _, test := range []struct {
		name string
		a, b asker
		held fairshare.GuestID // who is held back first in 30 rounds; 0: nobody
	}{
		{"calls of equal length", asker{6, 2}, asker{2, 2}, 0},
		{"seven requests in two calls are four a call", asker{7, 2}, asker{4, 2}, 1},
		{"requests of no call count for themselves", asker{6, 0}, asker{6, 6}, 0},
		{"a longer call", asker{6, 2}, asker{4, 1}, 2},
	} {
		s := newSampling(t, test.a, test.b)
		var first fairshare.GuestID
		for range 30 {
			if _, running, _ := s.freeRun(); len(running) == 1 {
				first = 3 - running[0]
				break
			}
		}
		if first != test.held {
			t.Errorf("%s: guest %d is held back first, want %d", test.name, first, test.held)
		}
	}
}

// TestNeonDoesNotCountWhoAsksNothing: a guest that asks for nothing does not hold the
// others back to it, and is sampled all the same.
func TestNeonDoesNotCountWhoAsksNothing(t *testing.T) {
	s := newSampling(t, asker{2, 2}, asker{2, 2}, asker{0, 0})
	for range 30 {
		length, running, alone := s.freeRun()
		if len(running) != 3 || len(alone) != 3 || length != 15*ms {
			t.Fatalf("a free run of %v for %v after %v had been sampled, want 15 ms, for all of all", length, running, alone)
		}
	}
}

// TestNeonEndsASampleWithEnoughRequests: after 96 requests a guest is not sampled any
// longer than it takes to notice.
func TestNeonEndsASampleWithEnoughRequests(t *testing.T) {
	p, err := fairshare.New("neon", fairshare.Options{Sample: 12 * ms})
	if err != nil {
		t.Fatal(err)
	}
	s := newSampling(t, asker{100, 100}, asker{1, 1})
	s.policy = p
	_, _, alone := s.freeRun()
	count := map[fairshare.GuestID]int{}
	for _, id := range alone {
		count[id]++
	}
	if diff := cmp.Diff(map[fairshare.GuestID]int{1: 1, 2: 12}, count); diff != "" {
		t.Errorf("milliseconds alone (-want +got):\n%s", diff)
	}
}

// TestNeonDrains: nobody is sampled before all have ended what they have on the GPU.
func TestNeonDrains(t *testing.T) {
	s := newSampling(t, asker{1, 1}, asker{1, 1})
	s.freeRun()
	s.guests[1].Requests.UnderWay = true
	for range 10 {
		if _, running := s.step(); running != nil {
			t.Fatalf("%v run while another's request is on the GPU", running)
		}
	}
	s.guests[1].Requests.UnderWay = false
	if _, running := s.step(); !cmp.Equal([]fairshare.GuestID{1}, running) {
		t.Errorf("%v run when all have ended, want the first guest", running)
	}
}

// TestNeonWaitsForTheSampledGuest: a request that is under way when a guest's time is
// over is waited for, and makes the free run longer.
func TestNeonWaitsForTheSampledGuest(t *testing.T) {
	s := newSampling(t, asker{1, 1}, asker{1, 1})
	s.freeRun()
	s.stuck = true
	s.step() // the first guest has its millisecond, in which nothing ends
	for range 3 {
		if _, running := s.step(); running != nil {
			t.Fatalf("%v run while the sampled guest's request is on the GPU", running)
		}
	}
	s.stuck = false
	s.guests[0].Requests.UnderWay = false
	s.guests[0].Requests.Completed++
	length, _, alone := s.freeRun()
	if want := 5 * (2 + 3) * ms; length != want || !cmp.Equal([]fairshare.GuestID{2}, alone) {
		t.Errorf("a free run of %v after %v was sampled, want %v after the second guest", length, alone, want)
	}
}

// TestNeonForgets: a guest that leaves while it is alone does not keep the others waiting.
func TestNeonForgets(t *testing.T) {
	s := newSampling(t, asker{1, 1}, asker{1, 1})
	if _, running := s.step(); !cmp.Equal([]fairshare.GuestID{1}, running) {
		t.Fatalf("%v run, want the first guest", running)
	}
	p := s.policy
	verdicts, _ := p.Decide(s.now, fairshare.Event{Kind: fairshare.Changed, Guest: 1}, fairshare.State{Guests: s.guests[1:]})
	if diff := cmp.Diff([]fairshare.Verdict{{Guest: 2, Action: fairshare.Resume}}, verdicts); diff != "" {
		t.Errorf("verdicts (-want +got):\n%s", diff)
	}
}

// anySuspended is a sampling in whose last free run the first guest was held back.
func anySuspended(t *testing.T) *sampling {
	s := newSampling(t, asker{2, 2}, asker{4, 4})
	for range 10 {
		if _, running, _ := s.freeRun(); cmp.Equal([]fairshare.GuestID{2}, running) {
			return s
		}
	}
	t.Fatal("nobody is held back")
	return nil
}

// TestNeonCountsWhoIsHeldBack: a guest that is held back is let run when the others ask for
// nothing any more.
func TestNeonCountsWhoIsHeldBack(t *testing.T) {
	s := anySuspended(t)
	s.askers[1] = asker{}
	if _, running, _ := s.freeRun(); !cmp.Equal([]fairshare.GuestID{1, 2}, running) {
		t.Errorf("%v run, want both", running)
	}
}

// TestNeonForgetsWhoWasHeldBack: nothing is held against a guest that comes by the number of
// one that has left.
func TestNeonForgetsWhoWasHeldBack(t *testing.T) {
	s := anySuspended(t)
	s.guests[0].Suspended = false
	for _, guests := range [][]fairshare.Guest{s.guests[1:], s.guests} {
		verdicts, _ := s.policy.Decide(s.now-5*ms, fairshare.Event{Kind: fairshare.Changed, Guest: 1}, fairshare.State{Guests: guests})
		if len(verdicts) > 0 {
			t.Errorf("verdicts %v for %d guests", verdicts, len(guests))
		}
	}
}

// TestNeonSamplesNothingOfTheFreeRun: where nobody has anything on the GPU at the end of a free
// run, those that are sampled first are sampled as long as the others are, and what they did in
// the free run is no part of that.
func TestNeonSamplesNothingOfTheFreeRun(t *testing.T) {
	s := newSampling(t, asker{20, 20}, asker{20, 20})
	for range 30 {
		_, running, alone := s.freeRun()
		if diff := cmp.Diff([]fairshare.GuestID{1, 2}, alone); diff != "" || len(running) != 2 {
			t.Fatalf("%v run; milliseconds alone before (-want +got):\n%s", running, diff)
		}
	}
}
