package daemon

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

// table is a board with guests whose executors are the test's.
type table struct {
	t       testing.TB
	board   board
	parties []party
	now     time.Duration
	news    []string // what the board reported
}

func newTable(t testing.TB, guests int) *table {
	b := &table{t: t, now: time.Hour}
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
		page.Beat(b.now)
		b.parties = append(b.parties, party{guest: fairshare.GuestID(i + 1), page: page, ceiling: 15})
	}
	return b
}

// submit has an executor of a guest, counted from 1, take up a launch.
func (b *table) submit(guest int, v ipc.Launch) ipc.Claim {
	b.now += time.Microsecond
	v.Arrived = b.now
	c, ok := b.parties[guest-1].page.Claim(0, &v)
	if !ok {
		b.t.Fatalf("guest %d has no stub for a launch", guest)
	}
	return c
}

// start has the executor put on the GPU what was let there.
func (b *table) start(c ipc.Claim) {
	b.t.Helper()
	if c.State() != slotstate.ToRun {
		b.t.Fatalf("launch %d is %v, want it let to the GPU", c.Launch(), c.State())
	}
	b.now += time.Microsecond
	c.Start(b.now)
}

func (b *table) look() {
	b.board.look(b.now, b.parties, func(h happening) {
		name := [...]string{hasAppeared: "appeared", hasLeft: "left", hasEnded: "ended", isGone: "gone", hasLied: "lied", hasIdled: "idled", isForsaken: "forsaken"}[h.kind]
		if h.took > 0 {
			name += fmt.Sprint(" in ", h.took)
		}
		b.news = append(b.news, fmt.Sprintf("%d %s", h.row.id, name))
	})
}

// told takes the events that the policy is told of, with the launches that it is
// shown at each: their numbers, a + where it runs and a - where it is to leave.
func (b *table) told() (s []string) {
	for {
		ev, ok := b.board.next()
		if !ok {
			return s
		}
		s = append(s, fmt.Sprintf("%v %d:%s", ev.Kind, ev.Launch, b.shown()))
	}
}

func (b *table) shown() (s string) {
	for _, l := range b.launches() {
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

func (b *table) launches() []fairshare.Launch {
	return b.board.launches(b.now, 16, func(*row) time.Duration { return 7 })
}

// wantTold looks and holds what the policy is told against want.
func (b *table) wantTold(want ...string) {
	b.t.Helper()
	b.look()
	if diff := cmp.Diff(want, b.told(), cmpopts.EquateEmpty()); diff != "" {
		b.t.Errorf("the policy is told (-want +got):\n%s", diff)
	}
}

func (b *table) wantNews(want ...string) {
	b.t.Helper()
	if diff := cmp.Diff(want, b.news, cmpopts.EquateEmpty()); diff != "" {
		b.t.Errorf("the board reports (-want +got):\n%s", diff)
	}
	b.news = nil
}

var leaves = ipc.Launch{Evictable: true, Form: 1}

func TestBoardTellsOneThingAtATime(t *testing.T) {
	b := newTable(t, 2)
	first := b.submit(2, ipc.Launch{})
	b.submit(1, ipc.Launch{})
	b.wantTold("arrived 2: 2", "arrived 1: 2 1") // in order of arrival, whoever's
	b.wantTold()
	if !b.board.row(2).run(b.now) || b.board.row(2).run(b.now) {
		t.Error("a launch is let run once")
	}
	b.start(first)
	b.submit(2, ipc.Launch{})
	first.Finish(3 * ms)
	b.wantTold("finished 2: 1", "arrived 3: 1 3")
	b.wantNews("1 appeared", "2 appeared", "2 ended", "3 appeared")
}

func TestBoardShowsLaunches(t *testing.T) {
	b := newTable(t, 1)
	c := b.submit(1, ipc.Launch{
		Evictable: true, Form: 2, Priority: 9, Blocks: 1000, PerSM: 4, Tasks: 4000, Threads: 128, Kernel: 0xabc, Predicted: 5 * ms,
	})
	b.wantTold("arrived 1: 1")
	b.board.row(1).predicted = 6 * ms
	want := fairshare.Launch{
		ID: 1, Guest: 1, Arrived: b.now, Priority: 9, Blocks: 1000, PerSM: 4, Predicted: 6 * ms, Evictable: true, EvictionCost: 7,
	}
	show := func(what string) {
		t.Helper()
		if diff := cmp.Diff([]fairshare.Launch{want}, b.launches()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	show("waiting")
	b.board.row(1).run(b.now)
	want.Running = true
	show("let to the GPU")
	b.start(c)
	b.now += 2 * ms
	b.look()
	want.Used = 2 * ms
	show("running")
	b.board.row(1).evict(4, b.now, 0)
	want.BelowSM = 4
	show("to leave some SMs")
	b.look()
	show("to leave some SMs, seen anew")
	c.Leave(b.now, 3*ms)
	b.look()
	b.told()
	want.Running, want.BelowSM, want.Used = false, 0, 3*ms
	show("left")
	b.board.row(1).run(b.now)
	b.start(c)
	b.look()
	b.board.row(1).evict(math.MaxUint32, b.now, 0)
	want.Running, want.Evicting = true, true
	show("to leave all")
}

func TestBoardSeesEvictions(t *testing.T) {
	b := newTable(t, 1)
	c := b.submit(1, leaves)
	b.look()
	b.told()
	r := b.board.row(1)
	if r.evict(math.MaxUint32, b.now, 0) {
		t.Error("a launch that waits was told to leave")
	}
	r.run(b.now)
	b.start(c)
	b.wantTold()
	if !r.evict(math.MaxUint32, b.now, b.now+ms) || r.evict(math.MaxUint32, b.now, b.now+ms) {
		t.Error("a launch is told to leave once")
	}
	if below, asked, deadline := c.EvictionRequest(); below != math.MaxUint32 || asked != b.now || deadline != b.now+ms {
		t.Errorf("its executor reads %d, %v, %v", below, asked, deadline)
	}
	b.now += ms / 2
	c.Leave(b.now, ms)
	b.wantTold("evicted 1: 1")
	b.wantNews("1 appeared", "1 left in 500µs")

	// Again, but it ends before it leaves.
	r.run(b.now)
	b.start(c)
	b.look()
	r.evict(math.MaxUint32, b.now, 0)
	c.Finish(2 * ms)
	b.wantTold("finished 1:")
	b.wantNews("1 ended")
}

// A launch may be told to leave some of the SMs, then more of them, and then that
// it has them all again.
func TestBoardTellsOfSomeSMs(t *testing.T) {
	b := newTable(t, 1)
	c := b.submit(1, leaves)
	b.look()
	r := b.board.row(1)
	r.run(b.now)
	b.start(c)
	b.wantTold("arrived 1: 1+")
	says := func(below uint32) {
		t.Helper()
		b.look()
		if got, _, _ := c.EvictionRequest(); got != below || c.State() != slotstate.ToEvict {
			t.Errorf("it is %v, to leave %d SMs, want %d", c.State(), got, below)
		}
	}
	if !r.evict(4, b.now, 0) {
		t.Fatal("not told to leave 4 SMs")
	}
	says(4)
	if r.evict(3, b.now, 0) || !r.evict(9, b.now, 0) {
		t.Error("it leaves more when told, and fewer never")
	}
	says(9)
	if !r.run(b.now) || c.State() != slotstate.Running || r.run(b.now) {
		t.Errorf("it has no SMs back: %v", c.State())
	}
	b.wantTold()
	if l := b.launches()[0]; l.BelowSM != 0 || !l.Running || l.Evicting {
		t.Errorf("it is shown as %+v", l)
	}
	// Its end with work undone took as long as it went on elsewhere.
	r.evict(4, b.now, 0)
	b.news = nil
	c.Leave(b.now+ms, ms)
	b.wantTold("evicted 1: 1")
	b.wantNews("1 left")
}

// A launch that is on its way to the GPU can't be told to leave, and is once it is
// there.
func TestBoardRemembersWhoIsToLeave(t *testing.T) {
	b := newTable(t, 1)
	c := b.submit(1, leaves)
	b.look()
	r := b.board.row(1)
	r.run(b.now)
	if !r.evict(math.MaxUint32, b.now, 0) || !r.asked || c.State() != slotstate.ToRun {
		t.Fatalf("asked %v, %v", r.asked, c.State())
	}
	b.told()
	if got := b.shown(); got != " 1+-" {
		t.Errorf("the policy is shown%s", got)
	}
	b.start(c)
	b.look()
	if !r.asked || !r.evict(r.belowSM, b.now, 0) || r.asked || c.State() != slotstate.ToEvict {
		t.Errorf("asked %v, %v", r.asked, c.State())
	}
}

func TestBoardSeesWhoLeavesUnasked(t *testing.T) {
	b := newTable(t, 1)
	c := b.submit(1, leaves)
	b.look()
	b.board.row(1).run(b.now)
	b.start(c)
	b.look()
	b.told()
	c.Leave(b.now, ms)
	b.wantTold("evicted 1: 1")
	b.wantNews("1 appeared", "1 left")
}

func TestBoardSeesLies(t *testing.T) {
	b := newTable(t, 1)
	c := b.submit(1, leaves)
	b.look()
	r := b.board.row(1)
	r.run(b.now)
	b.start(c)
	b.look()
	r.evict(math.MaxUint32, b.now, b.now+1)
	c.SetEvictable(false)
	b.look()
	c.Abandon(ms)
	b.look()
	b.wantNews("1 appeared", "1 lied", "1 ended")
	if r.evict(math.MaxUint32, b.now, 0) {
		t.Error("told to leave after its end")
	}
}

// Between two looks a stub may have become another's, or nobody's.
func TestBoardSeesStubsChangeHands(t *testing.T) {
	b := newTable(t, 2)
	var all []ipc.Claim
	for range ipc.MaxLaunchSlots {
		all = append(all, b.submit(1, ipc.Launch{}))
	}
	b.look()
	b.told()
	all[5].Abandon(0)
	b.submit(1, ipc.Launch{})
	b.wantTold("finished 6:"+others(ipc.MaxLaunchSlots, 6), fmt.Sprintf("arrived 65:%s 65", others(ipc.MaxLaunchSlots, 6)))
	b.news = nil

	b.parties = b.parties[1:] // the guest goes
	b.look()
	if n := len(b.told()); n != ipc.MaxLaunchSlots {
		t.Errorf("%d launches end with their guest, want %d", n, ipc.MaxLaunchSlots)
	}
	if len(b.board.rows) != 0 || len(b.board.desks) != 1 || b.shown() != "" {
		t.Errorf("what is left: %d launches, %d guests,%s", len(b.board.rows), len(b.board.desks), b.shown())
	}
}

// others is what is shown of n launches but for one.
func others(n, but int) (s string) {
	for i := 1; i <= n; i++ {
		if i != but {
			s += fmt.Sprintf(" %d", i)
		}
	}
	return s
}

// A daemon that comes anew finds launches in every state.
func TestBoardFindsLaunchesInEveryState(t *testing.T) {
	b := newTable(t, 1)
	var at [slotstate.Done + 1]ipc.Claim
	for s := slotstate.Ready; s <= slotstate.Done; s++ {
		c := b.submit(1, leaves)
		slot := b.parties[0].page.LaunchSlot(int(s - slotstate.Ready))
		at[s] = c
		if s >= slotstate.ToRun {
			slot.Run(c.Launch())
		}
		if s >= slotstate.Running {
			b.start(c)
		}
		if s == slotstate.ToEvict {
			slot.Evict(c.Launch(), math.MaxUint32, b.now, 0)
		}
		if s == slotstate.Done {
			c.Finish(ms)
		}
		if c.State() != s {
			t.Fatalf("made a launch that is %v, want %v", c.State(), s)
		}
	}
	b.wantTold("arrived 1: 1", "arrived 2: 1 2+", "arrived 3: 1 2+ 3+", "arrived 4: 1 2+ 3+ 4+-")
	b.wantNews("1 appeared", "2 appeared", "3 appeared", "4 appeared", "5 appeared", "5 ended")
	b.now += ms
	at[slotstate.ToEvict].Leave(b.now, ms)
	at[slotstate.Running].Finish(ms)
	b.wantTold("finished 3: 1 2+ 4", "evicted 4: 1 2+ 4")
	b.wantTold()
}

// Another policy is told of all there is.
func TestBoardTellsAnotherPolicyAnew(t *testing.T) {
	b := newTable(t, 1)
	first, second := b.submit(1, ipc.Launch{}), b.submit(1, ipc.Launch{})
	b.wantTold("arrived 1: 1", "arrived 2: 1 2")
	b.board.row(1).run(b.now)
	b.start(first)
	b.look()
	b.submit(1, ipc.Launch{})
	b.look() // of which the old policy is not told any more
	b.board.anew()
	b.wantTold("arrived 1: 1+", "arrived 2: 1+ 2", "arrived 3: 1+ 2 3")
	first.Finish(ms)
	second.Abandon(0)
	b.wantTold("finished 1: 3", "finished 2: 3")
}
