// Package neon is NEON, disengaged scheduling, as LoGA §5.1 compares itself with it: its accounting
// by sampling, and its scheduler, disengaged fair queueing. It is a baseline that the product is
// measured against, in simulated time and on a real GPU. No product code uses it.
package neon

import "time"

// Queue is disengaged fair queueing: an owner that is ahead of the least virtual time by more than
// a free run sits out the next one.
type Queue struct {
	freeRun time.Duration
	virtual []time.Duration // by owner
}

// NewQueue returns the queue of owners 0 to n-1 under a configuration.
func NewQueue(c Config, n int) *Queue {
	return &Queue{freeRun: c.FreeRun, virtual: make([]time.Duration, n)}
}

// Allow charges a round's sampling and returns which owners may run in the next free run. It is the
// allow function of [NewSampling].
func (q *Queue) Allow(sampled []Sample) (allowed []Owner) {
	least, found := time.Duration(0), false
	for _, o := range sampled {
		q.virtual[o.Owner] += o.Charged
		if o.Commands > 0 && (!found || q.virtual[o.Owner] < least) {
			least, found = q.virtual[o.Owner], true
		}
	}
	threshold := q.freeRun * time.Duration(len(sampled))
	for _, o := range sampled {
		q.virtual[o.Owner] = max(q.virtual[o.Owner], least)
		if q.virtual[o.Owner]-least <= threshold {
			allowed = append(allowed, o.Owner)
		}
	}
	return allowed
}
