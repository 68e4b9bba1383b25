package daemon

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"vgpud/gpu"
	"vgpud/mediator/api"
	"vgpud/mediator/ipc"
	"vgpud/mediator/suspend"
)

// handleMessage handles a message of a guest's process that is not about a context that floats.
func (g *guest) handleMessage(m *ipc.Message) {
	if m.Kind == ipc.KindHandles {
		g.handleHandles(m)
		return
	}
	if err := m.CloseFiles(); err != nil {
		g.device.log.Debug("close a guest's files", "err", err)
	}
	for _, p := range g.all() {
		p.device.loop.Notify()
	}
}

// handleHandles passes a context's handles on to the controller, or that the context is gone. It
// takes the message's files over.
func (g *guest) handleHandles(m *ipc.Message) {
	h, err := m.ReadHandles()
	p := g.on(h.GPU)
	if err == nil && p == nil {
		err = fmt.Errorf("of GPU %d, which is none of the guest's", h.GPU)
	}
	if err != nil {
		err = errors.Join(err, m.CloseFiles())
		g.log.Warn("handles of a guest's context", "guest", g.spec.Name, "context", h.Slot, "err", err)
		return
	}
	driver, ok := p.device.loop.Device().(gpu.Controller)
	switch {
	case len(m.Files) > 0 && !ok:
		err = m.CloseFiles()
	case len(m.Files) == 0:
		err = p.controller.SetControl(h.Slot, nil)
	default:
		var c gpu.Control
		if c, err = driver.Control(gpu.Handles{Files: m.Files, Names: h.Names}); err != nil {
			p.controller.Refused(h.Slot, err)
			return
		}
		err = p.controller.SetControl(h.Slot, c)
	}
	if err != nil {
		g.log.Warn("handles of a guest's context", "guest", g.spec.Name, "context", h.Slot, "err", err)
	}
}

// apiControl returns the state of a guest's contexts as the API shows it.
func apiControl(s suspend.State) api.Control {
	return api.Control{
		Contexts: s.Controlled, Disabled: s.Disabled, Disables: s.Disables,
		DisableSeconds: s.DisableTime.Seconds(), EnableSeconds: s.EnableTime.Seconds(), DisabledSeconds: s.DisabledTime.Seconds(),
		TimeSliceSeconds: s.Slice.Seconds(), TimeSlices: s.Slices, Errors: s.Errors, Problem: s.Problem,
	}
}

// intentsDir returns the directory where it is saved which contexts are disabled.
func (s *Service) intentsDir() string { return filepath.Join(s.o.Config.RunDir, "holds") }

// startController begins to control a guest's contexts on one of its GPUs. An earlier daemon may have
// left some disabled: those that it saved, and those that the guest's page names.
func (s *Service) startController(g *guest, p *presence) *suspend.Controller {
	var left []int
	s.mu.Lock()
	saved := s.leftDisabled[g.spec.Name]
	s.mu.Unlock()
	for _, slot := range saved {
		if !contextEnded(p.page, slot) {
			left = append(left, slot)
		}
	}
	for slot := range ipc.MaxContexts {
		if p.page.Disabled(slot) {
			left = append(left, slot)
		}
	}
	slices.Sort(left)
	return suspend.New(suspend.Options{
		Guest: g.spec.Name, Page: p.page, Intents: s.intents, Leftover: slices.Compact(left),
		DefaultSlice: gpu.DriverTimeslice, Clock: s.clock, Log: g.log,
	})
}

// forgetLeftDisabled forgets which contexts of a guest an earlier daemon left disabled, since its
// controllers know, and those that are gone altogether.
func (s *Service) forgetLeftDisabled(g *guest) {
	s.mu.Lock()
	saved := s.leftDisabled[g.spec.Name]
	delete(s.leftDisabled, g.spec.Name)
	s.mu.Unlock()
	for _, slot := range saved {
		if !slices.ContainsFunc(g.all(), func(p *presence) bool { return !contextEnded(p.page, slot) }) {
			s.clearIntent(g.spec.Name, slot)
		}
	}
}

// clearIntent forgets that a context is disabled, since it is gone.
func (s *Service) clearIntent(guest string, slot int) {
	if err := s.intents.Remove(guest, slot); err != nil {
		s.log.Warn("forget that a context was disabled which is gone", "guest", guest, "context", slot, "err", err)
	}
}

// contextEnded reports whether a context that was saved as disabled has ended since. The disable
// ended with it, and vm has said so on the page.
func contextEnded(page *ipc.ControlPage, slot int) bool {
	if slot >= ipc.MaxContexts {
		return true // of a page of another version
	}
	state := page.Context(slot).State()
	return (state == ipc.ContextNone || state == ipc.ContextStarting) && !page.Disabled(slot)
}

// enableLimit is how long a new daemon waits, before it decides anything, for guests to hand over
// the contexts that an earlier one left disabled. Guests that don't enable them themselves.
const enableLimit = time.Second

// enableLeft waits until the contexts that an earlier daemon left disabled are enabled, and forgets
// what it saved of guests that are gone.
func (s *Service) enableLeft() {
	s.mu.RLock()
	controllers := make(map[*suspend.Controller]string, len(s.guests))
	for name, g := range s.guests {
		for _, p := range g.all() {
			controllers[p.controller] = name
		}
	}
	s.mu.RUnlock()
	limit := time.NewTimer(enableLimit)
	defer limit.Stop()
	late := false
	for c, name := range controllers {
		select {
		case <-c.Settled():
			continue
		default:
		}
		if !late {
			select {
			case <-c.Settled():
				continue
			case <-limit.C:
				late = true
			}
		}
		s.log.Warn("an earlier daemon left the guest's contexts disabled, and they are not handed over: they enable themselves", "guest", name)
	}
	s.mu.Lock()
	gone := make(map[string][]int)
	for name, slots := range s.leftDisabled {
		if s.silent[name] == nil {
			gone[name] = slots
			delete(s.leftDisabled, name)
		}
	}
	s.mu.Unlock()
	for name, slots := range gone {
		for _, slot := range slots {
			s.clearIntent(name, slot)
		}
	}
}
