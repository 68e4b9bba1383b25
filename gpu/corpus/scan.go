package corpus

import "math/rand/v2"

// scanElements is the number of elements that a block of scan_blocks scans, two per thread.
const scanElements = 512

// scan computes an exclusive prefix sum, blocks first and then their offsets: trees in shared
// memory, launches that depend on one another.
var scan = Kernel{
	Name: "scan",
	build: func(size Size, rng *rand.Rand) *Case {
		in := words(rng, choose(size, 1_100, 30_000, 300_123))
		steps, words := scanSteps(ptr("in"), ptr("out"), len(in), 0)
		return &Case{
			Buffers: []Buffer{input("in", in), output("out", exclusiveSum(in)), scratch[uint32]("work", words)},
			Steps:   steps,
		}
	},
}

// scanSteps returns the launches that scan n words: the blocks, then their totals in the same way,
// then the addition of the resulting offsets. Totals and offsets are in the work buffer from word
// number used on; words is the end of them.
func scanSteps(from, to Arg, n, used int) (steps []Launch, words int) {
	blocks := blocksFor(n, scanElements)
	totals := ptrAt("work", 4*used)
	steps = append(steps, launch("scan_blocks", blocks, scanElements/2, from, to, totals, i32(n)))
	used += blocks
	if blocks == 1 {
		return steps, used
	}
	offsets := ptrAt("work", 4*used)
	above, words := scanSteps(totals, offsets, blocks, used+blocks)
	steps = append(steps, above...)
	return append(steps, launch("scan_add", blocks, scanElements/2, to, offsets, i32(n))), words
}

// exclusiveSum returns for each element the sum of the elements before it, modulo 2³².
func exclusiveSum(in []uint32) []uint32 {
	out := make([]uint32, len(in))
	sum := uint32(0)
	for i, v := range in {
		out[i] = sum
		sum += v
	}
	return out
}
