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
	case m.running != nil:
		l := m.running
		if !l.Open {
			t = min(t, m.now+max(0, m.length(l)-l.elapsed))
		}
		if l.Limit > 0 && !l.expired {
			t = min(t, m.now+max(0, l.Limit-l.elapsed))
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
	case m.running != nil:
		m.running.elapsed += dt
		m.running.channel.group.usage.Busy += dt
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
	case m.running != nil:
		l := m.running
		switch {
		case !l.Open && l.elapsed >= m.length(l):
			m.finish(l)
		case l.Limit > 0 && !l.expired && l.elapsed >= l.Limit:
			l.expired = true
			m.emit(Expired, l, l.channel.group)
		case m.cfg.Mode == Slices && m.othersWait() && m.now >= m.sliceEnd:
			m.preempt()
		}
	}
}

func (m *Machine) emit(k EventKind, l *Launch, g *Group) {
	m.events = append(m.events, Event{Kind: k, Launch: l, Group: g})
}

// dispatch gives the engine a launch if it has none and one is waiting.
func (m *Machine) dispatch() {
	switch {
	case m.cfg.Mode == CoRun:
		m.coDispatch()
	case m.switching.to != nil || m.running != nil:
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

// start puts the first launch of c on the engine.
func (m *Machine) start(c *Channel) {
	l := c.queue[0]
	c.on = true
	m.running = l
	if l.state == begun {
		m.emit(Resumed, l, c.group)
	} else {
		l.state, l.start = begun, m.now
		m.emit(Started, l, c.group)
	}
	m.showEngine()
	m.showEntry(c)
}

// finish ends the launch that executes.
func (m *Machine) finish(l *Launch) {
	c := l.channel
	m.ended(l, l.elapsed-m.length(l))
	m.running = nil
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

// preempt takes the running launch off the engine. It will continue where it stopped.
func (m *Machine) preempt() {
	l := m.running
	c, g := l.channel, l.channel.group
	m.running = nil
	c.on = false
	g.usage.Preemptions++
	m.emit(Preempted, l, g)
	if !g.disabled {
		c.ready = true
		g.ready.push(c) // behind the group's other channels
	}
	m.showEngine()
	m.showEntry(c)
}

// stop takes l off the engine if l is on it.
func (m *Machine) stop(l *Launch) {
	if m.running == l {
		m.running = nil
		l.channel.on = false
	}
	m.co.drop(l)
}
