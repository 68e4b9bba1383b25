package accounting

import (
	"cmp"
	"slices"
	"time"
)

// This file works out who was on the engine while nothing was recorded, from the executors' reports
// alone. On an H100 the stamps of launches tell that exactly: a context is on the engine when one
// of its launches ends, and when one starts that did not wait behind another of its own. A context
// that runs out of work leaves at that very instant if another one is wanted, and the next one's
// first launch is stamped when it has arrived, 142 µs later (62 µs for the save, 80 µs for the
// load). So each stamp is a sighting, and only the time between sightings of two contexts has to be
// worked out. It is certain where launches are waited for, and that is where contexts change
// thousands of times a second. It has to be guessed where several contexts have launches of many
// milliseconds outstanding, and there the hardware changes contexts a few hundred times a second.

// sighting is an instant at which a context is known to have been on the engine.
type sighting struct {
	at time.Duration
	c  *contextMeter
	// starts reports whether the context had no work before, and dry whether it had none after.
	starts, dry bool
}

// inference is a meter's state for time in which nothing was recorded.
type inference struct {
	sightings []sighting // since RecordMeter.final
	last      sighting   // the newest before RecordMeter.final
	// inferred reports whether the present pass over the time had such time.
	inferred bool
	// learns reports whether the present pass learns from sightings. learned is the time of the
	// newest one that was learned from.
	learns  bool
	learned time.Duration
	guessed time.Duration // of the phase that ends with the next Cut
}

// minVisit is the shortest time for which a context was on the engine on an H100.
const minVisit = 61 * time.Microsecond

// change returns how long it takes to replace a context that has a launch on the GPU by another.
func (m *RecordMeter) change() time.Duration { return m.config.Preempted + m.config.TypicalLoad }

// infer adds the part in of a time in which nothing was recorded.
func (m *RecordMeter) infer(in Interval) {
	m.inferred = true
	m.collectSightings()
	for _, c := range m.contexts {
		c.next = 0
	}
	p := m.inference.last
	for _, q := range m.sightings {
		isNew := m.learns && q.at > m.learned
		if p.c == nil {
			m.divide(Interval{in.Start, min(q.at, in.End)})
		} else {
			m.between(&p, &q, in, isNew)
		}
		if isNew {
			m.learned = q.at
			q.c.sighted(q.starts)
		}
		p = q
	}
	m.afterLast(&p, in)
	for _, c := range m.contexts {
		c.runs = max(c.runs, c.visits)
	}
}

// collectSightings collects the sightings since m.final, in order.
func (m *RecordMeter) collectSightings() {
	m.sightings = m.sightings[:0]
	for _, c := range m.contexts {
		next := 0
		for _, v := range c.all {
			// The work that runs now has been on the GPU since then, and not necessarily on the
			// engine.
			running := c.since != 0 && v.Start <= c.since && c.since < v.End
			if v.Start > m.final && (!running || v.Start < c.since) {
				m.sightings = append(m.sightings, sighting{at: v.Start, c: c, starts: true})
			}
			for ; next < len(c.ends) && c.ends[next] <= v.End; next++ {
				if end := c.ends[next]; end > v.Start {
					m.sightings = append(m.sightings, sighting{at: end, c: c, dry: end == v.End && !running})
				}
			}
		}
	}
	slices.SortStableFunc(m.sightings, func(a, b sighting) int { return cmp.Compare(a.at, b.at) })
}

// betweenSightings says how the time between two sightings was used: the first context went on for
// stayed, the second one had been there for came, and those that were hidden shared the rest.
type betweenSightings struct {
	stayed, came, rest time.Duration
	// guessed is how much of it may as well have been another context's.
	guessed time.Duration
}

// between adds the part in of the time between two sightings that follow each other. isNew says
// that the second one is seen for the first time.
func (m *RecordMeter) between(p, q *sighting, in Interval, isNew bool) {
	hidden := m.hidden(p, q)
	save := m.config.Preempted
	if p.dry {
		save = m.config.Save
	}
	var u betweenSightings
	if p.c == q.c {
		u = m.sameContext(p, q, save, time.Duration(len(hidden)))
	} else {
		u = m.otherContext(p, q, save, time.Duration(len(hidden)))
	}
	p.c.addBusy(Interval{p.at, p.at + u.stayed}, in)
	// It came back to a launch that had been preempted.
	delay := min(m.resumeDelayOf(q.c), u.came)
	q.c.addBusy(Interval{q.at - u.came, q.at - delay}, in)
	q.c.saves.recent += Interval{q.at - delay, q.at}.within(in)
	if p.c != q.c || u.rest > 0 {
		m.addChange(p.c, p.at+u.stayed, q.at-u.came, save, in)
	}
	if q.at > m.cut {
		// Visits are counted as residences are: those that lasted into the phase, too.
		if p.c != q.c || u.rest > 0 || p.at <= m.cut {
			q.c.visits++
		}
		if p.c != q.c && p.at <= m.cut && u.stayed > m.cut-p.at {
			p.c.visits++
		}
	}
	var each time.Duration
	if u.rest > 0 {
		each = u.rest / time.Duration(len(hidden))
		at := p.at + u.stayed + save + m.config.TypicalLoad
		for _, c := range hidden {
			c.addBusy(Interval{at, at + each}, in)
			if q.at > m.cut {
				c.visits++
			}
			at += each
			m.addChange(c, at, at+m.change(), m.config.Preempted, in)
			at += m.change()
		}
	}
	if !isNew {
		return
	}
	if p.c != q.c {
		m.switches++
	}
	if p.c == q.c && !p.dry {
		p.c.spaced(q.at-p.at, u.guessed > 0)
	}
	doubt := u.guessed > 0
	p.c.seen(u.stayed, doubt)
	q.c.seen(u.came-delay, doubt)
	if each > 0 {
		for _, c := range hidden {
			m.switches++
			c.seen(each, doubt)
		}
	}
	m.guessed += u.guessed
}

// seen notes that the context was on the engine for a while, or may have been.
func (c *contextMeter) seen(d time.Duration, doubt bool) {
	c.unseen += d
	c.doubtful = c.doubtful || doubt
}

// spaced learns from the time between two sightings of the context that had work all the while. If
// that is always longer than it is on the engine between two, as far as was learned, its launches
// have become longer: others' visits would not come between every two.
func (c *contextMeter) spaced(gap time.Duration, visited bool) {
	const always = 8
	if !visited {
		c.visited = 0
		return
	}
	if c.visited == 0 || gap < c.shortest {
		c.shortest = gap
	}
	if c.visited++; c.visited == always {
		c.spacing, c.visited = c.shortest, 0
	}
}

// sighted learns from a sighting how long the context is on the engine between two of them.
func (c *contextMeter) sighted(starts bool) {
	const newest = 16 // sightings of which the mean is taken
	switch {
	case starts || c.doubtful || c.unseen <= 0:
	case c.spacing == 0:
		c.spacing = c.unseen
	default:
		c.spacing += (c.unseen - c.spacing) / newest
	}
	c.unseen, c.doubtful = 0, false
}

// learnFrom takes over what another meter has learned of the same contexts.
func (m *RecordMeter) learnFrom(o *RecordMeter) {
	for _, c := range o.contexts {
		m.context(&Work{PID: c.pid, Group: c.group}).spacing = c.spacing
	}
}

// sameContext works out the time between two sightings of one context. Another one can have been
// there in between only if there was time for two changes.
func (m *RecordMeter) sameContext(p, q *sighting, save, hidden time.Duration) (u betweenSightings) {
	gap := q.at - p.at
	changes := save + m.config.TypicalLoad + hidden*m.change()
	switch {
	case p.dry && hidden > 0:
		u.rest = max(gap-changes, 0)
		if hidden > 1 {
			u.guessed = u.rest
		}
	case p.dry:
	case hidden == 0, gap < p.c.spacing+2*m.change()+minVisit:
		u.stayed = gap
	case p.c.spacing == 0:
		u.stayed = max(gap-changes, 0) / (hidden + 1)
		u.rest = u.stayed * hidden
		u.guessed = gap - u.stayed
	default:
		u.stayed = p.c.spacing
		u.rest = max(gap-changes-u.stayed, 0)
		u.guessed = gap - u.stayed
	}
	return u
}

// otherContext works out the time between sightings of two contexts.
func (m *RecordMeter) otherContext(p, q *sighting, save, hidden time.Duration) (u betweenSightings) {
	room := q.at - p.at - save - m.config.TypicalLoad
	if room <= 0 {
		return u
	}
	// Only a context with a launch in the middle can have been there.
	sides := time.Duration(0)
	before, after := p.c.spacing, q.c.spacing
	known := true
	if p.dry {
		before = 0
	} else {
		sides, known = sides+1, before > 0
	}
	if q.starts {
		after = 0
	} else {
		sides, known = sides+1, known && after > 0
	}
	if hidden > 0 && (!known || room > before+after) {
		left := room - hidden*m.change()
		// On average it was half way through, if both were.
		share := func(spacing time.Duration) time.Duration {
			if spacing == 0 {
				return left / (hidden + sides)
			}
			return spacing / sides
		}
		if !p.dry {
			u.stayed = share(before)
		}
		if !q.starts {
			u.came = share(after)
		}
		if u.rest = left - u.stayed - u.came; u.rest > 0 {
			if hidden > 1 || sides > 0 {
				u.guessed = u.rest + min(u.stayed, u.came)
			}
			return u
		}
	}
	u = betweenSightings{}
	switch {
	case sides == 0:
	case q.starts:
		u.stayed = room
	case p.dry:
		u.came = room
	case !known:
		u.stayed, u.came = room/2, room/2
	default:
		u.stayed = scaled(room, float64(before)/float64(before+after))
		u.came = room - u.stayed
	}
	u.guessed = min(u.stayed, u.came)
	return u
}

// hidden returns the contexts but those of two sightings that had work from the one to the other.
// The result is valid until the next call, which is about a later time.
func (m *RecordMeter) hidden(p, q *sighting) []*contextMeter {
	m.working = m.working[:0]
	from := max(p.at, m.final) // what was before is not kept
	for _, c := range m.contexts {
		for c.next < len(c.all) && c.all[c.next].End <= from {
			c.next++
		}
		if c != p.c && c != q.c && c.next < len(c.all) && c.all[c.next].Start <= from && q.at <= c.all[c.next].End {
			m.working = append(m.working, c)
		}
	}
	return m.working
}

// afterLast adds the part in of the time after the last sighting. The context that was there has it
// for as long as it has work, until later reports tell better.
func (m *RecordMeter) afterLast(p *sighting, in Interval) {
	switch {
	case p.c == nil:
		m.divide(in)
	case !p.dry:
		p.c.addBusy(Interval{p.at, in.End}, in)
	default:
		m.divide(Interval{max(in.Start, p.at+m.config.Save+m.config.TypicalLoad), in.End})
	}
}

// addBusy adds the part in of an interval in which the context worked.
func (c *contextMeter) addBusy(v, in Interval) {
	if d := v.within(in); d > 0 {
		c.busy.recent += d
		c.runs = max(c.runs, 1)
	}
}

// addChange adds the part in of a context's replacement by another, which was complete at end. It
// began no earlier than at left.
func (m *RecordMeter) addChange(c *contextMeter, left, end, save time.Duration, in Interval) {
	saved := max(end-m.config.TypicalLoad, left)
	c.saves.recent += Interval{max(saved-save, left), saved}.within(in)
	m.load.recent += Interval{saved, end}.within(in)
}

// within returns how much of v lies in another interval.
func (v Interval) within(in Interval) time.Duration {
	return max(min(v.End, in.End)-max(v.Start, in.Start), 0)
}
