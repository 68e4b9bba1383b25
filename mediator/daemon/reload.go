package daemon

import (
	"fmt"
	"slices"

	"vgpud/mediator/events"
)

// Reload takes over what of a configuration can change while the daemon runs: each GPU's policy,
// accounting and control of contexts, who may use the API, its certificates, the kernels' time limit of guests that are created from now
// on, and how long kernels may take to leave the GPU. A policy that was set over the API stays
// unless the configuration names another one than before. fixed names the settings that have
// changed too and take a restart.
func (s *Service) Reload(c Config) (fixed []string, err error) {
	s.reloads.Lock()
	defer s.reloads.Unlock()
	defer func() {
		if err != nil {
			s.log.Error("configuration not taken over", events.Kind(events.NotReloaded), "err", err)
		}
	}()
	old := s.config.Load()
	for name, same := range map[string]bool{
		"run_dir": c.RunDir == old.RunDir, "state_dir": c.StateDir == old.StateDir, "socket": c.Socket == old.Socket,
		"metrics": c.Metrics == old.Metrics, "metrics_web_config": c.MetricsWebConfig == old.MetricsWebConfig, "libvirt": c.Libvirt == old.Libvirt, "web": c.Web == old.Web,
		"placement_agent":   c.PlacementAgent == old.PlacementAgent,
		"budgets.time_zone": c.Budgets.TimeZone == old.Budgets.TimeZone, "usage": c.Usage == old.Usage,
		"confinement": c.Confinement == old.Confinement,
		"gpus":        slices.EqualFunc(c.GPUs, old.GPUs, func(a, b GPUConfig) bool { return a.ipcGPU() == b.ipcGPU() }),
		"tls.address": c.TLS.Address == old.TLS.Address, "audit": c.Audit == old.Audit,
	} {
		if !same {
			fixed = append(fixed, name)
		}
	}
	slices.Sort(fixed)
	if err := s.setAccess(&c.Access); err != nil {
		return fixed, err
	}
	if c.TLS.Address == s.o.Config.TLS.Address {
		if err := s.loadTLS(&c.TLS); err != nil {
			return fixed, err
		}
	}
	if c.Access.Group != old.Access.Group {
		if err := s.shareSocket(); err != nil {
			return fixed, err
		}
	}
	now := *old
	now.Access = c.Access
	owners, err := c.Budgets.owners()
	if err != nil {
		return fixed, fmt.Errorf("budgets: %w", err)
	}
	s.ledger.SetOwners(owners)
	now.Budgets.Owners = c.Budgets.Owners
	now.KernelTimeLimit, now.EvictionDeadline = c.KernelTimeLimit, c.EvictionDeadline
	now.GPUs = slices.Clone(old.GPUs)
	// Changes that were carried out are stored after an error too, for the next file to be compared
	// with.
	defer s.config.Store(&now)
	for _, d := range s.devices {
		d.loop.SetEvictionDeadline(c.evictionDeadline())
	}
	for i := range now.GPUs {
		g := &now.GPUs[i]
		j := slices.IndexFunc(c.GPUs, func(other GPUConfig) bool { return other.Name == g.Name })
		if j < 0 {
			continue
		}
		if err := s.reloadGPU(g, &c.GPUs[j]); err != nil {
			return fixed, fmt.Errorf("GPU %s: %w", g.Name, err)
		}
	}
	s.log.Info("configuration read again", events.Kind(events.Reloaded), "restart_for", fixed)
	return fixed, nil
}

// reloadGPU changes what is different in a GPU's new configuration, and notes in g what it has
// changed.
//
// Preconditions: s.reloads is held.
func (s *Service) reloadGPU(g, n *GPUConfig) error {
	d, err := s.device(g.Name)
	if err != nil {
		return err
	}
	if n.Policy != g.Policy {
		if err := s.configurePolicy(d, n.Policy); err != nil {
			return err
		}
		g.Policy = n.Policy
	}
	if n.MaxOverhead != g.MaxOverhead {
		if err := d.loop.SetMaxOverhead(n.MaxOverhead); err != nil {
			return err
		}
		g.MaxOverhead = n.MaxOverhead
		d.loop.Changed(0)
	}
	g.DisableAfter, g.TimeSlices, g.SliceLoss = n.DisableAfter, n.TimeSlices, n.SliceLoss
	d.loop.SetControl(g.control())
	if n.BusyWait != g.BusyWait || n.UrgentPoll != g.UrgentPoll {
		g.BusyWait, g.UrgentPoll = n.BusyWait, n.UrgentPoll
		d.loop.SetBusyWait(g.busyWait())
		d.loop.Changed(0)
	}
	by, err := n.Accounting.watching(len(s.o.Config.GPUs))
	if err == nil {
		err = d.loop.SetWatching(by)
	}
	if err == nil {
		g.Accounting = n.Accounting
	}
	return err
}
