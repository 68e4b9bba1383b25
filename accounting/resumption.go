package accounting

import (
	"slices"
	"time"
)

// A launch that was preempted takes longer, since its blocks don't come back together and the save
// of a full GPU takes longer than that of an empty one. On an H100 that is 72 µs for blocks that
// fill it and next to nothing for a few blocks. So a meter learns it where a context's launches are
// all about as long.

// launches is what was learned from the records of a context's launches.
type launches struct {
	// length is how long a launch takes that is not preempted, deviation how far it is off on
	// average, and measured how many it was learned from, up to enoughLaunches.
	length, deviation time.Duration
	measured          int
	// delay is how much longer one takes that was preempted, learned from preempted of them, up to
	// enoughLaunches.
	delay     time.Duration
	preempted int
}

// enoughLaunches is how many launches are needed to rely on what was learned, and also how many of
// the newest it is the mean of.
const enoughLaunches = 16

// mostDelay bounds what is learned: more is not a preemption's.
const mostDelay = 200 * time.Microsecond

// mean moves a mean over the newest n values, at most enoughLaunches, towards one more.
func mean(old, value time.Duration, n *int) time.Duration {
	*n = min(*n+1, enoughLaunches)
	return old + (value-old)/time.Duration(*n)
}

// uniform reports whether the launches were about as long.
func (l *launches) uniform() bool {
	return l.measured == enoughLaunches && l.deviation <= l.length/20
}

// add learns from a launch that was not preempted.
func (l *launches) add(length time.Duration) {
	if l.measured > 0 {
		n := l.measured
		l.deviation = mean(l.deviation, max(length-l.length, l.length-length), &n)
	}
	l.length = mean(l.length, length, &l.measured)
}

// addPreempted learns from one that was, and took so long on the engine.
func (l *launches) addPreempted(took time.Duration) {
	if d := took - l.length; l.uniform() && d > -mostDelay && d < mostDelay {
		l.delay = mean(l.delay, d, &l.preempted)
	}
}

// resumeDelayOf returns how much longer a launch of the context takes because it was preempted.
func (m *RecordMeter) resumeDelayOf(c *contextMeter) time.Duration {
	if c.measured.preempted < enoughLaunches {
		return m.config.ResumeDelay
	}
	return max(c.measured.delay, 0)
}

// learnLaunches learns from the residences that ended since the last Cut.
func (m *RecordMeter) learnLaunches(now time.Duration) {
	for i := range m.residency.residences {
		r := &m.residency.residences[i]
		if r.kind != occupied || r.to <= m.cut || r.to > now {
			continue
		}
		c := m.find(r.context)
		if c == nil {
			continue
		}
		ends := c.endsIn(Interval{r.from, r.to})
		if len(ends) == 0 {
			continue
		}
		if began, at, ok := m.preemptedIn(c, i); ok && c.all.overlap(Interval{began, ends[0]}) == ends[0]-began {
			c.measured.addPreempted(at - began + ends[0] - r.from)
		}
		for j := 1; j < len(ends); j++ {
			if v := (Interval{ends[j-1], ends[j]}); c.all.overlap(v) == v.End-v.Start {
				c.measured.add(v.End - v.Start)
			}
		}
	}
}

// preemptedIn returns when a launch began that was preempted in the residence of context c before
// residence i, and when it was.
func (m *RecordMeter) preemptedIn(c *contextMeter, i int) (began, at time.Duration, ok bool) {
	for i--; i >= 0; i-- {
		r := &m.residency.residences[i]
		if r.kind == unknown {
			return 0, 0, false
		}
		if r.kind != occupied || m.find(r.context) != c {
			continue
		}
		save, preempted := m.save(c, r.to)
		ends := c.endsIn(Interval{r.from, r.to})
		if !r.saved || !preempted || len(ends) == 0 {
			return 0, 0, false
		}
		return ends[len(ends)-1], r.to - save, true
	}
	return 0, 0, false
}

// endsIn returns when launches ended in an interval, in order.
func (c *contextMeter) endsIn(in Interval) []time.Duration {
	i, _ := slices.BinarySearch(c.ends, in.Start)
	j, _ := slices.BinarySearch(c.ends, in.End)
	return c.ends[min(i, j):j]
}
