package scheduler

import (
	"math"
	"testing"
	"time"

	"vgpud/fairshare"
	"vgpud/mediator/ipc"
	"vgpud/mediator/ipc/slotstate"
	"vgpud/mediator/launchqueue"
)

// kernelPolicies returns the names of the policies about launches.
func kernelPolicies() (names []string) {
	for _, name := range fairshare.Names() {
		if fairshare.ByKernel(name) {
			names = append(names, name)
		}
	}
	return names
}

// TestEvictionsAreMeasured: an eviction counts as long as the daemon saw it take, whatever the page
// says, and a guest that delays it costs no other guest more than a little.
func TestEvictionsAreMeasured(t *testing.T) {
	for name, c := range map[string]struct {
		after, left, want time.Duration
	}{
		"as it was":         {ms, -ms / 2, ms / 2},
		"years later":       {2 * ms, 10 * 365 * 24 * time.Hour, 2 * ms},
		"before it was":     {2 * ms, -time.Hour, 1},
		"never":             {2 * ms, math.MinInt64, 1},
		"when it felt like": {time.Minute, 0, mostCharged},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			victim, urgent := s.join(1, 1, 1), s.join(2, 1, 2)
			third := s.join(3, 1, 3)
			s.byKernel()
			long := s.submit(victim, ipc.Launch{Evictable: true, Form: 1, Kernel: 7})
			s.next(run(1))
			s.sched.LaunchesChanged()
			long.Start(s.clock.Now())
			s.submit(urgent, ipc.Launch{})
			s.next(evict(1, 1, 2), run(2))
			s.sched.LaunchesChanged()
			s.clock.Advance(c.after)
			left := c.left
			if left > math.MinInt64 {
				left += s.clock.Now()
			}
			long.Leave(left, ms)
			s.sched.LaunchesChanged()
			if got := urgent.Status(s.clock.Now()).Bill.Charged; got != c.want {
				t.Errorf("the guest that asked is charged %v, want %v", got, c.want)
			}
			took := min(c.want, c.after)
			if c.after > mostCharged {
				took = c.after
			}
			s.submit(third, ipc.Launch{Kernel: 7})
			s.sched.LaunchesChanged()
			s.sched.Changed(0)
			shown := s.policy.launches[len(s.policy.launches)-1]
			if d := shown[0].EvictionCost; d != took {
				t.Errorf("the kernel is expected to take %v, want %v", d, took)
			}
			if d, want := shown[2].EvictionCost, min(took, 4*fairshare.AssumedCost); d != want {
				t.Errorf("another guest's is expected to take %v, want %v", d, want)
			}
		})
	}
}

// TestPriorityIsTheDaemons: a launch is no more urgent than its guest's ceiling allows, and does
// not go ahead because its page says so.
func TestPriorityIsTheDaemons(t *testing.T) {
	s := newScene(t)
	g := s.join(1, 1, 1)
	s.join(2, 1, 2)
	g.SetTerms(ipc.Terms{Weight: 1, PriorityCeiling: 3})
	s.byKernel()
	g.o.Page.SetTerms(ipc.Terms{Weight: 1, PriorityCeiling: 15})
	g.o.Page.SetMode(ipc.ModeAhead)
	want := []int{2, 3, 3, 3}
	for _, p := range []int{2, 3, 15, math.MaxUint32} {
		s.submit(g, ipc.Launch{Priority: p}).Grant()
	}
	s.sched.LaunchesChanged()
	shown := s.policy.launches[len(s.policy.launches)-1]
	for i, l := range shown {
		if l.Priority != want[i] || !l.Running {
			t.Errorf("launch %d is shown as %+v, want priority %d, and running", i, l, want[i])
		}
	}
	if len(shown) != len(want) {
		t.Errorf("%d are shown", len(shown))
	}
}

// TestDeadlineIsBounded: impossible counters put a deadline off within bounds, and never before
// now.
func TestDeadlineIsBounded(t *testing.T) {
	for _, limit := range []time.Duration{time.Second, 10 * time.Hour, math.MaxInt64} {
		s := newScene(t)
		options := GuestOptions{Terms: ipc.Terms{Weight: 1}, TimeLimit: limit}
		s.joinWith(1, options, 1)
		g, other := s.guests[0], s.joinWith(2, options, 2)
		s.sched.SetEvictionDeadline(5 * ms)
		s.byKernel()
		c := s.submit(g, ipc.Launch{Evictable: true, Form: 1})
		s.next(run(1))
		s.sched.LaunchesChanged()
		c.Start(s.clock.Now())
		other.o.Page.Context(0).AddFinished(ms, 0, false) // though none was fetched
		s.sched.LaunchesChanged()
		s.next(evict(1, 1, 2))
		s.sched.Changed(0)
		if _, asked, deadline := c.EvictionRequest(); deadline < asked+5*ms || deadline > asked+launchqueue.MaxDuration {
			t.Errorf("asked at %v to leave by %v", asked, deadline)
		}
	}
}

// untilTurn runs timers until a launch has its turn.
func (s *scene) untilTurn(c ipc.Claim, within time.Duration) {
	s.t.Helper()
	for from := s.clock.Now(); c.State() == slotstate.Ready; {
		at := s.sched.NextTimer()
		if at == 0 || at > from+within {
			s.t.Fatalf("it waits, and the timer is set to %v", at-from)
		}
		s.clock.Advance(max(at-s.clock.Now(), 1))
		s.sched.RunTimers()
	}
}

// TestTurnIsUsedOrLost: a launch whose executor does something else, such as translating a module,
// keeps no other guest from the GPU for long, under any policy, and its guest is charged for that
// time.
func TestTurnIsUsedOrLost(t *testing.T) {
	for _, policy := range kernelPolicies() {
		t.Run(policy, func(t *testing.T) {
			s := newScene(t)
			busy, other := s.join(1, 1, 1), s.join(2, 1, 2)
			if err := s.sched.SetPolicy(policy); err != nil {
				t.Fatal(err)
			}
			s.sched.Changed(0)
			stalled := s.submit(busy, ipc.Launch{Predicted: ms})
			s.sched.LaunchesChanged()
			if stalled.State() != slotstate.ToRun {
				t.Fatalf("it is %v", stalled.State())
			}
			s.clock.Advance(time.Second) // while nobody else waits
			s.sched.LaunchesChanged()
			if stalled.State() != slotstate.ToRun {
				t.Fatalf("it is %v, and nobody else waits", stalled.State())
			}

			// When another launch arrives, its time is up.
			waits := s.submit(other, ipc.Launch{Predicted: ms})
			s.sched.LaunchesChanged()
			if stalled.State() != slotstate.Ready {
				t.Fatalf("the stalled one is %v", stalled.State())
			}
			s.untilTurn(waits, launchqueue.TurnLimit) // if the policy keeps the GPU for the other guest
			waits.Start(s.clock.Now())
			s.clock.Advance(ms)
			waits.Finish(ms)
			s.sched.LaunchesChanged()
			if got := busy.o.Page.Bill().Used; got != 0 {
				t.Errorf("charged %v, though nobody waited", got)
			}

			// It has another turn after a while, and others wait again.
			s.clock.Advance(s.sched.NextTimer() - s.clock.Now())
			s.sched.RunTimers()
			if stalled.State() != slotstate.ToRun {
				t.Fatalf("after a while it is %v", stalled.State())
			}
			waits = s.submit(other, ipc.Launch{Predicted: ms})
			s.sched.LaunchesChanged()
			s.untilTurn(waits, 2*launchqueue.TurnLimit)
			if got := busy.o.Page.Bill().Used; got <= launchqueue.TurnLimit/2 || got > launchqueue.TurnLimit {
				t.Errorf("charged %v for its turn", got)
			}
			// A launch does not start just after its turn was taken back: the other one has the GPU.
			if stalled.Start(s.clock.Now()) || stalled.State() != slotstate.Ready {
				t.Fatalf("the late one is %v", stalled.State())
			}
			stalled.Abandon(0)
			waits.Start(s.clock.Now())
			waits.Finish(ms)
			s.sched.LaunchesChanged()
			if n := s.sched.Status().Launches; n != (launchqueue.Counts{}) {
				t.Errorf("launches are left: %+v", n)
			}
		})
	}
}

// TestOneStallIsOne: two launches that both had their turn cost their guest one backoff, and a
// bounded charge, however late the slots are read.
func TestOneStallIsOne(t *testing.T) {
	s := newScene(t)
	busy, other := s.join(1, 1, 1), s.join(2, 1, 2)
	s.byKernel()
	a, b := s.submit(busy, ipc.Launch{}), s.submit(busy, ipc.Launch{})
	s.next(run(1), run(2))
	s.sched.LaunchesChanged()
	s.submit(other, ipc.Launch{})
	s.sched.LaunchesChanged()
	if a.State() != slotstate.ToRun || b.State() != slotstate.ToRun {
		t.Fatalf("they are %v and %v", a.State(), b.State())
	}
	s.clock.Advance(2 * time.Second)
	s.sched.LaunchesChanged()
	if a.State() != slotstate.Ready || b.State() != slotstate.Ready {
		t.Errorf("after two seconds they are %v and %v", a.State(), b.State())
	}
	if got := busy.o.Page.Bill().Used; got != 2*launchqueue.TurnLimit {
		t.Errorf("charged %v, want %v", got, 2*launchqueue.TurnLimit)
	}
	s.sched.RunTimers()
	if at := s.sched.NextTimer(); at != s.clock.Now()+launchqueue.TurnLimit {
		t.Errorf("backed off until %v", at)
	}
}
