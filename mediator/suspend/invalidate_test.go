package suspend

import (
	"errors"
	"slices"
	"testing"
	"time"
)

// enableSelf does what a context's executor does by itself: it enables the context if the page says
// that it is disabled, and restores its time slice.
func (s *scene) enableSelf(slot int) (err error) {
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

// TestDaemonThatStoodStill: what executors may have undone is undone once more, and done again
// after they have had the time to notice.
func TestDaemonThatStoodStill(t *testing.T) {
	for how, undone := range map[string]bool{"undone": true, "not undone": false} {
		t.Run(how, func(t *testing.T) {
			s := newScene(t)
			s.take(0, 1, 2)
			s.busy(0)
			w := s.suspended()
			s.clock.Advance(2 * ms)
			s.want(w)
			s.check(0, 1)
			if undone {
				if err := s.enableSelf(0); err != nil {
					t.Fatal(err)
				}
			}
			s.controller.invalidateAll()
			if st := s.controller.State(); st.Leftover != 1 {
				t.Errorf("%+v", st)
			}
			s.busy(1) // which had nothing there to be taken off
			s.want(w)
			s.check(0, 0)
			s.check(1, 1)
			s.clock.Advance(quietTime - 1)
			s.want(w)
			s.check(0, 0)
			s.clock.Advance(1)
			s.want(w)
			s.check(0, 1)
			s.want(DesiredState{})
			s.check(0, 0)
			if calls := s.driver.Calls(name(2)); len(calls) != 0 {
				t.Errorf("for a context without work the driver was asked to %v", calls)
			}
		})
	}
}

// TestInvalidateSlices: slices are set again, also if the desired one is the same as before. The
// driver's own is left alone.
func TestInvalidateSlices(t *testing.T) {
	for _, want := range []time.Duration{20 * ms, 0} {
		s := newScene(t)
		s.take(0)
		s.want(DesiredState{Slice: 20 * ms})
		s.want(DesiredState{Slice: want})
		if err := s.enableSelf(0); err != nil {
			t.Fatal(err)
		}
		before := len(s.driver.Calls(name(0)))
		s.controller.invalidateAll()
		if next := s.want(s.desired); want != 0 && next != s.clock.Now()+quietTime {
			t.Errorf("wanted %v: looks again at %v", want, next)
		}
		s.clock.Advance(quietTime)
		s.want(s.desired)
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

// TestSuspendAfterFailedEnables: the executor has enabled the context, which the controller can't
// know. A guest that is suspended then must be off the GPU, however often the driver has failed.
func TestSuspendAfterFailedEnables(t *testing.T) {
	for how, kept := range map[string]bool{"enabled by its executor": true, "by nobody": false} {
		t.Run(how, func(t *testing.T) {
			s := newScene(t)
			s.take(0)
			s.busy(0)
			w := s.suspended()
			s.clock.Advance(2 * ms)
			s.want(w)
			s.check(0, 1)
			s.driver.Fail("resume", enableAttempts, errors.New("GPU is busy"))
			for range 10 {
				s.clock.Advance(time.Second)
				s.want(DesiredState{})
			}
			if st := s.controller.State(); st.Leftover != 1 || st.Errors != enableAttempts {
				t.Fatalf("%+v", st)
			}
			if kept {
				if err := s.enableSelf(0); err != nil {
					t.Fatal(err)
				}
			}
			w = s.suspended()
			s.want(w)
			s.check(0, 0)
			s.clock.Advance(quietTime - 1)
			s.want(w)
			s.check(0, 0)
			s.clock.Advance(1)
			s.want(w)
			s.check(0, 1)
			s.want(DesiredState{})
			s.check(0, 0)
		})
	}
}

// TestInvalidateWakesTheController: its goroutine acts at once, and no more after Close.
func TestInvalidateWakesTheController(t *testing.T) {
	s := newScene(t)
	s.page.Context(0).SetReady(1)
	s.busy(0)
	g := New(s.o)
	disables := make(chan struct{}, 2)
	if err := g.SetControl(0, ending{s.control(0), func() { disables <- struct{}{} }}); err != nil {
		t.Fatal(err)
	}
	g.SetDesired(DesiredState{Suspend: true, DisableAt: s.clock.Now()})
	<-disables
	g.Invalidate()
	s.clock.AwaitWaiters(1) // for the executor to notice
	s.check(0, 0)
	s.clock.Advance(quietTime)
	<-disables
	if err := g.Close(false); err != nil {
		t.Error(err)
	}
	g.Invalidate()
	s.check(0, 0)
	if calls := s.driver.Calls(name(0)); !slices.Equal(calls, []string{"suspend", "resume", "suspend", "resume"}) {
		t.Errorf("the driver was asked to %v", calls)
	}
}
