package vm

import (
	"context"
	"time"

	"vgpud/clock"
	"vgpud/mediator/ipc"
)

// changesEvery is the least time between two messages to a daemon that channels came or
// went, about a quarter of its rounds: a guest can make and close channels in a loop.
const changesEvery = 5 * time.Millisecond

// changed has the daemons told that a channel or a context came or went. It does not
// wait for that.
func (c *control) changed() {
	if c == nil {
		return // there is nobody to tell
	}
	select {
	case c.changes <- struct{}{}:
	default: // they will be told anyway
	}
}

// tellOfChanges tells the daemons of changes until ctx ends, of the first at once.
func (c *control) tellOfChanges(ctx context.Context) {
	for {
		select {
		case <-c.changes:
		case <-ctx.Done():
			return
		}
		c.mu.Lock()
		c.tellAll(func(conn *ipc.Conn) error { return conn.Send(ipc.Message{Kind: ipc.KindChanged}) })
		c.mu.Unlock()
		if clock.Sleep(ctx, c.clock, changesEvery) != nil {
			return
		}
	}
}
