package daemon

import (
	"fmt"
	"slices"
	"strings"

	"vgpud/gpu"
	"vgpud/mediator/api"
	"vgpud/mediator/ipc"
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
		vms = append(vms, g.vm(s.clock.Now(), counts[g.device]))
	}
	for _, t := range s.silent {
		if v, silent := t.vm(); silent {
			vms = append(vms, v)
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
	if err != nil {
		return api.VM{}, err
	}
	counts := g.device.loop.Counts()
	s.mu.RLock() // so that its page stays open
	defer s.mu.RUnlock()
	if s.guests[name] != g {
		return api.VM{}, notFound(name)
	}
	return g.vm(s.clock.Now(), counts), nil
}

// guest returns the guest with a name.
func (s *Service) guest(name string) (*guest, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if g, ok := s.guests[name]; ok {
		return g, nil
	}
	return nil, notFound(name)
}

// UpdateVM implements [api.Host].
func (s *Service) UpdateVM(name string, u api.VMUpdate) (api.VM, error) {
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
	if err := s.update(g, &u); err != nil {
		return api.VM{}, fmt.Errorf("guest %q: %w", name, err)
	}
	return s.VM(name)
}

// update changes a guest, which may leave meanwhile.
func (s *Service) update(g *guest, u *api.VMUpdate) error {
	if u.Guarantee != nil && *u.Guarantee > g.terms().Guarantee {
		c := s.capacity(g.device, g.spec.Name)
		if err := c.admit(*u.Guarantee); err != nil {
			return err
		}
	}
	if u.Domain != nil {
		if err := api.CheckDomain(*u.Domain); err != nil {
			return err
		}
	}
	was := g.domainNow().Name
	rename := func(name string) { g.setDomain(func(d *ipc.Domain) { d.Name = name }) }
	if u.Domain != nil {
		rename(*u.Domain)
	}
	changed, err := s.grant(g, u)
	if err != nil && u.Domain != nil {
		rename(was)
	}
	if err != nil || !changed {
		return err
	}
	g.device.loop.Changed(g.sched.ID())
	t := g.terms()
	s.log.Info("terms", "guest", g.spec.Name, "weight", t.Weight, "cap", t.Cap, "guarantee", t.Guarantee, "priority_ceiling", t.PriorityCeiling)
	return nil
}

// GPUs implements [api.Host].
func (s *Service) GPUs() []api.GPU {
	gs := make([]api.GPU, len(s.devices))
	for i, d := range s.devices {
		gs[i] = d.gpu()
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
	return d.gpu(), nil
}

// UpdateGPU implements [api.Host].
func (s *Service) UpdateGPU(name string, u api.GPUUpdate) (api.GPU, error) {
	d, err := s.device(name)
	if err != nil {
		return api.GPU{}, err
	}
	if u.Policy != nil {
		if err := s.updatePolicy(d, *u.Policy); err != nil {
			return api.GPU{}, fmt.Errorf("GPU %s: %w", name, err)
		}
	}
	return d.gpu(), nil
}

// Health implements [api.Host].
func (s *Service) Health() api.Health {
	h := api.Health{Version: s.o.Version, UptimeSeconds: (s.clock.Now() - s.started).Seconds(), Unconfined: s.sandboxes.Missing()}
	for _, g := range s.GPUs() {
		if !g.Healthy {
			h.Problems = append(h.Problems, "GPU "+g.Name+": "+g.Problem)
		}
	}
	for _, t := range s.silentGuests() {
		if v, silent := t.vm(); silent {
			h.Problems = append(h.Problems, "guest "+t.name+" is not governed: "+v.Silent)
		}
	}
	s.mu.RLock()
	for name, g := range s.guests {
		if problem := g.controller.State().Problem; problem != "" {
			h.Problems = append(h.Problems, "guest "+name+": "+problem)
		}
	}
	s.mu.RUnlock()
	slices.Sort(h.Problems)
	h.Healthy = len(h.Problems) == 0
	return h
}
