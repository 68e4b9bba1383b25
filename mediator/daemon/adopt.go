package daemon

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"time"

	"vgpud/fairshare/quota"
	"vgpud/internal/nearest"
	"vgpud/mediator/access"
	"vgpud/mediator/api"
	"vgpud/mediator/events"
	"vgpud/mediator/ipc"
	"vgpud/mediator/scheduler"
	guestproc "vgpud/mediator/vm"
)

// adopt contacts the process behind the control socket in a guest's directory and shares its GPU
// with the guest, going by the saved state. silent is the guest as it was not contacted yet, nil
// for a new one. The process may take until ctx ends to introduce itself.
func (s *Service) adopt(ctx context.Context, dir string, saved *savedState, silent *silentGuest) (*guest, error) {
	conn, err := ipc.Dial(filepath.Join(dir, guestproc.ControlSocket))
	if err != nil {
		return nil, err
	}
	if saved == nil {
		return nil, errors.Join(silent.why, conn.Close())
	}
	stop := context.AfterFunc(ctx, func() {
		if err := conn.Expire(); err != nil {
			s.log.Debug("expire a guest's connection", "guest", saved.Spec.Name, "err", err)
		}
	})
	g, err := receiveHello(conn, saved)
	if !stop() && err == nil {
		err = errors.Join(ctx.Err(), g.closePages(), g.process.Release())
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	g.dir, g.files, g.log = dir, s.o.Files, s.guestLog()
	if saved.older {
		s.log.Warn("guest of an older daemon: its process is believed what the guest was created with", "guest", g.spec.Name)
		if err := s.sandboxes.Adopt(g.spec.Sandbox); err != nil {
			s.log.Warn("guest's limits stay as they were", "guest", g.spec.Name, "err", err)
		}
	}
	if silent != nil {
		s.captureOutput(g)
	}
	if err := s.findDevices(g); err != nil {
		return nil, errors.Join(err, g.close())
	}
	if !saved.older {
		g.saved = *saved
	}
	g.mostMemory = g.spec.MemoryLimit
	s.schedule(g, saved)
	s.restoreTasks(g, saved)
	if saved.older {
		s.save(g)
	}
	if !s.enter(g) {
		return nil, errors.Join(errors.New("the daemon ends"), g.closeControllers(false), g.close())
	}
	if silent != nil {
		g.lives, silent.lives = silent.lives, nil
		silent.settle()
	} else {
		g.lives = s.showLife(dir)
	}
	for _, p := range g.all() {
		p.device.loop.Add(p.sched)
	}
	if silent != nil || g.device.cordonNow().Draining { // an earlier daemon may have drained the GPU
		s.tellDrain(g.device, []*guest{g}, false)
	}
	if !g.page.HasLaunchSlots() {
		s.log.Warn("guest's process is of an older version: its kernels don't wait, and stay on the GPU until they end", "guest", g.spec.Name)
	} else {
		for _, p := range g.all() {
			p.device.loop.Listen(p.sched)
		}
	}
	s.startTasks(g)
	s.wg.Go(func() {
		defer s.noteEnd(g)
		defer close(g.gone)
		defer g.answers.stop()
		ended := g.receive(s.log, func(m *ipc.Message) {
			switch m.Kind {
			case ipc.KindTask, ipc.KindTaskGone, ipc.KindLeft, ipc.KindWants, ipc.KindGrow:
				s.handleTask(g, m)
			case ipc.KindSpare, ipc.KindSpareGone:
				s.handleSpare(g, m)
			default:
				g.handleMessage(m)
			}
		})
		s.saveLast(g, ended)
		if ended {
			if !g.ending.Load() {
				s.loseGuest(g)
			}
			s.cleanUp(g)
		}
		s.forget(g, ended)
	})
	return g, nil
}

// enter makes a guest that was adopted one of the daemon's, unless the daemon ends. The guest's use
// while no daemon ran is billed before.
func (s *Service) enter(g *guest) bool {
	for billed := false; ; billed = true {
		s.mu.Lock()
		if s.leaving || billed || !s.watching {
			if !s.leaving {
				s.guests[g.spec.Name] = g
				delete(s.silent, g.spec.Name)
			}
			defer s.mu.Unlock()
			return !s.leaving
		}
		s.mu.Unlock()
		s.billUnwatched([]*guest{g})
	}
}

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

// schedule makes the guest one of the schedulers' of its GPUs, as it was when its state was saved.
func (s *Service) schedule(g *guest, saved *savedState) {
	now := s.clock.Now()
	terms := ipc.Terms(saved.Terms)
	terms.MemoryLimitBytes = g.spec.MemoryLimit // an older daemon has it there alone
	all := g.all()
	bills, totals, sum := make([]ipc.Bill, len(all)), make([]quota.Measured, len(all)), quota.Measured{}
	for i, p := range all {
		own := saved.on(g.nameOf(p))
		bills[i] = limitBill(own.Bill, p.page.Bill(), now-saved.At)
		p.unaccounted, p.ownBefore = own.Unaccounted, own.OwnBefore
		if p == &g.presence {
			p.before = saved.Before
		}
		totals[i] = quota.Measured{Charged: bills[i].Used - p.before.Used, Executed: max(bills[i].Executed, 0)}
		sum = sum.Add(totals[i])
	}
	g.budget = s.ledger.Join(budgetKey(&g.spec), g.spec.Name, g.domain.Owner, saved.Terms.Budget, sum)
	charged := &charges{budget: g.budget, totals: totals}
	for i, p := range all {
		if s.pinned {
			p.page.SetPollingCPU(s.cpu)
		}
		p.controller = s.startController(g, p)
		p.sched = scheduler.NewGuest(s.recorded(g.lifeOn(p), p.before, scheduler.GuestOptions{
			Name: g.spec.Name, Key: budgetKey(&g.spec), PID: g.pid, TimeLimit: g.spec.KernelTimeLimit, Page: p.page, Controller: p.controller,
			Terms: terms, Bill: bills[i], Budget: presenceBudget{charged, i, p.before.Used},
		}))
		p.sched.SetSuspended(false, now) // what an earlier daemon decided no longer holds
	}
	s.forgetLeftDisabled(g)
}

// closeControllers stops controlling the guest's contexts.
func (g *guest) closeControllers(ended bool) (err error) {
	for _, p := range g.all() {
		err = errors.Join(err, p.controller.Close(ended))
	}
	return err
}

// nameOf returns the name of the GPU on which p is what the guest is, as it was saved.
func (g *guest) nameOf(p *presence) string {
	if g.floats() {
		return g.spec.Floats[p.index].Name
	}
	return g.spec.GPU.Name
}

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
	if err == nil && g.wait(endLimit) {
		return true, g.cleanupError()
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
