package machine

import (
	"math/bits"
	"slices"
	"time"
)

// coRun is the state of the dispatcher that fills what is left over (FLEP §2.1). Blocks of a launch that become
// resident at one instant are a cohort: they take equally long, so they leave together.
type coRun struct {
	free    []Resources // by SM
	heads   []*Launch   // launches at the head of their channels, in order of arrival, whose blocks aren't all resident
	flying  []*Launch   // launches with resident blocks
	cohorts []*cohort
	groups  []*Group // with resident blocks
	whole   bool     // a launch without blocks of its own has the machine
	pool    []*cohort
}

type cohort struct {
	l     *Launch
	n     uint64
	perSM []int
	end   time.Duration // Never for an open launch
	since time.Duration
}

func (co *coRun) init(cfg Config) {
	if cfg.Mode != CoRun {
		return
	}
	co.free = slices.Repeat([]Resources{cfg.SM}, cfg.SMs)
}

// coDispatch makes blocks resident: those of the first launch first, and those of the next only when it has none left
// to place.
func (m *Machine) coDispatch() {
	co := &m.co
	for m.readyChannels.len() > 0 {
		c := m.readyChannels.pop()
		c.ready = false
		l := c.queue[0]
		m.coPrepare(l)
		co.heads = append(co.heads, l)
	}
	placed := false
	for len(co.heads) > 0 {
		l := co.heads[0]
		if m.coPlace(l) {
			placed = true
		}
		if l.undone > 0 {
			break
		}
		co.heads = slices.Delete(co.heads, 0, 1)
	}
	if placed {
		m.coShow()
	}
}

// coPrepare works out how l would run with the machine to itself.
func (m *Machine) coPrepare(l *Launch) {
	occupancy := uint64(m.cfg.Occupancy(l.Need)) * uint64(m.cfg.SMs)
	if l.Blocks == 0 || occupancy == 0 {
		l.undone, l.full, l.block = 1, 0, l.Duration
		return
	}
	l.undone = l.Blocks
	l.full = min(l.Blocks, occupancy)
	waves := (l.Blocks + l.full - 1) / l.full
	l.block = l.Duration / time.Duration(waves)
}

// coPlace makes as many of l's blocks resident as fit, and reports whether any did.
func (m *Machine) coPlace(l *Launch) bool {
	co := &m.co
	if co.whole {
		return false
	}
	c := co.cohort()
	switch {
	case l.full == 0 && len(co.cohorts) > 0:
		co.pool = append(co.pool, c)
		return false
	case l.full == 0:
		co.whole = true
		c.n = 1
	default:
		need := l.Need
		need.Blocks = 1
		limit := l.undone
		if l.Open {
			limit = min(limit, l.full)
		}
		for sm := range co.free {
			n := int(min(uint64(co.free[sm].times(need)), limit-c.n))
			c.perSM[sm] = n
			c.n += uint64(n)
			co.free[sm] = co.free[sm].add(need, -n)
		}
		if c.n == 0 {
			co.pool = append(co.pool, c)
			return false
		}
	}
	c.l, c.since = l, m.now
	g := l.channel.group
	if l.state != begun {
		l.state, l.start = begun, m.now
		l.channel.on = true
		co.flying = append(co.flying, l)
		c.end = m.now + m.cfg.Overhead + l.block
		m.emit(Started, l, g)
	} else {
		c.end = m.now + l.block
	}
	l.flying += c.n
	l.undone -= c.n
	if l.Open {
		c.end, l.undone = Never, 0 // the others come and go as these do
	}
	if g.resident == 0 {
		co.groups = append(co.groups, g)
	}
	g.resident += c.threads()
	co.cohorts = append(co.cohorts, c)
	m.showEntry(l.channel)
	return true
}

// threads weighs a cohort when an instant's time is divided.
func (c *cohort) threads() uint64 { return c.n * uint64(max(c.l.Need.Threads, 1)) }

func (co *coRun) cohort() *cohort {
	if n := len(co.pool); n > 0 {
		c := co.pool[n-1]
		co.pool = co.pool[:n-1]
		c.n = 0
		clear(c.perSM)
		return c
	}
	return &cohort{perSM: make([]int, len(co.free))}
}

// next is when a cohort leaves or a limit is reached.
func (co *coRun) next(now time.Duration) time.Duration {
	t := Never
	for _, c := range co.cohorts {
		t = min(t, max(c.end, now))
	}
	for _, l := range co.flying {
		if l.Limit > 0 && !l.expired {
			t = min(t, now+max(0, l.Limit-l.elapsed))
		}
	}
	return t
}

// coHappen lets cohorts leave that are done, and says whose limit is reached.
func (m *Machine) coHappen() {
	co := &m.co
	left := false
	for i := 0; i < len(co.cohorts); {
		c := co.cohorts[i]
		if c.end > m.now {
			i++
			continue
		}
		l, late := c.l, m.now-c.end
		co.release(i)
		left = true
		if l.flying -= c.n; l.flying == 0 && l.undone == 0 {
			m.coFinish(l, late)
		}
	}
	for _, l := range co.flying {
		if l.Limit > 0 && !l.expired && l.elapsed >= l.Limit {
			l.expired = true
			m.emit(Expired, l, l.channel.group)
		}
	}
	if left {
		m.coShow()
	}
}

func (m *Machine) coFinish(l *Launch, late time.Duration) {
	c := l.channel
	m.co.flying = slices.DeleteFunc(m.co.flying, func(f *Launch) bool { return f == l })
	m.ended(l, late)
	c.on = false
	c.dequeue(l)
	m.showEntry(c)
}

// release gives back what cohort i occupies.
func (co *coRun) release(i int) {
	c := co.cohorts[i]
	co.cohorts = slices.Delete(co.cohorts, i, i+1)
	if c.l.full == 0 {
		co.whole = false
	} else {
		need := c.l.Need
		need.Blocks = 1
		for sm, n := range c.perSM {
			co.free[sm] = co.free[sm].add(need, n)
		}
	}
	g := c.l.channel.group
	if g.resident -= c.threads(); g.resident == 0 {
		co.groups = slices.DeleteFunc(co.groups, func(o *Group) bool { return o == g })
	}
	co.pool = append(co.pool, c)
}

// settled sets the end of an open launch's cohort: with fewer blocks resident than it would have alone, it takes
// longer in proportion.
func (co *coRun) settled(l *Launch) {
	for _, c := range co.cohorts {
		if c.l != l {
			continue
		}
		length := l.Duration + l.channel.group.m.cfg.Overhead
		if l.full > 0 {
			length = time.Duration(float64(length) * float64(l.full) / float64(c.n))
		}
		c.end = c.since + length
	}
}

// coEvict has l's resident blocks leave by the given time, and makes no more resident.
func (m *Machine) coEvict(l *Launch, by time.Duration) {
	co := &m.co
	cut := l.undone > 0
	l.undone = 0
	co.heads = slices.DeleteFunc(co.heads, func(h *Launch) bool { return h == l })
	for _, c := range co.cohorts {
		if c.l == l && c.end > by {
			c.end, cut = by, true
		}
	}
	l.Open, l.leaving = false, cut
	if l.flying == 0 {
		m.coFinish(l, 0) // between two of its waves
	}
}

// drop takes all of l off the machine.
func (co *coRun) drop(l *Launch) {
	co.heads = slices.DeleteFunc(co.heads, func(h *Launch) bool { return h == l })
	n := len(co.flying)
	co.flying = slices.DeleteFunc(co.flying, func(f *Launch) bool { return f == l })
	if len(co.flying) == n {
		return
	}
	for i := 0; i < len(co.cohorts); {
		if co.cohorts[i].l == l {
			co.release(i)
		} else {
			i++
		}
	}
	l.channel.on = false
	l.channel.group.m.coShow()
}

// hold takes back launches of a disabled group that have no blocks resident yet.
func (co *coRun) hold(g *Group) {
	co.heads = slices.DeleteFunc(co.heads, func(l *Launch) bool { return l.channel.group == g && l.state == queued })
}

// forget removes a closed group.
func (co *coRun) forget(g *Group) {
	co.groups = slices.DeleteFunc(co.groups, func(o *Group) bool { return o == g })
}

// of is the launch that the registers show for g, its oldest.
func (co *coRun) of(g *Group) *Launch {
	for _, l := range co.flying {
		if l.channel.group == g {
			return l
		}
	}
	return nil
}

// coShow chooses the group that the registers show: hardware has room for one, so the one with the most resident
// threads; the one already shown, if others have no more.
func (m *Machine) coShow() {
	best := m.resident
	if best != nil && best.resident == 0 && len(m.co.groups) > 0 {
		best = nil
	}
	for _, g := range m.co.groups {
		if best == nil || g.resident > best.resident {
			best = g
		}
	}
	if best != m.resident {
		if m.resident != nil {
			m.totals.Switches++
		}
		m.resident = best
		m.emit(Switched, nil, best)
	}
	m.showEngine()
}

// coAccrue divides an interval among the groups by their resident threads. What the division leaves over goes to the
// group shown, so that nothing is lost.
func (m *Machine) coAccrue(dt time.Duration) {
	co := &m.co
	if len(co.groups) == 0 {
		m.totals.Idle += dt
		return
	}
	m.totals.Busy += dt
	for _, l := range co.flying {
		l.elapsed += dt
	}
	var total uint64
	for _, g := range co.groups {
		total += g.resident
	}
	rest := dt
	for _, g := range co.groups {
		// dt*resident/total; the quotient is at most dt, so the division can't overflow.
		hi, lo := bits.Mul64(uint64(dt), g.resident)
		part, _ := bits.Div64(hi, lo, total)
		g.usage.Busy += time.Duration(part)
		rest -= time.Duration(part)
	}
	shown := m.resident
	if shown == nil {
		shown = co.groups[0]
	}
	shown.usage.Busy += rest
}
