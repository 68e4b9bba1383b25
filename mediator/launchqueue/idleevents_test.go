package launchqueue

import (
	"testing"
	"time"

	"vgpud/mediator/ipc"
)

// idle returns the launches that are to leave since they are idle.
func (f *fixture) idle() (all []*Launch) {
	f.read()
	f.queue.IdleEvents(func(l *Launch) { all = append(all, l) })
	return all
}

// TestIdleEvents: event kernels on the GPU without an event are to leave it if launches wait, of
// another guest or of their own, and only then.
func TestIdleEvents(t *testing.T) {
	f := newFixture(t, 2)
	for i := range f.guests {
		f.guests[i].Mode = ipc.ModeByKernel
	}
	events := f.submit(1, ipc.Launch{Evictable: true, Priority: 5, Events: ipc.EventsBusy})
	f.read()
	f.queue.launches[0].Run(f.now)
	f.start(events)
	events.SetEvents(ipc.EventsIdle)
	if n := len(f.idle()); n != 0 {
		t.Errorf("%d are to leave for nobody", n)
	}
	for guest := 1; guest <= 2; guest++ {
		other := f.submit(guest, ipc.Launch{})
		if all := f.idle(); len(all) != 1 || all[0].Slot().ID != events.Launch() {
			t.Fatalf("to leave for guest %d: %v", guest, all)
		}
		other.Abandon(0)
	}
	other := f.submit(2, ipc.Launch{Evictable: true})
	f.read()
	f.queue.launches[1].Run(f.now)
	f.start(other)
	if n := len(f.idle()); n != 0 {
		t.Errorf("%d are to leave beside a launch on the GPU", n)
	}
	f.queue.launches[1].Evict(1<<32-1, f.now, 0)
	if all := f.idle(); len(all) != 1 || all[0].Slot().ID != events.Launch() {
		t.Errorf("to leave beside a launch that was told to: %v", all)
	}
	other.Abandon(0)
	other = f.submit(2, ipc.Launch{})
	events.SetEvents(ipc.EventsBusy)
	if n := len(f.idle()); n != 0 {
		t.Errorf("%d are to leave with events", n)
	}
	events.SetEvents(ipc.EventsIdle)
	all := f.idle()
	if len(all) != 1 || !all[0].Evict(1<<32-1, f.now, 0) {
		t.Fatalf("to leave: %v", all)
	}
	if n := len(f.idle()); n != 0 {
		t.Errorf("%d are told again", n)
	}
	events.Finish(time.Second)
	other.Abandon(0)
	if n := len(f.idle()); n != 0 {
		t.Errorf("%d are gone and to leave", n)
	}
}

// TestEventsArePredictedByNothing: how long event kernels stay depends on their events, so it is not
// learned, and not used for a launch of what has the same number.
func TestEventsArePredictedByNothing(t *testing.T) {
	f := newFixture(t, 1)
	var p Predictor
	for _, use := range []ipc.EventUse{ipc.EventsBusy, ipc.NoEvents, ipc.EventsBusy} {
		c := f.submit(1, ipc.Launch{Kernel: 9, Tasks: 1, Threads: 32, Predicted: time.Second, Events: use})
		f.read()
		l := f.queue.launches[0]
		p.Predict(l)
		want := time.Duration(0)
		if use == ipc.NoEvents {
			want = time.Second // as its executor has measured
		}
		if l.Predicted != want {
			t.Errorf("use %d: predicted %v, want %v", use, l.Predicted, want)
		}
		c.Grant()
		c.Start(f.now)
		c.Finish(time.Minute)
		f.queue.Read(f.now, f.guests, func(ch Change) {
			if ch.Kind == Ended {
				p.Ended(ch.Launch)
			}
		})
	}
	if n := p.Accuracy().Launches; n != 1 {
		t.Errorf("%d predictions of launches, want 1", n)
	}
}
