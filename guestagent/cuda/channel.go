package cuda

import (
	"context"
	"errors"

	"vgpud/guestagent/driver"
)

// ringCommands is how many commands a channel remembers. More are never under way: the driver's
// rings have half as many entries.
// They are enough for a thousand launches, of up to three entries each, that nobody waits for.
const ringCommands = 8192

// channel is a channel of the driver with the commands that were last sent to it.
type channel struct {
	x  *Context
	ch *driver.Channel

	// Guarded by Context.mu.
	ring     [ringCommands]command
	sent     uint64 // commands sent
	read     uint64 // commands whose results were read
	blocking uint64 // the last command of a stream that the legacy stream waits for
	mark     *driver.Event
	stage    *driver.HostMemory
	trigger  *driver.Trigger     // what others wait for, or nil
	raised   uint64              // the value that it has when the channel comes to its last trigger
	awaited  map[*channel]uint64 // values that the channel waits for
}

// command is a command of a channel.
type command struct {
	p *driver.Pending
	// shared says that something else than the ring has p, so that it must not be used again.
	shared bool
}

// point is what a command or thread can wait for: the first commands of a channel, or a function of
// the program's. Its zero value is reached.
type point struct {
	ch   *channel
	sent uint64
	call *hostCall
}

// pending returns the command to wait for, or nil if it was reached; x.mu is held.
func (p point) pending() *driver.Pending {
	if p.ch == nil || p.sent <= p.ch.read {
		return nil
	}
	last := &p.ch.ring[(p.sent-1)%ringCommands]
	last.shared = true // another thread may read its result meanwhile
	return last.p
}

// newChannel opens a channel; x.mu is held, or nobody has x yet.
func (x *Context) newChannel(ctx context.Context) (*channel, error) {
	ch, err := x.gpu.NewChannel(ctx, driver.ChannelOptions{Depth: ringCommands / 2})
	if err != nil {
		return nil, err
	}
	c := &channel{x: x, ch: ch}
	x.channels = append(x.channels, c)
	return c, nil
}

// slot returns the place of the next command. Its last command has completed. x.mu is held.
func (ch *channel) slot() *command {
	s := &ch.ring[ch.sent%ringCommands]
	if ch.read+ringCommands <= ch.sent {
		ch.collect()
	}
	return s
}

// add records a stream's command that was sent; x.mu is held.
func (ch *channel) add(s *stream, p *driver.Pending, shared bool) point {
	ch.append(p, shared)
	s.last = ch.sent
	if !s.nonBlocking && !s.legacy {
		ch.blocking = ch.sent
	}
	return point{ch: ch, sent: ch.sent}
}

// append records a command that is of no stream's own; x.mu is held.
func (ch *channel) append(p *driver.Pending, shared bool) {
	*ch.slot() = command{p, shared}
	ch.sent++
}

// collect reads the results of commands that have completed; x.mu is held.
func (ch *channel) collect() {
	for ch.read < ch.sent {
		p := ch.ring[ch.read%ringCommands].p
		if !p.Done() {
			return
		}
		ch.read++
		if err := p.Wait(context.Background()); err != nil { // it has completed
			ch.x.note(err)
		}
	}
}

// note keeps the error of a command until a call returns it; x.mu is held.
func (x *Context) note(err error) {
	if r := x.fail(err); x.failed == Success {
		x.failed = r
	}
}

// takeError returns the first error of a command since the last call, or that which stays; x.mu is
// held.
func (x *Context) takeError() Result {
	r := x.failed
	x.failed = Success
	if s := Result(x.sticky.Load()); s != Success {
		return s
	}
	return r
}

// reached reports whether a point has been reached, as far as the device has published; x.mu is
// held.
func (p point) reached() bool {
	if p.call != nil {
		return p.call.returned()
	}
	if p.ch == nil || p.sent <= p.ch.read {
		return true
	}
	last := p.ch.ring[(p.sent-1)%ringCommands].p
	if !last.Poll() {
		return false
	}
	p.ch.collect()
	return p.sent <= p.ch.read
}

// waitFor waits until all points have been reached, then calls then.
func (c *Call) waitFor(goals []point, then func() Result) Result {
	for len(goals) > 0 {
		g := goals[0]
		if g.call != nil {
			s := c.slice()
			select {
			case <-g.call.done:
			case <-s.Done():
				return c.later(func() Result { return c.waitFor(goals, then) })
			}
			goals = goals[1:]
			continue
		}
		if g.ch == nil {
			goals = goals[1:]
			continue
		}
		x := g.ch.x // it may be of another context
		x.mu.Lock()
		p := g.pending()
		x.mu.Unlock()
		if p != nil {
			if err := p.Wait(c.slice()); errors.Is(err, errSlice) {
				return c.later(func() Result { return c.waitFor(goals, then) })
			}
			x.mu.Lock()
			g.ch.collect()
			done := g.sent <= g.ch.read
			x.mu.Unlock()
			if !done {
				continue
			}
		}
		goals = goals[1:]
	}
	return then()
}

// settle ends a synchronization: it writes out what kernels printed, and returns the commands'
// error.
func (x *Context) settle(*Call) Result {
	x.print(context.Background())
	x.d.pools.settle(x.d)
	x.d.graphMemory.trim(x.d)
	x.closeStale()
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.takeError()
}

// print writes out what kernels have printed.
func (x *Context) print(ctx context.Context) {
	if !x.prints.Load() || x.pending() {
		return
	}
	for {
		s, err := x.gpu.Printed(ctx)
		if err != nil || s == "" {
			return
		}
		x.d.o.Hooks.Print([]byte(s), false)
	}
}

// drainAtExit writes out what kernels have printed, unless that takes long.
func (x *Context) drainAtExit() {
	if !x.prints.Load() || x.pending() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), exitWait)
	defer cancel()
	for _, p := range x.everything() {
		if p.ch != nil && p.ch.ch.Sync(ctx) != nil {
			return
		}
	}
	x.print(ctx)
}
