package scheduler

import (
	"testing"

	"vgpud/fairshare"
	"vgpud/mediator/ipc"
	"vgpud/mediator/launchqueue"
)

// slotCounter counts the launch slots that are read.
type slotCounter struct {
	launchqueue.Slots
	reads *int
}

func (c slotCounter) LaunchSlot(i int) *ipc.LaunchSlot {
	*c.reads++
	return c.Slots.LaunchSlot(i)
}

// TestRoundReadsFewPages tests that a read of the launch slots of a thousand guests reads those of
// a few of them whole, in turn, and of the others only the slots with launches; and that each
// guest's have been read whole once all had their turn.
func TestRoundReadsFewPages(t *testing.T) {
	const guests = 1000
	mix := roundMix{policy: "dfq", contexts: 1, working: 1}
	s := mix.crowd(t, guests)
	s.submit(s.guests[guests/2], ipc.Launch{Form: 1, Evictable: true})
	s.sched.LaunchesChanged() // which finds it, since its executor has rung
	if n := s.sched.launches.queue.CountOf(s.guests[guests/2].id); n.Running+n.Waiting != 1 {
		t.Fatalf("%+v launches", n)
	}
	whole := make(map[fairshare.GuestID]bool)
	for range (guests + readInTurn - 1) / readInTurn {
		reads := 0
		s.sched.launches.slots = s.sched.launches.slots[:0]
		s.sched.locked(func(guests []*Guest) { s.sched.readSlots(guests) })
		slots := s.sched.launches.slots
		for i := range slots {
			slots[i].Slots = slotCounter{slots[i].Slots, &reads}
			if !slots[i].NoNews {
				whole[slots[i].ID] = true
			}
		}
		s.sched.launches.queue.Read(s.clock.Now(), slots, func(launchqueue.Change) {})
		if limit := readInTurn*ipc.MaxLaunchSlots + 1; reads > limit {
			t.Fatalf("%d slots read of %d guests, want at most %d", reads, guests, limit)
		}
	}
	if len(whole) != guests {
		t.Errorf("%d of %d guests had their turn", len(whole), guests)
	}
}

// TestUnannouncedLaunch tests that a launch whose executor does not ring is found all the same,
// among so many guests that not every page is read in every round.
func TestUnannouncedLaunch(t *testing.T) {
	mix := roundMix{policy: "dfq", contexts: 1}
	s := mix.crowd(t, 4*readInTurn)
	for range 5 {
		s.sched.LaunchesChanged()
	}
	g := s.guests[len(s.guests)-1]
	s.submit(g, ipc.Launch{Form: 1})
	g.bell = g.o.Page.DaemonFutex() // as if it had not rung
	found := func() bool { return s.sched.launches.queue.CountOf(g.id) != (launchqueue.Counts{}) }
	for range 4 {
		s.sched.LaunchesChanged()
	}
	if !found() {
		t.Error("a launch was not found in four rounds, in which every page is read once")
	}
}

// TestUsedContextsAreFollowed tests that a context that comes is seen at once if its executor says
// so, and else in turn.
func TestUsedContextsAreFollowed(t *testing.T) {
	mix := roundMix{policy: "dfq", contexts: 1}
	s := mix.crowd(t, 4*readInTurn)
	for range 5 {
		s.poll(ms)
	}
	announced, silent := s.guests[len(s.guests)-1], s.guests[len(s.guests)-2]
	for i, g := range []*Guest{announced, silent} {
		g.o.Page.Context(7).Reset(1)
		g.o.Page.Context(7).SetReady(uint16(5000 + i))
	}
	announced.o.Page.AddChange()
	if n := announced.Status(s.clock.Now()).Activity.Contexts; n != 2 {
		t.Errorf("announced: %d contexts, want 2", n)
	}
	for range 4 {
		s.poll(ms)
	}
	if n := silent.Status(s.clock.Now()).Activity.Contexts; n != 2 {
		t.Errorf("not announced: %d contexts after four rounds, want 2", n)
	}
}

// TestRoundsAllocateNothing tests that rounds of many guests allocate nothing, whatever these do.
func TestRoundsAllocateNothing(t *testing.T) {
	for _, mix := range roundMixes {
		if mix.queued && mix.policy != "dfq" {
			continue // launches that a policy lets run are logged, and timers set
		}
		s := mix.crowd(t, 100)
		number := 0
		round := func() { mix.round(s, number); number++ }
		for range 20 {
			round()
		}
		if n := testing.AllocsPerRun(50, round); n > 0 {
			t.Errorf("%s: a round allocates %v times", mix.name, n)
		}
	}
}

// BenchmarkArrival measures what one launch costs that comes and ends, beside the waiting launches
// of many guests.
func BenchmarkArrival(b *testing.B) {
	mix := roundMix{policy: "hpf", contexts: 1, working: -1, queued: true}
	s := mix.crowd(b, 1000)
	s.sched.LaunchesChanged()
	b.ReportAllocs()
	for b.Loop() {
		c := s.submit(s.guests[500], ipc.Launch{Priority: 9})
		s.sched.LaunchesChanged()
		c.Abandon(0)
		s.sched.LaunchesChanged()
	}
}
