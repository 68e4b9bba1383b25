package vm

import (
	"errors"
	"fmt"
	"os"

	"vgpud/mediator/ipc"
)

// contextHandles is what a context's executor has sent so that daemons, present and future, can
// control the context. The files are closed as soon as the executor has ended: the driver keeps a
// process's resources as long as any copy of one is open.
type contextHandles struct {
	ipc.Handles
	files []*os.File
}

// addHandles stores a context's handles, whose files it takes over, and sends them to the daemons.
func (c *control) addHandles(h contextHandles) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgetHandles(h.Slot)
	if c.handles == nil {
		c.handles = make(map[int]contextHandles)
	}
	c.handles[h.Slot] = h
	c.sendHandles(h)
}

// dropHandles closes a context's handles, if there are any, and makes the daemons close theirs.
func (c *control) dropHandles(slot, gpu int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.forgetHandles(slot) {
		c.sendHandles(contextHandles{Handles: ipc.Handles{Slot: slot, GPU: gpu}})
	}
}

// forgetHandles closes a context's handles and reports whether there were any. Preconditions: mu is
// held.
func (c *control) forgetHandles(slot int) bool {
	h, ok := c.handles[slot]
	delete(c.handles, slot)
	for _, f := range h.files {
		logClose(c.log, f.Close())
	}
	return ok
}

// sendHandles sends handles to all daemons. Preconditions: mu is held.
func (c *control) sendHandles(h contextHandles) {
	c.broadcast(func(conn *ipc.Conn) error { return send(conn, h) })
}

// broadcast calls send for every daemon that has the hello. Preconditions: mu is held.
func (c *control) broadcast(send func(*ipc.Conn) error) {
	for conn, hasHello := range c.conns {
		if !hasHello {
			continue // its hello will carry the current state
		}
		if err := send(conn); err != nil {
			// The daemon reads nothing any more: don't wait for it again.
			c.log.Debug("send to a daemon", "err", errors.Join(err, conn.Expire()))
		}
	}
}

// sendHello sends a daemon the hello and the current handles. Preconditions: mu is held.
func (c *control) sendHello(conn *ipc.Conn) error {
	files := make([]*os.File, len(c.pages))
	for i, page := range c.pages {
		files[i] = page.File()
	}
	hello := c.hello
	hello.Tasks, hello.Away, hello.Grows, hello.Spares = c.tasks, c.away, c.grows, c.spares
	m, err := ipc.NewMessage(ipc.KindHello, hello, files...)
	if err == nil {
		err = conn.Send(m)
	}
	for _, h := range c.handles {
		if err == nil {
			err = send(conn, h)
		}
	}
	if err == nil {
		c.conns[conn] = true
	}
	return err
}

func send(conn *ipc.Conn, h contextHandles) error {
	m, err := ipc.NewMessage(ipc.KindHandles, h.Handles, h.files...)
	if err != nil {
		return err
	}
	return conn.Send(m)
}

// receiveHandles passes an executor's handles, which it may send once, to the daemons. It takes
// over the files unless it fails.
func (p *process) receiveHandles(m *ipc.Message) error {
	h, err := m.ReadHandles()
	switch {
	case err != nil:
		return err
	case h.Slot != p.ref.Slot:
		return fmt.Errorf("executor of context %d sent handles of context %d", p.ref.Slot, h.Slot)
	case len(m.Files) == 0:
		return errors.New("executor sent handles without files")
	case p.sentHandles:
		return errors.New("executor sent handles twice")
	}
	h.GPU = p.gpu
	p.sentHandles = true
	if p.b.daemons == nil {
		return m.CloseFiles()
	}
	p.b.daemons.addHandles(contextHandles{h, m.Files})
	return nil
}

// dropHandles gives up the handles of an executor that has ended.
func (p *process) dropHandles() {
	if p.sentHandles && p.b.daemons != nil {
		p.b.daemons.dropHandles(p.ref.Slot, p.gpu)
	}
}
