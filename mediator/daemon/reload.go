package daemon

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"vgpud/accounting"
	"vgpud/mediator/api"
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
		"confinement": c.Confinement == old.Confinement,
		"gpus":        slices.EqualFunc(c.GPUs, old.GPUs, func(a, b GPUConfig) bool { return a.link() == b.link() }),
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
			if err = s.configurePolicy(sh, c.GPUs[j].Policy); err == nil {
				g.Policy = c.GPUs[j].Policy
			}
		}
		if o := c.GPUs[j].MaxOverhead; err == nil && o != g.MaxOverhead {
			if err = sh.setMaxOverhead(o); err == nil {
				g.MaxOverhead = o
				sh.changed(0)
			}
		}
		if err == nil {
			g.DeepAfter, g.TimeSlices, g.SliceLoss = c.GPUs[j].DeepAfter, c.GPUs[j].TimeSlices, c.GPUs[j].SliceLoss
			sh.setControl(g.control())
		}
		if n := &c.GPUs[j]; err == nil && (n.Spin != g.Spin || n.UrgentPoll != g.UrgentPoll) {
			g.Spin, g.UrgentPoll = n.Spin, n.UrgentPoll
			sh.setSpin(g.Spin, g.urgentPoll())
			sh.changed(0)
		}
		if err == nil && c.GPUs[j].Accounting != g.Accounting {
			if err = s.rewatch(sh, c.GPUs[j].Accounting); err == nil {
				g.Accounting = c.GPUs[j].Accounting
			}
		}
		if err != nil {
			s.config.Store(&now) // what was carried out, for the next file to be compared with
			return fixed, fmt.Errorf("GPU %s: %w", g.Name, err)
		}
	}
	s.config.Store(&now)
	s.log.Info("configuration read again", "restart_for", fixed)
	return fixed, nil
}

// rewatch has a GPU watched in another way from now on.
func (s *Service) rewatch(sh *share, c AccountingConfig) error {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	have := sh.opened.sight
	if have.kind == api.SourceEvents && have.events == nil {
		sh.accounting = c // it is gone, and will be opened anew by what that says
		return nil
	}
	if sh.next != nil {
		have = have.with(sh.next.sight)
	}
	by, err := look(sh.opened.device, c.Source, have)
	if err != nil {
		return err
	}
	next, err := s.watching(sh, by, c)
	if err != nil {
		if by.events != have.events {
			err = errors.Join(err, by.close())
		}
		return err
	}
	sh.accounting = c
	err = sh.schedule(&next)
	if sh.stopWatching != nil {
		sh.stopWatching()
	}
	return err
}

// schedule has another watcher be the next, or none, in the place of the one that
// was to be. The caller holds mu.
func (s *share) schedule(next *watching) error {
	dropped := s.next
	s.next = next
	if dropped == nil || dropped.sight.events == s.opened.sight.events || next != nil && dropped.sight.events == next.sight.events {
		return nil
	}
	return dropped.sight.close()
}

// turnedOver puts the watcher that is to be next, if there is one, in the place
// of the one that has ended.
func (s *share) turnedOver() bool {
	s.mu.Lock()
	if s.next == nil {
		s.mu.Unlock()
		return false
	}
	old, now := s.opened.watching, *s.next
	s.opened.watching, s.next = now, nil
	s.planner, s.spread = accounting.NewPlanner(now.watch), false
	s.watchedCPU += old.watcher.CPU()
	s.mu.Unlock()
	if old.sight.told() && !now.sight.told() {
		s.unwanted()
	}
	if old.sight.events == now.sight.events {
		return true
	}
	if err := old.sight.close(); err != nil {
		s.log.Warn("stop watching a GPU", "gpu", s.config.Name, "err", err)
	}
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
