package corpus

import (
	"math/rand/v2"
	"slices"
)

// earlyreturn exercises returns above barriers: by some threads of a block, and by whole blocks.
var earlyreturn = Kernel{
	Name: "earlyreturn",
	build: func(size Size, rng *rand.Rand) *Case {
		const threads = 128
		n := choose(size, 1_500, 30_050, 450_001)
		in, out := words(rng, n), make([]uint32, n)
		for base := 0; base < n; base += threads {
			var tile [threads + 1]uint32 // zero beyond the end
			valid := copy(tile[:threads], in[base:])
			for range 3 {
				for t := range valid {
					tile[t] += tile[t+1]
				}
			}
			copy(out[base:], tile[:valid])
		}
		blocks := choose(size, 3, 40, 500)
		flags, data := below(rng, blocks, 2), words(rng, blocks*threads)
		reversed := slices.Clone(data)
		for b, flag := range flags {
			if flag != 0 {
				slices.Reverse(reversed[b*threads:][:threads])
			}
		}
		return &Case{
			Buffers: []Buffer{
				input("in", in), output("out", out),
				input("flags", flags), update("data", data, reversed),
			},
			Steps: []Launch{
				launch("early_return", blocksFor(n, threads), threads, ptr("in"), ptr("out"), i32(n)),
				launch("early_block", blocks, threads, ptr("flags"), ptr("data")),
			},
		}
	},
}
