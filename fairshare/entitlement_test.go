package fairshare_test

import (
	"math"
	"testing"

	"vgpud/fairshare"
)

// BenchmarkEntitlement divides a GPU among 1,000 guests: all alike, and with demands that take many
// passes, since each pass satisfies few guests and leaves a little more for the next.
func BenchmarkEntitlement(b *testing.B) {
	const n = 1000
	for _, c := range []struct {
		name   string
		weight func(i int) float64
		stairs bool
	}{
		{"alike", func(int) float64 { return 1 }, false},
		{"stairs", func(int) float64 { return 1 }, true},
		{"stairs, weights 1000 to 0.001", func(i int) float64 { return math.Pow(10, 3-6*float64(i)/n) }, true},
		{"stairs, each half the weight before", func(i int) float64 { return math.Pow(2, -float64(i)) }, true},
	} {
		b.Run(c.name, func(b *testing.B) {
			weights, demands := make([]float64, n), make([]float64, n)
			sum, left, before := 0.0, 1.0, 0.0
			for i := range weights {
				weights[i], demands[i] = c.weight(i), 1
				sum += weights[i]
			}
			for i := range weights {
				if c.stairs { // a step below the level that the guests before leave
					level := left / sum
					demands[i] = weights[i] * (before + level) / 2
					left, sum, before = left-demands[i], sum-weights[i], level
				}
			}
			var d fairshare.Divider
			for b.Loop() {
				d.Entitlement(weights, demands, nil)
			}
		})
	}
}
