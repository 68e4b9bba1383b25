package daemon

import (
	"math"
	"testing"
	"time"

	"vgpud/fairshare"
	"vgpud/gpu"
	"vgpud/mediator/ipc"
	"vgpud/mediator/ipc/slotstate"
)

// kernelPolicies are those about launches.
func kernelPolicies() (names []string) {
	for _, name := range fairshare.Names() {
		if fairshare.ByKernel(name) {
			names = append(names, name)
		}
	}
	return names
}

// TestEvictionsAreMeasured: what an eviction took is what the daemon saw of it, whatever
// the page says, and a guest that takes its time costs no other guest more than a little.
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
			s.join(3, 1, 3)
			s.byKernel()
			long := s.submit(victim, ipc.Launch{Evictable: true, Form: 1, Kernel: 7})
			s.next(run(1))
			s.share.rang()
			long.Start(s.clock.Now())
			s.submit(urgent, ipc.Launch{})
			s.next(evict(1, 1, 2), run(2))
			s.share.rang()
			s.clock.Advance(c.after)
			left := c.left
			if left > math.MinInt64 {
				left += s.clock.Now()
			}
			long.Leave(left, ms)
			s.share.rang()
			if got := urgent.vm(s.clock.Now(), gpu.Counts{}).Preemption.ChargedSeconds; got != c.want.Seconds() {
				t.Errorf("who asked is charged %v s, want %v", got, c.want)
			}
			took := min(c.want, c.after)
			if c.after > mostCharged {
				took = c.after
			}
			f := &s.share.launching.foresight
			if d := f.evictionCost(1, &ipc.Launch{Kernel: 7}); d != took {
				t.Errorf("the kernel is expected to take %v, want %v", d, took)
			}
			if d, want := f.evictionCost(3, &ipc.Launch{Kernel: 7}), min(took, mostTold); d != want {
				t.Errorf("another guest's is expected to take %v, want %v", d, want)
			}
		})
	}
}

// TestPriorityIsTheDaemons: a launch is no more urgent than its guest may be, by what the
// daemon has granted it, nor goes ahead because its page says that it does.
func TestPriorityIsTheDaemons(t *testing.T) {
	s := newScene(t)
	g := s.join(1, 1, 1)
	s.join(2, 1, 2)
	g.terms.PriorityCeiling = 3
	s.byKernel()
	g.page.SetTerms(ipc.Terms{Weight: 1, PriorityCeiling: 15})
	g.page.SetMode(ipc.ModeAhead)
	want := []int{2, 3, 3, 3}
	for _, p := range []int{2, 3, 15, math.MaxUint32} {
		s.submit(g, ipc.Launch{Priority: p}).Grant()
	}
	s.share.rang()
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

// TestDeadlineIsOne: counters that say that there is no end of launches, or less than
// none, put a deadline off and don't turn it around.
func TestDeadlineIsOne(t *testing.T) {
	for _, limit := range []time.Duration{time.Second, 10 * time.Hour, math.MaxInt64} {
		s := newScene(t)
		g, other := s.join(1, 1, 1), s.join(2, 1, 2)
		g.spec.KernelTimeLimit, other.spec.KernelTimeLimit = limit, limit
		s.share.launching.deadline = 5 * ms
		s.byKernel()
		c := s.submit(g, ipc.Launch{Evictable: true, Form: 1})
		s.next(run(1))
		s.share.rang()
		c.Start(s.clock.Now())
		other.page.Context(0).AddFinished(ms, 0, false) // of none that were begun
		s.share.rang()
		s.next(evict(1, 1, 2))
		s.share.changed(0)
		if _, asked, deadline := c.EvictionRequest(); deadline < asked+5*ms || deadline > asked+longest {
			t.Errorf("asked at %v to leave by %v", asked, deadline)
		}
	}
}

// untilTurn goes on until a launch has its turn, as the share's alarm says.
func (s *scene) untilTurn(c ipc.Claim, within time.Duration) {
	s.t.Helper()
	for from := s.clock.Now(); c.State() == slotstate.Ready; {
		at := s.share.launching.alarm.next()
		if at == 0 || at > from+within {
			s.t.Fatalf("it waits, and the alarm is set to %v", at-from)
		}
		s.clock.Advance(max(at-s.clock.Now(), 1))
		s.share.rings()
	}
}

// TestTurnIsUsedOrLost: a launch whose executor does something else, as to translate a
// module, keeps nobody from the GPU for long, under any policy, and its guest is charged
// for as long as it did.
func TestTurnIsUsedOrLost(t *testing.T) {
	for _, policy := range kernelPolicies() {
		t.Run(policy, func(t *testing.T) {
			s := newScene(t)
			busy, other := s.join(1, 1, 1), s.join(2, 1, 2)
			if err := s.share.setPolicy(policy); err != nil {
				t.Fatal(err)
			}
			s.share.changed(0)
			stalled := s.submit(busy, ipc.Launch{Predicted: ms})
			s.share.rang()
			if stalled.State() != slotstate.ToRun {
				t.Fatalf("it is %v", stalled.State())
			}
			s.clock.Advance(time.Second) // for which nobody waits
			s.share.rang()
			if stalled.State() != slotstate.ToRun {
				t.Fatalf("it is %v, and nobody else waits", stalled.State())
			}

			// With the arrival of another it has had its time.
			waits := s.submit(other, ipc.Launch{Predicted: ms})
			s.share.rang()
			if stalled.State() != slotstate.Ready {
				t.Fatalf("the stalled one is %v", stalled.State())
			}
			s.untilTurn(waits, turnLimit) // where the policy has the GPU wait for its guest
			waits.Start(s.clock.Now())
			s.clock.Advance(ms)
			waits.Finish(ms)
			s.share.rang()
			if got := busy.page.Bill().Used; got != 0 {
				t.Errorf("charged %v, though nobody waited", got)
			}

			// It has another turn after a while, and others wait again.
			s.clock.Advance(s.share.launching.alarm.next() - s.clock.Now())
			s.share.rings()
			if stalled.State() != slotstate.ToRun {
				t.Fatalf("after a while it is %v", stalled.State())
			}
			waits = s.submit(other, ipc.Launch{Predicted: ms})
			s.share.rang()
			s.untilTurn(waits, 2*turnLimit)
			if got := busy.page.Bill().Used; got <= turnLimit/2 || got > turnLimit {
				t.Errorf("charged %v for its turn", got)
			}
			// One that comes late waits for its next turn; one that was as good as on the
			// GPU is there.
			if stalled.Start(s.clock.Now()); stalled.State() != slotstate.Running {
				t.Fatalf("the late one is %v", stalled.State())
			}
			s.share.rang()
			if n := len(s.share.launching.board.launches(s.clock.Now(), 1, s.share.launching.cost)); n != 2 {
				t.Errorf("%d launches are shown, want both", n)
			}
			stalled.Finish(ms)
			waits.Start(s.clock.Now())
			waits.Finish(ms)
			s.share.rang()
			if n := len(s.share.launching.board.rows); n != 0 {
				t.Errorf("%d launches are left", n)
			}
		})
	}
}

// TestOneStallIsOne: two launches that both had the turn cost their guest one rest, and
// no more than the daemon should have let pass, however late that looks.
func TestOneStallIsOne(t *testing.T) {
	s := newScene(t)
	busy, other := s.join(1, 1, 1), s.join(2, 1, 2)
	s.byKernel()
	a, b := s.submit(busy, ipc.Launch{}), s.submit(busy, ipc.Launch{})
	s.next(run(1), run(2))
	s.share.rang()
	s.submit(other, ipc.Launch{})
	s.share.rang()
	if a.State() != slotstate.ToRun || b.State() != slotstate.ToRun {
		t.Fatalf("they are %v and %v", a.State(), b.State())
	}
	s.clock.Advance(2 * time.Second)
	s.share.rang()
	if a.State() != slotstate.Ready || b.State() != slotstate.Ready {
		t.Errorf("after two seconds they are %v and %v", a.State(), b.State())
	}
	if got := busy.page.Bill().Used; got != 2*turnLimit {
		t.Errorf("charged %v, want %v", got, 2*turnLimit)
	}
	if c := s.share.launching.board.desks[1].credit; c.pause != restLeast || c.rest != s.clock.Now()+restLeast {
		t.Errorf("rests for %v, until %v", c.pause, c.rest)
	}
}

// TestRests: who does not use its turns has fewer of them, up to a bound, and as many as
// everybody again when it has.
func TestRests(t *testing.T) {
	var c credit
	now := time.Hour
	var got []time.Duration
	for i := range 9 {
		if c.rests(now); c.rest != now+c.pause {
			t.Errorf("rests until %v", c.rest)
		}
		got = append(got, c.pause)
		now = c.rest + turnLimit
		if i == 6 {
			now = c.rest + restMost
		}
	}
	for i, want := range []time.Duration{5, 10, 20, 40, 80, 160, 320, 5, 10} {
		if got[i] != want*ms {
			t.Errorf("rest %d is %v, want %v", i, got[i], want*ms)
		}
	}
}

// TestStrangersAreNotWaitedForLong: launches that have let themselves to the GPU are taken
// for what they say they are while that is an exception.
func TestStrangersAreNotWaitedForLong(t *testing.T) {
	b := newTable(t, 2)
	for i := range b.parties {
		b.parties[i].mode = ipc.ModeByKernel
	}
	b.look()
	b.submit(2, ipc.Launch{}) // waits
	occupied, last := time.Duration(0), b.now
	var c ipc.Claim
	for i := range 20_000 {
		if i%10 == 0 {
			c.Finish(ms)
			c = b.submit(1, ipc.Launch{})
			c.Grant()
			c.Start(b.now)
		}
		b.look()
		b.told()
		for _, l := range b.launches() {
			if l.Running {
				occupied += b.now - last
			}
		}
		last = b.now
		b.now += ms
	}
	if occupied < 20*ms || occupied > doubtMost+time.Second {
		t.Errorf("of 20 s it has kept the GPU for %v", occupied)
	}
}

// TestForsaken: one that does not leave when told, or has the GPU for longer than it may,
// is not counted on while others wait, and is a launch like any other when it waits.
func TestForsaken(t *testing.T) {
	for _, leaves := range []bool{false, true} {
		b := newTable(t, 2)
		b.board.leaving = 500 * ms
		for i := range b.parties {
			b.parties[i].mode, b.parties[i].limit = ipc.ModeByKernel, 10*time.Second
		}
		c := b.submit(1, ipc.Launch{Evictable: true, Form: 1})
		b.wantTold("arrived 1: 1")
		b.board.row(1).run(b.now)
		b.start(c)
		b.wantTold()
		limit := 21 * time.Second
		if leaves {
			b.board.row(1).evict(math.MaxUint32, b.now, 0)
			limit = time.Second
		}
		from := b.now
		b.now += time.Hour
		b.wantTold() // nobody waits
		b.now = from
		b.submit(2, ipc.Launch{})
		b.board.looked = from
		b.wantTold("arrived 2: 1+" + map[bool]string{true: "-"}[leaves] + " 2")
		at, ok := b.board.nextDue()
		if want := from + limit; !ok || at < want-ms || at > want {
			t.Errorf("looks again after %v, want %v", at-from, limit)
		}
		b.now = at
		b.wantTold("finished 1: 2")
		b.wantTold()
		c.Leave(b.now, ms)
		b.wantTold("arrived 1: 1 2")
		b.wantNews("1 appeared", "2 appeared", "1 forsaken", map[bool]string{false: "1 left", true: "1 left in 1s"}[leaves])
	}
}

// TestWordsAreTheDaemons: what a launch was told is what the daemon said, whatever the
// page says that it was.
func TestWordsAreTheDaemons(t *testing.T) {
	b := newTable(t, 1)
	c := b.submit(1, leaves)
	b.look()
	r := b.board.row(1)
	r.run(b.now)
	b.start(c)
	b.look()
	b.told()
	if !r.evict(math.MaxUint32, b.now, 0) {
		t.Fatal("not told to leave")
	}
	asked := b.now
	slot := b.parties[0].page.LaunchSlot(0)
	slot.Recall(c.Launch()) // nobody told it so
	slot.Evict(c.Launch(), 1, 2, 3)
	for range 3 {
		b.now += ms
		b.look()
		if got := b.shown(); got != " 1+-" || r.stub.Asked != asked || r.evict(math.MaxUint32, b.now, 0) {
			t.Errorf("shown as%s, asked at %v", got, r.stub.Asked)
		}
		slot.Recall(c.Launch())
	}
}

// TestArrivals: nobody was there before it came.
func TestArrivals(t *testing.T) {
	b := newTable(t, 2)
	b.submit(1, ipc.Launch{})
	b.wantTold("arrived 1: 1")
	for _, at := range []time.Duration{0, math.MinInt64, math.MaxInt64, -1} {
		b.now += ms
		if c, ok := b.parties[1].page.Claim(0, &ipc.Launch{Arrived: at}); !ok || c.State() != slotstate.Ready {
			t.Fatal("no stub")
		}
		b.look()
		b.told()
	}
	if got := b.shown(); got != " 1 2 3 4 5" {
		t.Errorf("in order of arrival they are%s", got)
	}
}
