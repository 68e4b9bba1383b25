package accounting

import (
	"slices"
	"time"
)

// unrecorded adds launches of other contexts that ended in the part in of a residence of context c,
// which is nil if it was not reported. While the driver recovers from a fault, 0.3 s on an H100,
// the hardware records nothing, and the context that had the fault seems to stay on the engine.
// Each of the other contexts is charged for its launches as much as its earlier launches were
// charged, as far as c had no work. Otherwise nobody is charged for that time, so a context that
// invents launches is charged itself and changes nothing for the others.
func (m *RecordMeter) unrecorded(c *contextMeter, r *residence, in Interval) {
	room := in.End - in.Start
	if c != nil {
		room -= c.all.overlap(in)
	}
	if room <= 0 {
		return
	}
	m.ran = m.ran[:0]
	var sum time.Duration
	for _, o := range m.contexts {
		if o == c {
			continue
		}
		if n := o.ended(Interval{max(in.Start, r.from+m.config.Load), min(r.to, in.End)}); n > 0 {
			o.estimate = min(o.typical(n), o.all.overlap(in))
			sum += o.estimate
			m.ran = append(m.ran, o)
		}
	}
	for _, o := range m.ran {
		o.busy.recent += scaled(o.estimate, portion(room, sum))
		o.runs = max(o.runs, 1)
	}
}

// ended returns how many launches of the context ended in an interval.
func (c *contextMeter) ended(in Interval) int {
	i, _ := slices.BinarySearch(c.ends, in.Start)
	j, _ := slices.BinarySearch(c.ends, in.End)
	return max(j-i, 0)
}

// typical returns what n launches of the context are charged, by the newest ones. If there were
// none yet it is unlimited.
func (c *contextMeter) typical(n int) time.Duration {
	if c.launches < 1 {
		return noEnd
	}
	return time.Duration(float64(n) * c.cost / c.launches)
}

// learnedLaunches is how many launches a context's typical cost is taken from.
const learnedLaunches = 64

// learn updates the typical cost of a launch by what the context was charged in a phase.
func (c *contextMeter) learn(charged time.Duration) {
	c.cost += float64(charged)
	c.launches += float64(c.newEnds)
	c.newEnds = 0
	if c.launches > learnedLaunches {
		c.cost, c.launches = c.cost*learnedLaunches/c.launches, learnedLaunches
	}
}
