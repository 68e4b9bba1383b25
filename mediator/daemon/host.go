package daemon

import (
	"fmt"
	"slices"
	"strings"

	"vgpud/gpu"
	"vgpud/mediator/access"
	"vgpud/mediator/api"
	"vgpud/mediator/events"
	"vgpud/mediator/tasks"
)

// VMs implements [api.Host].
func (s *Service) VMs() []api.VM {
	counts := make(map[*device]gpu.Counts)
	for _, d := range s.devices {
		counts[d] = d.loop.Counts()
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	vms := make([]api.VM, 0, len(s.guests))
	for _, g := range s.guests {
		vms = append(vms, g.vm(s.clock.Now(), counts))
	}
	for _, t := range s.silent {
		if v, silent := t.vm(); silent {
			vms = append(vms, v)
		}
	}
	for name := range s.lost {
		if v := s.lostGuest(name); v != nil {
			vms = append(vms, v.VM)
		}
	}
	slices.SortFunc(vms, func(a, b api.VM) int { return strings.Compare(a.Name, b.Name) })
	return vms
}

// VM implements [api.Host].
func (s *Service) VM(name string) (api.VM, error) {
	if t, ok := s.silentGuest(name); ok {
		if v, silent := t.vm(); silent {
			return v, nil
		}
	}
	g, err := s.guest(name)
	var counts map[*device]gpu.Counts
	if err == nil {
		counts = g.ownCounts()
	}
	s.mu.RLock() // so that its page stays open
	defer s.mu.RUnlock()
	if err == nil && s.guests[name] == g {
		return g.vm(s.clock.Now(), counts), nil
	}
	if v := s.lostGuest(name); v != nil { // perhaps since a moment ago
		return v.VM, nil
	}
	return api.VM{}, s.notFound(name)
}

// guest returns the guest with a name.
func (s *Service) guest(name string) (*guest, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if g, ok := s.guests[name]; ok {
		return g, nil
	}
	if v := s.lostGuest(name); v != nil {
		return nil, fmt.Errorf("guest %q is lost: %s: %w", name, v.Lost, api.ErrInUse)
	}
	return nil, s.notFound(name)
}

// UpdateVM implements [api.Host].
func (s *Service) UpdateVM(by access.Caller, name string, u api.VMUpdate) (api.VM, error) {
	if err := s.claimUpdate(name, &u); err != nil {
		return api.VM{}, fmt.Errorf("guest %q: %w", name, err)
	}
	if u.Guarantee != nil {
		// The guarantees of all guests must not change while one is admitted.
		s.admission.Lock()
		defer s.admission.Unlock()
	}
	if t, ok := s.silentGuest(name); ok {
		return api.VM{}, s.silentError(t)
	}
	g, err := s.guest(name)
	if err != nil {
		return api.VM{}, err
	}
	if err := s.update(by, g, &u); err != nil {
		return api.VM{}, fmt.Errorf("guest %q: %w", name, err)
	}
	return s.VM(name)
}

// update changes a guest, which may leave meanwhile.
func (s *Service) update(by access.Caller, g *guest, u *api.VMUpdate) error {
	if u.Guarantee != nil && *u.Guarantee > g.terms().Guarantee {
		s.mu.RLock() // so that its pages stay open
		there := s.there(g)
		s.mu.RUnlock()
		for _, p := range there {
			c := s.capacity(p.device, g.spec.Name)
			if err := c.admit(*u.Guarantee); err != nil {
				return err
			}
		}
	}
	if g.floats() && u.MemoryLimitBytes != nil {
		if err := s.checkFloat(*u.MemoryLimitBytes); err != nil {
			return err
		}
	}
	changed, err := s.grant(g, u)
	if err != nil || len(changed) == 0 {
		return err
	}
	g.changed()
	s.admitTasks(g)
	s.tasks.notify() // a guest that does not float may have more now
	s.log.Info("settings changed", append([]any{events.Kind(events.SettingsChanged), "guest", g.spec.Name, "by", by}, changed...)...)
	return nil
}

// GPUs implements [api.Host].
func (s *Service) GPUs() []api.GPU {
	gs := make([]api.GPU, len(s.devices))
	for i, d := range s.devices {
		gs[i] = s.showGPU(d)
	}
	slices.SortFunc(gs, func(a, b api.GPU) int { return strings.Compare(a.Name, b.Name) })
	return gs
}

// GPU implements [api.Host].
func (s *Service) GPU(name string) (api.GPU, error) {
	d, err := s.device(name)
	if err != nil {
		return api.GPU{}, err
	}
	return s.showGPU(d), nil
}

// showGPU returns a GPU as the API shows it.
func (s *Service) showGPU(d *device) api.GPU {
	g := d.gpu()
	g.VMs = s.countOn(d)
	g.Drained = g.Draining && !s.inUse(d)
	s.tasks.locked(func(t *tasks.Table) {
		i := s.tasks.index(d.config.Name)
		g.GrantedBytes = t.Granted(i)
		_, g.SpareBytes = t.Lent(i)
	})
	return g
}

// countOn returns how many guests a GPU has: those of which [api.VM.On] says so.
func (s *Service) countOn(d *device) (n int) {
	silent := make(map[string]bool)
	for _, t := range s.silentGuests() { // whose locks are held while files are written
		if v, is := t.vm(); is {
			_, silent[t.name] = v.On(d.config.Name)
		}
	}
	now := s.clock.Now()
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, g := range s.guests {
		p := g.onDevice(d)
		if p != nil && (!g.floats() || p.sched.Status(now).Activity.Contexts > 0) {
			n++
		}
	}
	for name, there := range silent {
		if there && s.guests[name] == nil { // else it was adopted meanwhile
			n++
		}
	}
	return n
}

// UpdateGPU implements [api.Host].
func (s *Service) UpdateGPU(by access.Caller, name string, u api.GPUUpdate) (api.GPU, error) {
	d, err := s.device(name)
	if err != nil {
		return api.GPU{}, err
	}
	if u.Policy != nil {
		if err := s.updatePolicy(by, d, *u.Policy); err != nil {
			return api.GPU{}, fmt.Errorf("GPU %s: %w", name, err)
		}
	}
	if u.Cordoned != nil || u.Draining != nil || u.EndContexts {
		if err := s.updateCordon(by, d, &u); err != nil {
			return api.GPU{}, fmt.Errorf("GPU %s: %w", name, err)
		}
	}
	s.tasks.notify()
	return s.showGPU(d), nil
}

// Health implements [api.Host].
func (s *Service) Health() api.Health {
	h := api.Health{Version: s.o.Version, UptimeSeconds: (s.clock.Now() - s.started).Seconds(), Unconfined: s.sandboxes.Missing()}
	for _, g := range s.GPUs() {
		if !g.Healthy {
			h.Problems = append(h.Problems, "GPU "+g.Name+": "+g.Problem)
		}
		if c := (cordon{g.Cordoned, g.Draining}); c.Cordoned {
			h.Cordoned = append(h.Cordoned, "GPU "+g.Name+" "+c.text())
		}
	}
	for _, t := range s.silentGuests() {
		if v, silent := t.vm(); silent {
			h.Problems = append(h.Problems, "guest "+t.name+" is not governed: "+v.Silent)
		}
	}
	s.mu.RLock()
	for name := range s.lost {
		if v := s.lostGuest(name); v != nil && !v.vmEnded() {
			h.Problems = append(h.Problems, "guest "+name+" is lost: "+v.Lost)
		}
	}
	for name, g := range s.guests {
		if problem := g.control().Problem; problem != "" {
			h.Problems = append(h.Problems, "guest "+name+": "+problem)
		}
	}
	s.mu.RUnlock()
	if s.usage != nil {
		h.UsageProblems = s.usage.Problems()
		h.Problems = append(h.Problems, h.UsageProblems...)
	}
	if problem := s.audit.Problem(); problem != "" {
		h.Problems = append(h.Problems, problem)
	}
	slices.Sort(h.Problems)
	h.Healthy = len(h.Problems) == 0
	return h
}
