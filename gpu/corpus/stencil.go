package corpus

import "math/rand/v2"

// stencil computes a nine-point stencil on a grid with two alternating buffers: a tile with a
// border in shared memory, and early returns after the barrier.
var stencil = Kernel{
	Name: "stencil",
	build: func(size Size, rng *rand.Rand) *Case {
		const center, side, corner = float32(0.25), float32(0.125), float32(0.0625)
		width, height := choose(size, 35, 120, 400), choose(size, 17, 60, 220)
		steps := choose(size, 2, 4, 4)
		start := uniform(rng, width*height, 0, 1)
		now, next := append([]float32(nil), start...), make([]float32, width*height)
		c := &Case{}
		from, to := "a", "b"
		for range steps {
			copy(next, now)
			for y := 1; y < height-1; y++ {
				for x := 1; x < width-1; x++ {
					up, here, down := now[(y-1)*width+x-1:], now[y*width+x-1:], now[(y+1)*width+x-1:]
					sides := up[1] + down[1] + here[0] + here[2]
					corners := up[0] + up[2] + down[0] + down[2]
					next[y*width+x] = float32(center*here[1]) + float32(side*sides) + float32(corner*corners)
				}
			}
			now, next = next, now
			c.Steps = append(c.Steps, launch2("stencil9", blocksFor(width, 16), blocksFor(height, 16), 16, 16,
				ptr(from), ptr(to), i32(width), i32(height), f32(center), f32(side), f32(corner)))
			from, to = to, from
		}
		// After an even number of steps the result is in a, and b is one step behind.
		c.Buffers = []Buffer{update("a", start, now), output("b", next)}
		return c
	},
}
