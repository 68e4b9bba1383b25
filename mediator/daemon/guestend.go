package daemon

import (
	"errors"
	"net"

	"vgpud/mediator/events"
)

// cleanUp removes what a guest left whose connection has ended.
func (s *Service) cleanUp(g *guest) {
	// A process that has only closed its connection could not be governed.
	if err := kill(g.process); err != nil {
		s.log.Error("end a guest", "guest", g.spec.Name, "err", err)
	}
	g.cleanupErr = s.removeGuest(s.guestDir(g.spec.Name), g.spec.Socket)
	if err := s.sandboxes.Release(g.spec.Sandbox); err != nil {
		s.log.Warn("remove what a guest left", "guest", g.spec.Name, "err", err)
	}
	s.log.Info("guest left", events.Kind(events.GuestLeft), "guest", g.spec.Name)
}

// removeGuest removes the directory and the socket of a guest that is gone.
func (s *Service) removeGuest(dir, socket string) error {
	s.admission.Lock() // a new guest may use the same directory
	defer s.admission.Unlock()
	err := errors.Join(s.o.Files.Remove(dir), s.removeDomainSocket(socket))
	if err != nil {
		s.log.Warn("remove what a guest left", "dir", dir, "socket", socket, "err", err)
	}
	return err
}

// forget lets go of a guest whose process has ended, or which a daemon that ends leaves to itself.
func (s *Service) forget(g *guest, ended bool) {
	for _, p := range g.all() {
		p.device.loop.Remove(p.sched)
	}
	if ended {
		g.budget.Leave()
		s.dropTasks(g)
	}
	if err := g.closeControllers(ended); err != nil {
		s.log.Warn("let go of a guest's contexts", "guest", g.spec.Name, "err", err)
	}
	if ended && g.output != nil {
		if _, err := g.output.End(); err != nil {
			s.log.Debug("close a process's standard error", "err", err)
		}
		g.output = nil
	}
	s.mu.Lock()
	delete(s.guests, g.spec.Name)
	if ended {
		s.recordEnd(g)
	}
	err := g.close()
	s.mu.Unlock()
	if err != nil && !errors.Is(err, net.ErrClosed) {
		s.log.Warn("forget a guest", "guest", g.spec.Name, "err", err)
	}
	g.changed()
	s.tasks.notify() // what was reserved for it is free
}

// closeControllers stops controlling the guest's contexts.
func (g *guest) closeControllers(ended bool) (err error) {
	for _, p := range g.all() {
		err = errors.Join(err, p.controller.Close(ended))
	}
	return err
}
