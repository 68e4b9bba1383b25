package scheduler

import (
	"context"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vgpud/fairshare"
	"vgpud/internal/proctest"
	"vgpud/mediator/ipc"
	"vgpud/mediator/ipc/slotstate"
	"vgpud/mediator/launchqueue"
)

// submit has a guest's executor claim a slot for a launch.
func (s *scene) submit(g *Guest, v ipc.Launch) ipc.Claim {
	s.t.Helper()
	s.clock.Advance(time.Microsecond)
	v.Arrived = s.clock.Now()
	c, ok := g.o.Page.Claim(0, &v)
	if !ok {
		s.t.Fatal("no slot for a launch")
	}
	return c
}

// byKernel makes the scene's policy decide about launches.
func (s *scene) byKernel() {
	s.sched.mu.Lock()
	s.sched.setByKernel(true)
	s.sched.mu.Unlock()
	s.sched.Changed(0)
}

// kinds returns the kinds of the events that the policy was told of since the last call.
func (s *scene) kinds() (k []fairshare.EventKind) {
	for _, ev := range s.policy.events {
		k = append(k, ev.Kind)
	}
	s.policy.events = nil
	return k
}

func run(id fairshare.LaunchID) fairshare.Verdict {
	return fairshare.Verdict{Launch: id, Action: fairshare.Run}
}

func evict(victim fairshare.GuestID, id fairshare.LaunchID, sake fairshare.GuestID) fairshare.Verdict {
	return fairshare.Verdict{Guest: victim, Launch: id, Action: fairshare.Evict, BelowSM: math.MaxUint32, For: sake}
}

func TestVerdictsReachLaunches(t *testing.T) {
	s := newScene(t)
	batch, urgent := s.join(1, 1, 1), s.join(2, 1, 2)
	if batch.o.Page.Mode() != ipc.ModeFree {
		t.Fatal("launches wait before any policy wants it")
	}
	s.byKernel()
	if batch.o.Page.Mode() != ipc.ModeByKernel || urgent.o.Page.Mode() != ipc.ModeByKernel {
		t.Fatal("launches don't wait")
	}
	s.kinds()

	long := s.submit(batch, ipc.Launch{Evictable: true, Form: 1, Kernel: 7})
	s.next(run(1))
	s.sched.LaunchesChanged()
	if long.State() != slotstate.ToRun {
		t.Fatalf("the batch launch is %v after Run", long.State())
	}
	long.Start(s.clock.Now())

	// Both verdicts at once: the hardware takes the second as the first drains.
	short := s.submit(urgent, ipc.Launch{Priority: 9})
	s.next(evict(1, 1, 2), run(2))
	s.sched.LaunchesChanged()
	if long.State() != slotstate.ToEvict || short.State() != slotstate.ToRun {
		t.Fatalf("the batch launch is %v, the urgent one %v", long.State(), short.State())
	}
	short.Start(s.clock.Now())
	if got := s.sched.Status(); got.Launches != (launchqueue.Counts{Running: 1, Leaving: 1}) || !got.ByKernel {
		t.Errorf("launches %+v, by kernel %v", got.Launches, got.ByKernel)
	}
	s.clock.Advance(ms / 4)
	long.Leave(s.clock.Now(), ms)
	s.sched.LaunchesChanged()
	short.Finish(ms)
	s.next(run(1))
	s.sched.LaunchesChanged()
	if long.State() != slotstate.ToRun {
		t.Errorf("the batch launch is %v in the end", long.State())
	}
	want := []fairshare.EventKind{fairshare.Arrived, fairshare.Arrived, fairshare.Evicted, fairshare.Finished}
	if diff := cmp.Diff(want, s.kinds()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}

	// The next launch is expected to take as long.
	long.Start(s.clock.Now())
	long.Finish(9 * ms)
	s.sched.LaunchesChanged()
	s.submit(batch, ipc.Launch{Evictable: true, Form: 1, Kernel: 7})
	s.sched.LaunchesChanged()
	if l := s.policy.launches[len(s.policy.launches)-1]; len(l) != 1 || l[0].Predicted != 9*ms || l[0].EvictionCost != ms/4 {
		t.Errorf("the policy is shown %+v", l)
	}

	// The urgent guest is charged, and the policy told so at the end of the phase.
	b := urgent.Bill()
	if b.Caused != 1 || b.Charged != ms/4 {
		t.Errorf("the urgent guest caused %d evictions, and is charged with %v", b.Caused, b.Charged)
	}
	// The page has the bill for the next daemon.
	if b := urgent.o.Page.Bill(); b.Caused != 1 || b.Charged != ms/4 {
		t.Errorf("bill: %+v", b)
	}
	s.poll(1 * ms)
	last := s.policy.states[len(s.policy.states)-1]
	if last[0].Charged != -ms/4 || last[1].Charged != ms/4 {
		t.Errorf("the policy is told of charges of %v and %v", last[0].Charged, last[1].Charged)
	}
	if e := s.sched.Status().Evictions; e.Count != 1 || e.P50 != ms/4 {
		t.Errorf("evictions: %+v", e)
	}
	for g, want := range map[*Guest]uint64{batch: 1, urgent: 0} {
		if _, _, e := s.sched.LaunchesOf(g); e.Count != want || e.Sum != time.Duration(want)*ms/4 {
			t.Errorf("evictions of guest %s: %+v", g.o.Name, e)
		}
	}
}

// TestLaunchOnItsWayIsToldToLeave: a launch is told to leave before it is on the GPU.
func TestLaunchOnItsWayIsToldToLeave(t *testing.T) {
	s := newScene(t)
	g := s.join(1, 1, 1)
	s.byKernel()
	c := s.submit(g, ipc.Launch{Evictable: true, Form: 1})
	s.next(run(1))
	s.sched.LaunchesChanged()
	s.next(evict(1, 1, 1))
	s.sched.Changed(0)
	if c.State() != slotstate.ToEvict {
		t.Errorf("it is %v", c.State())
	}
	// If it does not give its turn up soon, nobody waits for it.
	if at := s.sched.NextTimer(); at != s.clock.Now()+launchqueue.TurnLimit {
		t.Errorf("reads again at %v, want in %v", at, launchqueue.TurnLimit)
	}
	c.Leave(s.clock.Now(), 0)
	s.sched.LaunchesChanged()
	if k := s.kinds(); k[len(k)-1] != fairshare.Evicted {
		t.Errorf("the policy is told of %v", k)
	}
}

// TestTimers: a wait for an instant is ended only for an earlier one, and what was put off is not
// done before.
func TestTimers(t *testing.T) {
	s := newScene(t)
	s.join(1, 1, 1)
	s.byKernel()
	a, waits := &s.sched.launches.timers, 0
	a.rearm = func() {
		a.armed = a.next() // as the goroutine that waits does then
		waits++
	}
	now := s.clock.Now()
	for _, step := range []struct {
		in   time.Duration // 0: never
		want int
	}{{5 * ms, 1}, {8 * ms, 1}, {0, 1}, {3 * ms, 2}, {3 * ms, 2}, {9 * ms, 2}} {
		if a.setPolicy(now, step.in); waits != step.want {
			t.Errorf("in %v: %d waits, want %d", step.in, waits, step.want)
		}
	}
	s.clock.Advance(5 * ms)
	told := len(s.policy.states)
	s.sched.RunTimers()
	if n := len(s.policy.states) - told; n != 0 || a.next() != now+9*ms {
		t.Errorf("the policy was asked %d times, and next at %v", n, a.next())
	}
	s.clock.Advance(4 * ms)
	s.sched.RunTimers()
	if n := len(s.policy.states) - told; n != 1 || a.next() != 0 {
		t.Errorf("the policy was asked %d times, and next at %v", n, a.next())
	}
}

// TestUnresponsiveKernelIsCharged: a kernel that stays when told to leave is charged to its own
// guest from then on.
func TestUnresponsiveKernelIsCharged(t *testing.T) {
	s := newScene(t)
	own, other := s.join(1, 1, 1), s.join(2, 1, 2)
	s.sched.SetEvictionDeadline(5 * ms)
	s.byKernel()
	c := s.submit(own, ipc.Launch{Evictable: true, Form: 1})
	s.next(run(1))
	s.sched.LaunchesChanged()
	c.Start(s.clock.Now())
	s.next(evict(1, 1, 2))
	s.sched.Changed(0)
	if _, asked, deadline := c.EvictionRequest(); deadline != asked+5*ms {
		t.Fatalf("asked at %v to leave by %v", asked, deadline)
	}
	s.clock.Advance(20 * ms)
	c.SetEvictable(false)
	s.sched.LaunchesChanged()
	c.Abandon(30 * ms)
	s.sched.LaunchesChanged()
	p, q := own.Bill(), other.Bill()
	if p.Caused != 1 || p.Charged != 20*ms || q.Charged != 0 {
		t.Errorf("the guest is charged %v for %d, the one that asked %v", p.Charged, p.Caused, q.Charged)
	}
}

// TestDeadlineAllowsForOthers: a kernel that is not on the GPU can't see that it is to leave. It
// may take as much longer as the others that are there may run.
func TestDeadlineAllowsForOthers(t *testing.T) {
	s := newScene(t)
	g := s.joinWith(1, GuestOptions{Terms: ipc.Terms{Weight: 1}, TimeLimit: time.Second}, 1)
	other := s.joinWith(2, GuestOptions{Terms: ipc.Terms{Weight: 1}, TimeLimit: time.Minute}, 2, 3)
	s.sched.SetEvictionDeadline(5 * ms)
	s.byKernel()
	want := func(want time.Duration) {
		t.Helper()
		c := s.submit(g, ipc.Launch{Evictable: true, Form: 1})
		s.sched.LaunchesChanged()
		id := s.policy.events[len(s.policy.events)-1].Launch
		s.next(run(id))
		s.sched.Changed(0)
		c.Start(s.clock.Now())
		g.o.Page.Context(0).AddFetched()
		s.sched.LaunchesChanged()
		s.next(evict(1, id, 2))
		s.sched.Changed(0)
		if _, asked, deadline := c.EvictionRequest(); asked == 0 || want > 0 && deadline != asked+want || want == 0 && deadline != 0 {
			t.Errorf("asked at %v to leave by %v, want %v later", asked, deadline, want)
		}
		c.Finish(ms)
		g.o.Page.Context(0).AddFinished(ms, 0, false)
	}
	want(5 * ms)
	other.o.Page.Context(1).AddFetched()
	want(5*ms + time.Minute)
	other.o.Page.Context(0).AddFetched()
	other.o.Page.Context(0).AddFetched()
	want(5*ms + 3*time.Minute)
	g.o.Page.Context(0).AddFetched() // of another channel
	want(5*ms + 3*time.Minute + time.Second)
	other.SetTimeLimit(0)
	want(0)
}

// TestPolicyAboutGuestsCanEvict: under a policy about guests a launch does not wait, and one that
// runs can be told to leave; dfq does so when a guest is ahead.
func TestPolicyAboutGuestsCanEvict(t *testing.T) {
	s := newScene(t)
	g := s.join(1, 1, 1)
	s.join(2, 1, 2)
	c := s.submit(g, ipc.Launch{Evictable: true, Form: 1})
	c.Grant()
	c.Start(s.clock.Now())
	s.sched.LaunchesChanged()
	if k := s.kinds(); len(k) != 0 {
		t.Errorf("a policy about guests is told of %v", k)
	}
	s.next(suspending(1), evict(1, 1, 1))
	s.poll(1 * ms)
	if c.State() != slotstate.ToEvict || !g.Suspended() {
		t.Errorf("the launch is %v, its guest suspended %v", c.State(), g.Suspended())
	}
	if l := s.policy.launches[0]; len(l) != 1 || !l[0].Running || !l[0].Evictable {
		t.Errorf("the policy was shown %+v", l)
	}
	c.Leave(s.clock.Now(), ms)
	s.quiet(5*ms, 0)
	if k := s.kinds(); !slices.Contains(k, fairshare.Evicted) {
		t.Errorf("the policy is told of %v, not of the eviction", k)
	}
}

// TestPoliciesChangeWithoutLosingLaunches changes between all pairs of policies with launches in
// every state.
func TestPoliciesChangeWithoutLosingLaunches(t *testing.T) {
	for _, from := range fairshare.Names() {
		for _, to := range fairshare.Names() {
			t.Run(from+" to "+to, func(t *testing.T) {
				s := newScene(t)
				a, b := s.join(1, 1, 1), s.join(2, 1, 2)
				x := executors{scene: s}
				turn := func(policy string) {
					if err := s.sched.SetPolicy(policy); err != nil {
						t.Fatal(err)
					}
					s.sched.Changed(0)
				}
				turn(from)
				for i := range 3 {
					x.submit(a, ipc.Launch{Evictable: true, Form: 1, Priority: i, Predicted: 10 * ms})
					x.submit(b, ipc.Launch{Evictable: i == 0, Form: 1, Priority: 2 - i, Predicted: ms})
				}
				x.step(false)
				turn(to)
				x.submit(a, ipc.Launch{Priority: 15, Predicted: ms})
				x.drain()
			})
		}
	}
}

// executors carry out launches, each of which takes two steps of a millisecond.
type executors struct {
	*scene
	live []execution
}

type execution struct {
	ipc.Claim
	page *ipc.ControlPage
	left int
}

func (x *executors) submit(g *Guest, v ipc.Launch) {
	x.live = append(x.live, execution{x.scene.submit(g, v), g.o.Page, 2})
	x.sched.LaunchesChanged()
}

// step carries out what was decided, and a part of what runs.
func (x *executors) step(finish bool) {
	var still []execution
	for _, e := range x.live {
		if e.page.Mode() == ipc.ModeFree && e.page.StoredSuspendWord() == ipc.Run {
			e.Grant()
		}
		switch e.State() {
		case slotstate.ToRun:
			e.Start(x.clock.Now())
		case slotstate.ToEvict:
			e.Leave(x.clock.Now(), ms)
		case slotstate.Running:
			if e.left--; finish && e.left <= 0 {
				e.Finish(2 * ms)
				continue
			}
		}
		still = append(still, e)
	}
	x.live = still
	x.clock.Advance(ms)
	x.sched.LaunchesChanged()
	x.sched.RunTimers()
}

// drain goes on until all launches have ended.
func (x *executors) drain() {
	x.t.Helper()
	for i := 0; len(x.live) > 0; i++ {
		if i == 2000 {
			x.t.Fatalf("%d launches never end, the first is %v", len(x.live), x.live[0].State())
		}
		x.step(true)
		if i%10 == 9 {
			x.quiet(5*ms, 0)
			x.poll(ms)
		}
	}
}

// TestLaunchesDontWaitAfterStop: launches don't wait for a scheduler that has stopped.
func TestLaunchesDontWaitAfterStop(t *testing.T) {
	s := newScene(t)
	g := s.join(1, 1, 1)
	s.byKernel()
	s.submit(g, ipc.Launch{})
	s.sched.Stop()
	if g.o.Page.Mode() != ipc.ModeFree {
		t.Error("launches wait for a daemon that ends")
	}
	s.sched.Changed(0)
	s.byKernel()
	if g.o.Page.Mode() != ipc.ModeFree {
		t.Error("launches wait for a daemon that has ended")
	}
}

// wakeful is a policy that wants to be asked again.
type wakeful struct {
	asked chan fairshare.Event
	in    []time.Duration
}

func (w *wakeful) Decide(_ time.Duration, ev fairshare.Event, _ fairshare.State) (v []fairshare.Verdict, next time.Duration) {
	if len(w.in) > 0 {
		next, w.in = w.in[0], w.in[1:]
	}
	w.asked <- ev
	return nil, next
}

func TestPolicyIsAskedWhenItWantsToBe(t *testing.T) {
	s := newScene(t)
	w := &wakeful{asked: make(chan fairshare.Event, 8), in: []time.Duration{10 * ms, 3 * ms, 0, 0}}
	s.sched.usePolicy("", w, false)
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	wg.Go(func() { s.sched.keepTime(ctx, newClockAlarm(&s.clock)) })
	want := func(kind fairshare.EventKind) {
		t.Helper()
		if ev := <-w.asked; ev.Kind != kind || ev.Phase != fairshare.NoPhase {
			t.Errorf("asked about %v of phase %d, want %v", ev.Kind, ev.Phase, kind)
		}
	}
	s.sched.Changed(0) // in 10 ms
	want(fairshare.Changed)
	s.clock.AwaitWaiters(1)
	s.clock.Advance(10 * ms)
	want(fairshare.Tick) // in 3 ms
	s.clock.AwaitWaiters(1)
	s.clock.Advance(3 * ms)
	want(fairshare.Tick) // not any more
	s.sched.Changed(0)
	want(fairshare.Changed)
	cancel()
	wg.Wait()
	if len(w.asked) != 0 {
		t.Errorf("asked about %v for no reason", <-w.asked)
	}
}

// TestListenerIsWoken by a ring, without polling.
func TestListenerIsWoken(t *testing.T) {
	s := newScene(t)
	g := s.join(1, 1, 1)
	w := &wakeful{asked: make(chan fairshare.Event, 8)}
	s.sched.usePolicy("", w, false)
	s.byKernel()
	<-w.asked
	s.sched.Listen(g)
	c := s.submit(g, ipc.Launch{}) // which rings
	if ev := <-w.asked; ev.Kind != fairshare.Arrived || ev.Launch != 1 {
		t.Errorf("told of %+v", ev)
	}
	c.Abandon(0)
	if ev := <-w.asked; ev.Kind != fairshare.Finished || ev.Launch != 1 {
		t.Errorf("told of %+v", ev)
	}
	// Under a policy about guests there is no listener, until there is another policy.
	listens := func() bool {
		s.sched.mu.Lock()
		defer s.sched.mu.Unlock()
		return g.listens
	}
	if !listens() {
		t.Error("nobody listens")
	}
	s.sched.mu.Lock()
	s.sched.setByKernel(false)
	s.sched.mu.Unlock()
	s.sched.Changed(0)
	<-w.asked
	proctest.Until(t, "its listener ends", func() bool { return !listens() })
	s.submit(g, ipc.Launch{})
	g.o.Page.WakeDaemon()
	s.byKernel()
	if ev := <-w.asked; ev.Kind != fairshare.Arrived && ev.Kind != fairshare.Changed {
		t.Errorf("told of %+v", ev)
	}
	s.leave(0)
}
