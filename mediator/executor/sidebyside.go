package executor

import (
	"slices"
	"time"
)

// countedTimes are the intervals, on the GPU's clock, in which launches of the context were on the
// GPU and were counted: disjoint and ascending. Launches that run side by side use the GPU's time
// once.
type countedTimes struct {
	intervals []interval
	added     []interval // by the last add
}

// maxCountedTimes bounds the number of intervals that are kept while launches are on the GPU all
// the time. The oldest are forgotten.
const maxCountedTimes = 1024

// add counts the time from start to end, and returns the parts that were not counted before. They
// are valid until the next call.
func (c *countedTimes) add(start, end time.Duration) []interval {
	c.added = c.added[:0]
	if end <= start {
		return nil
	}
	if len(c.intervals) >= maxCountedTimes {
		c.intervals = append(c.intervals[:0], c.intervals[maxCountedTimes/2:]...)
	}
	// Those from first up to after overlap or touch the new one, and become one with it.
	after := len(c.intervals)
	for after > 0 && c.intervals[after-1].from > end {
		after--
	}
	first, whole, to := after, interval{start, end}, end
	for first > 0 && c.intervals[first-1].to >= start {
		first--
		i := c.intervals[first]
		if i.to < to {
			c.added = append(c.added, interval{i.to, to})
		}
		to = min(to, i.from)
		whole = interval{min(whole.from, i.from), max(whole.to, i.to)}
	}
	if start < to {
		c.added = append(c.added, interval{start, to})
	}
	c.intervals = slices.Replace(c.intervals, first, after, whole)
	return c.added
}

// newTime returns how much of the time from start to end a launch that has left the GPU was there,
// and how much of that the guest was suspended, without what was counted for launches that ran
// beside it.
func (x *Executor) newTime(start, end time.Duration) (t, late time.Duration) {
	for _, i := range x.counted.add(start, end) {
		part, partLate := x.gpuTime(i.from, i.to)
		t += part
		late += partLate
	}
	if x.launches == 0 {
		x.counted.intervals = x.counted.intervals[:0] // later launches start later
	}
	return t, late
}
