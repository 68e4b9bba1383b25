package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"vgpud/fairshare"
	"vgpud/gpu"
	"vgpud/gpu/gputest"
	"vgpud/gpu/soft"
	"vgpud/mediator/ipc"
	"vgpud/mediator/suspend"
)

// controlledGPU is a GPU that does nothing, and whose contexts can be controlled.
type controlledGPU struct {
	idleGPU
	*gputest.Driver
}

func (controlledGPU) Properties() gpu.Properties {
	return gpu.Properties{Name: "controlled", SMs: 4, Preempts: true}
}

// controlled makes a scene's GPU one whose contexts can be controlled, and each
// guest's first context one that is.
func (s *scene) controlled(k control) *gputest.Driver {
	s.t.Helper()
	d := &gputest.Driver{}
	device := controlledGPU{Driver: d}
	s.share.opened.device, s.share.opened.props, s.share.control = device, device.Properties(), k
	intents, err := suspend.NewIntents(filepath.Join(s.t.TempDir(), "holds"))
	if err != nil {
		s.t.Fatal(err)
	}
	for _, g := range s.guests {
		g.grip = suspend.New(suspend.Options{
			Guest: g.spec.Name, Page: g.page, Intents: intents, DefaultSlice: fairshare.DefaultSlice, Clock: &s.clock, Log: slog.New(slog.DiscardHandler),
		})
		m := s.handles(0, g.spec.Name)
		s.share.handed(g, &m)
	}
	s.t.Cleanup(func() {
		for _, g := range s.guests {
			if err := g.grip.Close(true); err != nil {
				s.t.Error(err)
			}
		}
	})
	return d
}

// handles is a message of a context's handles, with a file of the test's own.
func (s *scene) handles(slot int, name string) ipc.Message {
	s.t.Helper()
	f, err := os.Open(os.DevNull)
	if err != nil {
		s.t.Fatal(err)
	}
	h := gputest.Handles(name, f)
	m, err := ipc.NewMessage(ipc.KindHandles, ipc.Handles{Slot: slot, Names: h.Names}, f)
	if err != nil {
		s.t.Fatal(err)
	}
	return m
}

// TestSuspensionIsDeepAfterAWhile: what a suspended guest has on the GPU is taken off
// it when its time to end is over, and put back when the guest is resumed, or the
// daemon leaves.
func TestSuspensionIsDeepAfterAWhile(t *testing.T) {
	s := newScene(t)
	a := s.join(1, 1, 1)
	s.join(2, 1, 2)
	d := s.controlled(control{after: 2 * ms})
	a.page.Context(0).AddFetched()
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
	v := a.vm(s.clock.Now(), gpu.Counts{})
	if c := v.Control; c.Contexts != 1 || c.Disabled != 1 || c.Disables != 2 || !v.Suspended {
		t.Errorf("%+v", c)
	}
	s.share.leave()
	until(t, "everything is undone", func() bool { return d.Disables("a") == 0 })
}

// TestDaemonThatStoodStillDoubts: what it had done before, whoever of its goroutines is
// the first to show that it is there again. Who is late by less relies on it.
func TestDaemonThatStoodStillDoubts(t *testing.T) {
	for name, first := range map[string]func(*scene){
		"the heartbeat": func(s *scene) {
			ctx, cancel := context.WithCancel(context.Background())
			var beats sync.WaitGroup
			svc := &Service{clock: &s.clock, shares: []*share{s.share}}
			beats.Go(func() { svc.beat(ctx) })
			s.t.Cleanup(func() { cancel(); beats.Wait() })
			s.clock.AwaitWaiters(2) // with the grip
			s.clock.Advance(beatEvery)
		},
		"a verdict":  func(s *scene) { s.next(); s.poll(ms) },
		"a listener": func(s *scene) { s.guests[0].beat(s.clock.Now()) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			a := s.join(1, 1, 1, 2)
			d := s.controlled(control{after: 2 * ms})
			m := s.handles(1, "idle")
			s.share.handed(a, &m)
			a.page.Context(0).AddFetched()
			s.next(suspending(1))
			s.poll(ms, busy(1, ms))
			s.clock.Advance(2 * ms)
			until(t, "the context is disabled", func() bool { return d.Disables("a") == 1 })
			a.beat(s.clock.Now())
			for range 10 { // late, each time
				s.clock.Advance(standstill)
				s.clock.AwaitWaiters(1) // for context 1's work
				a.beat(s.clock.Now())
			}
			// The executor enables it, since it has seen nobody for too long.
			s.clock.Advance(ipc.SuspensionLimit + ms)
			m = s.handles(0, "a")
			keeper, err := d.Control(gputest.Handles("a", m.Files[0]))
			if err != nil {
				t.Fatal(err)
			}
			if !a.page.SuspensionExpired(s.clock.Now()) {
				t.Error("the executor takes the daemon to be there")
			}
			if err := errors.Join(keeper.Resume(), keeper.Close()); err != nil {
				t.Fatal(err)
			}
			if calls := d.Calls("a"); len(calls) != 2 {
				t.Fatalf("the driver was asked to %v", calls)
			}
			first(s)
			until(t, "the context is enabled for certain", func() bool { return len(d.Calls("a")) == 3 })
			until(t, "the context is disabled again", func() bool {
				s.clock.Advance(ipc.HeartbeatInterval)
				a.beat(s.clock.Now())
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

// TestNothingIsDeepWithoutTheAbility: on a GPU that takes nothing off in mid-kernel,
// and where it is not wanted.
func TestNothingIsDeepWithoutTheAbility(t *testing.T) {
	for name, set := range map[string]func(*share){
		"not wanted":  func(sh *share) { sh.control.after = 0 },
		"no preempts": func(sh *share) { sh.opened.props.Preempts = false },
		"no control":  func(sh *share) { sh.opened.device = idleGPU{} },
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.join(1, 1, 1).page.Context(0).AddFetched()
			d := s.controlled(control{after: 2 * ms, slices: fairshare.SliceLimits{Max: 1}})
			set(s.share)
			s.next(suspending(1))
			for range 10 {
				s.poll(10*ms, busy(1, ms))
			}
			if err := s.guests[0].grip.Close(false); err != nil {
				t.Error(err)
			}
			if calls := d.Calls("a"); len(calls) != 0 {
				t.Errorf("the driver was asked to %v", calls)
			}
		})
	}
}

// TestSlicesAreSet: as the policy says, until there is another, or they are not wanted
// any more.
func TestSlicesAreSet(t *testing.T) {
	slice := func(id fairshare.GuestID, d time.Duration) fairshare.Verdict {
		return fairshare.Verdict{Guest: id, Action: fairshare.Slice, Slice: d}
	}
	limits := (&GPUConfig{}).control()
	off := (&GPUConfig{TimeSlices: slicesOff}).control()
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
	s.poll(ms, busy(1, ms)) // says nothing of them
	s.next(slice(1, 5*ms))
	s.poll(ms, busy(1, ms))
	set("another slice", 5*ms, 6*ms)

	if err := s.share.setPolicy("none"); err != nil {
		t.Fatal(err)
	}
	s.poll(ms, busy(1, ms))
	set("the driver's own under another policy", fairshare.DefaultSlice, fairshare.DefaultSlice)

	s.share.policy = s.policy
	s.next(slice(1, 3*ms), slice(2, 6*ms))
	s.poll(ms, busy(1, ms))
	set("slices again", 3*ms, 6*ms)
	s.share.setControl(limits) // is nothing new
	s.poll(ms, busy(1, ms))
	set("slices as before", 3*ms, 6*ms)
	s.share.setControl(off)
	s.poll(ms, busy(1, ms))
	set("the driver's own where no others are wanted", fairshare.DefaultSlice, fairshare.DefaultSlice)
}

// TestPolicyIsToldOfSlices: where they can be set.
func TestPolicyIsToldOfSlices(t *testing.T) {
	k := (&GPUConfig{SliceLoss: 0.05}).control()
	s := newScene(t)
	g := s.join(1, 1, 1, 2, 3)
	g.terms.PriorityCeiling = 4
	s.controlled(k)
	if got := s.share.controls().slices; got != k.slices || got.Loss != 0.05 || got.Max == 0 {
		t.Errorf("limits %+v", got)
	}
	g.page.Context(0).AddFetched()
	g.page.Context(2).SetBacklog(true)
	s.poll(ms)
	if st := s.policy.states[0][0]; st.Groups != 2 || st.Urgency != 4 {
		t.Errorf("told %+v", st)
	}
}

// TestRubbishHandles: they cost their guest the ability, and nothing else.
func TestRubbishHandles(t *testing.T) {
	s := newScene(t)
	g := s.join(1, 1, 1)
	d := s.controlled(control{after: ms})
	for name, change := range map[string]func(*ipc.Message){
		"no name":        func(m *ipc.Message) { m.Body = json.RawMessage(`{"slot":1,"names":7}`) },
		"no body":        func(m *ipc.Message) { m.Body = nil },
		"slot too high":  func(m *ipc.Message) { m.Body = json.RawMessage(`{"slot":32,"names":"x"}`) },
		"negative slot":  func(m *ipc.Message) { m.Body = json.RawMessage(`{"slot":-1,"names":"x"}`) },
		"not even names": func(m *ipc.Message) { m.Body = json.RawMessage(`{"slot":1}`) },
	} {
		m := s.handles(1, "x")
		change(&m)
		files := m.Files
		s.share.handed(g, &m)
		if err := files[0].Close(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s: its file was left open: %v", name, err)
		}
	}
	if n := d.Open(); n != 1 {
		t.Errorf("%d controls", n)
	}
	if st := g.grip.State(); st.Errors != 2 || !strings.Contains(st.Problem, "context 1: control a context") {
		t.Errorf("%+v", st)
	}
}

// handledContext has handles that a driver of the daemon's process knows.
type handledContext struct {
	gpu.Context
	name string
}

func (c handledContext) Handles() (gpu.Handles, error) {
	f, err := os.Open(os.DevNull)
	if err != nil {
		return gpu.Handles{}, err
	}
	return gputest.Handles(c.name, f), nil
}

// handledGPU makes such contexts, named after their guests.
type handledGPU struct{ *soft.Device }

func (d handledGPU) NewContext(ctx context.Context, o gpu.ContextOptions) (gpu.Context, error) {
	c, err := d.Device.NewContext(ctx, o)
	return handledContext{c, o.Label}, err
}

// TestHandlesComeToEveryDaemon: of an executor, through the guest's process; and the
// daemon lets go of them when the context or the guest ends, or itself.
func TestHandlesComeToEveryDaemon(t *testing.T) {
	t.Setenv(handlesVariable, "yes")
	dir := runDir(t)
	drivers := []*gputest.Driver{{}, {}}
	d := startDaemonOn(t, dir, controlledGPU{Driver: drivers[0]})
	v := d.create("a")
	dev := attach(t, v.Socket)
	j := newJob(t, dev)
	controlled := func(d *daemon, n int) func() bool {
		return func() bool { return d.vm("a").Control.Contexts == n }
	}
	until(t, "the context can be controlled", controlled(d, 1))
	d.stop()
	if n := drivers[0].Open(); n != 0 {
		t.Errorf("the daemon that has ended keeps %d contexts' files", n)
	}

	// The last one left something disabled, as far as the next one can know: a context
	// that is there, one that has ended since, one that no page has, and a guest's that
	// has ended.
	holds := filepath.Join(dir, "holds")
	for _, name := range []string{"a-0", "a-5", "a-99", "gone-3"} {
		if err := os.WriteFile(filepath.Join(holds, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	next := startDaemonOn(t, dir, controlledGPU{Driver: drivers[1]})
	if calls := drivers[1].Calls("a"); fmt.Sprint(calls) != "[resume]" {
		t.Errorf("the next daemon did %v first", calls)
	}
	if left, err := os.ReadDir(holds); err != nil || len(left) != 0 {
		t.Errorf("noted %v, %v", left, err)
	}
	if s := next.vm("a").Control; s.Disabled != 0 {
		t.Errorf("waits for what has ended: %+v", s)
	}
	if !controlled(next, 1)() {
		t.Errorf("%+v", next.vm("a").Control)
	}
	if err := j.gpu.Close(); err != nil {
		t.Fatal(err)
	}
	until(t, "the context is let go of", func() bool { return controlled(next, 0)() && drivers[1].Open() == 0 })
	newJob(t, dev)
	until(t, "the next one can be controlled", controlled(next, 1))
	if err := next.client.ForceDeleteVM(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	until(t, "the guest is let go of", func() bool { return drivers[1].Open() == 0 })
}

// TestHealthTellsOfAFailingDriver, and of whose contexts it fails for.
func TestHealthTellsOfAFailingDriver(t *testing.T) {
	d := startDaemonOn(t, runDir(t), controlledGPU{Driver: &gputest.Driver{}})
	d.create("a")
	d.create("b")
	if h := d.service.Health(); !h.Healthy {
		t.Fatalf("%+v", h)
	}
	d.service.mu.RLock()
	d.service.guests["b"].grip.Refused(3, errors.New("the driver is busy"))
	d.service.mu.RUnlock()
	h, err := d.client.Health(t.Context())
	if err != nil || h.Healthy || len(h.Problems) != 1 || h.Problems[0] != "guest b: context 3: the driver is busy" {
		t.Errorf("%+v, %v", h, err)
	}
	if c := d.vm("b").Control; c.Errors != 1 || c.Problem != "context 3: the driver is busy" {
		t.Errorf("%+v", c)
	}
}
