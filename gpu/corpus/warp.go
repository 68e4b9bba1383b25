package corpus

import (
	"math/rand/v2"
	"slices"
)

// warp exercises exchanges within a warp: shuffles, votes, matches, integer reductions, full and
// partial masks.
var warp = Kernel{
	Name: "warp",
	build: func(size Size, rng *rand.Rand) *Case {
		n := 32 * choose(size, 20, 300, 5_000)
		in := words(rng, n)
		for w := 0; w < n; w += 32 * 5 {
			in[w] &^= 63 // some warps hold a multiple of 64, with equal top bits
			for i := range 32 {
				in[w+i] |= 1 << 31
			}
		}
		out := make([]uint32, warpRows*n)
		for w := 0; w < n; w += 32 {
			for row, values := range warpExchange([32]uint32(in[w:])) {
				copy(out[row*n+w:], values[:])
			}
		}
		floats := uniform(rng, n, -1, 1)
		sums := slices.Clone(floats)
		for w := 0; w < n; w += 32 {
			lanes := [32]float32(floats[w:])
			for distance := 16; distance > 0; distance /= 2 {
				before := lanes
				for i := range lanes {
					lanes[i] = before[i] + before[i^distance]
				}
			}
			copy(sums[w:], lanes[:])
		}
		return &Case{
			Buffers: []Buffer{input("in", in), output("out", out), input("floats", floats), output("sums", sums)},
			Steps: []Launch{
				launch("warp_exchange", blocksFor(n, 128), 128, ptr("in"), ptr("out"), i32(n)),
				launch("warp_sum", blocksFor(n, 128), 128, ptr("floats"), ptr("sums"), i32(n)),
			},
		}
	},
}

// warpRows is the number of warp_exchange's results for each thread.
const warpRows = 22

// warpExchange returns the result of each of warp_exchange's operations for each lane.
func warpExchange(x [32]uint32) (rows [warpRows][32]uint32) {
	row := 0
	put := func(value func(lane int) uint32) {
		for lane := range 32 {
			rows[row][lane] = value(lane)
		}
		row++
	}
	// from returns the value of another lane, or lane's own if there is no such lane.
	from := func(lane, other int, there bool) uint32 {
		if there {
			return x[other]
		}
		return x[lane]
	}
	ballot := func(pred func(v uint32) bool) (mask uint32) {
		for lane, v := range x {
			if pred(v) {
				mask |= 1 << lane
			}
		}
		return mask
	}
	reduce := func(f func(a, v uint32) uint32) func(int) uint32 {
		a := x[0]
		for _, v := range x[1:] {
			a = f(a, v)
		}
		return func(int) uint32 { return a }
	}
	const all = 0xffffffff
	multiples := ballot(func(v uint32) bool { return v%64 == 0 })
	sameTop := ballot(func(v uint32) bool { return v>>31 == x[0]>>31 }) == all

	put(func(i int) uint32 { return x[(i*7+3)%32] })
	put(func(i int) uint32 { return x[i&^7+2] })
	put(func(i int) uint32 { return from(i, i-3, i >= 3) })
	put(func(i int) uint32 { return from(i, i-1, i%16 >= 1) })
	put(func(i int) uint32 { return from(i, i+5, i+5 < 32) })
	put(func(i int) uint32 { return from(i, i+2, i%4 < 2) })
	put(func(i int) uint32 { return x[i^21] })
	put(func(i int) uint32 { return x[i^3] })
	put(func(int) uint32 { return ballot(func(v uint32) bool { return v&1 != 0 }) })
	put(func(int) uint32 { return truth(multiples != 0) })
	put(func(int) uint32 { return truth(multiples == 0) })
	put(func(i int) uint32 { return ballot(func(v uint32) bool { return v&3 == x[i]&3 }) })
	put(func(int) uint32 { return all * truth(sameTop) })
	put(func(int) uint32 { return truth(sameTop) })
	put(reduce(func(a, v uint32) uint32 { return a + v }))
	put(reduce(func(a, v uint32) uint32 { return min(a, v) }))
	put(reduce(func(a, v uint32) uint32 { return uint32(max(int32(a), int32(v))) }))
	put(reduce(func(a, v uint32) uint32 { return a&v | 0xff }))
	put(reduce(func(a, v uint32) uint32 { return (a | v) & 0xff }))
	put(reduce(func(a, v uint32) uint32 { return a ^ v }))

	evenSum := uint32(0)
	for i := 0; i < 32; i += 2 {
		evenSum += x[i]
	}
	evenBallot := ballot(func(v uint32) bool { return v&2 != 0 }) & 0x55555555
	put(func(i int) uint32 {
		if i%2 == 1 {
			return from(i, i+2, i+2 < 32)
		}
		return evenSum + evenBallot
	})
	put(func(i int) uint32 {
		if x[i]&4 == 0 {
			return 0
		}
		return ballot(func(v uint32) bool { return v&4 != 0 && v&0x18 == x[i]&0x18 }) + 1
	})
	return rows
}

// truth is a C truth value.
func truth(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}
