package fairshare

// Entitlement divides the GPU by water-filling: every guest gets its demand or,
// where that is less, a part in proportion to its weight of what the guests
// with small demands leave over. Demands and results are parts of the GPU's
// time, from 0 to 1; a guest that always has work demands 1. The results sum to
// the smaller of 1 and the sum of the demands.
//
// Guests with no weight get nothing. It panics when the slices differ in length.
func Entitlement(weights, demands []float64) []float64 { return fill(weights, demands, 1) }

// fill is Entitlement to a capacity.
func fill(weights, demands []float64, left float64) []float64 {
	if len(weights) != len(demands) {
		panic("fairshare: entitlement needs one demand for each weight")
	}
	got := make([]float64, len(weights))
	settled := make([]bool, len(weights))
	for {
		var sum float64
		for i, w := range weights {
			if w <= 0 {
				settled[i] = true
			}
			if !settled[i] {
				sum += w
			}
		}
		if sum == 0 {
			return got
		}
		// Whoever demands less than its part at the present level gets all it
		// wants, which can only raise the level for the rest.
		rest, satisfied := left, false
		for i, w := range weights {
			if !settled[i] && demands[i] <= left*w/sum {
				got[i], settled[i], satisfied = max(demands[i], 0), true, true
				rest -= got[i]
			}
		}
		if !satisfied {
			for i, w := range weights {
				if !settled[i] {
					got[i] = left * w / sum
				}
			}
			return got
		}
		left = max(rest, 0)
	}
}

// saturating is how much of the time a guest may be without work and still
// count as one that always has some.
const saturating = 0.1

// Entitled is what each guest was entitled to over some time: of the GPU time
// that they used together, what a guest used where it was without work for more
// than a tenth of the time, and the rest by weight. used and dry are the parts
// of the time that each guest executed, and that it had no work at all.
func Entitled(weights, used, dry []float64) []float64 {
	demands := make([]float64, len(weights))
	var capacity float64
	for i := range demands {
		demands[i] = 1
		if dry[i] > saturating {
			demands[i] = used[i]
		}
		capacity += used[i]
	}
	return fill(weights, demands, capacity)
}
