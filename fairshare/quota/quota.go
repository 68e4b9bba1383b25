package quota

// Quota bounds a guest's part of the GPU's time. The zero value does not.
type Quota struct {
	// Cap is the largest part that the guest gets, even if the GPU is idle otherwise. 0 is no cap.
	Cap float64
	// Guarantee is the part that the guest gets while it has work for it, whichever other guests
	// want the GPU. 0 is none.
	Guarantee float64
}

// Bounds returns the least and the most that a guest with a demand is entitled to.
func (q Quota) Bounds(demand float64) (floor, ceiling float64) {
	ceiling = demand
	if q.Cap > 0 {
		ceiling = min(q.Cap, demand)
	}
	return min(q.Guarantee, ceiling), ceiling
}
