package suspend

import (
	"errors"
	"slices"
	"testing"
	"time"
)

// keep does what a context's executor does by itself: it enables the context if the
// page says that it is disabled, and gives its time slice back where it has one.
func (s *scene) keep(slot int) (err error) {
	s.t.Helper()
	c := s.control(slot)
	if s.page.Disabled(slot) {
		err = c.Resume()
	}
	if s.page.Sliced(slot) {
		err = errors.Join(err, c.SetTimeslice(s.o.DefaultSlice))
	}
	if err := c.Close(); err != nil {
		s.t.Error(err)
	}
	return err
}

// TestDaemonThatStoodStill: what executors may have undone meanwhile is undone once
// more, and done again when they have had the time to notice.
func TestDaemonThatStoodStill(t *testing.T) {
	for how, undone := range map[string]bool{"undone": true, "not undone": false} {
		t.Run(how, func(t *testing.T) {
			s := newScene(t)
			s.take(0, 1, 2)
			s.busy(0)
			w := s.hold()
			s.clock.Advance(2 * ms)
			s.want(w)
			s.check(0, 1)
			if undone {
				if err := s.keep(0); err != nil {
					t.Fatal(err)
				}
			}
			s.grip.doubtAll()
			if st := s.grip.State(); st.Left != 1 {
				t.Errorf("%+v", st)
			}
			s.busy(1) // which had nothing there to be taken off
			s.want(w)
			s.check(0, 0)
			s.check(1, 1)
			s.clock.Advance(settleTime - 1)
			s.want(w)
			s.check(0, 0)
			s.clock.Advance(1)
			s.want(w)
			s.check(0, 1)
			s.want(Wish{})
			s.check(0, 0)
			if calls := s.driver.Calls(name(2)); len(calls) != 0 {
				t.Errorf("for a context without work the driver was asked to %v", calls)
			}
		})
	}
}

// TestDoubtOfSlices: they are set anew, also where the same one is wanted as before, and
// the driver's own is left alone.
func TestDoubtOfSlices(t *testing.T) {
	for _, want := range []time.Duration{20 * ms, 0} {
		s := newScene(t)
		s.take(0)
		s.want(Wish{Slice: 20 * ms})
		s.want(Wish{Slice: want})
		if err := s.keep(0); err != nil {
			t.Fatal(err)
		}
		before := len(s.driver.Calls(name(0)))
		s.grip.doubtAll()
		if next := s.want(s.wish); want != 0 && next != s.clock.Now()+settleTime {
			t.Errorf("wanted %v: looks again at %v", want, next)
		}
		s.clock.Advance(settleTime)
		s.want(s.wish)
		set, calls := want, 1
		if want == 0 {
			set, calls = s.o.DefaultSlice, 0
		}
		if got := s.driver.Slice(name(0)); got != set {
			t.Errorf("wanted %v: the time slice is %v", want, got)
		}
		if n := len(s.driver.Calls(name(0))) - before; n != calls {
			t.Errorf("wanted %v: %d calls, want %d", want, n, calls)
		}
	}
}

// TestHoldAfterEnablesThatFailed: the executor has enabled the context, which the grip
// can't know. A guest that is held then is to be off the GPU, however often the driver
// has failed.
func TestHoldAfterEnablesThatFailed(t *testing.T) {
	for how, kept := range map[string]bool{"enabled by its executor": true, "by nobody": false} {
		t.Run(how, func(t *testing.T) {
			s := newScene(t)
			s.take(0)
			s.busy(0)
			w := s.hold()
			s.clock.Advance(2 * ms)
			s.want(w)
			s.check(0, 1)
			s.driver.Fail("resume", enableTries, errors.New("GPU is busy"))
			for range 10 {
				s.clock.Advance(time.Second)
				s.want(Wish{})
			}
			if st := s.grip.State(); st.Left != 1 || st.Errors != enableTries {
				t.Fatalf("%+v", st)
			}
			if kept {
				if err := s.keep(0); err != nil {
					t.Fatal(err)
				}
			}
			w = s.hold()
			s.want(w)
			s.check(0, 0)
			s.clock.Advance(settleTime - 1)
			s.want(w)
			s.check(0, 0)
			s.clock.Advance(1)
			s.want(w)
			s.check(0, 1)
			s.want(Wish{})
			s.check(0, 0)
		})
	}
}

// TestDoubtIsLookedInto: by the grip's goroutine, at once, and no more after Close.
func TestDoubtIsLookedInto(t *testing.T) {
	s := newScene(t)
	s.page.Context(0).SetReady(1)
	s.busy(0)
	g := New(s.o)
	disables := make(chan struct{}, 2)
	if err := g.Take(0, ending{s.control(0), func() { disables <- struct{}{} }}); err != nil {
		t.Fatal(err)
	}
	g.Set(Wish{Hold: true, DisableAt: s.clock.Now()})
	<-disables
	g.Doubt()
	s.clock.AwaitWaiters(1) // for the executor to notice
	s.check(0, 0)
	s.clock.Advance(settleTime)
	<-disables
	if err := g.Close(false); err != nil {
		t.Error(err)
	}
	g.Doubt()
	s.check(0, 0)
	if calls := s.driver.Calls(name(0)); !slices.Equal(calls, []string{"suspend", "resume", "suspend", "resume"}) {
		t.Errorf("the driver was asked to %v", calls)
	}
}
