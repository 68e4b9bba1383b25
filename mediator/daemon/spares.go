package daemon

import (
	"vgpud/mediator/ipc"
	"vgpud/mediator/tasks"
)

// spareOf returns a guest's spare executor as the table of tasks knows it. ok reports whether it is on
// one of the guest's GPUs.
func (s *Service) spareOf(g *guest, sp ipc.Spare) (_ tasks.Spare, ok bool) {
	p := g.on(sp.GPU)
	if p == nil {
		return tasks.Spare{}, false
	}
	props := p.device.loop.Properties()
	return tasks.Spare{
		Guest: g.spec.Name, Number: sp.Number, GPU: s.tasks.index(p.device.config.Name), Bytes: props.ContextBytes + props.StartBytes,
	}, true
}

// makesAhead reports whether an executor may make a context ahead on a device. A context on an NVIDIA
// GPU that has run dry stays on the engine until another is wanted, and the GPU's record of context
// switches does not tell that from work. So the guest would be charged while a spare executor waits
// whose process is not known.
func makesAhead(d *device, sp ipc.Spare) bool { return d.config.Kind != "nvidia" || sp.PID > 0 }

// restoreSpares has the table know what an earlier daemon has lent the guest's spare executors.
func (s *Service) restoreSpares(g *guest) {
	for _, sp := range g.spares {
		if x, ok := s.spareOf(g, sp); ok {
			g.on(sp.GPU).sched.SetSpare(sp.PID)
			s.tasks.locked(func(t *tasks.Table) { t.AdoptSpare(x) })
		}
	}
}

// handleSpare handles a message of a guest's process about its spare executor.
func (s *Service) handleSpare(g *guest, m *ipc.Message) {
	var sp ipc.Spare
	err := m.CloseFiles()
	if err == nil {
		err = m.Decode(&sp)
	}
	x, ok := s.spareOf(g, sp)
	switch {
	case err != nil || !ok:
		s.log.Debug("a guest's process sends what can't be read", "guest", g.spec.Name, "kind", m.Kind, "err", err)
		return
	case m.Kind == ipc.KindSpareGone:
		s.tasks.locked(func(t *tasks.Table) { t.SpareGone(x.Guest, x.Number) })
		g.answers.forgetLends(x.Number)
		s.tasks.notify() // a task may wait for its memory
		return
	}
	lent := false
	p := g.on(sp.GPU)
	s.admission.Lock() // what guests are admitted for meanwhile is not lent
	gpus := s.taskGPUs()
	s.tasks.locked(func(t *tasks.Table) { lent = !g.left && makesAhead(p.device, sp) && t.Lend(x, gpus) })
	s.admission.Unlock()
	if lent {
		p.sched.SetSpare(sp.PID) // before it makes the context
	}
	g.answers.addLend(ipc.Lend{Number: sp.Number, Lent: lent}, !lent)
}
