package fairshare

const (
	// capPressure is how much more than its cap the weight of a guest at its cap would give it, so
	// that it reaches the cap and the cap is what limits it.
	capPressure = 1.5
	// leastRest is the least part that guarantees are assumed to leave over when weights are
	// adjusted. They may add up to 1 but for a rounding error, and weights would be some 1e16 times
	// others'.
	leastRest = 0.001
)

// weigh finds the weights that give each guest its entitlement. They differ from the given ones
// only for guests at the bound of a quota.
func (b *bounded) weigh(st *State) {
	if !b.quotas {
		for i := range st.Guests {
			b.of[i].factor = 1
		}
		return
	}
	b.weights, b.floors, b.ceilings, b.parts = b.weights[:0], b.floors[:0], b.ceilings[:0], b.parts[:0]
	for i := range st.Guests {
		g := &st.Guests[i]
		demand := 0.0
		if g.Active && !g.Held {
			demand = b.of[i].demand()
		}
		floor, ceiling := g.Quota.Bounds(demand)
		b.weights, b.floors, b.ceilings = append(b.weights, g.Weight), append(b.floors, floor), append(b.ceilings, ceiling)
		b.parts = append(b.parts, 0)
	}
	level := waterFill(b.parts, b.weights, b.floors, b.ceilings, 1)
	sum, open := 0.0, level > 0 // whether some guest is not at a bound
	for i, p := range b.parts {
		sum += p
		open = open || p == 0 && b.weights[i] > 0 && b.ceilings[i] > 0
	}
	if weight := activeWeight(st); open && weight > 0 {
		level = max(level, leastRest/weight)
	}
	for i := range st.Guests {
		b.of[i].factor = weightFactor(&st.Guests[i], b.parts[i], level, sum)
	}
}

// weightFactor returns what a guest's weight is multiplied by to give it a part of the GPU. level is
// the part for each unit of weight of guests that are at no bound, or 0 where all are, and sum what the
// parts add up to.
func weightFactor(g *Guest, part, level, sum float64) float64 {
	natural := level * g.Weight
	switch {
	case part <= 0 || g.Weight <= 0:
	case level == 0:
		// If the parts leave nothing over, the bounds are the weights. Otherwise no guest is in
		// another's way.
		if sum >= 1-saturating {
			return part / g.Weight
		}
	case part > natural:
		return part / natural
	case g.Quota.Cap > 0 && part == g.Quota.Cap:
		return min(capPressure*part/natural, 1)
	}
	return 1
}
