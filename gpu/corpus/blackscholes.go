package corpus

import (
	"math"
	"math/rand/v2"
)

// blackscholes computes option prices by Black and Scholes, with the library's logarithm and
// exponential, which use ex2.approx.
var blackscholes = Kernel{
	Name: "blackscholes",
	build: func(size Size, rng *rand.Rand) *Case {
		const rate, volatility = float32(0.02), float32(0.3)
		n := choose(size, 700, 15_000, 200_000)
		spots, strikes, years := uniform(rng, n, 5, 100), uniform(rng, n, 5, 100), uniform(rng, n, 0.25, 10)
		calls, puts := make([]float32, n), make([]float32, n)
		for i := range n {
			// The reference is in float64; the tolerance covers the kernel's float32.
			s, k, t := float64(spots[i]), float64(strikes[i]), float64(years[i])
			deviation := volatility64 * math.Sqrt(t)
			d1 := (math.Log(s/k) + (rate64+0.5*volatility64*volatility64)*t) / deviation
			discounted := k * math.Exp(-rate64*t)
			call := s*normalCDF(d1) - discounted*normalCDF(d1-deviation)
			calls[i], puts[i] = float32(call), float32(call+discounted-s)
		}
		tolerance := Tolerance{Abs: 1e-4, Rel: 1e-6, Why: "ex2.approx.ftz.f32 in expf, and float32 rounding of terms up to 100"}
		return &Case{
			Buffers: []Buffer{
				input("spots", spots), input("strikes", strikes), input("years", years),
				output("calls", calls).within(tolerance), output("puts", puts).within(tolerance),
			},
			Steps: []Launch{launch("black_scholes", blocksFor(n, 128), 128, ptr("spots"), ptr("strikes"), ptr("years"),
				ptr("calls"), ptr("puts"), f32(rate), f32(volatility), i32(n))},
		}
	},
}

// The kernel's parameters are float32.
var rate64, volatility64 = float64(float32(0.02)), float64(float32(0.3))

// normalCDF is the kernel's polynomial (Abramowitz and Stegun 26.2.17).
func normalCDF(d float64) float64 {
	k := 1 / (1 + 0.2316419*math.Abs(d))
	p := k * (0.31938153 + k*(-0.356563782+k*(1.781477937+k*(-1.821255978+k*1.330274429))))
	tail := 0.39894228 * math.Exp(-0.5*d*d) * p
	if d > 0 {
		return 1 - tail
	}
	return tail
}
