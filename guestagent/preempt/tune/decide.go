package tune

import "time"

// grade is how good a choice is by the bounds that it meets; better grades are larger.
type grade int

const (
	tooCostly grade = iota // it costs more than Overhead
	slow                   // it costs at most Overhead but leaves too late
	good                   // it leaves in time and costs at most Overhead
	free                   // it leaves in time and certainly costs at most Free
)

// bound is a bound that an arm may break.
type bound int

const (
	boundLatency bound = iota
	boundOverhead
	boundFree
	bounds
)

// soonerRatio is the part of another arm's time to leave within which an arm must leave to replace
// it for that reason: the estimates depend on measured task times.
const soonerRatio = 0.9

// rating is what was measured of an arm.
type rating struct {
	grade  grade
	cost   float64       // relative to the original's
	leaves time.Duration // an upper estimate
	// unproven means that it seems to be free, but by too few measurements.
	unproven bool
	broke    [bounds]bool
}

// ratings are those of a class's arms. There may be one more than candidates: see Recall.
type ratings [1 + maxCandidates + 1]rating

// maxDropped bounds how often dropping an arm counts.
const maxDropped = 4

// meets reports whether an arm's value is at most a limit. An arm that was dropped for breaking the
// bound must meet it by a margin to be chosen again, and by twice as much after each further time:
// otherwise noise around the bound would make choices alternate.
func (c *class) meets(arm int, b bound, value, limit, margin float64) bool {
	if dropped := c.arms[arm].dropped[b]; dropped > 0 && arm != c.chosen {
		limit -= margin * float64(int(1)<<(dropped-1))
	}
	return value <= limit
}

// finishRound applies the result of a round.
func (c *class) finishRound(best int, all *ratings) {
	if old := &c.arms[c.chosen]; best != c.chosen && c.chosen > 0 {
		for b, broke := range all[c.chosen].broke {
			if broke && old.dropped[b] < maxDropped {
				old.dropped[b]++
			}
		}
	}
	c.chosen = best
	c.why = [...]Why{tooCostly: WhyTooCostly, slow: WhySlow, good: WhyCheapest, free: WhySoonest}[all[best].grade]
}

// rate rates an arm that was measured.
func (t *Tuner) rate(c *class, arm int) rating {
	p, a := t.params.of(c.Threads), &c.arms[arm]
	r := rating{
		cost:   a.cost.low() / c.arms[0].cost.low(),
		leaves: p.leaves(a.choice, c.taskTime(), c.tasks, c.slots),
	}
	latency := float64(p.Latency)
	timely := c.meets(arm, boundLatency, float64(r.leaves), latency, (1-soonerRatio)*latency)
	cheap := c.meets(arm, boundOverhead, r.cost, 1+p.Overhead, p.Tie)
	next := c.meets(arm, boundFree, r.cost, 1+p.Free, p.Tie)
	r.broke = [bounds]bool{boundLatency: !timely, boundOverhead: !cheap, boundFree: !next}
	switch {
	case timely && next && (a.cost.n >= maxSamples || r.cost <= 1+p.Free-2*p.Tie):
		r.grade = free
	case timely && cheap:
		r.grade = good
		r.unproven = next
	case cheap:
		r.grade = slow
	}
	return r
}

// decide chooses by what was measured: among the arms of the best grade the one that leaves the
// soonest if they are free or slow, and otherwise the cheapest. The chosen arm is not replaced by
// one that is better by less than the uncertainty.
//
// unproven is an arm that would be chosen if it were certain that it is free; 0 if there is none.
// With only the measurements that find the cheapest, noise sometimes makes an arm that costs a
// percent look free.
func (t *Tuner) decide(c *class) (all ratings, best, doubted int) {
	for i := 1; i < len(c.arms); i++ {
		if c.arms[i].cost.n > 0 {
			all[i] = t.rate(c, i)
			best = t.better(c, &all, best, i)
		}
	}
	// If the best seems to be free too, it is chosen in any case, unless another leaves much
	// sooner.
	settled := all[best].grade == free || all[best].unproven
	for i := 1; i < len(c.arms); i++ {
		r := &all[i]
		if !r.unproven || i == best || c.arms[i].provenRound == c.round ||
			settled && float64(r.leaves) >= soonerRatio*float64(all[best].leaves) {
			continue
		}
		if doubted == 0 || r.leaves < all[doubted].leaves {
			doubted = i
		}
	}
	return all, best, doubted
}

// better returns the better of two arms, of which a is the best so far; 0 is the original.
func (t *Tuner) better(c *class, all *ratings, a, b int) int {
	x, y := all[a], all[b]
	if x.grade != y.grade {
		if y.grade > x.grade {
			return b
		}
		return a
	}
	sooner := func(margin float64) bool { return float64(y.leaves) < margin*float64(x.leaves) }
	switch x.grade {
	case tooCostly:
		return a
	case good:
		// The chosen arm is not replaced because of differences within the uncertainty.
		if a == c.chosen {
			x.cost *= 1 - t.params.Tie
		} else if b == c.chosen {
			y.cost *= 1 - t.params.Tie
		}
		if y.cost < x.cost*(1-t.params.Tie) || y.cost < x.cost*(1+t.params.Tie) && sooner(1) {
			return b
		}
		return a
	}
	switch {
	case a == c.chosen:
		if sooner(soonerRatio) {
			return b
		}
	case b == c.chosen:
		if float64(x.leaves) >= soonerRatio*float64(y.leaves) {
			return b
		}
	case sooner(1) || x.leaves == y.leaves && y.cost < x.cost:
		return b
	}
	return a
}

// measureMore schedules measurements of an arm until all its samples are recent, and as many of the
// original, alternately.
func (t *Tuner) measureMore(c *class, arm int) {
	a := &c.arms[arm]
	a.provenRound = c.round
	times := max(maxSamples-a.cost.n, 1)
	a.schedule(times)
	c.arms[0].schedule(times)
}
