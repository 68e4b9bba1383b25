package machine

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// ErrFull means that there is no free channel or group number.
var ErrFull = errors.New("none free")

// Machine is the model. It is not safe for concurrent use.
type Machine struct {
	cfg    Config
	now    time.Duration
	begin  time.Duration
	totals Totals
	events []Event
	told   int // how many of events Step has returned
	show   display

	groups   []*Group   // by id-1; nil where free
	lastID   int        // of the newest group
	channels []*Channel // by id; nil where free

	readyChannels fifo[*Channel] // Exclusive and CoRun: channels with work that is not on the engine
	readyGroups   fifo[*Group]   // Slices: groups with work, the resident one never among them
	resident      *Group         // whose context is on the engine, nil during a switch or before the first
	running       *Launch        // not under CoRun
	sliceEnd      time.Duration
	change        change
	co            coRun
}

// change is a context switch in progress.
type change struct {
	from, to  *Group // to is nil when there is none
	channel   *Channel
	half, end time.Duration // save until half, load until end
	loading   bool
}

// New makes a machine at time now. Registers may be nil. The configuration must be valid.
func New(cfg Config, now time.Duration, r Registers) *Machine {
	cfg = cfg.WithDefaults()
	m := &Machine{cfg: cfg, now: now, begin: now, groups: make([]*Group, cfg.Groups)}
	m.show.init(r, cfg.EngineLag, cfg.HostLag)
	m.co.init(cfg)
	return m
}

// Config is the machine's configuration, defaults filled in.
func (m *Machine) Config() Config { return m.cfg }

// Now is how far the machine has been stepped.
func (m *Machine) Now() time.Duration { return m.now }

// Totals are the machine's accounts up to Now.
func (m *Machine) Totals() Totals {
	t := m.totals
	t.Elapsed = m.now - m.begin
	return t
}

// NewGroup makes a channel group. Numbers are given out in turn, so that one freed is not soon another's, and a
// watcher that is a little late doesn't take the one for the other.
func (m *Machine) NewGroup() (*Group, error) {
	for range m.groups {
		i := m.lastID % len(m.groups)
		m.lastID = i + 1
		if m.groups[i] == nil {
			g := &Group{m: m, id: uint16(i + 1), slice: m.cfg.Slice, open: true}
			m.groups[i] = g
			return g, nil
		}
	}
	return nil, fmt.Errorf("new channel group, %d in use: %w", len(m.groups), ErrFull)
}

// SetSlice sets how long the group runs before another's turn, under [Slices]. It applies from its next slice on.
func (g *Group) SetSlice(d time.Duration) { g.slice = max(d, time.Microsecond) }

// Slice is the group's time slice.
func (g *Group) Slice() time.Duration { return g.slice }

// SetEnabled takes the group's channels off the hardware or puts them back. Under [Slices] a launch that executes is
// preempted; otherwise it runs to its end. What is queued waits.
func (g *Group) SetEnabled(on bool) {
	m := g.m
	if g.disabled == !on || !g.open {
		return
	}
	g.disabled = !on
	if g.disabled {
		if m.running != nil && m.running.channel.group == g && m.cfg.Mode == Slices {
			m.preempt()
		}
		for _, c := range g.channels {
			m.unready(c)
		}
		if m.change.channel != nil && m.change.channel.group == g {
			m.change.channel = nil
		}
		m.co.hold(g)
	} else {
		for _, c := range g.channels {
			if len(c.queue) > 0 && !c.on && !c.ready {
				m.makeReady(c)
			}
		}
	}
	for _, c := range g.channels {
		m.showEntry(c)
	}
	m.showEngine()
}

// Close ends what the group runs and drops what it has queued, without an event for either, and frees its number and
// its channels'.
func (g *Group) Close() {
	if !g.open {
		return
	}
	for len(g.channels) > 0 {
		g.channels[0].kill()
	}
	g.open = false
	m := g.m
	if g.queued {
		m.readyGroups.remove(g)
	}
	if m.change.to == g {
		m.change = change{}
	}
	if m.change.from == g {
		m.change.from = nil
	}
	if m.resident == g {
		m.resident = nil
	}
	m.co.forget(g)
	m.groups[g.id-1] = nil
	m.showEngine()
}

// NewChannel makes a channel of the group with the lowest free number.
func (g *Group) NewChannel() (*Channel, error) {
	m := g.m
	if !g.open {
		return nil, fmt.Errorf("new channel: group %d is closed", g.id)
	}
	i := slices.Index(m.channels, nil)
	if i < 0 {
		if len(m.channels) == m.cfg.Channels {
			return nil, fmt.Errorf("new channel, %d in use: %w", len(m.channels), ErrFull)
		}
		i = len(m.channels)
		m.channels = append(m.channels, nil)
	}
	c := &Channel{m: m, group: g, id: uint32(i), open: true}
	m.channels[i] = c
	g.channels = append(g.channels, c)
	m.showEntry(c)
	return c, nil
}

// Submit queues a launch at the machine's Now.
func (c *Channel) Submit(l *Launch) error {
	if !c.open {
		return fmt.Errorf("submit to channel %d: closed", c.id)
	}
	if l.Queued() {
		return fmt.Errorf("submit to channel %d: the launch is queued already", c.id)
	}
	l.channel, l.state, l.elapsed, l.start, l.expired = c, queued, 0, 0, false
	l.undone, l.flying, l.leaving = 0, 0, false
	c.queue = append(c.queue, l)
	if len(c.queue) == 1 {
		if !c.group.disabled {
			c.m.makeReady(c)
		}
	}
	c.m.showEntry(c)
	return nil
}

// Settle says how long an open launch takes: it ends when it has executed so long, or now if it already has. One that
// was asked to leave does so.
func (m *Machine) Settle(l *Launch, d time.Duration) {
	if l.leaving {
		return
	}
	l.Duration, l.Open = d, false
	m.co.settled(l)
}

// Evict asks a launch that has begun to leave: when it has executed for so long from now on, it ends with [Evicted]
// instead of [Finished], unless it is done before. How far it got and what is left of it, to be submitted anew, the
// caller knows: this is the simulation of kernels that look whether they must leave; real ones do without.
func (m *Machine) Evict(l *Launch, after time.Duration) {
	if l.state != begun || l.leaving {
		return
	}
	after = max(after, 0)
	if m.cfg.Mode == CoRun {
		m.coEvict(l, m.now+after)
		return
	}
	if cut := l.elapsed + after - m.cfg.Overhead; l.Open || cut < l.Duration {
		l.Duration, l.Open, l.leaving = cut, false, true
	}
}

// Kill takes a launch off the engine or out of its channel at the machine's Now. No event tells of it.
func (m *Machine) Kill(l *Launch) {
	if !l.Queued() {
		return
	}
	c := l.channel
	m.stop(l)
	l.state = finished
	c.dequeue(l)
	m.showEngine()
	m.showEntry(c)
}

// Close drops what is queued; what executes runs on and the channel goes after it.
func (c *Channel) Close() {
	if !c.open {
		return
	}
	c.open = false
	keep := 0
	if len(c.queue) > 0 && c.queue[0].state == begun {
		keep = 1
	}
	for len(c.queue) > keep {
		c.m.Kill(c.queue[len(c.queue)-1])
	}
	if keep == 0 {
		c.free()
	}
}

// kill is Close that ends what executes, too.
func (c *Channel) kill() {
	c.open = false
	for len(c.queue) > 0 {
		c.m.Kill(c.queue[len(c.queue)-1])
	}
	c.free()
}

// free gives the channel's number back.
func (c *Channel) free() {
	if c.m.channels[c.id] != c {
		return
	}
	c.m.unready(c)
	if c.m.change.channel == c {
		c.m.change.channel = nil
	}
	c.m.channels[c.id] = nil
	if i := slices.Index(c.group.channels, c); i >= 0 {
		c.group.channels = slices.Delete(c.group.channels, i, i+1)
	}
	c.m.show.entry(c.m.now, c.id, 0)
}

// dequeue takes l out of the channel.
func (c *Channel) dequeue(l *Launch) {
	i := slices.Index(c.queue, l)
	if i < 0 {
		return
	}
	c.queue = slices.Delete(c.queue, i, i+1)
	m := c.m
	switch {
	case len(c.queue) == 0:
		m.unready(c)
		if m.change.channel == c {
			m.change.channel = nil
		}
		if !c.open {
			c.free()
		}
	case i == 0 && !c.ready && !c.on && !c.group.disabled && m.change.channel != c:
		m.makeReady(c)
	}
}

// makeReady puts a channel with work where the dispatcher finds it.
func (m *Machine) makeReady(c *Channel) {
	c.ready = true
	g := c.group
	if m.cfg.Mode != Slices {
		m.readyChannels.push(c)
		return
	}
	g.ready.push(c)
	if !g.queued && g != m.resident && g != m.change.to {
		g.fresh = g.ready.len() == 1
		g.queued = true
		m.readyGroups.push(g)
	}
}

// unready takes a channel out of the dispatcher's sight.
func (m *Machine) unready(c *Channel) {
	if !c.ready {
		return
	}
	c.ready = false
	g := c.group
	if m.cfg.Mode != Slices {
		m.readyChannels.remove(c)
		return
	}
	g.ready.remove(c)
	if g.ready.len() == 0 && g.queued {
		m.readyGroups.remove(g)
		g.queued = false
	}
}
