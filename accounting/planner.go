package accounting

import (
	"math/rand/v2"
	"time"
)

// Planner says how long the next phases are.
type Planner struct {
	config Config
	rand   *rand.Rand
}

// NewPlanner returns a planner for c; its lengths follow from c.Seed alone.
func NewPlanner(c Config) *Planner {
	c = c.WithDefaults()
	return &Planner{config: c, rand: rand.New(rand.NewPCG(c.Seed, 0x4c6f4741))}
}

// Load is what phases are scaled by.
type Load struct {
	// Active is how many guests had work in the round before, Allocated how many
	// channels all guests have.
	Active, Allocated int
}

// Mean is the mean length of the phases under a load. With Full there is no
// quiet phase, and a polling phase is as long as a round.
func (p *Planner) Mean(l Load) (poll, quiet time.Duration) {
	n := l.Active
	if p.config.Scale == ByAllocated {
		n = l.Allocated
	}
	n = max(n, 1)
	poll, quiet = p.config.Poll, p.config.Quiet
	round := poll + quiet
	if limit := p.config.Round; limit > 0 && time.Duration(n) > limit/round {
		poll = time.Duration(float64(poll) / float64(round) * float64(limit))
		quiet = limit - poll
	} else {
		poll, quiet = time.Duration(n)*poll, time.Duration(n)*quiet
	}
	if p.config.Full {
		return poll + quiet, 0
	}
	return poll, quiet
}

// Next draws the lengths of the next polling and quiet phase.
func (p *Planner) Next(l Load) (poll, quiet time.Duration) {
	poll, quiet = p.Mean(l)
	return p.jittered(poll), p.jittered(quiet)
}

// jittered draws a length around a mean.
func (p *Planner) jittered(mean time.Duration) time.Duration {
	if p.config.Jitter <= 0 || mean == 0 {
		return mean
	}
	spread := p.config.Jitter * (2*p.rand.Float64() - 1)
	return max(time.Duration(float64(mean)*(1+spread)), 1)
}
