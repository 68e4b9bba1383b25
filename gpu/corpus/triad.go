package corpus

import (
	"math"
	"math/rand/v2"
)

// triad computes a = b + s·c fused, in float32 by 128-bit accesses and in float64.
var triad = Kernel{
	Name: "triad",
	build: func(size Size, rng *rand.Rand) *Case {
		quads := choose(size, 1_500, 40_001, 400_001)
		n := choose(size, 2_000, 50_001, 400_001)
		b, c, s := uniform(rng, 4*quads, -10, 10), uniform(rng, 4*quads, -10, 10), 3*rng.Float32()
		a := make([]float32, 4*quads)
		for i := range a {
			a[i] = fma32(s, c[i], b[i])
		}
		wideB, wideC, wideS := uniform64(rng, n, -10, 10), uniform64(rng, n, -10, 10), 3*rng.Float64()
		wideA := make([]float64, n)
		for i := range wideA {
			wideA[i] = math.FMA(wideS, wideC[i], wideB[i])
		}
		return &Case{
			Buffers: []Buffer{
				output("a", a), input("b", b), input("c", c),
				output("wide a", wideA), input("wide b", wideB), input("wide c", wideC),
			},
			Steps: []Launch{
				launch("triad", blocksFor(quads, 256), 256, ptr("a"), ptr("b"), ptr("c"), f32(s), i32(quads)),
				launch("triad_f64", blocksFor(n, 256), 256, ptr("wide a"), ptr("wide b"), ptr("wide c"), f64(wideS), i32(n)),
			},
		}
	},
}
