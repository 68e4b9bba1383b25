package scheduler

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"vgpud/fairshare"
	"vgpud/gpu"
	"vgpud/gpu/gputest"
	"vgpud/mediator/ipc"
	"vgpud/mediator/suspend"
)

// hardware is the driver of a GPU whose contexts can be controlled, and what controls them.
type hardware struct {
	*gputest.Driver
	t           testing.TB
	controllers map[*Guest]*suspend.Controller
}

// controlled makes a scene's GPU one whose contexts can be controlled, and has each guest's first
// context be controlled.
func (s *scene) controlled(c Control) *hardware {
	s.t.Helper()
	h := &hardware{Driver: &gputest.Driver{}, t: s.t, controllers: make(map[*Guest]*suspend.Controller)}
	s.sched.gpu.Controllable, s.sched.gpu.Properties.Preempts, s.sched.o.Control = true, true, c
	intents, err := suspend.NewIntents(filepath.Join(s.t.TempDir(), "holds"))
	if err != nil {
		s.t.Fatal(err)
	}
	for _, g := range s.guests {
		h.controllers[g] = suspend.New(suspend.Options{
			Guest: g.o.Name, Page: g.o.Page, Intents: intents, DefaultSlice: fairshare.DefaultSlice, Clock: &s.clock, Log: slog.New(slog.DiscardHandler),
		})
		g.o.Controller = h.controllers[g]
		h.give(g, 0, g.o.Name)
	}
	s.t.Cleanup(func() {
		for _, c := range h.controllers {
			if err := c.Close(true); err != nil {
				s.t.Error(err)
			}
		}
	})
	return h
}

// control returns the control of a context, by handles with a name.
func (h *hardware) control(name string) gpu.Control {
	h.t.Helper()
	f, err := os.Open(os.DevNull)
	if err != nil {
		h.t.Fatal(err)
	}
	c, err := h.Control(gputest.Handles(name, f))
	if err != nil {
		h.t.Fatal(err)
	}
	return c
}

// give gives a guest's controller the control of a context.
func (h *hardware) give(g *Guest, slot int, name string) {
	h.t.Helper()
	if err := h.controllers[g].SetControl(slot, h.control(name)); err != nil {
		h.t.Fatal(err)
	}
}

// TestContextsAreDisabledAfterAWhile: what a suspended guest has on the GPU is taken off it when
// its time to end is over, and put back when the guest is resumed, or the scheduler stops.
func TestContextsAreDisabledAfterAWhile(t *testing.T) {
	s := newScene(t)
	a := s.join(1, 1, 1)
	s.join(2, 1, 2)
	d := s.controlled(Control{DisableAfter: 2 * ms})
	a.o.Page.Context(0).AddFetched()
	s.next(suspending(1))
	s.poll(ms, busy(1, ms))
	s.clock.AwaitWaiters(1)
	if n := d.Disables("a"); n != 0 {
		t.Fatal("disabled at once")
	}
	s.clock.Advance(2 * ms)
	until(t, "the context is disabled", func() bool { return d.Disables("a") == 1 })
	s.next()
	s.poll(ms)
	s.next(resume(1))
	s.poll(ms)
	until(t, "the context is enabled", func() bool { return d.Disables("a") == 0 })
	if n := len(d.Calls("b")); n != 0 {
		t.Errorf("the driver was asked %d times about a guest that runs", n)
	}
	s.next(suspending(1))
	s.poll(ms)
	s.clock.AwaitWaiters(1)
	s.clock.Advance(2 * ms)
	until(t, "the context is disabled again", func() bool { return d.Disables("a") == 1 })
	if c := d.controllers[a].State(); c.Controlled != 1 || c.Disabled != 1 || c.Disables != 2 || !a.Suspended() {
		t.Errorf("%+v", c)
	}
	s.sched.Stop()
	until(t, "everything is undone", func() bool { return d.Disables("a") == 0 })
}

// TestDaemonThatStoodStillDoubts: it no longer relies on what it did before, whichever of its
// goroutines is the first to show that it is there again. One that is late by less relies on it.
func TestDaemonThatStoodStillDoubts(t *testing.T) {
	for name, first := range map[string]func(*scene){
		"the heartbeat": func(s *scene) {
			s.clock.Advance(ms)
			s.sched.Heartbeat()
		},
		"a verdict":  func(s *scene) { s.next(); s.poll(ms) },
		"a listener": func(s *scene) { s.guests[0].Heartbeat(s.clock.Now()) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			a := s.join(1, 1, 1, 2)
			d := s.controlled(Control{DisableAfter: 2 * ms})
			d.give(a, 1, "idle")
			a.o.Page.Context(0).AddFetched()
			s.next(suspending(1))
			s.poll(ms, busy(1, ms))
			s.clock.Advance(2 * ms)
			until(t, "the context is disabled", func() bool { return d.Disables("a") == 1 })
			a.Heartbeat(s.clock.Now())
			for range 10 { // late, each time
				s.clock.Advance(stoodStill)
				s.clock.AwaitWaiters(1) // for context 1's work
				a.Heartbeat(s.clock.Now())
			}
			// The executor enables it, since the daemon was silent for too long.
			s.clock.Advance(ipc.SuspensionLimit + ms)
			own := d.control("a")
			if !a.o.Page.SuspensionExpired(s.clock.Now()) {
				t.Error("the suspension has not expired")
			}
			if err := errors.Join(own.Resume(), own.Close()); err != nil {
				t.Fatal(err)
			}
			if calls := d.Calls("a"); len(calls) != 2 {
				t.Fatalf("the driver was asked to %v", calls)
			}
			first(s)
			until(t, "the context is enabled for certain", func() bool { return len(d.Calls("a")) == 3 })
			until(t, "the context is disabled again", func() bool {
				s.clock.Advance(ipc.HeartbeatInterval)
				a.Heartbeat(s.clock.Now())
				return d.Disables("a") == 1
			})
			if calls := fmt.Sprint(d.Calls("a")); calls != "[suspend resume resume suspend]" {
				t.Errorf("the driver was asked to %v", calls)
			}
			if calls := d.Calls("idle"); len(calls) != 0 {
				t.Errorf("for a context without work the driver was asked to %v", calls)
			}
		})
	}
}

// TestNothingIsDisabled on a GPU that takes nothing off in mid-kernel, or if it is not wanted.
func TestNothingIsDisabled(t *testing.T) {
	for name, set := range map[string]func(*Scheduler){
		"not wanted":  func(sh *Scheduler) { sh.o.Control.DisableAfter = 0 },
		"no preempts": func(sh *Scheduler) { sh.gpu.Properties.Preempts = false },
		"no control":  func(sh *Scheduler) { sh.gpu.Controllable = false },
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.join(1, 1, 1).o.Page.Context(0).AddFetched()
			d := s.controlled(Control{DisableAfter: 2 * ms, Slices: fairshare.SliceLimits{Max: 1}})
			set(s.sched)
			s.next(suspending(1))
			for range 10 {
				s.poll(10*ms, busy(1, ms))
			}
			if err := d.controllers[s.guests[0]].Close(false); err != nil {
				t.Error(err)
			}
			if calls := d.Calls("a"); len(calls) != 0 {
				t.Errorf("the driver was asked to %v", calls)
			}
		})
	}
}

// TestSlicesAreSet as the policy says, until there is another policy, or they are not wanted any
// more.
func TestSlicesAreSet(t *testing.T) {
	slice := func(id fairshare.GuestID, d time.Duration) fairshare.Verdict {
		return fairshare.Verdict{Guest: id, Action: fairshare.Slice, Slice: d}
	}
	limits := Control{DisableAfter: 2 * ms, Slices: fairshare.SliceLimits{Loss: 0.02, Switch: fairshare.DefaultSliceSwitch, Min: fairshare.DefaultMinSlice, Max: fairshare.DefaultMaxSlice}}
	off := Control{DisableAfter: 2 * ms}
	s := newScene(t)
	s.join(1, 1, 1)
	s.join(2, 1, 2)
	d := s.controlled(limits)
	set := func(what string, a, b time.Duration) {
		t.Helper()
		until(t, what, func() bool { return d.Slice("a") == a && d.Slice("b") == b })
	}
	s.next(slice(1, 3*ms), slice(2, 6*ms))
	s.poll(ms, busy(1, ms))
	set("slices as the policy says", 3*ms, 6*ms)
	s.next()
	s.poll(ms, busy(1, ms)) // without slices
	s.next(slice(1, 5*ms))
	s.poll(ms, busy(1, ms))
	set("another slice", 5*ms, 6*ms)

	if err := s.sched.SetPolicy("none"); err != nil {
		t.Fatal(err)
	}
	s.poll(ms, busy(1, ms))
	set("the driver's own under another policy", fairshare.DefaultSlice, fairshare.DefaultSlice)

	s.sched.policy = s.policy
	s.next(slice(1, 3*ms), slice(2, 6*ms))
	s.poll(ms, busy(1, ms))
	set("slices again", 3*ms, 6*ms)
	s.sched.SetControl(limits) // changes nothing
	s.poll(ms, busy(1, ms))
	set("slices as before", 3*ms, 6*ms)
	s.sched.SetControl(off)
	s.poll(ms, busy(1, ms))
	set("the driver's own where no others are wanted", fairshare.DefaultSlice, fairshare.DefaultSlice)
}

// TestPolicyIsToldOfSlices if they can be set.
func TestPolicyIsToldOfSlices(t *testing.T) {
	k := Control{DisableAfter: 2 * ms, Slices: fairshare.SliceLimits{Loss: 0.05, Max: fairshare.DefaultMaxSlice}}
	s := newScene(t)
	g := s.joinWith(1, GuestOptions{Terms: ipc.Terms{Weight: 1, PriorityCeiling: 4}}, 1, 2, 3)
	s.controlled(k)
	if got := s.sched.control().Slices; got != k.Slices || got.Loss != 0.05 || got.Max == 0 {
		t.Errorf("limits %+v", got)
	}
	g.o.Page.Context(0).AddFetched()
	g.o.Page.Context(2).SetBacklog(true)
	s.poll(ms)
	if st := s.policy.states[0][0]; st.Groups != 2 || st.Urgency != 4 {
		t.Errorf("told %+v", st)
	}
}
