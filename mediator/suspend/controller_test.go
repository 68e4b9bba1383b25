package suspend

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"vgpud/clock"
	"vgpud/gpu"
	"vgpud/gpu/gputest"
	"vgpud/internal/proctest"
	"vgpud/mediator/ipc"
)

const ms = time.Millisecond

// scene is a guest whose contexts are controlled through a driver of the test's.
type scene struct {
	t      *testing.T
	clock  clock.Sim
	driver gputest.Driver
	page   *ipc.ControlPage
	o      Options
	// controller's goroutine does not run: the test takes and steps.
	controller *Controller
	desired    DesiredState
}

func newScene(t *testing.T, left ...int) *scene {
	t.Helper()
	s := &scene{t: t}
	var err error
	if s.page, err = ipc.NewControlPage(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.page.Close(); err != nil {
			t.Error(err)
		}
	})
	intents, err := NewIntents(filepath.Join(t.TempDir(), "disabled"))
	if err != nil {
		t.Fatal(err)
	}
	s.o = Options{
		Guest: "a", Page: s.page, Intents: intents, Leftover: left, DefaultSlice: 2 * ms, Clock: &s.clock, Log: slog.New(slog.DiscardHandler),
	}
	s.clock.Advance(time.Second)
	s.again()
	return s
}

// again restarts the daemon.
func (s *scene) again(left ...int) {
	s.controller = &Controller{o: s.o, contexts: make(map[int]*contextState)}
	for _, slot := range left {
		s.controller.contexts[slot] = &contextState{c: s.controller, slot: slot, disabled: true, mustEnable: true, maybeEnabled: true, disabledSince: s.clock.Now()}
	}
	s.desired = DesiredState{}
}

// control returns a control of the context in a slot.
func (s *scene) control(slot int) gpu.Control {
	s.t.Helper()
	f, err := os.Open(os.DevNull)
	if err != nil {
		s.t.Fatal(err)
	}
	c, err := s.driver.Control(gputest.Handles(name(slot), f))
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

func name(slot int) string { return fmt.Sprint("context", slot) }

// take has the handles of contexts come.
func (s *scene) take(slots ...int) {
	s.t.Helper()
	for _, slot := range slots {
		s.page.Context(slot).SetReady(1)
		s.controller.applyArrivals([]arrival{{slot, s.control(slot)}})
	}
}

// busy puts a launch of a context on the GPU.
func (s *scene) busy(slot int) { s.page.Context(slot).AddFetched() }

// want applies a desired state.
func (s *scene) want(w DesiredState) (next time.Duration) {
	changed := w != s.desired
	s.desired = w
	return s.controller.apply(w, changed)
}

// suspended is the desired state of a guest that is suspended now, and disabled in 2 ms.
func (s *scene) suspended() DesiredState {
	return DesiredState{Suspend: true, DisableAt: s.clock.Now() + 2*ms}
}

// check compares the hardware's count of a context's disables with the page and the records.
func (s *scene) check(slot, disables int) {
	s.t.Helper()
	if got := s.driver.Disables(name(slot)); got != disables {
		s.t.Errorf("context %d: %d disables outstanding, want %d", slot, got, disables)
	}
	noted, err := s.o.Intents.List()
	if err != nil {
		s.t.Fatal(err)
	}
	if page, file := s.page.Disabled(slot), slices.Contains(noted["a"], slot); page != (disables > 0) || file != page {
		s.t.Errorf("context %d has %d disables, and its page says %v, a file %v", slot, disables, page, file)
	}
}

// TestNoGoroutineWithoutWork: a controller has a goroutine only while there is something to do, and
// follows what is desired, takes contexts and ends all the same.
func TestNoGoroutineWithoutWork(t *testing.T) {
	s := newScene(t)
	c := New(s.o)
	<-c.Settled() // nothing was left to enable
	running := func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.running
	}
	if running() {
		t.Error("it runs from its beginning")
	}
	s.page.Context(0).SetReady(1)
	if err := c.SetControl(0, s.control(0)); err != nil {
		t.Fatal(err)
	}
	idle := func() bool { return !running() }
	proctest.Until(t, "it ends once it has the context", idle)
	s.busy(0)
	c.SetDesired(s.suspended())
	s.clock.AwaitWaiters(1) // until the context is to be disabled
	if !running() {
		t.Error("it does not wait")
	}
	s.clock.Advance(2 * ms)
	proctest.Until(t, "the context is disabled", func() bool { return c.State().Disabled == 1 })
	c.SetDesired(DesiredState{})
	proctest.Until(t, "the context is enabled, and it ends", func() bool { return c.State().Disabled == 0 && !running() })
	if err := c.Close(false); err != nil {
		t.Error(err)
	}
	s.check(0, 0)
}

// TestDisableAndEnable: only a context that still is on the GPU at DisableAt is disabled. It is
// enabled at once when the guest may run.
func TestDisableAndEnable(t *testing.T) {
	s := newScene(t)
	s.take(0, 1)
	s.busy(0)
	w := s.suspended()
	if next := s.want(w); next != w.DisableAt {
		t.Errorf("looks again at %v, want %v", next, w.DisableAt)
	}
	s.check(0, 0)
	s.clock.Advance(2 * ms)
	if next := s.want(w); next != s.clock.Now()+ipc.HeartbeatInterval {
		t.Errorf("looks again at %v for what has nothing on the GPU", next)
	}
	s.check(0, 1)
	s.check(1, 0)
	for range 5 {
		s.clock.Advance(ms)
		s.want(w)
	}
	s.check(0, 1)
	s.busy(1) // its executor was late
	s.clock.Advance(ms)
	s.want(w)
	s.check(1, 1)
	s.want(DesiredState{})
	s.check(0, 0)
	s.check(1, 0)
	got := s.controller.State()
	want := State{Controlled: 2, Disables: 2, Enables: 2, DisabledTime: 6 * ms}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestFillsAreDisabled: a context whose memory is being filled is disabled as for a launch.
func TestFillsAreDisabled(t *testing.T) {
	s := newScene(t)
	s.take(0, 1)
	s.page.Context(0).SetFilling(true)
	w := s.suspended()
	s.want(w)
	s.clock.Advance(2 * ms)
	s.want(w)
	s.check(0, 1)
	s.check(1, 0)
	s.want(DesiredState{})
	s.check(0, 0)
}

// TestShortSuspensionDisablesNothing: a guest may run again, or has no more work, before DisableAt.
func TestShortSuspensionDisablesNothing(t *testing.T) {
	s := newScene(t)
	s.take(0)
	s.busy(0)
	s.want(s.suspended())
	s.clock.Advance(ms)
	s.want(DesiredState{})
	s.clock.Advance(ms)
	s.want(DesiredState{Suspend: true}) // where nothing is to be disabled
	s.clock.Advance(time.Second)
	s.want(DesiredState{Suspend: true})
	s.want(s.suspended())
	s.page.Context(0).AddFinished(0, 0, false)
	s.clock.Advance(2 * ms)
	s.want(s.desired)
	if calls := s.driver.Calls(name(0)); len(calls) != 0 {
		t.Errorf("the driver was asked to %v", calls)
	}
}

// TestFailingDriver: a failed call is made again a bounded number of times, what it may have
// disabled is enabled, and the state has the problem until a call succeeds.
func TestFailingDriver(t *testing.T) {
	broken := errors.New("GPU is busy")
	t.Run("disable", func(t *testing.T) {
		s := newScene(t)
		s.take(0)
		s.busy(0)
		s.driver.Fail("suspend", 100, broken)
		w := s.suspended()
		for range 100 {
			s.clock.Advance(ms)
			s.want(w)
		}
		s.check(0, 0)
		if n := count(s.driver.Calls(name(0)), "suspend"); n != disableAttempts {
			t.Errorf("tried %d times, want %d", n, disableAttempts)
		}
		if st := s.controller.State(); st.Errors != disableAttempts || !strings.Contains(st.Problem, "context 0: disable its channels: GPU is busy") {
			t.Errorf("%+v", st)
		}
		// At the next suspension it is tried again.
		s.want(DesiredState{})
		s.driver.Fail("suspend", 0, nil)
		w = s.suspended()
		s.clock.Advance(2 * ms)
		s.want(w)
		s.check(0, 1)
		if st := s.controller.State(); st.Problem != "" {
			t.Errorf("works, and %+v", st)
		}
	})
	t.Run("enable", func(t *testing.T) {
		s := newScene(t)
		s.take(0)
		s.busy(0)
		s.want(s.suspended())
		s.clock.Advance(2 * ms)
		s.want(s.desired)
		s.driver.Fail("resume", 1000, broken)
		for range 20000 {
			s.clock.Advance(ms)
			s.want(DesiredState{})
		}
		s.check(0, 1) // which its executor sees
		if n := count(s.driver.Calls(name(0)), "resume"); n != enableAttempts {
			t.Errorf("tried %d times, want %d", n, enableAttempts)
		}
		if st := s.controller.State(); st.Disabled != 1 || st.Problem == "" {
			t.Errorf("%+v", st)
		}
		w := s.suspended()
		s.clock.Advance(2 * ms)
		s.want(w)
		s.check(0, 1) // never a second one
		s.driver.Fail("resume", 0, nil)
		s.want(DesiredState{})
		s.check(0, 0)
		if st := s.controller.State(); st.Disabled != 0 || st.Problem != "" {
			t.Errorf("%+v", st)
		}
	})
	t.Run("both", func(t *testing.T) {
		s := newScene(t)
		s.take(0)
		s.busy(0)
		s.driver.Fail("suspend", 1, broken)
		s.driver.Fail("resume", 2, broken)
		s.want(s.suspended())
		s.clock.Advance(2 * ms)
		s.want(s.desired)
		if st := s.controller.State(); st.Leftover != 1 || !s.page.Disabled(0) {
			t.Errorf("it may be disabled, and %+v", st)
		}
		for range 100 {
			s.clock.Advance(ms)
			s.want(s.desired)
		}
		s.check(0, 1) // enabled, and disabled in the end
		if st := s.controller.State(); st.Leftover != 0 || st.Errors != 3 || st.Problem != "" {
			t.Errorf("%+v", st)
		}
	})
	t.Run("slice", func(t *testing.T) {
		s := newScene(t)
		s.take(0)
		s.driver.Fail("slice", 100, broken)
		for range 100 {
			s.clock.Advance(ms)
			s.want(DesiredState{Slice: 5 * ms})
		}
		if n := count(s.driver.Calls(name(0)), "slice"); n != sliceAttempts {
			t.Errorf("tried %d times, want %d", n, sliceAttempts)
		}
	})
	t.Run("directory", func(t *testing.T) {
		s := newScene(t)
		s.take(0)
		s.busy(0)
		if err := os.Remove(s.o.Intents.dir); err != nil {
			t.Fatal(err)
		}
		w := s.suspended()
		for range 100 {
			s.clock.Advance(ms)
			s.want(w)
		}
		// A call that isn't written down is not made.
		if calls := s.driver.Calls(name(0)); len(calls) != 0 {
			t.Errorf("the driver was asked to %v", calls)
		}
		if st := s.controller.State(); st.Errors != disableAttempts {
			t.Errorf("%+v", st)
		}
	})
}

func count(calls []string, op string) (n int) {
	for _, c := range calls {
		if c == op {
			n++
		}
	}
	return n
}

// TestRestartedDaemon: contexts that the last daemon left disabled are enabled when their handles
// come, also if the guest is to be suspended. No other context is.
func TestRestartedDaemon(t *testing.T) {
	s := newScene(t)
	s.take(0, 1)
	s.busy(0)
	s.want(s.suspended())
	s.clock.Advance(2 * ms)
	s.want(s.desired)
	s.check(0, 1)

	noted, err := s.o.Intents.List()
	if err != nil || len(noted) != 1 || !slices.Equal(noted["a"], []int{0}) {
		t.Fatalf("noted %v, %v", noted, err)
	}
	s.again(noted["a"]...)
	w := DesiredState{Suspend: true}
	s.want(w)
	s.check(0, 1) // the handles are not there yet
	s.take(0, 1)
	s.want(w)
	s.check(0, 0)
	if calls := s.driver.Calls(name(1)); len(calls) != 0 {
		t.Errorf("a context that was not disabled: %v", calls)
	}
	if st := s.controller.State(); st.Leftover != 0 || st.Controlled != 2 {
		t.Errorf("%+v", st)
	}
}

// TestSlices: a slice is set if it differs by more than the tolerance. The driver's own is
// restored.
func TestSlices(t *testing.T) {
	s := newScene(t)
	s.take(0, 1)
	for _, c := range []struct {
		want, set time.Duration
		calls     int
	}{
		{0, 0, 0}, {4 * ms, 4 * ms, 1}, {4 * ms, 4 * ms, 1}, {4*ms + 190*time.Microsecond, 4 * ms, 1},
		{4*ms + 210*time.Microsecond, 4*ms + 210*time.Microsecond, 2}, {ms, ms, 3}, {0, 2 * ms, 4}, {0, 2 * ms, 4}, {2 * ms, 2 * ms, 5},
	} {
		s.want(DesiredState{Slice: c.want})
		for slot := range 2 {
			if got := s.driver.Slice(name(slot)); got != c.set || len(s.driver.Calls(name(slot))) != c.calls {
				t.Errorf("wanted %v: context %d has %v after %d calls, want %v after %d", c.want, slot, got, len(s.driver.Calls(name(slot))), c.set, c.calls)
			}
		}
	}
	// One that comes later gets it too.
	s.want(DesiredState{Slice: 8 * ms})
	s.take(2)
	s.want(s.desired)
	if got := s.driver.Slice(name(2)); got != 8*ms {
		t.Errorf("a later context has %v", got)
	}
}

// TestSlicesOfAnEarlierDaemon: slices that a killed daemon had set are restored or set again. A
// context with the driver's own slice is left alone.
func TestSlicesOfAnEarlierDaemon(t *testing.T) {
	for _, want := range []time.Duration{0, ms, 8 * ms} {
		s := newScene(t)
		s.take(0)
		s.want(DesiredState{Slice: 8 * ms})
		s.again()
		s.take(0, 1)
		s.want(DesiredState{Slice: want})
		s.want(s.desired)
		set := want
		if want == 0 {
			set = s.o.DefaultSlice
		}
		if got := s.driver.Slice(name(0)); got != set {
			t.Errorf("wanted %v: the time slice is %v", want, got)
		}
		if calls := s.driver.Calls(name(0)); len(calls) != 2 {
			t.Errorf("wanted %v: the driver was asked to %v", want, calls)
		}
		if calls := s.driver.Calls(name(1)); (len(calls) == 0) != (want == 0) {
			t.Errorf("wanted %v: for a new context the driver was asked to %v", want, calls)
		}
		if s.page.Sliced(0) != (want != 0) {
			t.Errorf("wanted %v: the page says %v", want, s.page.Sliced(0))
		}
	}
}

// TestClose: Close undoes everything.
func TestClose(t *testing.T) {
	for who, ended := range map[string]bool{"daemon": false, "guest": true} {
		t.Run(who, func(t *testing.T) {
			s := newScene(t)
			s.page.Context(0).SetReady(1)
			g := New(s.o)
			if err := g.SetControl(0, s.control(0)); err != nil {
				t.Fatal(err)
			}
			if err := g.SetControl(1, s.control(1)); err != nil {
				t.Fatal(err)
			}
			s.busy(0)
			g.SetDesired(DesiredState{Suspend: true, DisableAt: s.clock.Now() + 2*ms, Slice: 5 * ms})
			s.clock.AwaitWaiters(1) // for the time to disable
			s.clock.Advance(2 * ms)
			s.clock.AwaitWaiters(1) // for context 1, which has nothing on the GPU
			s.check(0, 1)
			if err := g.Close(ended); err != nil {
				t.Error(err)
			}
			s.check(0, 0)
			if !ended && s.driver.Slice(name(1)) != s.o.DefaultSlice {
				t.Errorf("its time slice stays %v", s.driver.Slice(name(1)))
			}
			// Later is too late for anything.
			g.SetDesired(DesiredState{Slice: ms})
			if err := errors.Join(g.SetControl(2, s.control(2)), g.SetControl(3, nil), g.Close(false)); err != nil {
				t.Error(err)
			}
			if n := s.driver.Open(); n != 0 {
				t.Errorf("%d controls are open", n)
			}
		})
	}
}
