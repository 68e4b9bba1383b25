// Package neon is NEON, disengaged scheduling, as LoGA §5.1 compares itself with
// it: the configuration of its sampling, [accounting.Neon], and its scheduler,
// disengaged fair queueing. The product is compared with both in simulated time and on
// a real GPU.
package neon

import (
	"time"

	"vgpud/accounting"
)

// Config is NEON's sampling where each guest has so many channels: 1 ms of sampling and
// 5 ms of free run for each (LoGA §5.1).
func Config(channels int) accounting.NeonConfig {
	n := time.Duration(channels)
	return accounting.NeonConfig{Alone: n * time.Millisecond, FreeRun: 5 * n * time.Millisecond}
}

// Round is how long a round of so many owners is, but for the draining in it: their free
// run, and each one's time alone.
func Round(c accounting.NeonConfig, owners int) time.Duration {
	return time.Duration(owners) * (c.FreeRun + c.Alone)
}

// Queue is disengaged fair queueing: who is ahead of the one with the least virtual
// time by more than a free run sits the next one out.
type Queue struct {
	freeRun time.Duration
	virtual []time.Duration // by owner
}

// NewQueue makes the queue of owners 0 to n-1 under a configuration.
func NewQueue(c accounting.NeonConfig, n int) *Queue {
	return &Queue{freeRun: c.FreeRun, virtual: make([]time.Duration, n)}
}

// Allow charges a round's sampling and returns whom the next free run lets through, as
// [accounting.NewNeon] wants to be told.
func (q *Queue) Allow(sampled []accounting.NeonOwner) (allowed []accounting.Owner) {
	system, found := time.Duration(0), false
	for _, o := range sampled {
		q.virtual[o.Owner] += o.Charged
		if o.Commands > 0 && (!found || q.virtual[o.Owner] < system) {
			system, found = q.virtual[o.Owner], true
		}
	}
	threshold := q.freeRun * time.Duration(len(sampled))
	for _, o := range sampled {
		q.virtual[o.Owner] = max(q.virtual[o.Owner], system)
		if q.virtual[o.Owner]-system <= threshold {
			allowed = append(allowed, o.Owner)
		}
	}
	return allowed
}
