package machine

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// ErrFull means that no channel or group number is free.
var ErrFull = errors.New("none free")

// Machine is the model. It is not safe for concurrent use.
type Machine struct {
	cfg      Config
	now      time.Duration
	begin    time.Duration
	totals   Totals
	events   []Event
	returned int // the number of events that Step has returned
	show     display

	groups   []*Group   // by id-1; nil if free
	lastID   int        // of the newest group
	channels []*Channel // by id; nil if free

	readyChannels fifo[*Channel] // Exclusive and CoRun: channels with work that is not on the engine
	readyGroups   fifo[*Group]   // Slices: groups with work, except the resident one
	resident      *Group         // the group whose context is on the engine; nil during a switch and before the first
	on            engine         // empty under CoRun
	sliceEnd      time.Duration
	switching     contextSwitch
	co            coRun
}

// contextSwitch is a context switch in progress.
type contextSwitch struct {
	from, to  *Group // to is nil if no switch is in progress
	channel   *Channel
	half, end time.Duration // saves until half, loads until end
	loading   bool
}

// New returns a machine at time now. Registers may be nil. The configuration must be valid.
func New(cfg Config, now time.Duration, r Registers) *Machine {
	cfg = cfg.WithDefaults()
	m := &Machine{cfg: cfg, now: now, begin: now, groups: make([]*Group, cfg.Groups)}
	m.show.init(r, cfg.EngineLag, cfg.HostLag)
	m.on.init(cfg)
	m.co.init(cfg)
	return m
}

// Config returns the machine's configuration with defaults filled in.
func (m *Machine) Config() Config { return m.cfg }

// Now returns the time to which the machine has been stepped.
func (m *Machine) Now() time.Duration { return m.now }

// Totals returns the machine's usage up to Now.
func (m *Machine) Totals() Totals {
	t := m.totals
	t.Elapsed = m.now - m.begin
	return t
}

// NewGroup makes a channel group. Numbers are given out round-robin, so that a freed number is not
// reused soon: a watcher that lags a little does not confuse two groups.
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

// SetSlice sets how long the group runs before another group's turn, under [Slices]. It applies
// from the group's next slice on.
func (g *Group) SetSlice(d time.Duration) { g.slice = max(d, time.Microsecond) }

// Slice returns the group's time slice.
func (g *Group) Slice() time.Duration { return g.slice }

// SetEnabled takes the group's channels off the hardware or puts them back. Under [Slices] the
// launches that execute are preempted; otherwise they run to their end. Queued launches wait.
func (g *Group) SetEnabled(on bool) {
	m := g.m
	if g.disabled == !on || !g.open {
		return
	}
	g.disabled = !on
	if g.disabled {
		if m.on.group() == g && m.cfg.Mode == Slices {
			m.preempt()
		}
		for _, c := range g.channels {
			m.unready(c)
		}
		if m.switching.channel != nil && m.switching.channel.group == g {
			m.switching.channel = nil
		}
		m.co.withdraw(g)
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

// Close ends the group's running launches, drops its queued ones, and frees its number and those of
// its channels. It emits no events.
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
	if m.switching.to == g {
		m.switching = contextSwitch{}
	}
	if m.switching.from == g {
		m.switching.from = nil
	}
	if m.resident == g {
		m.resident = nil
	}
	m.co.removeGroup(g)
	m.groups[g.id-1] = nil
	m.showEngine()
}

// NewChannel makes a channel of the group, with the lowest free number.
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
	l.unplaced, l.resident, l.evicting = 0, 0, false
	c.queue = append(c.queue, l)
	if len(c.queue) == 1 {
		if !c.group.disabled {
			c.m.makeReady(c)
		}
	}
	c.m.showEntry(c)
	return nil
}

// Waiting reports whether work that is not on the engine waits for what is on it to end, or for its
// slice to.
func (m *Machine) Waiting() bool {
	switch m.cfg.Mode {
	case Slices:
		return m.othersWait()
	case CoRun:
		return m.readyChannels.len() > 0 || m.co.waiting()
	}
	return m.readyChannels.len() > 0
}

// Settle sets the duration of an open launch. The launch ends when it has executed for d, or now if
// it already has. Settle does nothing for a launch that is being evicted.
func (m *Machine) Settle(l *Launch, d time.Duration) {
	if l.evicting {
		return
	}
	l.Duration, l.Open = d, false
	m.co.settled(l)
}

// Evict asks a launch that has begun to leave. When it has executed for another after, it ends with
// [Evicted] instead of [Finished], unless it finishes first. The caller knows how far it got and
// submits what is left of it again. This simulates preemptible kernels; a live device does not use
// it.
func (m *Machine) Evict(l *Launch, after time.Duration) {
	if l.state != begun || l.evicting {
		return
	}
	after = max(after, 0)
	if m.cfg.Mode == CoRun {
		m.coEvict(l, m.now+after)
		return
	}
	if cut := l.elapsed + after - m.cfg.Overhead; l.Open || cut < l.Duration {
		l.Duration, l.Open, l.evicting = cut, false, true
	}
}

// Kill takes a launch off the engine or out of its channel at the machine's Now. It emits no event.
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

// Close drops the queued launches. A launch that executes runs on, and the channel is freed after
// it.
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

// kill closes the channel and ends the launch that executes, too.
func (c *Channel) kill() {
	c.open = false
	for len(c.queue) > 0 {
		c.m.Kill(c.queue[len(c.queue)-1])
	}
	c.free()
}

// free releases the channel's number.
func (c *Channel) free() {
	if c.m.channels[c.id] != c {
		return
	}
	c.m.unready(c)
	if c.m.switching.channel == c {
		c.m.switching.channel = nil
	}
	c.m.channels[c.id] = nil
	if i := slices.Index(c.group.channels, c); i >= 0 {
		c.group.channels = slices.Delete(c.group.channels, i, i+1)
	}
	c.m.show.entry(c.m.now, c.id, 0)
}

// dequeue removes l from the channel's queue.
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
		if m.switching.channel == c {
			m.switching.channel = nil
		}
		if !c.open {
			c.free()
		}
	case i == 0 && !c.ready && !c.on && !c.group.disabled && m.switching.channel != c:
		m.makeReady(c)
	}
}

// makeReady queues a channel that has work for the dispatcher.
func (m *Machine) makeReady(c *Channel) {
	c.ready = true
	g := c.group
	if m.cfg.Mode != Slices {
		m.readyChannels.push(c)
		return
	}
	g.ready.push(c)
	if !g.queued && g != m.resident && g != m.switching.to {
		g.fresh = g.ready.len() == 1
		g.queued = true
		m.readyGroups.push(g)
	}
}

// unready removes a channel from the dispatcher's queues.
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
