package vm

import (
	"fmt"
	"log/slog"
	"slices"

	"vgpud/mediator/ipc"
	"vgpud/mediator/vgpu"
	"vgpud/mediator/vgpu/abi"
)

// homeOf returns which of its GPUs has the contexts of a guest that don't float.
func homeOf(s *ipc.Spec) (int, error) {
	if len(s.Floats) == 0 {
		return 0, nil
	}
	if len(s.Floats) > ipc.MaxGPUs {
		return 0, fmt.Errorf("a guest that floats over %d GPUs: want at most %d", len(s.Floats), ipc.MaxGPUs)
	}
	home := slices.Index(s.Floats, s.GPU)
	if home < 0 {
		return 0, fmt.Errorf("GPU %s is not one of those that the guest floats over", s.GPU.Name)
	}
	return home, nil
}

// home returns the index of the GPU of contexts that don't float.
func (b *executors) home() int { return b.homeGPU }

// gpu returns the GPU with an index of b.pages.
func (b *executors) gpu(i int) ipc.GPU {
	if len(b.spec.Floats) == 0 {
		return b.spec.GPU
	}
	return b.spec.Floats[i]
}

// page returns the control page of the process's GPU.
func (p *process) page() *ipc.ControlPage { return p.b.pages[p.gpu] }

// awaitGPU waits until a context that floats has a GPU, of which the daemon was told. It
// reports false if the context gets none: then the guest knows, or has destroyed it.
func (p *process) awaitGPU(log *slog.Logger) bool {
	for {
		var pl ipc.Place
		select {
		case <-p.ctx.Done():
			log.Debug("context no longer waits for a GPU")
			return false
		case pl = <-p.placed:
		}
		switch {
		case pl.Code != 0:
			log.Info("no GPU for a context", "err", abi.ErrorCode(pl.Code), "bytes", p.task.Memory)
			p.b.dev.ContextFaulted(p.ref, abi.ErrorCode(pl.Code))
			return false
		case pl.Granted > 0 && pl.GPU >= 0 && pl.GPU < len(p.b.pages):
			p.gpu, p.grant = pl.GPU, pl.Granted
			p.setGranted(pl.Granted)
			p.b.dev.ContextPlaced(p.ref, pl.Number, pl.Granted, pl.Waited)
			log.Debug("context placed", "gpu", p.b.gpu(p.gpu).Name, "bytes", pl.Granted, "waited", pl.Waited)
			return true
		default:
			p.b.dev.ContextWaits(p.ref, abi.WaitReason(pl.Reason))
		}
	}
}

// place passes the daemon's decision on to the context that it is about.
func (b *executors) place(pl ipc.Place) {
	if pl.Slot < 0 || pl.Slot >= ipc.MaxContexts {
		return
	}
	if p := b.process(pl.Slot); p != nil && p.ref == (vgpu.ContextRef{Slot: pl.Slot, Generation: pl.Generation}) {
		p.tell(pl)
	}
}

// tell passes a decision to the process's goroutine. A newer decision takes the place of an older
// one, unless that was the last word.
func (p *process) tell(pl ipc.Place) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tellLocked(pl)
}

// tellLocked is tell. Preconditions: mu is held.
func (p *process) tellLocked(pl ipc.Place) {
	if pl.Left != p.moves.times && pl.Reason == 0 && pl.Code == 0 {
		return // the context has left since, or never was there
	}
	if pl.Want > 0 && p.moves.at == onGPU && p.ready {
		p.answerGrowth(pl)
		return
	}
	select {
	case old := <-p.placed:
		if old.Granted > 0 || old.Code != 0 {
			pl = old
		}
	default:
	}
	if pl.Granted > 0 && p.moves.at == offGPU {
		p.b.daemons.forgetLeft(p.ref.Slot) // a later daemon has saved where it is
	}
	p.placed <- pl // there is room: mu is held, and this alone sends
}

// waitForDaemon tells the contexts that wait for a GPU that nobody decides now. It does not if a daemon
// has connected meanwhile: what that one says would be taken for the older reason.
func (b *executors) waitForDaemon() {
	b.mu.Lock()
	processes := b.processes
	b.mu.Unlock()
	for _, p := range processes {
		if p == nil || p.task == nil {
			continue
		}
		p.mu.Lock()
		if !b.daemons.connected() {
			p.tellLocked(ipc.Place{Slot: p.ref.Slot, Generation: p.ref.Generation, Reason: uint32(abi.WaitDaemon)})
		}
		p.mu.Unlock()
	}
}

// connected reports whether a daemon is connected.
func (c *control) connected() bool {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.conns) > 0
}

// addTask tells the daemons, present and future, of a context that asks for a GPU.
func (c *control) addTask(t ipc.Task) {
	if c == nil {
		return
	}
	c.mu.Lock()
	c.tasks = append(c.tasks, t)
	alone := len(c.conns) == 0
	c.broadcastTask(ipc.KindTask, t)
	c.mu.Unlock()
	if alone && c.alone != nil {
		c.alone()
	}
}

// dropTask tells them that the context is gone, and its executor with it.
func (c *control) dropTask(t *ipc.Task) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(c.tasks)
	c.tasks = slices.DeleteFunc(c.tasks, func(o ipc.Task) bool { return o == *t })
	if len(c.tasks) < n {
		c.broadcastTask(ipc.KindTaskGone, *t)
	}
}

// broadcastTask sends the daemons a message about a context that floats. Preconditions: mu is held.
func (c *control) broadcastTask(kind ipc.Kind, t ipc.Task) {
	c.broadcastBody(kind, t)
}

// broadcastBody sends the daemons a message. Preconditions: mu is held.
func (c *control) broadcastBody(kind ipc.Kind, body any) {
	m, err := ipc.NewMessage(kind, body)
	if err != nil {
		c.log.Error("tell the daemon of a context that floats", "err", err)
		return
	}
	c.broadcast(func(conn *ipc.Conn) error { return conn.Send(m) })
}

// handlePlace follows the daemon's message about a context that floats.
func (c *control) handlePlace(m *ipc.Message) {
	var pl ipc.Place
	if err := m.Decode(&pl); err != nil {
		c.log.Warn("a message of the daemon can't be read", "err", err)
		return
	}
	c.place(pl)
}
