package launchqueue

import (
	"math"
	"testing"
	"time"

	"vgpud/mediator/ipc"
	"vgpud/mediator/ipc/slotstate"
)

// TestBackoff: a guest that does not use its turns has fewer of them, up to a bound, and as many as
// the others again once it uses them.
func TestBackoff(t *testing.T) {
	var c conduct
	now := time.Hour
	var got []time.Duration
	for i := range 9 {
		if c.backOff(now); c.backoffUntil != now+c.backoff {
			t.Errorf("backed off until %v", c.backoffUntil)
		}
		got = append(got, c.backoff)
		now = c.backoffUntil + TurnLimit
		if i == 6 {
			now = c.backoffUntil + maxBackoff
		}
	}
	for i, want := range []time.Duration{5, 10, 20, 40, 80, 160, 320, 5, 10} {
		if got[i] != want*ms {
			t.Errorf("backoff %d is %v, want %v", i, got[i], want*ms)
		}
	}
}

// TestUngrantedLaunches: launches that run without a verdict are believed to while that is an
// exception.
func TestUngrantedLaunches(t *testing.T) {
	f := newFixture(t, 2)
	for i := range f.guests {
		f.guests[i].Mode = ipc.ModeByKernel
	}
	f.read()
	f.submit(2, ipc.Launch{}) // waits
	occupied, last := time.Duration(0), f.now
	var c ipc.Claim
	for i := range 20_000 {
		if i%10 == 0 {
			c.Finish(ms)
			c = f.submit(1, ipc.Launch{})
			c.Grant()
			c.Start(f.now)
		}
		f.read()
		f.events()
		for _, l := range f.launches() {
			if l.Running {
				occupied += f.now - last
			}
		}
		last = f.now
		f.now += ms
	}
	if occupied < 20*ms || occupied > maxUngranted+time.Second {
		t.Errorf("of 20 s it has kept the GPU for %v", occupied)
	}
}

// TestStuck: a launch that does not leave when told, or has the GPU for longer than it may, is
// excluded while others wait, and is a launch like any other when it waits.
func TestStuck(t *testing.T) {
	for _, leaves := range []bool{false, true} {
		f := newFixture(t, 2)
		f.queue.SetEvictionDeadline(500 * ms)
		for i := range f.guests {
			f.guests[i].Mode, f.guests[i].TimeLimit = ipc.ModeByKernel, 10*time.Second
		}
		c := f.submit(1, ipc.Launch{Evictable: true, Form: 1})
		f.wantEvents("arrived 1: 1")
		f.queue.Find(1).Run(f.now)
		f.start(c)
		f.wantEvents()
		limit := 21 * time.Second
		if leaves {
			f.queue.Find(1).Evict(math.MaxUint32, f.now, 0)
			limit = time.Second
		}
		from := f.now
		f.now += time.Hour
		f.wantEvents() // nobody waits
		f.now = from
		f.submit(2, ipc.Launch{})
		f.queue.readAt = from
		f.wantEvents("arrived 2: 1+" + map[bool]string{true: "-"}[leaves] + " 2")
		at, ok := f.queue.NextCheck()
		if want := from + limit; !ok || at < want-ms || at > want {
			t.Errorf("looks again after %v, want %v", at-from, limit)
		}
		f.now = at
		f.wantEvents("finished 1: 2")
		f.wantEvents()
		c.Leave(f.now, ms)
		f.wantEvents("arrived 1: 1 2")
		f.wantChanges("1 appeared", "2 appeared", "1 stuck", map[bool]string{false: "1 left", true: "1 left in 1s"}[leaves])
	}
}

// TestOrdersAreNotReadBack: what a launch was told is what the daemon wrote, whatever the slot
// says.
func TestOrdersAreNotReadBack(t *testing.T) {
	f := newFixture(t, 1)
	c := f.submit(1, leaves)
	f.read()
	l := f.queue.Find(1)
	l.Run(f.now)
	f.start(c)
	f.read()
	f.events()
	if !l.Evict(math.MaxUint32, f.now, 0) {
		t.Fatal("not told to leave")
	}
	asked := f.now
	slot := f.guests[0].Slots.LaunchSlot(0)
	slot.Recall(c.Launch()) // which the daemon did not tell it
	slot.Evict(c.Launch(), 1, 2, 3)
	for range 3 {
		f.now += ms
		f.read()
		if got := f.shown(); got != " 1+-" || l.slot.Asked != asked || l.Evict(math.MaxUint32, f.now, 0) {
			t.Errorf("shown as%s, asked at %v", got, l.slot.Asked)
		}
		slot.Recall(c.Launch())
	}
}

// TestArrivals: no launch arrived before the read that found it was due.
func TestArrivals(t *testing.T) {
	f := newFixture(t, 2)
	f.submit(1, ipc.Launch{})
	f.wantEvents("arrived 1: 1")
	for _, at := range []time.Duration{0, math.MinInt64, math.MaxInt64, -1} {
		f.now += ms
		if c, ok := f.guests[1].Slots.(*ipc.ControlPage).Claim(0, &ipc.Launch{Arrived: at}); !ok || c.State() != slotstate.Ready {
			t.Fatal("no slot")
		}
		f.read()
		f.events()
	}
	if got := f.shown(); got != " 1 2 3 4 5" {
		t.Errorf("in order of arrival they are%s", got)
	}
}
