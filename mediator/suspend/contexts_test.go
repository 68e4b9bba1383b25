package suspend

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"vgpud/gpu"
	"vgpud/mediator/ipc"
)

// TestContextsComeAndGo: handles come twice, a context is reset while it is disabled, and one goes.
func TestContextsComeAndGo(t *testing.T) {
	s := newScene(t)
	s.take(0)
	s.busy(0)
	s.want(s.suspended())
	s.clock.Advance(2 * ms)
	s.want(s.desired)
	s.check(0, 1)

	s.take(0) // twice
	if n := s.driver.Open(); n != 1 {
		t.Errorf("%d controls are open", n)
	}
	s.clock.Advance(10 * ms)
	s.want(s.desired)
	s.check(0, 1) // enabled by the new ones, and disabled again
	if calls := s.driver.Calls(name(0)); !slices.Equal(calls, []string{"suspend", "resume", "suspend"}) {
		t.Errorf("the driver was asked to %v", calls)
	}

	s.controller.applyArrivals([]arrival{{0, nil}})
	s.check(0, 0)
	if n := s.driver.Open(); n != 0 {
		t.Errorf("%d controls of a context that is gone are open", n)
	}
	s.want(s.desired)
	s.take(0)
	s.clock.Advance(10 * ms)
	s.want(s.desired)
	s.check(0, 1) // the next life's

	// The process ends, and the driver has forgotten it.
	s.driver.Fail("resume", 1, errors.New("no such client"))
	s.controller.applyArrivals([]arrival{{0, nil}, {0, nil}, {7, nil}})
	if noted, err := s.o.Intents.List(); err != nil || len(noted) != 0 || s.page.Disabled(0) {
		t.Errorf("noted %v, %v; on the page %v", noted, err, s.page.Disabled(0))
	}
	if st := s.controller.State(); st.Controlled != 0 || st.Disabled != 0 {
		t.Errorf("%+v", st)
	}
}

// TestContextThatIsOver: a context that is over counts as enabled when the driver no longer knows
// it. That is no failure of the driver.
func TestContextThatIsOver(t *testing.T) {
	for how, end := range map[string]func(*ipc.ContextSlot){
		"fault": (*ipc.ContextSlot).SetFaulted,
		"close": (*ipc.ContextSlot).SetEnding,
		"exit":  (*ipc.ContextSlot).Free,
	} {
		t.Run(how, func(t *testing.T) {
			s := newScene(t)
			s.take(0)
			s.busy(0)
			s.want(s.suspended())
			s.clock.Advance(2 * ms)
			s.want(s.desired)
			s.check(0, 1)
			end(s.page.Context(0))
			s.driver.End(name(0))
			s.want(DesiredState{})
			s.check(0, 0)
			w := s.suspended()
			s.clock.Advance(2 * ms)
			s.want(w)
			s.check(0, 0)
			s.want(DesiredState{Slice: ms})
			if next := s.want(DesiredState{Slice: ms}); next != 0 {
				t.Errorf("looks again at %v", next)
			}
			if st := s.controller.State(); st.Errors != 0 || st.Problem != "" {
				t.Errorf("%+v", st)
			}
			s.page.Context(0).Reset(1) // the next one is told everything
			s.take(0)
			s.want(s.desired)
			if got := s.driver.Slice(name(0)); got != ms {
				t.Errorf("the next context's slice is %v", got)
			}
		})
	}
}

// TestContextThatThePageStillHas: a context's process has ended, and its page does not say so yet.
// That is no failure of the driver unless it lasts.
func TestContextThatThePageStillHas(t *testing.T) {
	gone := fmt.Errorf("context is closed: %w", gpu.ErrLost)
	off := func(s *scene) {
		s.take(0)
		s.busy(0)
		s.want(s.suspended())
		s.clock.Advance(2 * ms)
		s.want(s.desired)
	}
	for op, want := range map[string]func(*scene) DesiredState{
		"suspend": func(s *scene) DesiredState { off(s); return s.desired },
		"resume":  func(s *scene) DesiredState { off(s); s.check(0, 1); return DesiredState{} },
		"slice":   func(s *scene) DesiredState { s.take(0); return DesiredState{Slice: ms} },
	} {
		t.Run(op, func(t *testing.T) {
			s := newScene(t)
			s.driver.Fail(op, 1000, gone)
			if op == "suspend" {
				s.driver.Fail("resume", 1000, gone)
			}
			w := want(s)
			for range 20 {
				s.want(w)
				s.clock.Advance(ms)
			}
			s.page.Context(0).SetEnding()
			s.driver.End(name(0))
			for range 2000 {
				s.clock.Advance(ms)
				s.want(w)
			}
			if st := s.controller.State(); st.Errors != 0 || st.Problem != "" || st.Disabled != 0 {
				t.Errorf("%+v", st)
			}
			if s.page.Disabled(0) {
				t.Error("the page has it disabled")
			}
		})
	}
	t.Run("for good", func(t *testing.T) {
		s := newScene(t)
		off(s)
		s.driver.Fail("resume", 1000, gone)
		for range 20000 {
			s.clock.Advance(ms)
			s.want(DesiredState{})
		}
		if st := s.controller.State(); st.Errors != 1 || !strings.Contains(st.Problem, "context is closed") {
			t.Errorf("%+v", st)
		}
	})
}

// TestContextEndsInACall: a context closes while it is being disabled.
func TestContextEndsInACall(t *testing.T) {
	s := newScene(t)
	s.take(0)
	s.busy(0)
	w := s.suspended()
	s.clock.Advance(2 * ms)
	h := s.controller.contexts[0]
	h.control = ending{h.control, func() {
		s.page.Context(0).SetEnding()
		s.driver.End(name(0))
	}}
	s.want(w)
	s.check(0, 0)
	if st := s.controller.State(); st.Errors != 0 || st.Disables != 0 || st.Disabled != 0 {
		t.Errorf("%+v", st)
	}
}

// ending is a context's control that calls a function, such as one that ends the context, when it
// is to suspend the context.
type ending struct {
	gpu.Control
	end func()
}

func (c ending) Suspend() error {
	c.end()
	return c.Control.Suspend()
}

// openControl is a control that counts those that are open.
type openControl struct {
	gpu.Control
	open *int
}

func (c openControl) Close() error {
	*c.open--
	return nil
}

// TestArrivalsAreBounded: a guest's process that sends handles while a call of the driver lasts makes the
// daemon hold the newest of each context, and no more.
func TestArrivalsAreBounded(t *testing.T) {
	s := newScene(t)
	c := s.controller
	c.running = true // its goroutine is in a call
	open := 0
	send := func(slot int) openControl {
		t.Helper()
		open++
		control := openControl{open: &open}
		if err := c.SetControl(slot, control); err != nil {
			t.Fatal(err)
		}
		return control
	}
	gone := func(slot int) {
		t.Helper()
		if err := c.SetControl(slot, nil); err != nil {
			t.Fatal(err)
		}
	}
	for range 1000 {
		send(0)
		send(1)
		gone(1)
		gone(1)
	}
	if open != 1 || len(c.arrivals) != 2 {
		t.Errorf("%d controls are open, and %d arrivals wait", open, len(c.arrivals))
	}
	newest := send(1)
	c.applyArrivals(c.arrivals)
	if c.State().Controlled != 2 || c.contexts[1].control != newest {
		t.Errorf("%+v, context 1 has %v, want the newest", c.State(), c.contexts[1])
	}
}
