package corpus

import (
	"math/rand/v2"
	"slices"
)

// bitonic is a bitonic sorting network: short distances in shared memory, long ones with a launch
// each.
var bitonic = Kernel{
	Name: "bitonic",
	build: func(size Size, rng *rand.Rand) *Case {
		const tile = 512
		n := choose(size, 1<<10, 1<<12, 1<<15)
		keys := words(rng, n)
		sorted := slices.Sorted(slices.Values(keys))
		c := &Case{Buffers: []Buffer{update("keys", keys, sorted)}}
		short := func(first, last int) Launch {
			return launch("bitonic_shared", n/tile, tile/2, ptr("keys"), u32(uint32(first)), u32(uint32(last)))
		}
		c.Steps = append(c.Steps, short(2, tile))
		for run := 2 * tile; run <= n; run *= 2 {
			for distance := run / 2; distance >= tile; distance /= 2 {
				c.Steps = append(c.Steps, launch("bitonic_global", n/512, 256,
					ptr("keys"), u32(uint32(run)), u32(uint32(distance))))
			}
			c.Steps = append(c.Steps, short(run, run))
		}
		return c
	},
}
