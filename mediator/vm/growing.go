package vm

import (
	"slices"

	"vgpud/mediator/ipc"
)

// receiveGrow passes on that the executor needs more memory than the context was granted.
func (p *process) receiveGrow(m *ipc.Message) error {
	var g ipc.Grow
	if err := m.Decode(&g); err != nil {
		return err
	}
	if p.task == nil {
		return nil // it has no grant; the executor is mistaken
	}
	if p.b.awaitGrowth(p.ctx) != nil {
		return nil // it ends
	}
	p.mu.Lock()
	p.moves.grow = g.Memory
	p.mu.Unlock()
	p.b.daemons.sendGrow(p.growth(g.Memory))
	return nil
}

// growth returns the message to the daemon.
func (p *process) growth(memory uint64) ipc.Grow {
	return ipc.Grow{Slot: p.ref.Slot, Generation: p.ref.Generation, Memory: memory}
}

// answerGrowth tells the executor what it got. Preconditions: mu is held, and the context is on its
// GPU.
func (p *process) answerGrowth(pl ipc.Place) {
	if pl.Want != p.moves.grow {
		return
	}
	p.moves.grow, p.moves.granted = 0, pl.Granted
	p.b.daemons.forgetGrow(p.ref.Slot)
	m, err := ipc.NewMessage(ipc.KindGrant, ipc.Grant{Bytes: pl.Granted, Want: pl.Want})
	if err == nil && p.conn != nil {
		err = p.send(m)
	}
	if err != nil {
		p.b.log.Debug("tell an executor what it was granted", "context", p.ref.Slot, "err", err)
		return
	}
	p.b.dev.ContextPlaced(p.ref, pl.Number, pl.Granted, pl.Waited)
}

// setGranted records what the context has been granted.
func (p *process) setGranted(memory uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.moves.granted = memory
}

// sendGrow tells the daemons, present and future, that a context needs more memory.
func (c *control) sendGrow(g ipc.Grow) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.grows = append(slices.DeleteFunc(c.grows, func(o ipc.Grow) bool { return o.Slot == g.Slot }), g)
	c.broadcastBody(ipc.KindGrow, g)
}

// forgetGrow records that a context waits for no more memory.
func (c *control) forgetGrow(slot int) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.grows = slices.DeleteFunc(c.grows, func(o ipc.Grow) bool { return o.Slot == slot })
}
