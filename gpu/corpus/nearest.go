package corpus

import (
	"math"
	"math/rand/v2"
)

// nearest computes the distances of records from a place and the nearest record: square roots, a
// 64-bit atomic minimum.
var nearest = Kernel{
	Name: "nearest",
	build: func(size Size, rng *rand.Rand) *Case {
		n := choose(size, 3_000, 80_000, 900_000)
		places := uniform(rng, 2*n, -180, 180)
		x, y := float32(rng.Float32()*90), float32(rng.Float32()*90)
		distances, best := make([]float32, n), uint64(math.MaxUint64)
		for i := range distances {
			dx, dy := places[2*i]-x, places[2*i+1]-y
			distances[i] = sqrt32(float32(dx*dx) + float32(dy*dy))
			best = min(best, uint64(math.Float32bits(distances[i]))<<32|uint64(i))
		}
		return &Case{
			Buffers: []Buffer{
				input("places", places), output("distances", distances),
				update("best", []uint64{math.MaxUint64}, []uint64{best}),
			},
			Steps: []Launch{launch("nearest", blocksFor(n, 256), 256,
				ptr("places"), ptr("distances"), ptr("best"), f32(x), f32(y), i32(n))},
		}
	},
}
