package mediator

import (
	"slices"
	"strings"

	"vgpud/gpu"
	"vgpud/mediator/api"
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
		vms = append(vms, g.vm(s.clock.Now(), counts[g.spec.GPU.Name]))
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
	if u.Weight != nil {
		if err := api.CheckWeight(*u.Weight); err != nil {
			return api.VM{}, err
		}
	}
	s.mu.RLock()
	g, ok := s.guests[name]
	if ok && u.Weight != nil {
		g.setWeight(*u.Weight)
	}
	s.mu.RUnlock()
	if !ok {
		return api.VM{}, noGuest(name)
	}
	if u.Weight != nil {
		if sh, err := s.share(g.spec.GPU.Name); err == nil {
			sh.changed(g.id)
		}
		s.log.Info("weight", "guest", name, "weight", *u.Weight)
	}
	return s.VM(name)
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
		if err := sh.setPolicy(*u.Policy); err != nil {
			return api.GPU{}, err
		}
		sh.changed(0)
	}
	return s.gpu(sh), nil
}

// Health implements [api.Host].
func (s *Service) Health() api.Health {
	h := api.Health{Version: s.o.Version, Healthy: true, UptimeSeconds: (s.clock.Now() - s.since).Seconds()}
	for _, g := range s.GPUs() {
		if !g.Healthy {
			h.Healthy = false
			h.Problems = append(h.Problems, "GPU "+g.Name+": "+g.Problem)
		}
	}
	return h
}
