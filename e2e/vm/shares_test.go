package vm

import (
	"fmt"
	"math"
	"testing"

	"vgpud/e2e/host"
	"vgpud/mediator/api"
)

// used returns the GPU time of guests, by the GPU's own count.
func used(h *host.Host, workers map[string]*worker) map[string]float64 {
	sums := make(map[string]float64)
	for name := range workers {
		if own := h.VM(name).GPUSecondsOwn; own != nil {
			sums[name] = *own
		}
	}
	return sums
}

// awaitShares waits for an interval over which guests that always have work get their entitlement,
// each within 3 points. Not every interval shows that: a VM that the host gives no processor has no
// work.
func awaitShares(t testing.TB, h *host.Host, workers map[string]*worker) {
	t.Helper()
	const points, enough = 0.03, 2 // GPU seconds
	weights, total := make(map[string]float64), 0.0
	for name := range workers {
		var v api.VM = h.VM(name)
		weights[name] = v.Weight
		total += v.Weight
	}
	before := used(h, workers)
	h.Until("shares by weight", func() error {
		now := used(h, workers)
		sum := 0.0
		for name := range now {
			sum += now[name] - before[name]
		}
		if sum < enough {
			return fmt.Errorf("%.1f of %d s of GPU time", sum, enough)
		}
		for name, w := range workers {
			w.check()
			share, entitled := (now[name]-before[name])/sum, weights[name]/total
			if math.Abs(share-entitled) > points {
				before = now // a new interval
				return fmt.Errorf("%s got %.1f%%, entitled to %.1f%%", name, 100*share, 100*entitled)
			}
		}
		return nil
	})
}
