package corpus

import "math/rand/v2"

// uniform returns n values drawn evenly from [low, high).
func uniform(rng *rand.Rand, n int, low, high float32) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = low + float32((high-low)*rng.Float32())
	}
	return v
}

// below returns n integers drawn evenly from [0, limit).
func below(rng *rand.Rand, n int, limit uint32) []uint32 {
	v := make([]uint32, n)
	for i := range v {
		v[i] = rng.Uint32N(limit)
	}
	return v
}

// words returns n integers drawn evenly from all of uint32.
func words(rng *rand.Rand, n int) []uint32 {
	v := make([]uint32, n)
	for i := range v {
		v[i] = rng.Uint32()
	}
	return v
}

// uniform64 returns n values drawn evenly from [low, high).
func uniform64(rng *rand.Rand, n int, low, high float64) []float64 {
	v := make([]float64, n)
	for i := range v {
		v[i] = low + float64((high-low)*rng.Float64())
	}
	return v
}
