package corpus

import "math/rand/v2"

// gridbarrier sweeps over a ring with hand-made barriers over the grid: each block waits for all
// others.
var gridbarrier = Kernel{
	Name: "gridbarrier",
	build: func(size Size, rng *rand.Rand) *Case {
		// All blocks must be resident at once.
		blocks, threads := choose(size, 4, 8, 8), choose(size, 64, 128, 256)
		n, sweeps := choose(size, 600, 6_000, 32_001), choose(size, 5, 10, 25)
		c := &Case{}
		for _, kind := range []string{"count", "flag"} {
			first := words(rng, n)
			rings := [2][]uint32{append([]uint32(nil), first...), make([]uint32, n)}
			for s := range sweeps {
				from, to := rings[s%2], rings[1-s%2]
				for i := range to {
					to[i] = from[(i+n-1)%n] + 2*from[i] + from[(i+1)%n]
				}
			}
			c.Buffers = append(c.Buffers,
				update(kind+"_a", first, rings[0]), update(kind+"_b", make([]uint32, n), rings[1]))
		}
		c.Buffers = append(c.Buffers,
			update("count_arrived", []uint32{0}, []uint32{uint32(sweeps * blocks)}),
			update("flag_arrived", []uint32{0}, []uint32{0}),
			update("flag_generation", []uint32{5}, []uint32{5 + uint32(sweeps)}))
		c.Steps = []Launch{
			launch("gridbarrier_count", blocks, threads, ptr("count_a"), ptr("count_b"), ptr("count_arrived"), i32(n), i32(sweeps)),
			launch("gridbarrier_flag", blocks, threads, ptr("flag_a"), ptr("flag_b"), ptr("flag_arrived"), ptr("flag_generation"), i32(n), i32(sweeps)),
		}
		return c
	},
}
