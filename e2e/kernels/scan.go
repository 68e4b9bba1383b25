package kernels

import (
	"fmt"
	"math/rand/v2"
)

// scanElements is how many elements a block of scan_blocks scans, two a thread.
const scanElements = 512

var scan = Kernel{
	Name:    "scan",
	Summary: "exclusive prefix sum, blocks first and then their offsets: trees in shared memory, launches that depend on one another",
	Entries: []string{"scan_blocks", "scan_add"},
	build: func(size Size, rng *rand.Rand) *Case {
		in := words(rng, choose(size, 1_100, 30_000, 300_123))
		c := &Case{Buffers: []Buffer{input("in", in), output("out", exclusiveSum(in))}}
		scanSteps(c, "in", "out", len(in), 0)
		return c
	},
}

// scanSteps adds the launches that scan n words from one buffer to another: the
// blocks, then their totals in the same way, then the offsets that gives.
func scanSteps(c *Case, from, to string, n, depth int) {
	blocks := blocksFor(n, scanElements)
	totals, offsets := fmt.Sprintf("totals %d", depth), fmt.Sprintf("offsets %d", depth)
	c.Buffers = append(c.Buffers, scratch[uint32](totals, blocks))
	c.Steps = append(c.Steps, launch("scan_blocks", blocks, scanElements/2, ptr(from), ptr(to), ptr(totals), i32(n)))
	if blocks == 1 {
		return
	}
	c.Buffers = append(c.Buffers, scratch[uint32](offsets, blocks))
	scanSteps(c, totals, offsets, blocks, depth+1)
	c.Steps = append(c.Steps, launch("scan_add", blocks, scanElements/2, ptr(to), ptr(offsets), i32(n)))
}

// exclusiveSum returns for each element the sum of those before it, modulo 2³².
func exclusiveSum(in []uint32) []uint32 {
	out := make([]uint32, len(in))
	sum := uint32(0)
	for i, v := range in {
		out[i] = sum
		sum += v
	}
	return out
}
