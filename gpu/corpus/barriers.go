package corpus

import "math/rand/v2"

// barriers exercises barriers that count and combine, named barriers with bar.arrive, fences, and
// the detection of the last block.
var barriers = Kernel{
	Name: "barriers",
	build: func(size Size, rng *rand.Rand) *Case {
		const threads = 64
		blocks := choose(size, 8, 100, 1_500)
		n := blocks * threads
		in, votes := below(rng, n, 800), make([]int32, n)
		for base := 0; base < n; base += threads {
			count, all, some := int32(0), int32(1), int32(0)
			for _, x := range in[base : base+threads] {
				count += int32(x & 1)
				if x%100 == 7 {
					all = 0
				}
				if x%100 == 8 {
					some = 1
				}
			}
			for t := range threads {
				votes[base+t] = count*4 + all*2 + some
			}
		}

		seed, rounds := rng.Uint32(), choose(size, 3, 20, 30)
		passed := make([]uint32, n)
		for b := range blocks {
			produced, consumed := passed[b*threads:][:32], passed[b*threads+32:][:32]
			for lane := range produced {
				produced[lane] = seed + uint32(b*32+lane)
			}
			for range rounds {
				for lane, x := range produced {
					produced[lane] = x*1664525 + 1013904223
				}
				for lane := range consumed {
					consumed[lane] = consumed[lane]*31 + produced[31-lane]
				}
			}
		}

		addends := words(rng, n-5)
		partial, sum := make([]uint32, blocks), uint32(0)
		for i, v := range addends {
			partial[i/threads] += v
			sum += v
		}
		return &Case{
			Buffers: []Buffer{
				input("in", in), output("votes", votes), output("passed", passed),
				input("addends", addends), output("partial", partial), output("sum", []uint32{sum}),
				update("ticket", []uint32{0}, []uint32{0}),
			},
			Steps: []Launch{
				launch("barrier_votes", blocks, threads, ptr("in"), ptr("votes")),
				launch("barrier_named", blocks, threads, ptr("passed"), u32(seed), i32(rounds)),
				launch("barrier_last_block", blocks, threads, ptr("addends"), ptr("partial"), ptr("sum"), ptr("ticket"), i32(len(addends))),
			},
		}
	},
}
