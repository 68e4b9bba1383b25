package corpus

import "math/rand/v2"

// draw returns n values of the given generator.
func draw[T any](n int, value func() T) []T {
	v := make([]T, n)
	for i := range v {
		v[i] = value()
	}
	return v
}

// uniform returns n values drawn evenly from [low, high).
func uniform(rng *rand.Rand, n int, low, high float32) []float32 {
	return draw(n, func() float32 { return low + float32((high-low)*rng.Float32()) })
}

// uniform64 returns n values drawn evenly from [low, high).
func uniform64(rng *rand.Rand, n int, low, high float64) []float64 {
	return draw(n, func() float64 { return low + float64((high-low)*rng.Float64()) })
}

// below returns n integers drawn evenly from [0, limit).
func below(rng *rand.Rand, n int, limit uint32) []uint32 {
	return draw(n, func() uint32 { return rng.Uint32N(limit) })
}

// words returns n integers drawn evenly from all of uint32.
func words(rng *rand.Rand, n int) []uint32 { return draw(n, rng.Uint32) }
