package scheduler

import (
	"testing"

	"vgpud/fairshare"
	"vgpud/mediator/ipc"
	"vgpud/mediator/ipc/slotstate"
)

// TestIdleEventsYield: event kernels that have no event leave for another guest's launch though the
// policy does not say so, once; nobody is charged, and while they have events the policy decides.
func TestIdleEventsYield(t *testing.T) {
	s := newScene(t)
	batch, urgent := s.join(1, 1, 1), s.join(2, 1, 2)
	s.byKernel()
	events := s.submit(urgent, ipc.Launch{Evictable: true, Priority: 9, Events: ipc.EventsBusy})
	s.next(run(1))
	s.sched.LaunchesChanged()
	events.Start(s.clock.Now())
	long := s.submit(batch, ipc.Launch{})
	s.sched.LaunchesChanged()
	if events.State() != slotstate.Running {
		t.Fatalf("with events they are %v", events.State())
	}
	events.SetEvents(ipc.EventsIdle)
	s.sched.LaunchesChanged()
	if events.State() != slotstate.ToEvict {
		t.Fatalf("without events they are %v", events.State())
	}
	events.Finish(ms)
	s.next(run(2))
	s.sched.LaunchesChanged()
	if long.State() != slotstate.ToRun {
		t.Errorf("the launch is %v", long.State())
	}
	for _, id := range []fairshare.GuestID{1, 2} {
		if b := s.sched.launches.ledger.Bill(id); b.Caused != 0 || b.Suffered != 0 || b.Cost != 0 {
			t.Errorf("guest %d: %+v", id, b)
		}
	}
}
