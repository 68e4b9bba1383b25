package daemon

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"vgpud/fairshare"
	"vgpud/gpu"
	"vgpud/mediator/api"
	"vgpud/mediator/ipc"
	"vgpud/mediator/suspend"
)

// DefaultDeepAfter is how long what a suspended guest has on the GPU may stay there
// where nothing else is configured: longer than most kernels, and than a kernel takes
// to leave that does so when told, and a few times as long as the driver takes to
// take it off.
const DefaultDeepAfter = 2 * time.Millisecond

// The values of time_slices.
const (
	slicesAuto = "auto"
	slicesOff  = "off"
)

// checkControl says what is wrong with how contexts are to be controlled.
func (c *GPUConfig) checkControl() error {
	if c.TimeSlices != "" && c.TimeSlices != slicesAuto && c.TimeSlices != slicesOff {
		return fmt.Errorf("time_slices %q: want %s or %s", c.TimeSlices, slicesAuto, slicesOff)
	}
	if err := checkSpin(c.Spin); err != nil {
		return err
	}
	if c.SliceLoss != 0 && !(c.SliceLoss >= 0.002 && c.SliceLoss <= 0.2) {
		return fmt.Errorf("slice_loss %v: want 0.002 to 0.2", c.SliceLoss)
	}
	if d := time.Duration(c.UrgentPoll); d > ipc.MaxPollLimit {
		return fmt.Errorf("urgent_poll %v: want at most %v, or none", d, ipc.MaxPollLimit)
	}
	return checkWait("deep_after", c.DeepAfter)
}

// control is how a share controls its guests' contexts, where it can.
type control struct {
	after  time.Duration         // until a held guest's contexts are disabled; 0: never
	slices fairshare.SliceLimits // zero: they are left to the driver
}

// control is how contexts are to be controlled.
func (c *GPUConfig) control() control {
	k := control{after: DefaultDeepAfter}
	if c.DeepAfter != 0 {
		k.after = max(time.Duration(c.DeepAfter), 0)
	}
	if c.TimeSlices != slicesOff {
		k.slices = fairshare.SliceLimits{
			Loss: fairshare.DefaultSliceLoss, Switch: fairshare.DefaultSliceSwitch, Min: fairshare.DefaultMinSlice, Max: fairshare.DefaultMaxSlice,
		}
		if c.SliceLoss > 0 {
			k.slices.Loss = c.SliceLoss
		}
	}
	return k
}

// setControl changes how contexts are controlled.
func (s *share) setControl(k control) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.control != k {
		s.control = k
		s.dropSlices()
	}
}

// dropSlices leaves time slices to the driver until the policy says otherwise. The
// caller holds mu.
func (s *share) dropSlices() {
	for _, r := range s.recent {
		r.slice = 0
	}
}

// controls is how contexts of the GPU can be controlled as it is open now. The caller
// holds mu.
func (s *share) controls() control {
	if _, ok := s.opened.device.(gpu.Controller); !ok || !s.opened.props.Preempts {
		return control{}
	}
	return s.control
}

// grasp has a guest's contexts made to what was decided about it. The caller holds mu.
func (s *share) grasp(g *guest) {
	if g.grip == nil {
		return
	}
	k := s.controls()
	w := suspend.DesiredState{}
	if r := s.recent[g.id]; r != nil && k.slices.Max > 0 && !s.over {
		w.Slice = r.slice
	}
	g.mu.Lock()
	if w.Suspend = g.held; w.Suspend && k.after > 0 {
		w.DisableAt = g.heldSince + k.after
	}
	g.mu.Unlock()
	g.grip.SetDesired(w)
}

// told takes up what a guest's process says.
func (s *share) told(g *guest, m *ipc.Message) {
	if m.Kind == ipc.KindHandles {
		s.handed(g, m)
		return
	}
	if err := m.CloseFiles(); err != nil {
		s.log.Debug("close a guest's files", "err", err)
	}
	s.wake()
}

// handed takes up a context's handles that the guest's process has passed on, or that
// it is gone. The message's files are taken over.
func (s *share) handed(g *guest, m *ipc.Message) {
	h, err := m.ReadHandles()
	controller, ok := s.open().device.(gpu.Controller)
	switch {
	case err != nil, len(m.Files) > 0 && !ok:
		err = errors.Join(err, m.CloseFiles())
	case len(m.Files) == 0:
		err = g.grip.SetControl(h.Slot, nil)
	default:
		var c gpu.Control
		if c, err = controller.Control(gpu.Handles{Files: m.Files, Names: h.Names}); err != nil {
			g.grip.Refused(h.Slot, err)
			return
		}
		err = g.grip.SetControl(h.Slot, c)
	}
	if err != nil {
		s.log.Warn("guest's handles", "guest", g.spec.Name, "context", h.Slot, "err", err)
	}
}

// showControl is the state of a grip as the API shows it.
func showControl(s suspend.State) api.Control {
	return api.Control{
		Contexts: s.Controlled, Disabled: s.Disabled, Disables: s.Disables,
		DisableSeconds: s.DisableTime.Seconds(), EnableSeconds: s.EnableTime.Seconds(), DisabledSeconds: s.DisabledTime.Seconds(),
		TimeSliceSeconds: s.Slice.Seconds(), TimeSlices: s.Slices, Errors: s.Errors, Problem: s.Problem,
	}
}

// holdsDir is where it is noted which contexts are disabled.
func (s *Service) holdsDir() string { return filepath.Join(s.o.Config.RunDir, "holds") }

// gripOn begins to hold a guest, of whose contexts an earlier daemon may have left
// some disabled: those that it noted, and those of which the guest's page says so.
func (s *Service) gripOn(g *guest) *suspend.Controller {
	var left []int
	s.mu.Lock()
	noted := s.left[g.spec.Name]
	delete(s.left, g.spec.Name)
	s.mu.Unlock()
	for _, slot := range noted {
		if over(g.page, slot) {
			if err := s.intents.Remove(g.spec.Name, slot); err != nil {
				s.log.Warn("forget that a context was disabled which is over", "guest", g.spec.Name, "context", slot, "err", err)
			}
			continue
		}
		left = append(left, slot)
	}
	for slot := range ipc.MaxContexts {
		if g.page.Disabled(slot) {
			left = append(left, slot)
		}
	}
	slices.Sort(left)
	return suspend.New(suspend.Options{
		Guest: g.spec.Name, Page: g.page, Intents: s.intents, Leftover: slices.Compact(left),
		DefaultSlice: gpu.DriverTimeslice, Clock: s.clock, Log: s.log,
	})
}

// over is whether the context of which it was noted that it is disabled has ended since:
// the disable ended with it, and vm has said so.
func over(page *ipc.ControlPage, slot int) bool {
	if slot >= ipc.MaxContexts {
		return true // of a page of another version
	}
	state := page.Context(slot).State()
	return (state == ipc.ContextNone || state == ipc.ContextStarting) && !page.Disabled(slot)
}

// grips are the states of all guests' contexts, by guest.
func (s *Service) grips() map[string]suspend.State {
	s.mu.RLock()
	defer s.mu.RUnlock()
	states := make(map[string]suspend.State, len(s.guests))
	for name, g := range s.guests {
		states[name] = g.grip.State()
	}
	return states
}

// enableLimit is how long a daemon waits, before it decides anything, for guests to
// hand over the contexts that an earlier one left disabled. Those that don't enable
// them themselves.
const enableLimit = time.Second

// enableLeft waits until what an earlier daemon left disabled is enabled, and forgets
// what it noted of guests that are gone.
func (s *Service) enableLeft() {
	s.mu.RLock()
	grips := make(map[string]*suspend.Controller, len(s.guests))
	for name, g := range s.guests {
		grips[name] = g.grip
	}
	s.mu.RUnlock()
	limit := time.NewTimer(enableLimit)
	defer limit.Stop()
	late := false
	for name, grip := range grips {
		select {
		case <-grip.Settled():
			continue
		default:
		}
		if !late {
			select {
			case <-grip.Settled():
				continue
			case <-limit.C:
				late = true
			}
		}
		s.log.Warn("guest's contexts are left disabled by an earlier daemon, and not handed over: they enable themselves", "guest", name)
	}
	s.mu.Lock()
	left := make(map[string][]int)
	for name, slots := range s.left {
		if s.silent[name] == nil {
			left[name] = slots
			delete(s.left, name)
		}
	}
	s.mu.Unlock()
	for name, slots := range left {
		for _, slot := range slots {
			if err := s.intents.Remove(name, slot); err != nil {
				s.log.Warn("forget a guest that is gone", "guest", name, "err", err)
			}
		}
	}
}

// letGo ends what is done to a guest's contexts; ended is whether its process has.
func (s *Service) letGo(g *guest, ended bool) {
	if err := g.grip.Close(ended); err != nil {
		s.log.Warn("let go of a guest's contexts", "guest", g.spec.Name, "err", err)
	}
}
