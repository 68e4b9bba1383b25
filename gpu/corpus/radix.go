package corpus

import (
	"cmp"
	"math/rand/v2"
	"slices"
)

// radix is a stable radix sort of keys with values: shared atomics, matches within a warp,
// scattered stores.
var radix = Kernel{
	Name: "radix",
	build: func(size Size, rng *rand.Rand) *Case {
		const threads, digits, digitBits, keyBits = 256, 16, 4, 16
		n := choose(size, 300, 4_000, 50_001)
		keys, values := below(rng, n, 1<<keyBits), words(rng, n)
		order := make([]int, n)
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(keys[i], keys[j]) })
		sortedKeys, sortedValues := make([]uint32, n), make([]uint32, n)
		for to, from := range order {
			sortedKeys[to], sortedValues[to] = keys[from], values[from]
		}

		// An even number of passes ends where it began.
		blocks := blocksFor(n, threads)
		c := &Case{Buffers: []Buffer{
			update("keys", keys, sortedKeys), update("values", values, sortedValues),
			scratch[uint32]("other keys", n), scratch[uint32]("other values", n),
			scratch[uint32]("counts", digits*blocks),
		}}
		from, to := "", "other "
		for shift := 0; shift < keyBits; shift += digitBits {
			c.Steps = append(c.Steps,
				launch("radix_count", blocks, threads, ptr(from+"keys"), ptr("counts"), i32(shift), i32(n)),
				launch("radix_offsets", 1, threads, ptr("counts"), i32(digits*blocks)),
				launch("radix_scatter", blocks, threads, ptr(from+"keys"), ptr(from+"values"), ptr("counts"),
					ptr(to+"keys"), ptr(to+"values"), i32(shift), i32(n)))
			from, to = to, from
		}
		return c
	},
}
