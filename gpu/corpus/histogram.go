package corpus

import "math/rand/v2"

// histogram computes a histogram of bytes: atomics on shared memory, then on global memory.
var histogram = Kernel{
	Name: "histogram",
	build: func(size Size, rng *rand.Rand) *Case {
		n, blocks := choose(size, 3_000, 70_000, 1_200_000), choose(size, 2, 16, 64)
		in := words(rng, n)
		for i := range in {
			in[i] &= rng.Uint32() // so that some bytes are more frequent
		}
		bins := make([]uint32, 256)
		for _, w := range in {
			for k := range 4 {
				bins[w>>(8*k)&0xff]++
			}
		}
		return &Case{
			Buffers: []Buffer{input("words", in), update("bins", make([]uint32, 256), bins)},
			Steps:   []Launch{launch("histogram", blocks, 256, ptr("words"), ptr("bins"), i32(n))},
		}
	},
}
