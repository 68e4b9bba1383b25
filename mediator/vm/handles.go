package vm

import (
	"errors"
	"fmt"
	"os"

	"vgpud/mediator/ipc"
)

// handed is what a context's executor has handed over, for daemons to control the
// context by, one that comes later too. The files are closed as soon as the executor
// has ended: the driver keeps what a process had as long as anybody holds one.
type handed struct {
	ipc.Handles
	files []*os.File
}

// hand keeps a context's handles, whose files it takes over, and passes them on.
func (c *control) hand(h handed) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgetHandles(h.Slot)
	if c.handles == nil {
		c.handles = make(map[int]handed)
	}
	c.handles[h.Slot] = h
	c.passOn(h)
}

// takeBack closes a context's handles, if there are any, and has the daemons do so.
func (c *control) takeBack(slot int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.forgetHandles(slot) {
		c.passOn(handed{Handles: ipc.Handles{Slot: slot}})
	}
}

// forgetHandles reports whether there were any. The caller holds mu.
func (c *control) forgetHandles(slot int) bool {
	h, ok := c.handles[slot]
	delete(c.handles, slot)
	for _, f := range h.files {
		logClose(c.log, f.Close())
	}
	return ok
}

// passOn passes handles on to all daemons that the guest was introduced to. The caller
// holds mu.
func (c *control) passOn(h handed) {
	c.tellAll(func(conn *ipc.Conn) error { return send(conn, h) })
}

// tellAll tells something to all daemons that the guest was introduced to. The caller
// holds mu.
func (c *control) tellAll(tell func(*ipc.Conn) error) {
	for conn, introduced := range c.conns {
		if !introduced {
			continue // it is told when it is
		}
		if err := tell(conn); err != nil {
			// It reads nothing any more, and should not be waited for again.
			c.log.Debug("tell a daemon", "err", errors.Join(err, conn.Expire()))
		}
	}
}

// introduce sends a daemon what it is to know first. The caller holds mu.
func (c *control) introduce(conn *ipc.Conn) error {
	m, err := ipc.NewMessage(ipc.KindHello, c.hello, c.page.File())
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

func send(conn *ipc.Conn, h handed) error {
	m, err := ipc.NewMessage(ipc.KindHandles, h.Handles, h.files...)
	if err != nil {
		return err
	}
	return conn.Send(m)
}

// handOver takes an executor's handles, which it may send once. The files are taken
// over unless it fails.
func (l *life) handOver(m *ipc.Message) error {
	h, err := m.ReadHandles()
	switch {
	case err != nil:
		return err
	case h.Slot != l.ref.Slot:
		return fmt.Errorf("executor of context %d sent handles of context %d", l.ref.Slot, h.Slot)
	case len(m.Files) == 0:
		return errors.New("executor sent handles without files")
	case l.handed:
		return errors.New("executor sent handles twice")
	}
	l.handed = true
	if l.b.daemons == nil {
		return m.CloseFiles()
	}
	l.b.daemons.hand(handed{h, m.Files})
	return nil
}

// takeBack gives up the handles of an executor that has ended.
func (l *life) takeBack() {
	if l.handed && l.b.daemons != nil {
		l.b.daemons.takeBack(l.ref.Slot)
	}
}
