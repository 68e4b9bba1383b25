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
	counts := make(map[string]gpu.Counts)
	for _, sh := range s.shares {
		counts[sh.config.Name] = sh.counts()
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	vms := make([]api.VM, 0, len(s.guests))
	for _, g := range s.guests {
		v := g.vm(s.clock.Now(), counts[g.spec.GPU.Name])
		if sh, err := s.share(v.GPU); err == nil {
			sh.showLaunches(g.id, &v.Preemption)
		}
		vms = append(vms, v)
	}
	for _, t := range s.silent {
		if v, is := s.showSilent(t); is {
			vms = append(vms, v)
		}
	}
	slices.SortFunc(vms, func(a, b api.VM) int { return strings.Compare(a.Name, b.Name) })
	return vms
}

// VM implements [api.Host].
func (s *Service) VM(name string) (api.VM, error) {
	vms := s.VMs()
	if i := slices.IndexFunc(vms, func(v api.VM) bool { return v.Name == name }); i >= 0 {
		return vms[i], nil
	}
	return api.VM{}, noGuest(name)
}

// UpdateVM implements [api.Host].
func (s *Service) UpdateVM(name string, u api.VMUpdate) (api.VM, error) {
	if u.Guarantee != nil {
		// What is guaranteed to all stays together while one is admitted.
		s.admission.Lock()
		defer s.admission.Unlock()
	}
	s.mu.RLock()
	g, ok := s.guests[name]
	s.mu.RUnlock()
	if t, silent := s.silentOne(name); silent {
		return api.VM{}, s.errSilent(t)
	}
	if !ok {
		return api.VM{}, noGuest(name)
	}
	if err := s.update(g, &u); err != nil {
		return api.VM{}, fmt.Errorf("guest %q: %w", name, err)
	}
	return s.VM(name)
}

// update changes a guest that may leave meanwhile.
func (s *Service) update(g *guest, u *api.VMUpdate) error {
	sh, err := s.share(g.spec.GPU.Name)
	if err != nil {
		return err
	}
	if u.Guarantee != nil && *u.Guarantee > g.termsNow().Guarantee {
		r := s.room(sh, g.spec.Name)
		if err := r.admit(*u.Guarantee); err != nil {
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
	sh.changed(g.id)
	t := g.termsNow()
	s.log.Info("terms", "guest", g.spec.Name, "weight", t.Weight, "cap", t.Cap, "guarantee", t.Guarantee, "priority_ceiling", t.PriorityCeiling)
	return nil
}

// amend changes the terms, and reports whether they are others now.
func (s *Service) amend(g *guest, u *api.VMUpdate) (changed bool, err error) {
	s.mu.RLock() // so that its page stays
	defer s.mu.RUnlock()
	if s.guests[g.spec.Name] != g {
		return false, api.ErrNotFound
	}
	return g.amend(u)
}

// GPUs implements [api.Host].
func (s *Service) GPUs() []api.GPU {
	gs := make([]api.GPU, len(s.shares))
	for i, sh := range s.shares {
		gs[i] = s.gpu(sh)
	}
	slices.SortFunc(gs, func(a, b api.GPU) int { return strings.Compare(a.Name, b.Name) })
	return gs
}

func (s *Service) gpu(sh *share) api.GPU {
	n := 0
	sh.guests(func(gs []*guest) { n = len(gs) })
	return sh.gpu(n)
}

// GPU implements [api.Host].
func (s *Service) GPU(name string) (api.GPU, error) {
	sh, err := s.share(name)
	if err != nil {
		return api.GPU{}, err
	}
	return s.gpu(sh), nil
}

// UpdateGPU implements [api.Host].
func (s *Service) UpdateGPU(name string, u api.GPUUpdate) (api.GPU, error) {
	sh, err := s.share(name)
	if err != nil {
		return api.GPU{}, err
	}
	if u.Policy != nil {
		if err := s.updatePolicy(sh, *u.Policy); err != nil {
			return api.GPU{}, fmt.Errorf("GPU %s: %w", name, err)
		}
	}
	return s.gpu(sh), nil
}

// Health implements [api.Host].
func (s *Service) Health() api.Health {
	h := api.Health{Version: s.o.Version, Healthy: true, UptimeSeconds: (s.clock.Now() - s.since).Seconds(), Unconfined: s.sandboxes.Missing()}
	for _, g := range s.GPUs() {
		if !g.Healthy {
			h.Healthy = false
			h.Problems = append(h.Problems, "GPU "+g.Name+": "+g.Problem)
		}
	}
	for _, t := range s.silents() {
		if v, is := s.showSilent(t); is {
			h.Healthy = false
			h.Problems = append(h.Problems, "guest "+t.name+" is not governed: "+v.Silent)
		}
	}
	for name, state := range s.grips() {
		if state.Problem != "" {
			h.Healthy = false
			h.Problems = append(h.Problems, "guest "+name+": "+state.Problem)
		}
	}
	slices.Sort(h.Problems)
	return h
}
