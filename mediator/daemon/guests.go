package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"time"

	"vgpud/mediator/api"
	"vgpud/mediator/ipc"
	guestproc "vgpud/mediator/vm"
)

// adopt meets the guest behind a control socket, of which it goes by what was noted. t is
// the guest as it was not met yet, nil where it is a new one. Its process may take as long
// as it likes to introduce itself, until ctx ends.
func (s *Service) adopt(ctx context.Context, dir string, noted *kept, t *silent) (*guest, error) {
	conn, err := ipc.Dial(filepath.Join(dir, guestproc.ControlSocket))
	if err != nil {
		return nil, err
	}
	if noted == nil {
		return nil, errors.Join(t.why, conn.Close())
	}
	s.mu.Lock()
	s.lastID++
	id := s.lastID
	s.mu.Unlock()
	stop := context.AfterFunc(ctx, func() {
		if err := conn.Expire(); err != nil {
			s.log.Debug("expire a guest's link", "guest", noted.Spec.Name, "err", err)
		}
	})
	g, err := meet(id, conn, noted)
	if !stop() && err == nil {
		err = errors.Join(ctx.Err(), g.page.Close(), g.process.Release())
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	g.dir, g.files = dir, s.o.Files
	g.resume(noted, s.clock.Now())
	if noted.older {
		s.log.Warn("guest of an older daemon: what it was made with is what its process says", "guest", g.spec.Name)
		if err := s.sandboxes.Adopt(g.spec.Sandbox); err != nil {
			s.log.Warn("guest's limits stay as they were", "guest", g.spec.Name, "err", err)
		}
	}
	if t != nil {
		s.hearFrom(g)
	}
	sh, err := s.share(g.spec.GPU.Name)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("guest %s is on a GPU that is not configured: %w", g.spec.Name, err), g.close())
	}
	if s.pinned {
		g.page.SetPollingCPU(s.cpu)
	}
	// What the last daemon decided no longer holds.
	g.apply(ipc.Run, s.clock.Now())
	sh.greet(g)
	s.note(g)
	g.grip = s.gripOn(g)
	s.mu.Lock()
	leaves := s.leaves
	if !leaves {
		s.guests[g.spec.Name] = g
		delete(s.silent, g.spec.Name)
		s.sortGuests(g.spec.GPU.Name)
	}
	s.mu.Unlock()
	if leaves {
		return nil, errors.Join(errors.New("the daemon ends"), g.grip.Close(false), g.close())
	}
	if t != nil {
		t.settle()
	}
	if !g.page.HasLaunchSlots() {
		s.log.Warn("guest's process is of an older version: its kernels don't wait, and stay on the GPU until they end", "guest", g.spec.Name)
	} else {
		g.hearing.Go(func() { sh.listen(g) })
	}
	s.wg.Go(func() {
		defer close(g.gone)
		ended := g.attend(s.log, func(m *ipc.Message) { sh.told(g, m) })
		s.noteLast(g, ended)
		if ended {
			// One that has but closed its link could not be governed.
			if err := kill(g.process); err != nil {
				s.log.Error("end a guest", "guest", g.spec.Name, "err", err)
			}
			g.remains = s.clear(dir, g.spec.Socket)
			if err := s.sandboxes.Release(g.spec.Sandbox); err != nil {
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
	g.page.WakeDaemon()
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

// DeleteVM implements [api.Host].
func (s *Service) DeleteVM(name string, force bool) error {
	if t, ok := s.silentOne(name); ok {
		if !force {
			return s.errSilent(t)
		}
		return s.endSilent(t)
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
		err = g.conn.Send(ipc.Message{Kind: ipc.KindQuit})
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
		g.spec.Name, api.ErrNotSaved, g.remains)
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
