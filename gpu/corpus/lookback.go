package corpus

import "math/rand/v2"

// lookback computes an inclusive prefix sum in one pass (decoupled look-back): blocks that wait for
// earlier blocks through volatile memory.
var lookback = Kernel{
	Name: "lookback",
	build: func(size Size, rng *rand.Rand) *Case {
		const threads = 128
		in := words(rng, choose(size, 1_000, 20_000, 250_001))
		tiles := blocksFor(len(in), threads)
		out := exclusiveSum(in)
		states := make([]uint64, tiles) // in the end each tile has its whole prefix
		for i, v := range in {
			out[i] += v
			states[i/threads] = 2<<32 | uint64(out[i])
		}
		return &Case{
			Buffers: []Buffer{
				input("in", in), output("out", out),
				update("states", make([]uint64, tiles), states),
				update("ticket", []uint32{0}, []uint32{uint32(tiles)}),
			},
			Steps: []Launch{launch("lookback", tiles, threads, ptr("in"), ptr("out"), ptr("states"), ptr("ticket"), i32(len(in)))},
		}
	},
}
