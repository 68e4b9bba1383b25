package launchqueue

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"vgpud/fairshare"
	"vgpud/mediator/ipc"
	"vgpud/mediator/ipc/slotstate"
)

const ms = time.Millisecond

// fixture is a queue with guests whose executors are the test's.
type fixture struct {
	t       testing.TB
	queue   Queue
	guests  []Guest
	now     time.Duration
	changes []string // that the queue reported
}

func newFixture(t testing.TB, guests int) *fixture {
	f := &fixture{t: t, now: time.Hour}
	for i := range guests {
		page, err := ipc.NewControlPage()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := page.Close(); err != nil {
				t.Error(err)
			}
		})
		page.Beat(f.now)
		page.Context(0).SetLeavesUnstarted()
		f.guests = append(f.guests, Guest{ID: fairshare.GuestID(i + 1), Slots: page, Ceiling: 15})
	}
	return f
}

// submit has an executor of a guest, counted from 1, take up a launch.
func (f *fixture) submit(guest int, v ipc.Launch) ipc.Claim {
	f.now += time.Microsecond
	v.Arrived = f.now
	c, ok := f.guests[guest-1].Slots.(*ipc.ControlPage).Claim(0, &v)
	if !ok {
		f.t.Fatalf("guest %d has no slot for a launch", guest)
	}
	return c
}

// start has the executor put a launch on the GPU that was let there.
func (f *fixture) start(c ipc.Claim) {
	f.t.Helper()
	if c.State() != slotstate.ToRun {
		f.t.Fatalf("launch %d is %v, want it let to the GPU", c.Launch(), c.State())
	}
	f.now += time.Microsecond
	c.Start(f.now)
}

func (f *fixture) read() {
	f.queue.Read(f.now, f.guests, func(c Change) {
		name := [...]string{Appeared: "appeared", Left: "left", Ended: "ended", Gone: "gone", Unresponsive: "unresponsive", TurnUnused: "turn unused", Stuck: "stuck"}[c.Kind]
		if c.Took > 0 {
			name += fmt.Sprint(" in ", c.Took)
		}
		f.changes = append(f.changes, fmt.Sprintf("%d %s", c.Launch.ID, name))
	})
}

// events returns the events that the policy is told of, with the launches that it is shown at each:
// their numbers, a + if the launch runs and a - if it is to leave.
func (f *fixture) events() (s []string) {
	for {
		ev, ok := f.queue.Next()
		if !ok {
			return s
		}
		s = append(s, fmt.Sprintf("%v %d:%s", ev.Kind, ev.Launch, f.shown()))
	}
}

func (f *fixture) shown() (s string) {
	for _, l := range f.launches() {
		s += fmt.Sprintf(" %d", l.ID)
		if l.Running {
			s += "+"
		}
		if l.Evicting {
			s += "-"
		}
	}
	return s
}

func (f *fixture) launches() []fairshare.Launch {
	return f.queue.Launches(f.now, 16, func(*Launch) time.Duration { return 7 })
}

// wantEvents reads the slots and compares what the policy is told with want.
func (f *fixture) wantEvents(want ...string) {
	f.t.Helper()
	f.read()
	if diff := cmp.Diff(want, f.events(), cmpopts.EquateEmpty()); diff != "" {
		f.t.Errorf("the policy is told (-want +got):\n%s", diff)
	}
}

func (f *fixture) wantChanges(want ...string) {
	f.t.Helper()
	if diff := cmp.Diff(want, f.changes, cmpopts.EquateEmpty()); diff != "" {
		f.t.Errorf("the queue reports (-want +got):\n%s", diff)
	}
	f.changes = nil
}

// leaves is a launch that leaves the GPU when told to.
var leaves = ipc.Launch{Evictable: true, Form: 1}

func TestOneEventAtATime(t *testing.T) {
	f := newFixture(t, 2)
	first := f.submit(2, ipc.Launch{})
	f.submit(1, ipc.Launch{})
	f.wantEvents("arrived 2: 2", "arrived 1: 2 1") // in order of arrival, of whichever guest
	f.wantEvents()
	if !f.queue.Find(2).Run(f.now) || f.queue.Find(2).Run(f.now) {
		t.Error("a launch is let run once")
	}
	f.start(first)
	f.submit(2, ipc.Launch{})
	first.Finish(3 * ms)
	f.wantEvents("finished 2: 1", "arrived 3: 1 3")
	f.wantChanges("1 appeared", "2 appeared", "2 ended", "3 appeared")
}

func TestLaunchesAreShown(t *testing.T) {
	f := newFixture(t, 1)
	c := f.submit(1, ipc.Launch{
		Evictable: true, Form: 2, Priority: 9, Blocks: 1000, PerSM: 4, Tasks: 4000, Threads: 128, Kernel: 0xabc, Predicted: 5 * ms,
	})
	f.wantEvents("arrived 1: 1")
	f.queue.Find(1).Predicted = 6 * ms
	want := fairshare.Launch{
		ID: 1, Guest: 1, Arrived: f.now, Priority: 9, Blocks: 1000, PerSM: 4, Predicted: 6 * ms, Evictable: true, EvictionCost: 7,
	}
	show := func(what string) {
		t.Helper()
		if diff := cmp.Diff([]fairshare.Launch{want}, f.launches()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	show("waiting")
	f.queue.Find(1).Run(f.now)
	want.Running = true
	show("let to the GPU")
	f.start(c)
	f.now += 2 * ms
	f.read()
	want.Used = 2 * ms
	show("running")
	f.queue.Find(1).Evict(4, f.now, 0)
	want.BelowSM = 4
	show("to leave some SMs")
	f.read()
	show("to leave some SMs, read again")
	c.Leave(f.now, 3*ms)
	f.read()
	f.events()
	want.Running, want.BelowSM, want.Used = false, 0, 3*ms
	show("left")
	f.queue.Find(1).Run(f.now)
	f.start(c)
	f.read()
	f.queue.Find(1).Evict(math.MaxUint32, f.now, 0)
	want.Running, want.Evicting = true, true
	show("to leave all")
}

func TestEvictionsAreSeen(t *testing.T) {
	f := newFixture(t, 1)
	c := f.submit(1, leaves)
	f.read()
	f.events()
	l := f.queue.Find(1)
	if l.Evict(math.MaxUint32, f.now, 0) {
		t.Error("a launch that waits was told to leave")
	}
	l.Run(f.now)
	f.start(c)
	f.wantEvents()
	if !l.Evict(math.MaxUint32, f.now, f.now+ms) || l.Evict(math.MaxUint32, f.now, f.now+ms) {
		t.Error("a launch is told to leave once")
	}
	if below, asked, deadline := c.EvictionRequest(); below != math.MaxUint32 || asked != f.now || deadline != f.now+ms {
		t.Errorf("its executor reads %d, %v, %v", below, asked, deadline)
	}
	f.now += ms / 2
	c.Leave(f.now, ms)
	f.wantEvents("evicted 1: 1")
	f.wantChanges("1 appeared", "1 left in 500µs")

	// Again, but it ends before it leaves.
	l.Run(f.now)
	f.start(c)
	f.read()
	l.Evict(math.MaxUint32, f.now, 0)
	c.Finish(2 * ms)
	f.wantEvents("finished 1:")
	f.wantChanges("1 ended")
}

// TestSomeSMs: a launch may be told to leave some of the SMs, then more of them, and then that it
// has all of them again.
func TestSomeSMs(t *testing.T) {
	f := newFixture(t, 1)
	c := f.submit(1, leaves)
	f.read()
	l := f.queue.Find(1)
	l.Run(f.now)
	f.start(c)
	f.wantEvents("arrived 1: 1+")
	says := func(below uint32) {
		t.Helper()
		f.read()
		if got, _, _ := c.EvictionRequest(); got != below || c.State() != slotstate.ToEvict {
			t.Errorf("it is %v, to leave %d SMs; want to evict, %d", c.State(), got, below)
		}
	}
	if !l.Evict(4, f.now, 0) {
		t.Fatal("not told to leave 4 SMs")
	}
	says(4)
	if l.Evict(3, f.now, 0) || !l.Evict(9, f.now, 0) {
		t.Error("it leaves more when told, and fewer never")
	}
	says(9)
	if !l.Run(f.now) || c.State() != slotstate.Running || l.Run(f.now) {
		t.Errorf("it does not have its SMs back: %v", c.State())
	}
	f.wantEvents()
	if l := f.launches()[0]; l.BelowSM != 0 || !l.Running || l.Evicting {
		t.Errorf("it is shown as %+v", l)
	}
	// How long it took to leave is not known: it went on on the other SMs.
	l.Evict(4, f.now, 0)
	f.changes = nil
	c.Leave(f.now+ms, ms)
	f.wantEvents("evicted 1: 1")
	f.wantChanges("1 left")
}

// TestEvictionOnTheWay: a launch that is on its way to the GPU gives its turn up when told to
// leave.
func TestEvictionOnTheWay(t *testing.T) {
	f := newFixture(t, 1)
	c := f.submit(1, leaves)
	f.read()
	l := f.queue.Find(1)
	l.Run(f.now)
	f.events()
	if !l.Evict(math.MaxUint32, f.now, 0) || c.State() != slotstate.ToEvict || l.Evict(math.MaxUint32, f.now, 0) {
		t.Fatalf("it is %v", c.State())
	}
	if got := f.shown(); got != " 1+-" {
		t.Errorf("the policy is shown%s", got)
	}
	f.now += ms / 4
	c.Leave(f.now, 0)
	f.wantEvents("evicted 1: 1")
	f.wantChanges("1 appeared", "1 left in 250µs")
	// Now it goes there, and the time that it waited was none of its use.
	l.Run(f.now)
	f.start(c)
	f.now += ms
	f.wantEvents()
	if got := f.launches()[0]; got.Used != ms || got.Evicting {
		t.Errorf("shown as %+v", got)
	}
}

// TestEvictionOnTheWayRecalled: it may stay on its way, and then goes to the GPU.
func TestEvictionOnTheWayRecalled(t *testing.T) {
	f := newFixture(t, 1)
	c := f.submit(1, leaves)
	f.read()
	l := f.queue.Find(1)
	l.Run(f.now)
	l.Evict(math.MaxUint32, f.now, 0)
	if !l.Run(f.now) || c.State() != slotstate.Running || c.Started() {
		t.Fatalf("it is %v, started %v", c.State(), c.Started())
	}
	f.now += ms
	c.Start(f.now)
	f.now += ms
	f.wantEvents("arrived 1: 1+")
	if got := f.launches()[0]; got.Used != ms {
		t.Errorf("shown as %+v", got)
	}
	c.Finish(ms)
	f.wantEvents("finished 1:")
}

// TestEvictionOnTheWayIgnored: a launch that neither gives its turn up nor starts is not waited
// for.
func TestEvictionOnTheWayIgnored(t *testing.T) {
	f := newFixture(t, 2)
	for i := range f.guests {
		f.guests[i].Mode = ipc.ModeByKernel
	}
	f.read()
	c := f.submit(1, leaves)
	f.wantEvents("arrived 1: 1")
	l := f.queue.Find(1)
	l.Run(f.now)
	l.Evict(math.MaxUint32, f.now, 0)
	f.submit(2, ipc.Launch{})
	f.wantEvents("arrived 2: 1+- 2")
	at, ok := f.queue.NextCheck()
	if !ok || at != f.now-time.Microsecond+TurnLimit {
		t.Errorf("reads again at %v, %v", at-f.now, ok)
	}
	f.now = at
	f.wantEvents("finished 1: 2")
	f.now += ms
	c.Leave(f.now, 0)
	f.now += minBackoff
	f.read()
	f.wantEvents("arrived 1: 1 2")
}

// TestEvictionOnTheWayOfAnOlderExecutor: the turn is taken back instead.
func TestEvictionOnTheWayOfAnOlderExecutor(t *testing.T) {
	f := newFixture(t, 1)
	f.guests[0].Slots.(*ipc.ControlPage).Context(0).Reset(1)
	c := f.submit(1, leaves)
	f.read()
	l := f.queue.Find(1)
	l.Run(f.now)
	f.events()
	if l.Evict(4, f.now, 0) || !l.Evict(math.MaxUint32, f.now, 0) || c.State() != slotstate.Ready {
		t.Fatalf("it is %v", c.State())
	}
	f.wantEvents("evicted 1: 1")
}

func TestLeavingUnasked(t *testing.T) {
	f := newFixture(t, 1)
	c := f.submit(1, leaves)
	f.read()
	f.queue.Find(1).Run(f.now)
	f.start(c)
	f.read()
	f.events()
	c.Leave(f.now, ms)
	f.wantEvents("evicted 1: 1")
	f.wantChanges("1 appeared", "1 left")
}

func TestUnresponsiveKernel(t *testing.T) {
	f := newFixture(t, 1)
	c := f.submit(1, leaves)
	f.read()
	l := f.queue.Find(1)
	l.Run(f.now)
	f.start(c)
	f.read()
	l.Evict(math.MaxUint32, f.now, f.now+1)
	c.SetEvictable(false)
	f.read()
	c.Abandon(ms)
	f.read()
	f.wantChanges("1 appeared", "1 unresponsive", "1 ended")
	if l.Evict(math.MaxUint32, f.now, 0) {
		t.Error("told to leave after its end")
	}
}

// TestSlotsAreReused: between two reads a slot may have become another launch's, or free.
func TestSlotsAreReused(t *testing.T) {
	f := newFixture(t, 2)
	var all []ipc.Claim
	for range ipc.MaxLaunchSlots {
		all = append(all, f.submit(1, ipc.Launch{}))
	}
	f.read()
	f.events()
	all[5].Abandon(0)
	f.submit(1, ipc.Launch{})
	f.wantEvents("finished 6:"+others(ipc.MaxLaunchSlots, 6), fmt.Sprintf("arrived 65:%s 65", others(ipc.MaxLaunchSlots, 6)))
	f.changes = nil

	f.guests = f.guests[1:] // the guest leaves
	f.read()
	if n := len(f.events()); n != ipc.MaxLaunchSlots {
		t.Errorf("%d launches end with their guest, want %d", n, ipc.MaxLaunchSlots)
	}
	if len(f.queue.launches) != 0 || len(f.queue.guests) != 1 || f.shown() != "" {
		t.Errorf("left over: %d launches, %d guests,%s", len(f.queue.launches), len(f.queue.guests), f.shown())
	}
}

// others returns how n launches are shown, without one of them.
func others(n, but int) (s string) {
	for i := 1; i <= n; i++ {
		if i != but {
			s += fmt.Sprintf(" %d", i)
		}
	}
	return s
}

// TestLaunchesOfAnEarlierDaemon: a new daemon finds launches in every state.
func TestLaunchesOfAnEarlierDaemon(t *testing.T) {
	f := newFixture(t, 1)
	var at [slotstate.Done + 1]ipc.Claim
	for s := slotstate.Ready; s <= slotstate.Done; s++ {
		c := f.submit(1, leaves)
		slot := f.guests[0].Slots.LaunchSlot(int(s - slotstate.Ready))
		at[s] = c
		if s >= slotstate.ToRun {
			slot.Run(c.Launch())
		}
		if s >= slotstate.Running {
			f.start(c)
		}
		if s == slotstate.ToEvict {
			slot.Evict(c.Launch(), math.MaxUint32, f.now, 0)
		}
		if s == slotstate.Done {
			c.Finish(ms)
		}
		if c.State() != s {
			t.Fatalf("made a launch that is %v, want %v", c.State(), s)
		}
	}
	f.wantEvents("arrived 1: 1", "arrived 2: 1 2+", "arrived 3: 1 2+ 3+", "arrived 4: 1 2+ 3+ 4+-")
	f.wantChanges("1 appeared", "2 appeared", "3 appeared", "4 appeared", "5 appeared", "5 ended")
	f.now += ms
	at[slotstate.ToEvict].Leave(f.now, ms)
	at[slotstate.Running].Finish(ms)
	f.wantEvents("finished 3: 1 2+ 4", "evicted 4: 1 2+ 4")
	f.wantEvents()
}

// TestReannounce: another policy is told of all launches.
func TestReannounce(t *testing.T) {
	f := newFixture(t, 1)
	first, second := f.submit(1, ipc.Launch{}), f.submit(1, ipc.Launch{})
	f.wantEvents("arrived 1: 1", "arrived 2: 1 2")
	f.queue.Find(1).Run(f.now)
	f.start(first)
	f.read()
	f.submit(1, ipc.Launch{})
	f.read() // the old policy is not told of it any more
	f.queue.Reannounce()
	f.wantEvents("arrived 1: 1+", "arrived 2: 1+ 2", "arrived 3: 1+ 2 3")
	first.Finish(ms)
	second.Abandon(0)
	f.wantEvents("finished 1: 3", "finished 2: 3")
}

// TestLaunchInTurn: a launch that is on the GPU in its guest's turn had no need of a verdict, in
// whichever mode; and one that the policy lets run meanwhile has its turn, too.
func TestLaunchInTurn(t *testing.T) {
	for _, mode := range []ipc.Mode{ipc.ModeByKernel, ipc.ModeAhead} {
		for _, inTurn := range []bool{true, false} {
			f := newFixture(t, 2)
			for i := range f.guests {
				f.guests[i].Mode, f.guests[i].InTurn = mode, inTurn
			}
			f.read()
			f.submit(2, ipc.Launch{Priority: 15})
			c := f.submit(1, ipc.Launch{Priority: 15})
			c.Grant()
			f.start(c)
			f.read()
			shown := " 2 1+"
			if mode == ipc.ModeAhead && !inTurn {
				shown = " 2 1" // until the policy lets it run
			}
			f.events()
			if got := f.shown(); got != shown {
				t.Errorf("mode %d, in turn %v: the policy is shown%s, want%s", mode, inTurn, got, shown)
			}
			if counted := f.queue.guests[1].ungrantedTime > 0; counted != (mode == ipc.ModeByKernel && !inTurn) {
				t.Errorf("mode %d, in turn %v: counted as there without a verdict: %v", mode, inTurn, counted)
			}
		}
	}
	f := newFixture(t, 1)
	f.guests[0].Mode, f.guests[0].InTurn = ipc.ModeByKernel, true
	c := f.submit(1, ipc.Launch{})
	f.wantEvents("arrived 1: 1")
	l := f.queue.Find(1)
	c.Grant()
	if !l.Run(f.now) || c.State() != slotstate.ToRun {
		t.Errorf("a launch that has gone by itself is not let run; it is %v", c.State())
	}
	f.start(c)
	f.wantEvents()
	c.Finish(ms)
	f.wantEvents("finished 1:")
}
