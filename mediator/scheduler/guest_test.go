package scheduler

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
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

// TestAskedBeforeAdd asks about guests while they are added, as the daemon does with guests that it
// takes over. The race detector finds a fault only if a guest is asked about after it is next and
// before it has been added, so there are many.
func TestAskedBeforeAdd(t *testing.T) {
	s := newScene(t)
	guests := make([]*Guest, 100)
	for i := range guests {
		page, err := ipc.NewControlPage()
		if err != nil {
			t.Fatal(err)
		}
		guests[i] = NewGuest(GuestOptions{Name: fmt.Sprint(i), Page: page, Terms: ipc.Terms{Weight: 1}})
	}
	s.guests = append(s.guests, guests...)
	var next atomic.Int32 // the guest that is added, or after the last one
	var asking sync.WaitGroup
	asking.Go(func() {
		for i := next.Load(); i < int32(len(guests)); i = next.Load() {
			if n, _, _ := s.sched.LaunchesOf(guests[i]); n.Waiting+n.Running+n.Leaving != 0 {
				t.Errorf("launches of a guest without any: %+v", n)
			}
			runtime.Gosched()
		}
	})
	for i, g := range guests {
		next.Store(int32(i))
		runtime.Gosched() // where there is one processor, the other goroutine asks now
		s.sched.Add(g)
	}
	next.Store(int32(len(guests)))
	asking.Wait()
}
