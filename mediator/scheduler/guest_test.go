package scheduler

import (
	"sync"
	"testing"
	"time"

	"vgpud/mediator/ipc"
)

// TestSuspensionsAreACounter: the time for which a guest was suspended never goes back, also when
// asked about an earlier instant.
func TestSuspensionsAreACounter(t *testing.T) {
	s := newScene(t)
	g := s.join(1, 1, 1)
	last := time.Duration(0)
	for _, step := range []struct {
		what string
		do   func() time.Duration
	}{
		{"before it was suspended", func() time.Duration { g.SetSuspended(true, 100*ms); return g.Status(90 * ms).Bill.Suspended }},
		{"suspended", func() time.Duration { return g.Status(200 * ms).Bill.Suspended }},
		{"asked earlier", func() time.Duration { return g.Status(150 * ms).Bill.Suspended }},
		{"resumed before it was asked", func() time.Duration { g.SetSuspended(false, 190*ms); return g.Status(210 * ms).Bill.Suspended }},
		{"suspended again", func() time.Duration { g.SetSuspended(true, 300*ms); return g.Status(400 * ms).Bill.Suspended }},
	} {
		got := step.do()
		if got < last {
			t.Errorf("%s: %v after %v", step.what, got, last)
		}
		last = got
	}
	if last != 190*ms {
		t.Errorf("suspended for %v", last)
	}
}

// TestAskedBeforeAdd asks about a guest while it is added, as the daemon does with guests that it
// takes over.
func TestAskedBeforeAdd(t *testing.T) {
	s := newScene(t)
	page, err := ipc.NewControlPage()
	if err != nil {
		t.Fatal(err)
	}
	g := NewGuest(GuestOptions{Name: "a", Page: page, Terms: ipc.Terms{Weight: 1}})
	s.guests = append(s.guests, g)
	asked := make(chan struct{})
	var asking sync.WaitGroup
	asking.Go(func() {
		for i := 0; g.ID() == 0; i++ {
			if n, _, _ := s.sched.LaunchesOf(g); n.Waiting+n.Running+n.Leaving != 0 {
				t.Errorf("launches of a guest without any: %+v", n)
			}
			if i == 0 {
				close(asked)
			}
		}
	})
	<-asked
	s.sched.Add(g)
	asking.Wait()
}
