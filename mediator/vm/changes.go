package vm

import (
	"context"
	"time"

	"vgpud/clock"
	"vgpud/mediator/ipc"
)

// changesEvery is the least time between two messages to a daemon that channels came or went: a
// guest can create and close channels in a loop. It is about a quarter of the daemon's rounds.
const changesEvery = 5 * time.Millisecond

// notifyChange schedules a message to the daemons that a channel or a context came or went. It does
// not wait. On a nil control it does nothing.
func (c *control) notifyChange() {
	if c == nil {
		return
	}
	select {
	case c.changes <- struct{}{}:
	default: // a message is due already
	}
}

// maxUnread is how much of the kernel's memory, in bytes, unread messages may take if a daemon is to be
// told of changes. It is some twenty messages, a tenth of what there is room for.
const maxUnread = 16 << 10

// sendChanges sends the daemons the changes until ctx ends, the first at once.
func (c *control) sendChanges(ctx context.Context) {
	for {
		select {
		case <-c.changes:
		case <-ctx.Done():
			return
		}
		for told := false; !told; {
			told = c.tellChanges()
			if clock.Sleep(ctx, c.clock, changesEvery) != nil {
				return
			}
		}
	}
}

// tellChanges sends the daemons one message for all changes, and reports whether all have it. One
// that does not read gets it later. Otherwise a daemon that stands still for a few seconds would have
// no room for messages that it must not miss, and its connection would end, and with it the guest.
func (c *control) tellChanges() (all bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all = true
	c.broadcast(func(conn *ipc.Conn) error {
		if n, err := conn.Unread(); err == nil && n > maxUnread {
			all = false
			return nil
		}
		return conn.Send(ipc.Message{Kind: ipc.KindChanged})
	})
	return all
}
