package vm

import (
	"cmp"
	"errors"

	"vgpud/mediator/ipc"
)

// errDraining is why no executor is started on a GPU that is being drained.
var errDraining = errors.New("the host's GPU is being drained for maintenance: try again later")

// handleDrain follows the daemon's message about the guest's GPU.
func (c *control) handleDrain(m *ipc.Message) {
	var d ipc.Drain
	if err := m.Decode(&d); err != nil {
		c.log.Warn("a message of the daemon can't be read", "err", err)
		return
	}
	c.log.Info("the guest's GPU is drained, or not any more", "gpu", d.GPU, "refuse", d.Refuse, "end", d.End)
	c.drain(d)
}

// drain has no executor start from now on, or lets them start again. It ends those that run if the
// daemon asks for that: the guest learns that its contexts are lost.
func (b *executors) drain(d ipc.Drain) {
	b.mu.Lock()
	if b.drained == nil {
		b.drained = map[string]bool{}
	}
	b.drained[cmp.Or(d.GPU, b.spec.GPU.Name)] = d.Refuse
	processes := b.processes
	b.mu.Unlock()
	if d.Refuse {
		b.endSpare() // it has the GPU open
	}
	if !d.End {
		return
	}
	for slot, p := range processes {
		if p == nil || d.GPU != "" && d.GPU != b.gpu(int(b.gpuOf[slot].Load())).Name {
			continue
		}
		b.fault(slot, errDraining.Error())
		p.lose()
	}
}

// isDraining reports whether one of the guest's GPUs is being drained. The daemon places no context
// there then, but may just have placed one.
func (b *executors) isDraining(gpu int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.drained[b.gpu(gpu).Name]
}

// lose has the process end as if it had died: unlike stop, its context is then faulted.
func (p *process) lose() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conn == nil || p.stopping {
		return
	}
	if err := p.conn.Shut(stopGrace); err != nil {
		p.b.log.Debug("shut down an executor's connection", "err", err)
	}
}
