package corpus

import "math/rand/v2"

// matmul computes a matrix product in 16×16 tiles of shared memory, with two barriers per tile.
var matmul = Kernel{
	Name: "matmul",
	build: func(size Size, rng *rand.Rand) *Case {
		n := choose(size, 32, 96, 224)
		a, b := uniform(rng, n*n, -1, 1), uniform(rng, n*n, -1, 1)
		c := make([]float32, n*n)
		for i := range n {
			for k := range n {
				x := a[i*n+k]
				for j, y := range b[k*n : k*n+n] {
					c[i*n+j] = fma32(x, y, c[i*n+j])
				}
			}
		}
		return &Case{
			Buffers: []Buffer{input("a", a), input("b", b), output("c", c)},
			Steps:   []Launch{launch2("matmul", n/16, n/16, 16, 16, ptr("a"), ptr("b"), ptr("c"), i32(n))},
		}
	},
}
