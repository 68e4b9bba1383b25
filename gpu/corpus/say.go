package corpus

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// say exercises printing from the GPU: vprintf with integers, text, floating point.
var say = Kernel{
	Name: "say",
	build: func(size Size, rng *rand.Rand) *Case {
		const threads, scale = 32, float32(0.37)
		n := choose(size, 50, 300, 3_000)
		values := make([]int32, n)
		c := &Case{}
		for i := range values {
			v := rng.Int32N(1_000_000)
			values[i] = v
			if v%3 == 0 {
				c.Printed = append(c.Printed, fmt.Sprintf("thread %d of block %d: %d is divisible by three", i%threads, i/threads, v))
				continue
			}
			parity := [...]string{"even", "odd"}[v&1]
			c.Printed = append(c.Printed, fmt.Sprintf("value %d: hex %08x, scaled %.3f, %s, wide %d, %c%%",
				i, v, float64(float32(v)*scale), parity, int64(v)*1000000007, 'a'+v%26))
		}
		slices.Sort(c.Printed)
		c.Buffers = []Buffer{input("values", values)}
		c.Steps = []Launch{launch("say", blocksFor(n, threads), threads, ptr("values"), f32(scale), i32(n))}
		return c
	},
}
