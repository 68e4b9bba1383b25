package mediator

import (
	"fmt"
	"slices"
	"time"

	"vgpud/accounting"
)

// Reload takes over what of a configuration can change while the daemon runs:
// each GPU's policy and accounting, the kernels' time limit of guests that are
// made from now on, and how long kernels may take to leave. A policy that was set by the API stays where the configuration
// says what it said before. fixed names the settings that are others, too, and
// take a restart.
func (s *Service) Reload(c Config) (fixed []string, err error) {
	s.reloads.Lock()
	defer s.reloads.Unlock()
	old := s.config.Load()
	for name, same := range map[string]bool{
		"run_dir": c.RunDir == old.RunDir, "socket": c.Socket == old.Socket, "metrics": c.Metrics == old.Metrics, "libvirt": c.Libvirt == old.Libvirt,
		"gpus": slices.EqualFunc(c.GPUs, old.GPUs, func(a, b GPUConfig) bool { return a.Name == b.Name && a.Kind == b.Kind && a.Socket == b.Socket }),
	} {
		if !same {
			fixed = append(fixed, name)
		}
	}
	slices.Sort(fixed)
	now := *old
	now.KernelTimeLimit, now.EvictionDeadline = c.KernelTimeLimit, c.EvictionDeadline
	for _, sh := range s.shares {
		sh.setEvictionDeadline(c.evictionDeadline())
	}
	now.GPUs = slices.Clone(old.GPUs)
	for i := range now.GPUs {
		g := &now.GPUs[i]
		j := slices.IndexFunc(c.GPUs, func(other GPUConfig) bool { return other.Name == g.Name })
		if j < 0 {
			continue
		}
		sh, err := s.share(g.Name)
		if err == nil && c.GPUs[j].Policy != g.Policy {
			if err = sh.setPolicy(c.GPUs[j].Policy); err == nil {
				g.Policy = c.GPUs[j].Policy
				sh.changed(0)
			}
		}
		if err == nil && c.GPUs[j].Accounting != g.Accounting {
			if err = s.rewatch(sh, c.GPUs[j].Accounting); err == nil {
				g.Accounting = c.GPUs[j].Accounting
			}
		}
		if err != nil {
			return fixed, fmt.Errorf("GPU %s: %w", g.Name, err)
		}
	}
	s.config.Store(&now)
	s.log.Info("configuration read again", "restart_for", fixed)
	return fixed, nil
}

// rewatch has a GPU watched in another way from now on.
func (s *Service) rewatch(sh *share, c AccountingConfig) error {
	watch, err := c.config(len(s.o.Config.GPUs))
	if err != nil {
		return err
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	next, err := s.sampler(sh, sh.opened.source, watch)
	if err != nil {
		return err
	}
	sh.watch, sh.planner, sh.next = watch, accounting.NewPlanner(watch), next
	if sh.stopWatching != nil {
		sh.stopWatching()
	}
	return nil
}

// sampler makes one for a GPU.
func (s *Service) sampler(sh *share, source accounting.Source, watch accounting.Config) (*accounting.Sampler, error) {
	return accounting.NewSampler([]accounting.Watched{
		{Name: sh.config.Name, Source: source, Handler: sh, Config: watch},
	}, accounting.SamplerOptions{Pinned: s.pinned, CPU: s.cpu})
}

// turnedOver puts the sampler that is to be next, if there is one, in the place
// of the one that has ended.
func (s *share) turnedOver() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next == nil {
		return false
	}
	s.watchedCPU += s.opened.sampler.CPU()
	s.opened.sampler, s.next = s.next, nil
	return true
}

// silence is how long the daemon's heartbeat may stay away before it counts as
// stuck.
const silence = 2 * time.Second

// Alive is whether the daemon does its rounds: whether its heartbeat, which takes
// all its locks, was there lately.
func (s *Service) Alive() bool {
	return s.clock.Now()-time.Duration(s.beaten.Load()) < silence
}
