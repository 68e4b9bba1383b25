package daemon

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"vgpud/internal/nearest"
	"vgpud/mediator/access"
	"vgpud/mediator/api"
	"vgpud/mediator/events"
	"vgpud/mediator/ipc"
)

// DeleteVM implements [api.Host].
func (s *Service) DeleteVM(by access.Caller, name string, force bool) error {
	if t, ok := s.silentGuest(name); ok {
		if !force {
			return s.silentError(t)
		}
		s.log.Info("guest deleted", events.Kind(events.GuestDeleted), "guest", name, "force", force, "by", by)
		return s.endSilent(t)
	}
	if s.isLost(name) {
		_, err := s.forgetLost(name)
		return err
	}
	inUse := false
	ended, err := s.end(name, func(g *guest) bool {
		inUse = g.page.Attached() && !force
		return !inUse
	})
	switch {
	case inUse:
		return fmt.Errorf("guest %q: its VMM is connected, and QEMU may end when its device does: stop the VM, or `vgpuctl detach`, or force it (--force): %w", name, api.ErrInUse)
	case !ended && err == nil:
		s.mu.RLock()
		defer s.mu.RUnlock()
		return s.notFound(name)
	}
	if ended {
		s.log.Info("guest deleted", events.Kind(events.GuestDeleted), "guest", name, "force", force, "by", by)
	}
	return err
}

// end ends the guest with that name if meant returns true for it, and reports whether it does.
func (s *Service) end(name string, meant func(*guest) bool) (bool, error) {
	s.mu.RLock()
	g, ok := s.guests[name]
	ok = ok && meant(g)
	if ok {
		g.ending.Store(true)
	}
	s.mu.RUnlock()
	if !ok {
		return false, nil
	}
	// A process that does not read is waited for by nobody else, and is killed at once.
	err := g.conn.Send(ipc.Message{Kind: ipc.KindQuit})
	if err == nil {
		if g.wait(endLimit) {
			return true, g.cleanupError()
		}
		err = fmt.Errorf("it did not end within %v", endLimit)
	}
	// A VMM can keep its guest's process from ending, for example by a descriptor that blocks when
	// it is closed. A process that is killed leaves its descriptors to the kernel.
	s.log.Warn("guest's process does not end and is killed", events.Kind(events.GuestKilled), "guest", name, "pid", g.pid, "err", err)
	if err := s.killGuest(g); err != nil {
		return true, fmt.Errorf("kill guest %q, process %d: %w", name, g.pid, err)
	}
	if !g.wait(endLimit) {
		return true, fmt.Errorf("guest %q, process %d, does not end even though it was killed", name, g.pid)
	}
	return true, g.cleanupError()
}

// killGuest kills a guest's process unless the guest has been forgotten meanwhile, and with it the
// descriptor by which its process is known.
func (s *Service) killGuest(g *guest) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.guests[g.spec.Name] != g {
		return nil
	}
	return kill(g.process)
}

// cleanupError returns why what a guest that is gone has left is still there, or nil if it is not.
func (g *guest) cleanupError() error {
	if g.cleanupErr == nil {
		return nil
	}
	return fmt.Errorf("guest %q has ended, but what it left is still there, and goes when a guest of its name is made or the daemon starts anew: %w: %w",
		g.spec.Name, api.ErrNotSaved, g.cleanupErr)
}

// endLimit is how long a guest's process may take to end when told to, and when killed. libvirt
// waits for its hook, whose own limit exceeds the sum of both.
const endLimit = 2 * time.Second

// wait waits until the guest is forgotten, for limit at most, and reports whether it is.
func (g *guest) wait(limit time.Duration) bool {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-g.gone:
		return true
	case <-t.C:
		return false
	}
}

// notFound returns the error about a name that no guest has.
//
// Preconditions: s.mu is held.
func (s *Service) notFound(name string) error {
	hint := "`vgpuctl get vms` lists them"
	if near, ok := nearest.Name(name, slices.Sorted(maps.Keys(s.guests))); ok && near != name {
		hint = fmt.Sprintf("do you mean %s? %s", near, hint)
	}
	return fmt.Errorf("guest %q: %w (%s)", name, api.ErrNotFound, hint)
}
