package mediator

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"vgpud/mediator/api"
	guestproc "vgpud/mediator/guest"
	"vgpud/mediator/hold"
	"vgpud/mediator/link"
)

// adopt meets the guest behind a control socket. terms are a new guest's; nil is
// what the last daemon noted, or, where it was of a version that noted nothing, said.
func (s *Service) adopt(dir string, terms *api.Terms) (*guest, error) {
	conn, err := link.Dial(filepath.Join(dir, guestproc.ControlSocket))
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.lastID++
	id := s.lastID
	s.mu.Unlock()
	var noted *kept
	if terms == nil {
		if noted, err = readKept(dir); err != nil {
			s.log.Warn("guest goes on with what its page says that it is granted", "dir", dir, "err", err)
		}
	}
	g, err := meet(id, conn)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	g.dir, g.files = dir, s.o.Files
	if err := g.resume(noted, s.clock.Now()); err != nil {
		return nil, errors.Join(err, g.close())
	}
	if terms == nil {
		s.hearFrom(g)
	} else {
		g.terms = *terms
		if err := g.keep(s.clock.Now()); err != nil {
			return nil, errors.Join(err, g.close())
		}
	}
	sh, err := s.share(g.spec.GPU.Name)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("guest %s is on a GPU that is not configured: %w", g.spec.Name, err), g.close())
	}
	if s.pinned {
		g.page.SetWatchCPU(s.cpu)
	}
	if err := s.warden.Adopt(g.spec.Cell); err != nil {
		s.log.Warn("guest's limits stay as they were", "guest", g.spec.Name, "err", err)
	}
	// What the last daemon decided no longer holds.
	g.apply(link.Run, s.clock.Now())
	sh.greet(g)
	s.note(g)
	g.grip = s.gripOn(g)
	s.mu.Lock()
	s.guests[g.spec.Name] = g
	s.sortGuests(g.spec.GPU.Name)
	s.mu.Unlock()
	if !g.page.HasStubs() {
		s.log.Warn("guest's process is of an older version: its kernels don't wait, and stay on the GPU until they end", "guest", g.spec.Name)
	} else {
		g.hearing.Go(func() { sh.listen(g) })
	}
	s.wg.Go(func() {
		defer close(g.gone)
		ended := g.attend(s.log, func(m *link.Message) { sh.told(g, m) })
		s.noteLast(g, ended)
		if ended {
			g.remains = s.clear(dir, g.spec.Socket)
			if err := s.warden.Release(g.spec.Cell); err != nil {
				s.log.Warn("remove what a guest left", "guest", g.spec.Name, "err", err)
			}
			s.log.Info("guest left", "guest", g.spec.Name)
		}
		s.forget(g, ended)
	})
	return g, nil
}

// clear removes what a guest that is gone has left.
func (s *Service) clear(dir, socket string) error {
	s.admission.Lock() // of guests that may use the same directory
	defer s.admission.Unlock()
	err := errors.Join(s.o.Files.Remove(dir), s.clearDomainSocket(socket))
	if err != nil {
		s.log.Warn("remove what a guest left", "dir", dir, "socket", socket, "err", err)
	}
	return err
}

// forget lets go of a guest whose process has ended, or whom a daemon that ends
// leaves to itself. Nobody uses its page after that.
func (s *Service) forget(g *guest, ended bool) {
	close(g.deaf)
	g.page.RingServe()
	g.hearing.Wait()
	s.letGo(g, ended)
	if ended && g.said != nil {
		if _, err := g.said.End(); err != nil {
			s.log.Debug("close a process's standard error", "err", err)
		}
		g.said = nil
	}
	s.mu.Lock()
	delete(s.guests, g.spec.Name)
	s.sortGuests(g.spec.GPU.Name)
	err := g.close()
	s.mu.Unlock()
	if err != nil && !errors.Is(err, net.ErrClosed) {
		s.log.Warn("forget a guest", "guest", g.spec.Name, "err", err)
	}
	if sh, err := s.share(g.spec.GPU.Name); err == nil {
		sh.changed(g.id)
	}
}

// adoptAll finds the guests that an earlier daemon made.
func (s *Service) adoptAll() error {
	vms := s.guestDir("")
	if err := os.MkdirAll(vms, 0o711); err != nil {
		return fmt.Errorf("make the directory of guests: %w", err)
	}
	entries, err := os.ReadDir(vms)
	if err != nil {
		return fmt.Errorf("look for guests: %w", err)
	}
	if s.intents, err = hold.NewIntents(s.holdsDir()); err != nil {
		return err
	}
	if s.left, err = s.intents.List(); err != nil {
		return err
	}
	strays := false
	for _, e := range entries {
		dir := filepath.Join(vms, e.Name())
		switch g, err := s.adopt(dir, nil); {
		case err == nil:
			s.log.Info("guest adopted", "guest", g.spec.Name, "pid", g.pid)
		case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, fs.ErrNotExist):
			// Its process is gone, and left this behind.
			if err := os.RemoveAll(dir); err != nil {
				s.log.Warn("remove what a guest left", "dir", dir, "err", err)
			}
		default:
			strays = true
			s.log.Warn("guest not adopted", "dir", dir, "err", err)
		}
	}
	s.enableLeft()
	return s.clearDomains(strays)
}

// DeleteVM implements [api.Host].
func (s *Service) DeleteVM(name string, force bool) error {
	inUse := false
	ended, err := s.end(name, func(g *guest) bool {
		inUse = g.page.Attached() && !force
		return !inUse
	})
	switch {
	case inUse:
		return fmt.Errorf("guest %q: its VMM is connected, and QEMU may end when its device does: stop the VM, or `vgpuctl detach`, or force it (--force): %w", name, api.ErrInUse)
	case !ended && err == nil:
		return noGuest(name)
	}
	return err
}

// end ends the guest of that name, if it is the one that is meant, and reports
// whether it is.
func (s *Service) end(name string, meant func(*guest) bool) (bool, error) {
	s.mu.RLock()
	g, ok := s.guests[name]
	ok = ok && meant(g)
	var err error
	if ok {
		err = g.conn.Send(link.Message{Kind: link.KindQuit})
	}
	s.mu.RUnlock()
	if !ok {
		return false, nil
	}
	if err != nil {
		return true, fmt.Errorf("tell guest %q to end: %w", name, err)
	}
	if g.left(endLimit) {
		return true, g.remained()
	}
	// A VMM can keep its guest's process from ending, such as by a descriptor whose
	// closing blocks. Killed, it leaves what it has to the kernel.
	s.log.Warn("guest's process does not end and is killed", "guest", name, "pid", g.pid)
	if err := kill(g.process); err != nil {
		return true, fmt.Errorf("kill guest %q, process %d: %w", name, g.pid, err)
	}
	if !g.left(endLimit) {
		return true, fmt.Errorf("guest %q, process %d, does not end even though it was killed", name, g.pid)
	}
	return true, g.remained()
}

// remained is why what a guest that is gone has left is still there; nil: it is not.
func (g *guest) remained() error {
	if g.remains == nil {
		return nil
	}
	return fmt.Errorf("guest %q has ended, but what it left is still there, and goes when a guest of its name is made or the daemon starts anew: %w: %w",
		g.spec.Name, api.ErrNotKept, g.remains)
}

// endLimit is how long a guest's process may take to end when told to, and when
// killed. The hook, behind which libvirt waits, has a limit of both.
const endLimit = 2 * time.Second

// left waits until the guest is forgotten, for that long at most.
func (g *guest) left(limit time.Duration) bool {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-g.gone:
		return true
	case <-t.C:
		return false
	}
}

func noGuest(name string) error {
	return fmt.Errorf("guest %q: %w (`vgpuctl get vms` lists them)", name, api.ErrNotFound)
}
