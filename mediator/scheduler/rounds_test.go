package scheduler

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"vgpud/accounting"
	"vgpud/fairshare"
	"vgpud/mediator/ipc"
)

func TestWatchedTimeIsChargedExactlyAndQuietTimeInProportion(t *testing.T) {
	s := newScene(t)
	s.join(1, 1, 1, 2) // two contexts, so two groups
	s.join(2, 1, 3)
	s.join(3, 1, 4)

	s.poll(1*ms, busy(1, ms/4), busy(2, ms/4), busy(3, ms/4))
	s.wantUsed(ms/2, ms/4, 0)

	// Of 5 ms, 1 was watched: that is charged as it was.
	s.quiet(5*ms, 1*ms, busy(3, 1*ms))
	s.wantUsed(ms/2, ms/4+1*ms, 0)

	// 2 ms stand for themselves and for the 4 ms before.
	s.poll(2*ms, busy(2, 1*ms), busy(3, ms/2))
	s.wantUsed(ms/2+3*ms, ms/4+1*ms+3*ms/2, 0)

	// Once charged, it is not charged again.
	s.poll(1*ms, busy(4, 1*ms))
	s.wantUsed(ms/2+3*ms, ms/4+1*ms+3*ms/2, 1*ms)
}

func TestHeldGuestIsChargedNoQuietTime(t *testing.T) {
	s := newScene(t)
	a, b := s.join(1, 1, 1), s.join(2, 1, 2)
	s.next(suspending(1))
	s.poll(1*ms, busy(1, 1*ms))
	s.wantUsed(1*ms, 0)
	s.quiet(6*ms, 2*ms, busy(1, 1*ms), busy(2, 1*ms)) // a's last kernel, watched
	s.wantUsed(2*ms, 1*ms)
	s.poll(1*ms, busy(2, 1*ms)) // b alone ran, in the 4 ms too
	s.wantUsed(2*ms, 6*ms)
	if !a.Suspended() || b.Suspended() {
		t.Error("want a held and b not")
	}
}

func TestUnwatchedTailIsChargedWhenItEnds(t *testing.T) {
	s := newScene(t)
	a := s.join(1, 1, 1)
	s.join(2, 1, 2)
	slot := a.o.Page.Context(0)
	slot.AddFetched()
	s.next(suspending(1))
	s.poll(1*ms, busy(1, 1*ms))
	// The kernel ran on for 4 ms, of which 1 was watched.
	slot.AddFinished(5*ms, 4*ms, false)
	s.sched.Changed(0) // in between, which must not lose it for the policy
	s.quiet(6*ms, 1*ms, busy(1, 1*ms))
	s.wantUsed(1*ms+1*ms+3*ms, 0)
	last := s.policy.states[len(s.policy.states)-1][0]
	if last.Late != 3*ms || last.Used != 1*ms {
		t.Errorf("policy was told of %v late and %v watched, want 3ms and 1ms", last.Late, last.Used)
	}
	// The 2 ms that are left went like the polling phase.
	s.poll(1*ms, busy(2, 1*ms))
	s.wantUsed(5*ms, 3*ms)
	s.sched.mu.Lock()
	defer s.sched.mu.Unlock()
	if got := s.sched.tally.busy; got != 1*ms+1*ms+3*ms+3*ms {
		t.Errorf("GPU was busy for %v, want 8ms", got)
	}
}

func TestTailObserve(t *testing.T) {
	type look struct {
		held                      bool
		count, watched, unwatched time.Duration
		want                      time.Duration
	}
	for name, looks := range map[string][]look{
		"never held":            {{count: 0, watched: 5}, {count: 0, watched: 5, unwatched: 20}},
		"all of it watched":     {{true, 0, 3, 5, 0}, {true, 3, 0, 5, 0}},
		"none of it watched":    {{true, 4, 0, 5, 4}},
		"known a round later":   {{true, 0, 1, 5, 0}, {true, 0, 1, 0, 0}, {true, 9, 0, 5, 7}},
		"known when it runs":    {{true, 0, 1, 5, 0}, {false, 4, 9, 0, 3}},
		"a second suspension":   {{true, 4, 0, 5, 4}, {false, 4, 7, 0, 0}, {true, 6, 0, 5, 2}},
		"more than there was":   {{true, 40, 0, 5, 5}, {true, 40, 0, 5, 0}},
		"several at the engine": {{true, 0, 2, 10, 0}, {true, 24, 0, 0, 10}},
	} {
		t.Run(name, func(t *testing.T) {
			var tl tail
			for i, l := range looks {
				if got := tl.observe(l.held, l.count, l.watched, l.unwatched); got != l.want {
					t.Errorf("look %d: late %d, want %d", i, got, l.want)
				}
			}
		})
	}
}

func TestWhatThePolicyIsTold(t *testing.T) {
	s := newScene(t)
	used, waiting, running, ended, idle := s.join(1, 1, 1), s.join(2, 2, 2), s.join(3, 3, 3), s.join(4, 4, 4), s.join(5, 5)
	s.sched.Changed(0) // from here on kernels count
	waiting.o.Page.Context(0).SetBacklog(true)
	running.o.Page.Context(0).AddFetched()
	ended.o.Page.Context(0).AddFetched()
	ended.o.Page.Context(0).AddFinished(1*ms, 0, false) // too short to be seen
	_, _ = used, idle

	p := phase(2*ms, busy(1, 1*ms))
	p.Last, p.Running = 3, true
	s.sched.PollEnded(&p)
	want := []fairshare.Guest{
		{ID: 1, Idle: 1 * ms, Weight: 1, Used: 1 * ms, Runs: 1, Active: true},
		{ID: 2, Idle: 1 * ms, Weight: 2, Active: true, Backlogged: true, Groups: 1},
		{ID: 3, Idle: 1 * ms, Weight: 3, Active: true, Backlogged: true, Running: true, Groups: 1},
		{ID: 4, Idle: 1 * ms, Weight: 4, Active: true},
		{ID: 5, Idle: 1 * ms, Weight: 5},
	}
	want[2].Requests.UnderWay = true
	want[3].Requests.Completed, want[3].Requests.Calls = 1, 1
	if diff := cmp.Diff(want, s.policy.states[1], cmpopts.IgnoreFields(fairshare.Requests{}, "First")); diff != "" {
		t.Errorf("guests (-want +got):\n%s", diff)
	}
	s.quiet(5*ms, 1*ms)
	s.policy.events[0].Guest = 0
	wantEvents := []fairshare.Event{
		{Kind: fairshare.Changed},
		{Kind: fairshare.Tick, Phase: fairshare.PollPhase, Length: 2 * ms, Watched: 2 * ms},
		{Kind: fairshare.Tick, Phase: fairshare.QuietPhase, Length: 5 * ms, Watched: 1 * ms},
	}
	if diff := cmp.Diff(wantEvents, s.policy.events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	// A kernel that ended is news once.
	if s.policy.states[2][3].Active {
		t.Error("a guest without work is still active a phase later")
	}
}

// TestFillsAreToldLikeKernels: a guest whose memory is being filled has work on the GPU.
func TestFillsAreToldLikeKernels(t *testing.T) {
	s := newScene(t)
	g := s.join(1, 1, 1)
	g.o.Page.Context(0).SetFilling(true)
	s.poll(2 * ms)
	last := s.policy.states[len(s.policy.states)-1][0]
	if !last.Backlogged || !last.Active || last.Groups != 1 {
		t.Errorf("the policy was told %+v", last)
	}
	s.sched.mu.Lock()
	defer s.sched.mu.Unlock()
	s.sched.fresh[0] = true
	if got := s.sched.awaited(s.sched.guests); len(got) != 1 {
		t.Errorf("awaits %v, want the guest's context", got)
	}
}

// TestTimeWithoutWork is told to the policy where it is known: of guests with one context, whose
// executor says when that had something on the GPU, while they are not held.
func TestTimeWithoutWork(t *testing.T) {
	s := newScene(t)
	one, old, two := s.join(1, 1, 3), s.join(2, 1, 4), s.join(3, 1, 5, 6)
	for _, g := range []*Guest{one, two} {
		g.o.Page.Context(0).SetWorking(true, s.clock.Now())
	}
	s.poll(10 * ms)
	s.clock.Advance(2 * ms)
	one.o.Page.Context(0).SetWorking(false, s.clock.Now())
	old.o.Page.Context(0).AddFetched()
	s.poll(6 * ms)
	s.next(suspending(1))
	s.poll(10 * ms)
	s.poll(10 * ms)
	s.poll(10 * ms)
	for i, want := range [][]time.Duration{{0, 0, 0}, {4500 * time.Microsecond, 0, 0}, {10 * ms, 0, 0}, {0, 0, 0}, {0, 0, 0}} {
		for j, w := range want {
			if got := s.policy.states[i][j].NoWork; got != w {
				t.Errorf("phase %d: guest %d is said to have had no work for %v, want %v", i, j+1, got, w)
			}
		}
	}
}

// Where polling is in pieces, both phases of a round are told of at its end. Each has its part of
// the time without work, and kernels that no piece has seen.
func TestRoundInPieces(t *testing.T) {
	s := newScene(t)
	g, idle := s.join(1, 1, 3), s.join(2, 1, 4)
	c := g.o.Page.Context(0)
	c.SetWorking(true, s.clock.Now())
	s.poll(4 * ms)
	s.policy.states, s.policy.events = nil, nil
	const rounds = 4
	for i := range rounds {
		c.SetWorking(true, s.clock.Now())
		s.clock.Advance(6 * ms)
		c.AddFetched()
		c.AddFinished(10*time.Microsecond, 0, false)
		c.SetWorking(false, s.clock.Now())
		s.clock.Advance(18 * ms)
		if i%2 == 1 {
			c.SetWorking(true, s.clock.Now()) // whatever it does as the round ends
		}
		s.sched.QuietEnded(&accounting.Quiet{Watched: phase(ms / 10), Unwatched: 20*ms - ms/10, Spread: true})
		s.clock.Advance(20 * time.Microsecond)
		p := phase(4 * ms)
		s.sched.PollEnded(&p)
		if !g.Status(0).Active || g.Status(0).Entitled != 1 || idle.Status(0).Active {
			t.Errorf("round %d: shown as active %v, entitled to %v; the idle one as active %v", i, g.Status(0).Active, g.Status(0).Entitled, idle.Status(0).Active)
		}
	}
	for i, st := range s.policy.states {
		length := s.policy.events[i].Length
		want := length * 3 / 4
		if got := st[0].NoWork; got < want-length/100 || got > want+length/100 || !st[0].Active || st[1].Active {
			t.Errorf("phase %d of %v: said to have had no work for %v, want %v; active %v, %v", i, length, got, want, st[0].Active, st[1].Active)
		}
	}
}

// TestTimeWithoutWorkUnwatched: the time without work is known also for a quiet phase of which
// nothing was watched.
func TestTimeWithoutWorkUnwatched(t *testing.T) {
	s := newScene(t)
	c := s.join(1, 1, 3).o.Page.Context(0)
	c.SetWorking(true, s.clock.Now())
	s.poll(4 * ms)
	s.clock.Advance(5 * ms)
	c.SetWorking(false, s.clock.Now())
	s.quiet(15*ms, 0)
	c.SetWorking(true, s.clock.Now())
	s.poll(4 * ms)
	for i, want := range []time.Duration{0, 11250 * time.Microsecond, 0} {
		if got := s.policy.states[i][0].NoWork; got != want {
			t.Errorf("phase %d: said to have had no work for %v, want %v", i, got, want)
		}
	}
}

func TestVerdictsReachThePageAndAreCounted(t *testing.T) {
	s := newScene(t)
	g := s.join(1, 1, 1)
	verdict := func() ipc.SuspendWord { return g.o.Page.SuspendWord(s.clock.Now()) }

	s.next(suspending(1))
	s.poll(1 * ms)
	if verdict() != ipc.Suspend {
		t.Fatal("not suspended")
	}
	s.quiet(5*ms, 0)
	s.next(suspending(1)) // as before
	s.poll(1 * ms)
	v := g.Status(s.clock.Now())
	if v.Bill.Suspensions != 1 || v.Bill.Suspended != 6*ms || !v.Suspended {
		t.Errorf("while held: %+v", v)
	}
	s.next(resume(1))
	s.poll(1 * ms)
	s.clock.Advance(time.Minute)
	v = g.Status(s.clock.Now())
	if v.Bill.Suspensions != 1 || v.Bill.Suspended != 7*ms || v.Suspended || verdict() != ipc.Run {
		t.Errorf("after it: %+v", v)
	}
	// A new daemon finds all of it.
	want := ipc.Bill{Suspended: 7 * ms, Suspensions: 1}
	if diff := cmp.Diff(want, g.o.Page.Bill()); diff != "" {
		t.Errorf("bill (-want +got):\n%s", diff)
	}
}

func TestPlanAfterVerdicts(t *testing.T) {
	s := newScene(t)
	a := s.join(1, 1, 1, 2)
	s.join(2, 1, 3)
	slot := a.o.Page.Context(1)
	slot.AddFetched()
	poll, _ := s.sched.planner.Mean(accounting.Load{Active: 1})

	s.next(suspending(1), suspending(2))
	got := s.poll(1*ms, busy(2, 1*ms))
	want := accounting.Plan{Load: accounting.Load{Active: 1, Allocated: 3}, WatchOn: poll, Await: []accounting.GroupID{1, 2}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("plan after verdicts (-want +got):\n%s", diff)
	}
	slot.AddFinished(1*ms, 0, false)
	got = s.poll(1 * ms) // nothing new
	if got.WatchOn != 0 || len(got.Await) != 0 {
		t.Errorf("plan without new verdicts: %+v", got)
	}
	s.sched.gpu.Watch.Piece = 100 * time.Microsecond
	s.next(resume(1))
	if got := s.poll(1 * ms); got.WatchOn != 0 {
		t.Errorf("polls on for %v although it polls all over the round", got.WatchOn)
	}
	// A guest counts in the phases' length for a second after it had work.
	if s.clock.Advance(stayActive - 2*ms); s.poll(0).Load.Active != 1 {
		t.Error("the load follows at once")
	}
	if s.clock.Advance(2 * ms); s.poll(0).Load.Active != 0 {
		t.Error("the load does not follow")
	}
}

func TestPolicyChangesAtRunTime(t *testing.T) {
	s := newScene(t)
	a, b := s.join(1, 1, 1), s.join(2, 1, 2)
	if err := s.sched.SetPolicy("dfq"); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		a.o.Page.Context(0).SetBacklog(true)
		b.o.Page.Context(0).SetBacklog(true)
		s.poll(2*ms, busy(1, 2*ms-ms/8), busy(2, ms/8))
		s.quiet(10*ms, 0)
	}
	if !a.Suspended() || b.Suspended() {
		t.Fatalf("held: a %v, b %v; want a alone", a.Suspended(), b.Suspended())
	}
	if err := s.sched.SetPolicy("lottery"); err == nil {
		t.Error("an unknown policy was taken")
	}
	if err := s.sched.SetPolicy("none"); err != nil {
		t.Fatal(err)
	}
	s.sched.Changed(0)
	if a.Suspended() || a.o.Page.StoredSuspendWord() != ipc.Run {
		t.Error("held under policy none")
	}
}

// TestNobodyIsSuspendedForAGuestThatUsesNothing: other guests are not suspended again and again for
// a guest that shows work all the time and never executes.
func TestNobodyIsSuspendedForAGuestThatUsesNothing(t *testing.T) {
	s := newScene(t)
	a, b := s.join(1, 1, 1), s.join(2, 1, 2)
	if err := s.sched.SetPolicy("dfq"); err != nil {
		t.Fatal(err)
	}
	held := 0
	for range 200 {
		a.o.Page.Context(0).SetBacklog(true)
		b.o.Page.Context(0).SetBacklog(true)
		if a.Suspended() {
			held++
			s.poll(2 * ms)
		} else {
			s.poll(2*ms, busy(1, 2*ms))
		}
		s.quiet(10*ms, 0)
	}
	// One suspension shows that the guest does not use the time.
	if held > 2 {
		t.Errorf("suspended in %d rounds of 200 for a guest that never executed", held)
	}
}

func TestWeightChangesEntitlement(t *testing.T) {
	s := newScene(t)
	a, b, c := s.join(1, 1, 1), s.join(2, 1, 2), s.join(3, 8, 3)
	a.o.Page.Context(0).SetBacklog(true)
	b.o.Page.Context(0).SetBacklog(true)
	s.poll(1*ms, busy(1, ms/2), busy(2, ms/2))
	want := func(part ...float64) {
		t.Helper()
		for i, g := range []*Guest{a, b, c} {
			v := g.Status(0)
			if v.Entitled != part[i] {
				t.Errorf("guest %s is entitled to %v, want %v", g.o.Name, v.Entitled, part[i])
			}
		}
	}
	want(0.5, 0.5, 0) // c has no work
	weigh(b, 3)
	s.sched.Changed(2)
	want(0.25, 0.75, 0)
	if v := a.Status(0); v.Share != 0.5 || v.Bill.Used != ms/2 {
		t.Errorf("a weight changed what was used: share %v, %v", v.Share, v.Bill.Used)
	}
}

// TestQuotasHoldUnderPolicyNone: a cap is enforced under a policy that suspends no guest, and a
// guarantee suspends the others.
func TestQuotasHoldUnderPolicyNone(t *testing.T) {
	s := newScene(t)
	a, b := s.join(1, 1, 1), s.join(2, 1, 2)
	if err := s.sched.SetPolicy("none"); err != nil {
		t.Fatal(err)
	}
	grant := func(g *Guest, terms ipc.Terms) {
		terms.Weight = 1
		g.SetTerms(terms)
		s.sched.Changed(g.id)
	}
	// rounds runs n rounds, in which a uses the whole GPU unless it is suspended, and b only then.
	rounds := func(n int) (aHeld, bHeld int) {
		for range n {
			a.o.Page.Context(0).SetBacklog(true)
			b.o.Page.Context(0).SetBacklog(true)
			who := uint16(1)
			if a.Suspended() {
				who = 2
				aHeld++
			}
			if b.Suspended() {
				bHeld++
			}
			s.poll(2*ms, busy(accounting.GroupID(who), 2*ms))
			s.quiet(10*ms, 0)
		}
		return aHeld, bHeld
	}
	limit, guarantee := 0.25, 0.4
	grant(a, ipc.Terms{Cap: limit})
	if held, other := rounds(100); held < 73 || held > 77 || other > 0 {
		t.Errorf("held for %d rounds of 100 with a cap of %v, the other for %d", held, limit, other)
	}
	if v := a.Status(0); v.Entitled != 0.25 {
		t.Errorf("entitled to %v with a cap of %v", v.Entitled, limit)
	}
	grant(a, ipc.Terms{})
	if a.Suspended() {
		t.Error("held for a cap that there is no more")
	}
	grant(b, ipc.Terms{Guarantee: guarantee})
	if held, other := rounds(100); held < 36 || held > 42 || other > 0 {
		t.Errorf("held for %d rounds of 100 for a guarantee of %v, which held the other for %d", held, guarantee, other)
	}
}

func TestShareForgetsWithTime(t *testing.T) {
	s := newScene(t)
	a, b := s.join(1, 1, 1), s.join(2, 1, 2)
	s.poll(memory, busy(1, memory))
	s.quiet(memory, 0)
	s.poll(memory, busy(2, memory)) // 2·memory for b, and as long for a to fade
	// b's 2·memory fade no more than what a used two memories ago.
	got, want := a.Status(0).Share, math.Exp(-2)/(math.Exp(-2)+2)
	if math.Abs(got-want) > 1e-6 {
		t.Errorf("share = %v, want %v", got, want)
	}
	if sum := got + b.Status(0).Share; math.Abs(sum-1) > 1e-9 {
		t.Errorf("shares add up to %v", sum)
	}
}

func TestGuestsComeAndGo(t *testing.T) {
	s := newScene(t)
	s.join(1, 1, 1)
	s.join(2, 1, 2)
	s.poll(1*ms, busy(1, 1*ms))
	s.leave(0)
	s.sched.Changed(1)
	// Its group is charged to the next guest that has it.
	s.join(3, 1, 1)
	s.sched.Changed(3)
	s.poll(1*ms, busy(1, 1*ms))
	s.wantUsed(0, 1*ms)
	if n := s.sched.Status().Guests; n != 2 {
		t.Errorf("%d guests remembered, want 2", n)
	}
}

func TestFailedLetsEverybodyRun(t *testing.T) {
	s := newScene(t)
	g := s.join(1, 1, 1)
	s.next(suspending(1))
	s.poll(1 * ms)
	s.sched.Failed(errors.New("fell off the bus"))
	if g.Suspended() || g.o.Page.StoredSuspendWord() != ipc.Run {
		t.Error("a guest is held on a GPU that nobody watches")
	}
	if v := s.sched.Status(); v.Problem != "fell off the bus" {
		t.Errorf("problem %q", v.Problem)
	}
}

// TestNobodyIsSuspendedAfterTheEnd: a sampler may end a phase after the scheduler has stopped, and
// guests come and go after the GPU has failed.
func TestNobodyIsSuspendedAfterTheEnd(t *testing.T) {
	for name, end := range map[string]func(*Scheduler){
		"stop": (*Scheduler).Stop,
		"fail": func(s *Scheduler) { s.Failed(errors.New("fell off the bus")) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			a, b := s.join(1, 1, 1), s.join(2, 1, 2)
			s.next(suspending(1))
			s.poll(1 * ms)
			end(s.sched)
			s.next(suspending(1), suspending(2))
			s.poll(1 * ms)
			s.next(suspending(1), suspending(2))
			s.quiet(5*ms, 0)
			s.next(suspending(1), suspending(2))
			s.sched.Changed(1)
			for _, g := range []*Guest{a, b} {
				if g.Suspended() || g.o.Page.StoredSuspendWord() != ipc.Run {
					t.Errorf("guest %s is held", g.o.Name)
				}
			}
		})
	}
}

// TestRequests: a guest's requests are its kernels, and the first since the policy was last asked
// began as long ago as the guest has had any since then.
func TestRequests(t *testing.T) {
	var r recent
	w := Activity{Worked: 2 * ms}
	w.Counters.Kernels = 3
	if diff := cmp.Diff(fairshare.Requests{Completed: 3, Calls: 3, First: 8 * ms}, r.requests(10*ms, &w)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	w.Counters.Kernels, w.Outstanding, w.Worked = 4, 1, 3*ms
	if diff := cmp.Diff(fairshare.Requests{Completed: 4, Calls: 4, UnderWay: true, First: 19 * ms}, r.requests(20*ms, &w)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestPolicySetAgain: setting the present policy again keeps its account of the guests.
func TestPolicySetAgain(t *testing.T) {
	s := newScene(t)
	set := func(name string) any {
		t.Helper()
		if err := s.sched.SetPolicy(name); err != nil {
			t.Fatal(err)
		}
		return s.sched.policy
	}
	first := set("dfq")
	if set("dfq") != first {
		t.Error("it begins anew")
	}
	if set("hpf") == first || set("dfq") == first {
		t.Error("another policy has the first one's account")
	}
}
