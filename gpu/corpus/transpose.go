package corpus

import "math/rand/v2"

// transpose computes a matrix transpose through padded tiles in dynamic shared memory.
var transpose = Kernel{
	Name: "transpose",
	build: func(size Size, rng *rand.Rand) *Case {
		const pitch = 33
		width, height := choose(size, 50, 300, 1_100), choose(size, 40, 210, 900)
		in := words(rng, width*height)
		out := make([]uint32, len(in))
		for i, v := range in {
			out[i%width*height+i/width] = v
		}
		return &Case{
			Buffers: []Buffer{input("in", in), output("out", out)},
			Steps: []Launch{launch2("transpose", blocksFor(width, 32), blocksFor(height, 32), 32, 8,
				ptr("in"), ptr("out"), i32(width), i32(height), i32(pitch)).shared(4 * 32 * pitch)},
		}
	},
}
