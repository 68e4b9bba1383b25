package corpus

import "math/rand/v2"

// hotspot computes a chip's temperature with one explicit step of the heat equation per launch:
// float32 division, clamped neighbours.
var hotspot = Kernel{
	Name: "hotspot",
	build: func(size Size, rng *rand.Rand) *Case {
		const dt, rx, ry, rz, ambient = float32(0.05), float32(1.3), float32(1.7), float32(40), float32(80)
		width, height := choose(size, 27, 100, 360), choose(size, 10, 60, 260)
		const steps = 4
		power, start := uniform(rng, width*height, 0, 20), uniform(rng, width*height, 70, 90)
		now, next := append([]float32(nil), start...), make([]float32, width*height)
		c := &Case{}
		from, to := "a", "b"
		for range steps {
			for y := range height {
				for x := range width {
					t := now[y*width+x]
					north, south := now[max(y-1, 0)*width+x], now[min(y+1, height-1)*width+x]
					west, east := now[y*width+max(x-1, 0)], now[y*width+min(x+1, width-1)]
					twice := float32(2 * t)
					flow := power[y*width+x] + (north+south-twice)/ry + (east+west-twice)/rx + (ambient-t)/rz
					next[y*width+x] = t + float32(dt*flow)
				}
			}
			now, next = next, now
			c.Steps = append(c.Steps, launch2("hotspot", blocksFor(width, 32), blocksFor(height, 4), 32, 4,
				ptr("power"), ptr(from), ptr(to), i32(width), i32(height), f32(dt), f32(rx), f32(ry), f32(rz), f32(ambient)))
			from, to = to, from
		}
		c.Buffers = []Buffer{input("power", power), update("a", start, now), output("b", next)}
		return c
	},
}
