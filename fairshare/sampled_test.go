package fairshare_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vgpud/fairshare"
)

// asker is a guest that issues some requests at the start of every millisecond in which it may run.
// All of them complete within that millisecond.
type asker struct{ requests, calls uint64 }

// sampling runs NEON's policy over askers, and calls it whenever it wants to be called.
type sampling struct {
	t      *testing.T
	policy fairshare.Policy
	now    time.Duration
	askers []asker
	guests []fairshare.Guest
	stuck  bool // whether requests no longer complete
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

// step calls the policy once. It returns for how long the verdicts apply, and which guests run.
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

// freeRun runs to the end of the next free run. It returns the length of that, the guests that ran
// in it, and the guests that ran alone before it.
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

// TestNeonSharesByCalls tests two guests that always have work: the one with longer kernels is
// suspended for about as long as makes up for them. That is slightly too long, since with a poll
// each millisecond its kernels seem to take half a millisecond longer.
func TestNeonSharesByCalls(t *testing.T) {
	s := newSim("neon", false, 1, &simGuest{weight: 1, length: ms}, &simGuest{weight: 1, length: 500 * us})
	used, _ := s.use(s.rounds(20_000 * ms))
	if part := used[0] / (used[0] + used[1]); part < 0.37 || part > 0.5 {
		t.Errorf("kernels of 1 ms have %.3f of the GPU, those of 500 µs %.3f, want nearly as much", used[0], used[1])
	}
}

// TestNeonSamplesOneByOne tests that each guest is alone for a millisecond, and then all run for
// five times as long as the sampling took.
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

// TestNeonSkipsWhoIsHeld has one guest with calls of twice the length. Its lead grows by a third of
// a free run each time, and it is suspended when it is ahead by 4/3 of one. Then it is skipped in
// the next sampling and charged nothing. The free run after that is as long as if it had been
// sampled.
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

// TestNeonChargesCalls tests that a call of several requests counts as one, in whole requests per
// call. Both guests' requests take a millisecond together.
func TestNeonChargesCalls(t *testing.T) {
	for _, test := range []struct {
		name      string
		a, b      asker
		suspended fairshare.GuestID // first guest suspended in 30 rounds; 0: none
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
		if first != test.suspended {
			t.Errorf("%s: guest %d is suspended first, want %d", test.name, first, test.suspended)
		}
	}
}

// TestNeonDoesNotCountWhoAsksNothing tests that a guest without requests does not hold the others
// back, and is sampled all the same.
func TestNeonDoesNotCountWhoAsksNothing(t *testing.T) {
	s := newSampling(t, asker{2, 2}, asker{2, 2}, asker{0, 0})
	for range 30 {
		length, running, alone := s.freeRun()
		if len(running) != 3 || len(alone) != 3 || length != 15*ms {
			t.Fatalf("a free run of %v for %v after %v had been sampled, want 15 ms, for all of all", length, running, alone)
		}
	}
}

// TestNeonEndsASampleWithEnoughRequests tests that the sampling of a guest ends as soon as 96
// requests are noticed.
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

// TestNeonDrains tests that no guest is sampled before all have completed what they have on the
// GPU.
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

// TestNeonWaitsForTheSampledGuest tests that the policy waits for a request that is in flight at
// the end of a guest's sample, and that this lengthens the free run.
func TestNeonWaitsForTheSampledGuest(t *testing.T) {
	s := newSampling(t, asker{1, 1}, asker{1, 1})
	s.freeRun()
	s.stuck = true
	s.step() // the first guest has its millisecond, in which nothing completes
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

// TestNeonForgets tests that a guest that disappears while it is sampled does not keep the others
// waiting.
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

// anySuspended returns a sampling in whose last free run the first guest was suspended.
func anySuspended(t *testing.T) *sampling {
	s := newSampling(t, asker{2, 2}, asker{4, 4})
	for range 10 {
		if _, running, _ := s.freeRun(); cmp.Equal([]fairshare.GuestID{2}, running) {
			return s
		}
	}
	t.Fatal("nobody is suspended")
	return nil
}

// TestNeonCountsWhoIsHeldBack tests that a suspended guest is resumed when the others have no more
// requests.
func TestNeonCountsWhoIsHeldBack(t *testing.T) {
	s := anySuspended(t)
	s.askers[1] = asker{}
	if _, running, _ := s.freeRun(); !cmp.Equal([]fairshare.GuestID{1, 2}, running) {
		t.Errorf("%v run, want both", running)
	}
}

// TestNeonForgetsWhoWasHeldBack tests that a guest does not inherit the debt of a former guest with
// the same ID.
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

// TestNeonSamplesNothingOfTheFreeRun tests that, if no guest has anything on the GPU at the end of
// a free run, the guests sampled first are sampled for as long as the others, and that their
// requests in the free run do not count.
func TestNeonSamplesNothingOfTheFreeRun(t *testing.T) {
	s := newSampling(t, asker{20, 20}, asker{20, 20})
	for range 30 {
		_, running, alone := s.freeRun()
		if diff := cmp.Diff([]fairshare.GuestID{1, 2}, alone); diff != "" || len(running) != 2 {
			t.Fatalf("%v run; milliseconds alone before (-want +got):\n%s", running, diff)
		}
	}
}
