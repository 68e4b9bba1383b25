package fairshare

// Entitlement divides the GPU by water-filling: every guest gets its demand or,
// where that is less, a part in proportion to its weight of what the guests
// with small demands leave over. Demands and results are parts of the GPU's
// time, from 0 to 1; a guest that always has work demands 1. The results sum to
// the smaller of 1 and the sum of the demands.
//
// Guests with no weight get nothing. It panics when the slices differ in length.
func Entitlement(weights, demands []float64) []float64 {
	if len(weights) != len(demands) {
		panic("fairshare: entitlement needs one demand for each weight")
	}
	got := make([]float64, len(weights))
	settled := make([]bool, len(weights))
	left := 1.0
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
