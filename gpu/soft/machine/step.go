package machine

import "time"

// Next is when something will happen by itself: a launch ends, a slice ends, a switch advances, or a lagging register
// changes. [Never] if nothing will until something is submitted or settled.
func (m *Machine) Next() time.Duration {
	m.dispatch()
	if len(m.events) > m.told {
		return m.now // an event that Step has yet to tell of
	}
	t := m.show.next()
	switch {
	case m.change.to != nil:
		if m.change.loading {
			return min(t, m.change.end)
		}
		return min(t, m.change.half)
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

// Step carries the machine to the given time, or to the first instant before it at which an event happens. It returns
// that instant's events, valid until the next Step; none means that the machine is at the given time. What callers
// submit in answer to an event is taken into account before the dispatcher decides what is next.
//
// A time that has passed stands for Now.
func (m *Machine) Step(to time.Duration) []Event {
	m.events = append(m.events[:0], m.events[m.told:]...)
	m.told = 0
	to = max(to, m.now)
	for {
		t := m.Next()
		if len(m.events) > 0 {
			m.told = len(m.events)
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
		m.happen()
	}
}

// othersWait reports whether a slice's end is anybody's turn: another group's, or another channel's of the same group.
func (m *Machine) othersWait() bool {
	return m.readyGroups.len() > 0 || m.resident != nil && m.resident.ready.len() > 0
}

// length is how long a launch executes with what launching costs.
func (m *Machine) length(l *Launch) time.Duration { return l.Duration + m.cfg.Overhead }

// accrue lets time pass in which nothing happens, and books it.
func (m *Machine) accrue(to time.Duration) {
	dt := to - m.now
	if dt <= 0 {
		return
	}
	m.now = to
	switch {
	case m.change.to != nil:
		m.totals.Switching += dt
		if !m.change.loading && m.change.from != nil {
			m.change.from.usage.Switching += dt
		} else {
			m.change.to.usage.Switching += dt
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

// happen carries out what is due at the machine's Now.
func (m *Machine) happen() {
	m.show.flush(m.now)
	switch {
	case m.change.to != nil:
		m.advanceChange()
	case m.cfg.Mode == CoRun:
		m.coHappen()
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

// dispatch gives the engine something to do, if it has nothing and there is something.
func (m *Machine) dispatch() {
	switch {
	case m.cfg.Mode == CoRun:
		m.coDispatch()
	case m.change.to != nil || m.running != nil:
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

// dispatchSlices goes on with the resident group until its slice is over, unless it is the only one with work.
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

// startNext starts the next channel of a group under [Slices].
func (m *Machine) startNext(g *Group) {
	c := g.ready.pop()
	c.ready = false
	m.start(c)
}

// switchTo begins to bring g's context on the engine, for c if the choice was c's.
func (m *Machine) switchTo(g *Group, c *Channel, cost time.Duration) {
	m.change = change{from: m.resident, to: g, channel: c, half: m.now + cost/2, end: m.now + cost}
	if m.change.from == nil {
		m.change.half, m.change.loading = m.now, true // nothing to save
	}
	m.resident = nil
	if cost <= 0 {
		m.loaded()
		return
	}
	m.showEngine()
}

// advanceChange goes from save to load, or ends the switch.
func (m *Machine) advanceChange() {
	switch {
	case m.now >= m.change.end:
		m.loaded()
	case m.now >= m.change.half && !m.change.loading:
		m.change.loading = true
		m.showEngine()
	}
}

// loaded ends a switch: the group that was wanted is on the engine.
func (m *Machine) loaded() {
	g, c := m.change.to, m.change.channel
	if m.change.from != nil && m.change.from != g {
		m.totals.Switches++
	}
	m.change = change{}
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

// ended books the end of a launch, late by so much.
func (m *Machine) ended(l *Launch, late time.Duration) {
	l.state = finished
	if l.leaving {
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

// preempt takes the launch that executes off the engine; it goes on where it was.
func (m *Machine) preempt() {
	l := m.running
	c, g := l.channel, l.channel.group
	m.running = nil
	c.on = false
	g.usage.Preemptions++
	m.emit(Preempted, l, g)
	if !g.disabled {
		c.ready = true
		g.ready.push(c) // its group's other channels come first
	}
	m.showEngine()
	m.showEntry(c)
}

// stop takes l off the engine if it is there.
func (m *Machine) stop(l *Launch) {
	if m.running == l {
		m.running = nil
		l.channel.on = false
	}
	m.co.drop(l)
}
