package machine

import (
	"math/bits"
	"slices"
	"time"
)

// coRun is the state of the [CoRun] dispatcher (FLEP §2.1). Blocks of a launch that become resident
// at one instant form a cohort: they take equally long, so they leave together.
type coRun struct {
	free      []Resources // by SM
	heads     []*Launch   // launches at the head of their channels with blocks still to place, in order of arrival
	resident  []*Launch   // launches with resident blocks
	cohorts   []*cohort
	groups    []*Group // with resident blocks
	exclusive bool     // a launch without blocks of its own occupies the machine
	pool      []*cohort
	stalled   *Launch // the head for whose other blocks there was no room, until some leave
	changed   bool    // whether cohorts came or left since share
	stretch   float64 // how many times as long as alone launches wait for memory
}

type cohort struct {
	l     *Launch
	n     uint64
	perSM []int
	end   time.Duration // Never for an open launch
	since time.Duration
	rate  float64 // how fast it executes, 1 with the memory to itself
	cut   bool    // it leaves at end whatever others do
}

func (co *coRun) init(cfg Config) {
	if cfg.Mode != CoRun {
		return
	}
	co.free = slices.Repeat([]Resources{cfg.SM}, cfg.SMs)
}

// coDispatch makes blocks resident. Blocks of the next launch are placed only when the one before
// it has none left to place.
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
		if l == co.stalled {
			break
		}
		if m.coPlace(l) {
			placed = true
		}
		if l.unplaced > 0 {
			co.stalled = l
			break
		}
		co.heads = slices.Delete(co.heads, 0, 1)
	}
	if placed {
		m.coShow()
	}
	co.share(m.now)
}

// waiting reports whether a launch has no room for any of its blocks.
func (co *coRun) waiting() bool {
	return slices.ContainsFunc(co.heads, func(l *Launch) bool { return l.state == queued })
}

// coPrepare computes how l would run with the machine to itself.
func (m *Machine) coPrepare(l *Launch) {
	occupancy := uint64(m.cfg.Occupancy(l.Need)) * uint64(m.cfg.SMs)
	if l.Blocks == 0 || occupancy == 0 {
		l.unplaced, l.maxResident, l.block = 1, 0, l.Duration
		return
	}
	m.place(l)
	l.unplaced = l.Blocks
	l.maxResident = min(l.Blocks, occupancy)
	waves := (l.Blocks + l.maxResident - 1) / l.maxResident
	l.block = l.Duration / time.Duration(waves)
}

// coPlace makes as many of l's blocks resident as fit, and reports whether any did.
func (m *Machine) coPlace(l *Launch) bool {
	co := &m.co
	if co.exclusive {
		return false
	}
	c := co.cohort()
	switch {
	case l.maxResident == 0 && len(co.cohorts) > 0:
		co.pool = append(co.pool, c)
		return false
	case l.maxResident == 0:
		co.exclusive = true
		c.n = 1
	default:
		need := l.Need
		need.Blocks = 1
		limit := l.unplaced
		if l.Open {
			limit = min(limit, l.maxResident)
		}
		for sm := range co.free {
			n := int(min(uint64(co.free[sm].times(need)), limit-c.n))
			if n == 0 {
				continue // full, or all are placed
			}
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
		co.resident = append(co.resident, l)
		c.end = m.now + m.cfg.Overhead + l.block
		m.emit(Started, l, g)
	} else {
		c.end = m.now + l.block
	}
	l.resident += c.n
	l.unplaced -= c.n
	if l.Open {
		c.end, l.unplaced = Never, 0 // the remaining blocks come and go as these do
	}
	if g.resident == 0 {
		co.groups = append(co.groups, g)
	}
	g.resident += c.threads()
	co.cohorts, co.changed = append(co.cohorts, c), true
	m.showEntry(l.channel)
	return true
}

// threads is the cohort's weight when an interval is divided among the groups.
func (c *cohort) threads() uint64 { return c.n * uint64(max(c.l.Need.Threads, 1)) }

func (co *coRun) cohort() *cohort {
	if n := len(co.pool); n > 0 {
		c := co.pool[n-1]
		co.pool = co.pool[:n-1]
		c.n, c.rate, c.cut = 0, 1, false
		clear(c.perSM)
		return c
	}
	return &cohort{perSM: make([]int, len(co.free)), rate: 1}
}

// next returns when the next cohort leaves or limit is reached.
func (co *coRun) next(now time.Duration) time.Duration {
	t := Never
	for _, c := range co.cohorts {
		t = min(t, max(c.end, now))
	}
	for _, l := range co.resident {
		if l.Limit > 0 && !l.expired {
			t = min(t, now+max(0, l.Limit-l.elapsed))
		}
	}
	return t
}

// coProcessDue removes the cohorts that are done, and emits the limits that are reached.
func (m *Machine) coProcessDue() {
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
		if l.resident -= c.n; l.resident == 0 && l.unplaced == 0 {
			m.coFinish(l, late)
		}
	}
	for _, l := range co.resident {
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
	m.co.resident = slices.DeleteFunc(m.co.resident, func(f *Launch) bool { return f == l })
	m.ended(l, late)
	c.on = false
	c.dequeue(l)
	m.showEntry(c)
}

// release frees the resources of cohort i.
func (co *coRun) release(i int) {
	c := co.cohorts[i]
	co.cohorts, co.changed, co.stalled = slices.Delete(co.cohorts, i, i+1), true, nil
	if c.l.maxResident == 0 {
		co.exclusive = false
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

// settled sets the end of an open launch's cohort. With fewer resident blocks than it would have
// alone, it takes proportionally longer.
func (co *coRun) settled(l *Launch) {
	for _, c := range co.cohorts {
		if c.l != l {
			continue
		}
		length := l.Duration + l.channel.group.m.cfg.Overhead
		if l.maxResident > 0 {
			length = time.Duration(float64(length) * float64(l.maxResident) / float64(c.n))
		}
		c.end = c.since + time.Duration(float64(length)/c.rate)
	}
}

// coEvict makes l's resident blocks leave by the given time. No more blocks of l become resident.
func (m *Machine) coEvict(l *Launch, by time.Duration) {
	co := &m.co
	co.stalled = nil
	cut := l.unplaced > 0
	l.unplaced = 0
	co.heads = slices.DeleteFunc(co.heads, func(h *Launch) bool { return h == l })
	for _, c := range co.cohorts {
		if c.l == l && c.end > by {
			c.end, c.cut, cut = by, true, true
		}
	}
	l.Open, l.evicting = false, cut
	if l.resident == 0 {
		m.coFinish(l, 0) // between two waves
	}
}

// drop takes all of l off the machine.
func (co *coRun) drop(l *Launch) {
	co.stalled = nil
	co.heads = slices.DeleteFunc(co.heads, func(h *Launch) bool { return h == l })
	n := len(co.resident)
	co.resident = slices.DeleteFunc(co.resident, func(f *Launch) bool { return f == l })
	if len(co.resident) == n {
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

// withdraw takes back launches of a disabled group that have no resident blocks yet.
func (co *coRun) withdraw(g *Group) {
	co.stalled = nil
	co.heads = slices.DeleteFunc(co.heads, func(l *Launch) bool { return l.channel.group == g && l.state == queued })
}

// removeGroup forgets a closed group.
func (co *coRun) removeGroup(g *Group) {
	co.groups = slices.DeleteFunc(co.groups, func(o *Group) bool { return o == g })
}

// oldest returns the launch of g that the registers show, its oldest.
func (co *coRun) oldest(g *Group) *Launch {
	for _, l := range co.resident {
		if l.channel.group == g {
			return l
		}
	}
	return nil
}

// coShow chooses the group that the registers show. Hardware has room for one, so it is the group
// with the most resident threads. The group already shown stays if no other has more.
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

// coAccrue divides an interval among the groups by their resident threads. The rounding remainder
// goes to the group that the registers show, so that nothing is lost.
func (m *Machine) coAccrue(dt time.Duration) {
	co := &m.co
	if len(co.groups) == 0 {
		m.totals.Idle += dt
		return
	}
	m.totals.Busy += dt
	for _, l := range co.resident {
		l.elapsed += dt
	}
	var total uint64
	for _, g := range co.groups {
		total += g.resident
	}
	rest := dt
	for _, g := range co.groups {
		// dt*resident/total: the quotient is at most dt, so the division can't overflow.
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
