package corpus

import "math/rand/v2"

// reduceThreads is the block size of the reduction, a power of two.
const reduceThreads = 256

// reduce computes a sum of float32 in a fixed order: grid-stride loop, dynamic shared memory, a
// barrier in a loop.
var reduce = Kernel{
	Name: "reduce",
	build: func(size Size, rng *rand.Rand) *Case {
		n := choose(size, 6_000, 250_000, 3_000_000)
		blocks := choose(size, 4, 32, 128)
		in := uniform(rng, n, -1, 1)
		partial := reduceGrid(in, blocks)
		return &Case{
			Buffers: []Buffer{input("in", in), output("partial", partial), output("sum", reduceGrid(partial, 1))},
			Steps: []Launch{
				launch("reduce", blocks, reduceThreads, ptr("in"), ptr("partial"), i32(n)).shared(4 * reduceThreads),
				launch("reduce", 1, reduceThreads, ptr("partial"), ptr("sum"), i32(blocks)).shared(4 * reduceThreads),
			},
		}
	},
}

// reduceGrid sums in the order of a grid of blocks: each thread its stride, then a tree over the
// block's threads.
func reduceGrid(in []float32, blocks int) []float32 {
	out := make([]float32, blocks)
	for block := range out {
		var sums [reduceThreads]float32
		for t := range sums {
			for i := block*reduceThreads + t; i < len(in); i += blocks * reduceThreads {
				sums[t] += in[i]
			}
		}
		for half := reduceThreads / 2; half > 0; half /= 2 {
			for t := range half {
				sums[t] += sums[t+half]
			}
		}
		out[block] = sums[0]
	}
	return out
}
