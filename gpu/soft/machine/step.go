package machine

import "time"

// Next returns when the next event happens: a launch ends, a slice ends, a switch advances, or a
// lagging register changes. It returns [Never] if nothing happens until a launch is submitted or
// settled.
func (m *Machine) Next() time.Duration {
	m.dispatch()
	if len(m.events) > m.returned {
		return m.now // Step has not returned this event yet
	}
	t := m.show.next()
	switch {
	case m.switching.to != nil:
		if m.switching.loading {
			return min(t, m.switching.end)
		}
		return min(t, m.switching.half)
	case m.cfg.Mode == CoRun:
		return min(t, m.co.next(m.now))
	case !m.on.empty():
		for _, l := range m.on.launches {
			if !l.Open {
				t = min(t, m.now+max(0, m.length(l)-l.elapsed))
			}
			if l.Limit > 0 && !l.expired {
				t = min(t, m.now+max(0, l.Limit-l.elapsed))
			}
		}
		if m.cfg.Mode == Slices && m.othersWait() {
			t = min(t, max(m.now, m.sliceEnd))
		}
	}
	return t
}

// Step advances the machine to the given time, or to the first instant before it at which an event
// happens. It returns the events of that instant, valid until the next Step, or none if the machine
// has reached the given time. The dispatcher takes into account what callers submit in response to
// an event. A time in the past counts as Now.
func (m *Machine) Step(to time.Duration) []Event {
	m.events = append(m.events[:0], m.events[m.returned:]...)
	m.returned = 0
	to = max(to, m.now)
	for {
		t := m.Next()
		if len(m.events) > 0 {
			m.returned = len(m.events)
			return m.events
		}
		if t > to {
			m.accrue(to)
			return nil
		}
		if m.cfg.Live {
			t = to
		}
		m.accrue(t)
		m.processDue()
	}
}

// othersWait reports whether the end of a slice gives the engine to another group, or to another
// channel of the same group.
func (m *Machine) othersWait() bool {
	return m.readyGroups.len() > 0 || m.resident != nil && m.resident.ready.len() > 0
}

// length returns how long a launch executes, including the overhead of launching it.
func (m *Machine) length(l *Launch) time.Duration { return l.Duration + m.cfg.Overhead }

// accrue advances the time to an instant before which nothing happens, and charges the interval.
func (m *Machine) accrue(to time.Duration) {
	dt := to - m.now
	if dt <= 0 {
		return
	}
	m.now = to
	switch {
	case m.switching.to != nil:
		m.totals.Switching += dt
		if !m.switching.loading && m.switching.from != nil {
			m.switching.from.usage.Switching += dt
		} else {
			m.switching.to.usage.Switching += dt
		}
	case m.cfg.Mode == CoRun:
		m.coAccrue(dt)
	case !m.on.empty():
		for _, l := range m.on.launches {
			l.elapsed += dt
		}
		m.on.group().usage.Busy += dt
		m.totals.Busy += dt
	default:
		m.totals.Idle += dt
	}
}

// processDue carries out what is due at the machine's Now.
func (m *Machine) processDue() {
	m.show.flush(m.now)
	switch {
	case m.switching.to != nil:
		m.advanceSwitch()
	case m.cfg.Mode == CoRun:
		m.coProcessDue()
	case !m.on.empty():
		if !m.processLaunches() && m.cfg.Mode == Slices && m.othersWait() && m.now >= m.sliceEnd {
			m.preempt()
		}
	}
}

// processLaunches ends the launches that are done, and emits the limits that are reached. It
// reports whether there were any.
func (m *Machine) processLaunches() (any bool) {
	for i := 0; i < len(m.on.launches); {
		l := m.on.launches[i]
		switch {
		case !l.Open && l.elapsed >= m.length(l):
			any = true
			m.finish(l)
			continue
		case l.Limit > 0 && !l.expired && l.elapsed >= l.Limit:
			any, l.expired = true, true
			m.emit(Expired, l, l.channel.group)
		}
		i++
	}
	return any
}

func (m *Machine) emit(k EventKind, l *Launch, g *Group) {
	m.events = append(m.events, Event{Kind: k, Launch: l, Group: g})
}

// dispatch gives the engine a launch if it has none and one is waiting, and more launches of the
// same group that fit beside it.
func (m *Machine) dispatch() {
	switch {
	case m.cfg.Mode == CoRun:
		m.coDispatch()
	case m.switching.to != nil:
	case !m.on.empty():
		for m.startBeside() {
		}
	case m.cfg.Mode == Slices:
		m.dispatchSlices()
	case m.readyChannels.len() > 0:
		c := m.readyChannels.pop()
		c.ready = false
		if c.group == m.resident {
			m.start(c)
		} else {
			m.switchTo(c.group, c, m.cfg.ExclusiveSwitch)
		}
	}
}

// startBeside starts the launch whose turn is next beside those that execute, and reports whether
// it did: if it is of the same group, its blocks fit, and no other group's slice has come.
func (m *Machine) startBeside() bool {
	ready := &m.readyChannels
	if m.cfg.Mode == Slices {
		if m.now >= m.sliceEnd && m.readyGroups.len() > 0 {
			return false
		}
		ready = &m.resident.ready
	}
	if ready.len() == 0 || ready.peek().group != m.resident || !m.place(ready.peek().queue[0]) {
		return false
	}
	c := ready.pop()
	c.ready = false
	m.start(c)
	return true
}

// dispatchSlices continues with the resident group until its slice is over, or beyond if no other
// group has work.
func (m *Machine) dispatchSlices() {
	g := m.resident
	able := g != nil && g.ready.len() > 0
	others := m.readyGroups.len() > 0
	switch {
	case able && (!others || m.now < m.sliceEnd):
		if m.now >= m.sliceEnd {
			m.sliceEnd = m.now + g.slice
		}
		m.startNext(g)
	case others:
		if able {
			g.queued, g.fresh = true, false
			m.readyGroups.push(g)
		}
		next := m.readyGroups.pop()
		next.queued = false
		cost := m.cfg.SliceSwitch
		if next.fresh || g == nil {
			cost = m.cfg.ReadySwitch
		}
		next.fresh = false
		m.switchTo(next, nil, cost)
	}
}

// startNext starts the next channel of a group, under [Slices].
func (m *Machine) startNext(g *Group) {
	c := g.ready.pop()
	c.ready = false
	m.start(c)
}

// switchTo begins to load g's context. c is the channel to run next, or nil if any channel of g may
// run.
func (m *Machine) switchTo(g *Group, c *Channel, cost time.Duration) {
	m.switching = contextSwitch{from: m.resident, to: g, channel: c, half: m.now + cost/2, end: m.now + cost}
	if m.switching.from == nil {
		m.switching.half, m.switching.loading = m.now, true // nothing to save
	}
	m.resident = nil
	if cost <= 0 {
		m.loaded()
		return
	}
	m.showEngine()
}

// advanceSwitch goes from saving to loading, or completes the switch.
func (m *Machine) advanceSwitch() {
	switch {
	case m.now >= m.switching.end:
		m.loaded()
	case m.now >= m.switching.half && !m.switching.loading:
		m.switching.loading = true
		m.showEngine()
	}
}

// loaded completes a switch.
func (m *Machine) loaded() {
	g, c := m.switching.to, m.switching.channel
	if m.switching.from != nil && m.switching.from != g {
		m.totals.Switches++
	}
	m.switching = contextSwitch{}
	m.resident = g
	m.sliceEnd = m.now + g.slice
	m.emit(Switched, nil, g)
	switch {
	case c != nil:
		m.start(c)
	case m.cfg.Mode == Slices && g.ready.len() > 0:
		m.startNext(g)
	default:
		m.showEngine()
	}
}

// start puts the first launch of c on the engine, where there is room for it.
func (m *Machine) start(c *Channel) {
	l := c.queue[0]
	c.on = true
	if m.on.empty() {
		m.place(l)
	}
	m.on.add(l)
	if l.state == begun {
		m.emit(Resumed, l, c.group)
	} else {
		l.state, l.start = begun, m.now
		m.emit(Started, l, c.group)
	}
	m.showEngine()
	m.showEntry(c)
}

// finish ends a launch that executes.
func (m *Machine) finish(l *Launch) {
	c := l.channel
	m.ended(l, l.elapsed-m.length(l))
	m.on.remove(l)
	c.on = false
	c.dequeue(l)
	m.showEngine()
	m.showEntry(c)
}

// ended accounts for the end of a launch that ended later than its duration by late.
func (m *Machine) ended(l *Launch, late time.Duration) {
	l.state = finished
	if l.evicting {
		l.channel.group.usage.Evictions++
		m.emit(Evicted, l, l.channel.group)
		return
	}
	m.totals.Launches++
	l.channel.group.usage.Launches++
	if late > 0 {
		m.totals.Overruns++
		m.totals.Overrun += late
	}
	m.emit(Finished, l, l.channel.group)
}

// preempt takes all launches off the engine. They will continue where they stopped.
func (m *Machine) preempt() {
	for !m.on.empty() {
		l := m.on.launches[0]
		c, g := l.channel, l.channel.group
		m.on.remove(l)
		c.on = false
		g.usage.Preemptions++
		m.emit(Preempted, l, g)
		if !g.disabled {
			c.ready = true
			g.ready.push(c) // behind the group's other channels
		}
		m.showEntry(c)
	}
	m.showEngine()
}

// stop takes l off the engine if l is on it.
func (m *Machine) stop(l *Launch) {
	if m.on.remove(l) {
		l.channel.on = false
	}
	m.co.drop(l)
}
