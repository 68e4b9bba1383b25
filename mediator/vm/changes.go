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

// sendChanges sends the daemons the changes until ctx ends, the first at once.
func (c *control) sendChanges(ctx context.Context) {
	for {
		select {
		case <-c.changes:
		case <-ctx.Done():
			return
		}
		c.mu.Lock()
		c.broadcast(func(conn *ipc.Conn) error { return conn.Send(ipc.Message{Kind: ipc.KindChanged}) })
		c.mu.Unlock()
		if clock.Sleep(ctx, c.clock, changesEvery) != nil {
			return
		}
	}
}
