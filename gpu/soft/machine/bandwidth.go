package machine

import "time"

// share divides the memory's bandwidth among the cohorts that are resident now, and changes when
// they end. As in package blocks, a block waits for memory and executes in turn, and it waits longer
// if others want the memory as well: all by the same factor, the smallest with which they move no
// more than the memory can.
func (co *coRun) share(now time.Duration) {
	if !co.changed {
		return
	}
	co.changed = false
	stretch := co.contention()
	if stretch == co.stretch && stretch == 1 {
		return
	}
	co.stretch = stretch
	for _, c := range co.cohorts {
		m := c.l.Memory
		rate := 1 / (1 - m + m*stretch)
		if rate == c.rate {
			continue
		}
		if c.end != Never && !c.cut {
			c.end = now + time.Duration(float64(max(c.end-now, 0))*c.rate/rate)
		}
		c.rate = rate
	}
}

// contention returns how many times as long as alone the cohorts wait for memory.
func (co *coRun) contention() float64 {
	if co.traffic(1) <= 1 {
		return 1
	}
	low, high := 1.0, 2.0
	for co.traffic(high) > 1 {
		low, high = high, 2*high
	}
	for range 40 {
		if mid := (low + high) / 2; co.traffic(mid) > 1 {
			low = mid
		} else {
			high = mid
		}
	}
	return high
}

// traffic returns the part of the bandwidth that the cohorts use if they wait for memory so many
// times as long as alone.
func (co *coRun) traffic(stretch float64) (sum float64) {
	for _, c := range co.cohorts {
		m := c.l.Memory
		part := 1.0
		if c.l.maxResident > 0 {
			part = float64(c.n) / float64(c.l.maxResident)
		}
		sum += part * m / (1 - m + m*stretch)
	}
	return sum
}
