package daemon

import (
	"fmt"
	"slices"
)

// Reload takes over what of a configuration can change while the daemon runs: each GPU's policy,
// accounting and control of contexts, the kernels' time limit of guests that are created from now
// on, and how long kernels may take to leave the GPU. A policy that was set over the API stays
// unless the configuration names another one than before. fixed names the settings that have
// changed too and take a restart.
func (s *Service) Reload(c Config) (fixed []string, err error) {
	s.reloads.Lock()
	defer s.reloads.Unlock()
	old := s.config.Load()
	for name, same := range map[string]bool{
		"run_dir": c.RunDir == old.RunDir, "socket": c.Socket == old.Socket, "metrics": c.Metrics == old.Metrics, "libvirt": c.Libvirt == old.Libvirt,
		"confinement": c.Confinement == old.Confinement,
		"gpus":        slices.EqualFunc(c.GPUs, old.GPUs, func(a, b GPUConfig) bool { return a.ipcGPU() == b.ipcGPU() }),
	} {
		if !same {
			fixed = append(fixed, name)
		}
	}
	slices.Sort(fixed)
	now := *old
	now.KernelTimeLimit, now.EvictionDeadline = c.KernelTimeLimit, c.EvictionDeadline
	now.GPUs = slices.Clone(old.GPUs)
	// What was carried out is stored after an error too, for the next file to be compared with.
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
	s.log.Info("configuration read again", "restart_for", fixed)
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
