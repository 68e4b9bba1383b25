package daemon

import (
	"context"
	"errors"
	"path/filepath"

	"vgpud/fairshare/quota"
	"vgpud/mediator/ipc"
	"vgpud/mediator/scheduler"
	guestproc "vgpud/mediator/vm"
)

// adopt contacts the process behind the control socket in a guest's directory and shares its GPU
// with the guest, going by the saved state. silent is the guest as it was not contacted yet, nil
// for a new one. The process may take until ctx ends to introduce itself.
func (s *Service) adopt(ctx context.Context, dir string, saved *savedState, silent *silentGuest) (*guest, error) {
	g, err := s.connect(ctx, dir, saved, silent)
	if err != nil {
		return nil, err
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
	s.restore(g, saved)
	if !s.enter(g) {
		return nil, errors.Join(errors.New("the daemon ends"), g.closeControllers(false), g.close())
	}
	if silent != nil {
		g.lives, silent.lives = silent.lives, nil
		silent.settle()
	} else {
		g.lives = s.showLife(dir)
	}
	s.govern(g, silent != nil)
	s.wg.Go(func() { s.follow(g) })
	return g, nil
}

// connect connects to the process behind a control socket, which introduces itself before ctx ends.
func (s *Service) connect(ctx context.Context, dir string, saved *savedState, silent *silentGuest) (*guest, error) {
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
	return g, nil
}

// restore gives a guest's record what was saved of it.
func (s *Service) restore(g *guest, saved *savedState) {
	if !saved.older {
		g.saved = *saved
	}
	g.mostMemory = g.spec.MemoryLimit
	s.schedule(g, saved)
	s.restoreTasks(g, saved)
	if saved.older {
		s.save(g)
	}
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

// govern has the schedulers of a guest's GPUs decide about it from now on. known reports whether an
// earlier daemon may have told it that a GPU is drained.
func (s *Service) govern(g *guest, known bool) {
	for _, p := range g.all() {
		p.device.loop.Add(p.sched)
	}
	if known || g.device.cordonNow().Draining {
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
}

// follow receives a guest's messages until its connection or the daemon ends, and then lets go of it.
func (s *Service) follow(g *guest) {
	defer s.noteEnd(g)
	defer close(g.gone)
	defer g.answers.stop()
	ended := g.receive(s.log, s.clock, func(m *ipc.Message) {
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
			Terms: terms, Bill: bills[i], Budget: presenceBudget{charged, i, p.before.Used}, Log: g.log,
		}))
		p.sched.SetSuspended(false, now) // what an earlier daemon decided no longer holds
	}
	s.forgetLeftDisabled(g)
}

// nameOf returns the name of the GPU on which p is what the guest is, as it was saved.
func (g *guest) nameOf(p *presence) string {
	if g.floats() {
		return g.spec.Floats[p.index].Name
	}
	return g.spec.GPU.Name
}
