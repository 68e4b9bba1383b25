package corpus

import "math/rand/v2"

// vecadd computes c = a + b in float32: loads, stores and a bounds check.
var vecadd = Kernel{
	Name: "vecadd",
	build: func(size Size, rng *rand.Rand) *Case {
		n := choose(size, 5_000, 150_001, 1_500_001)
		a, b := uniform(rng, n, -100, 100), uniform(rng, n, -100, 100)
		sum := make([]float32, n)
		for i := range sum {
			sum[i] = a[i] + b[i]
		}
		return &Case{
			Buffers: []Buffer{input("a", a), input("b", b), output("c", sum)},
			Steps:   []Launch{launch("vecadd", blocksFor(n, 256), 256, ptr("a"), ptr("b"), ptr("c"), i32(n))},
		}
	},
}
