package fairshare

// Entitlement divides the GPU by water-filling. Every guest gets its demand or, if that is more
// than is there for it, a part in proportion to its weight of what the guests with small demands
// leave over. A cap is one more bound on a guest's demand, and a guarantee is the least that a
// guest gets of its demand, at the expense of the others in proportion to their weights.
//
// Demands and results are parts of the GPU's time, from 0 to 1. A guest that always has work
// demands 1. The results sum to the smaller of 1 and the sum of the demands. Guests with no weight
// get only what is guaranteed to them. The guarantees must sum to at most 1. Without quotas there
// are no caps and no guarantees. Entitlement panics if the slices differ in length.
func Entitlement(weights, demands []float64, quotas []Quota) []float64 {
	d := Divider{got: make([]float64, 0, len(weights))}
	return d.Entitlement(weights, demands, quotas)
}

// Divider is for callers that divide the GPU again and again: it reuses its memory.
type Divider struct{ floors, ceilings, got []float64 }

// Entitlement is [Entitlement]. The result is valid until the next call.
func (d *Divider) Entitlement(weights, demands []float64, quotas []Quota) []float64 {
	d.floors, d.ceilings, d.got = d.floors[:0], append(d.ceilings[:0], demands...), d.got[:0]
	for range weights {
		d.floors, d.got = append(d.floors, 0), append(d.got, 0)
	}
	for i := range quotas {
		d.floors[i], d.ceilings[i] = quotas[i].Bounds(demands[i])
	}
	waterFill(d.got, weights, d.floors, d.ceilings, 1)
	return d.got
}

// waterFill divides a capacity in proportion to weights into got. Each part is at least its floor
// and at most its ceiling. No floors means floors of 0. level is the part for a weight of 1, or 0
// if every part is at one of its bounds. waterFill panics if the slices differ in length.
//
// Parts that lie outside their bounds at the present level are fixed at the bound until none is
// left: first those on the side with the larger excess, since fixing them can only bring the level
// closer to where the others are outside too (CSS Flexible Box Layout §9.7 divides lengths in this
// way).
//
// A pass that leaves some open moves the level by a fraction of what the pass before did, so that
// there are at most about as many passes as a float64 has bits, and not one for each guest: 4 to 8
// for 1,000 guests whose weights lie between 0.001 and 1000, demands as bad as could be found. To
// sort the bounds first would take longer than those.
func waterFill(got, weights, floors, ceilings []float64, capacity float64) (level float64) {
	if len(weights) != len(ceilings) || len(got) != len(weights) || floors != nil && len(floors) != len(weights) {
		panic("fairshare: water needs a floor and a ceiling for each weight")
	}
	floor := func(i int) float64 {
		if floors == nil {
			return 0
		}
		return max(floors[i], 0)
	}
	const open = -1
	for i := range got {
		got[i] = open
		if weights[i] <= 0 {
			got[i] = floor(i)
		}
	}
	for {
		left, sum := capacity, 0.0
		for i, w := range weights {
			if got[i] == open {
				sum += w
			} else {
				left -= got[i]
			}
		}
		if sum == 0 {
			return 0
		}
		level = max(left, 0) / sum
		var over, under float64
		for i, w := range weights {
			if got[i] == open {
				over += max(level*w-max(ceilings[i], floor(i)), 0)
				under += max(floor(i)-level*w, 0)
			}
		}
		for i, w := range weights {
			if got[i] != open {
				continue
			}
			least, part := floor(i), level*w
			most := max(ceilings[i], least)
			switch {
			case over == 0 && under == 0:
				got[i] = part
			case over >= under && part >= most:
				got[i] = most
			case under >= over && part <= least:
				got[i] = least
			}
		}
		if over == 0 && under == 0 {
			return level
		}
	}
}

// saturating is the part of the time in which a guest may be without work and still count as one
// that always has some.
const saturating = 0.1
