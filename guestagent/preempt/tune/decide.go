package tune

import "time"

// standing is how good a choice is by the bounds that it keeps, better ones later.
type standing int

const (
	dear standing = iota // it costs more than Overhead
	slow                 // it costs at most Overhead, and leaves too late
	good                 // it leaves in time, and costs at most Overhead
	free                 // it leaves in time, and surely costs at most Free
)

// bound is a bound that an arm may break.
type bound int

const (
	boundLatency bound = iota
	boundOverhead
	boundFree
	bounds
)

// muchSooner is the part of another's time to leave within which an arm must leave to be chosen in its place for that:
// the estimates go by how long tasks were measured to be.
const muchSooner = 0.9

// rating is what was measured of an arm.
type rating struct {
	stands standing
	cost   float64       // over the original's
	leaves time.Duration // at the longest
	// doubted says that it seems to be free, by too few measurements to go by.
	doubted bool
	broke   [bounds]bool
}

// ratings are those of a class's arms. There may be one more than candidates: see Recall.
type ratings [1 + maxCandidates + 1]rating

// mostFell is how often it counts that an arm was given up.
const mostFell = 4

// keeps reports whether an arm's value is at most a limit. An arm that was given up for breaking the bound must keep it by
// a margin to be chosen again, and by twice as much after each further time: else noise about the bound would make choices
// come and go.
func (c *class) keeps(arm int, b bound, value, limit, margin float64) bool {
	if fell := c.arms[arm].fell[b]; fell > 0 && arm != c.chosen {
		limit -= margin * float64(int(1)<<(fell-1))
	}
	return value <= limit
}

// choose settles a round.
func (c *class) choose(best int, all *ratings) {
	if old := &c.arms[c.chosen]; best != c.chosen && c.chosen > 0 {
		for b, broke := range all[c.chosen].broke {
			if broke && old.fell[b] < mostFell {
				old.fell[b]++
			}
		}
	}
	c.chosen = best
	c.why = [...]Why{dear: WhyDear, slow: WhySlow, good: WhyCheapest, free: WhySoonest}[all[best].stands]
}

// rate rates an arm that was measured.
func (t *Tuner) rate(c *class, arm int) rating {
	p, a := t.params.of(c.Threads), &c.arms[arm]
	r := rating{
		cost:   a.cost.low() / c.arms[0].cost.low(),
		leaves: p.leaves(a.choice, c.taskTime(), c.tasks, c.slots),
	}
	latency := float64(p.Latency)
	timely := c.keeps(arm, boundLatency, float64(r.leaves), latency, (1-muchSooner)*latency)
	cheap := c.keeps(arm, boundOverhead, r.cost, 1+p.Overhead, p.Tie)
	next := c.keeps(arm, boundFree, r.cost, 1+p.Free, p.Tie)
	r.broke = [bounds]bool{boundLatency: !timely, boundOverhead: !cheap, boundFree: !next}
	switch {
	case timely && next && (a.cost.n >= maxSamples || r.cost <= 1+p.Free-2*p.Tie):
		r.stands = free
	case timely && cheap:
		r.stands = good
		r.doubted = next
	case cheap:
		r.stands = slow
	}
	return r
}

// decide chooses by what was measured: of the arms that stand best the one that leaves the soonest if they are free or
// slow, else the cheapest. The chosen arm is not given up for one that is better by no more than can't be told.
//
// doubted is an arm that would be chosen if it were certain that it is free; 0 if there is none. With as few measurements
// as find the cheapest, noise makes one that costs a percent look free now and then.
func (t *Tuner) decide(c *class) (all ratings, best, doubted int) {
	for i := 1; i < len(c.arms); i++ {
		if c.arms[i].cost.n > 0 {
			all[i] = t.rate(c, i)
			best = t.better(c, &all, best, i)
		}
	}
	// Where the best seems to be free too, it is chosen in any case, unless another leaves much sooner.
	settled := all[best].stands == free || all[best].doubted
	for i := 1; i < len(c.arms); i++ {
		r := &all[i]
		if !r.doubted || i == best || c.arms[i].proving == c.round ||
			settled && float64(r.leaves) >= muchSooner*float64(all[best].leaves) {
			continue
		}
		if doubted == 0 || r.leaves < all[doubted].leaves {
			doubted = i
		}
	}
	return all, best, doubted
}

// better returns the better one of two arms, a being the best so far; 0 is the original.
func (t *Tuner) better(c *class, all *ratings, a, b int) int {
	x, y := all[a], all[b]
	if x.stands != y.stands {
		if y.stands > x.stands {
			return b
		}
		return a
	}
	sooner := func(margin float64) bool { return float64(y.leaves) < margin*float64(x.leaves) }
	switch x.stands {
	case dear:
		return a
	case good:
		// By less than measuring is uncertain the chosen is not given up.
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
		if sooner(muchSooner) {
			return b
		}
	case b == c.chosen:
		if float64(x.leaves) >= muchSooner*float64(y.leaves) {
			return b
		}
	case sooner(1) || x.leaves == y.leaves && y.cost < x.cost:
		return b
	}
	return a
}

// prove has an arm measured until as many measurements of it are kept as are, and the original beside it, turn about, as
// often.
func (t *Tuner) prove(c *class, arm int) {
	a := &c.arms[arm]
	a.proving = c.round
	times := max(maxSamples-a.cost.n, 1)
	a.want(times)
	c.arms[0].want(times)
}
