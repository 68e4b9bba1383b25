package corpus

import "math/rand/v2"

// mandelbrot computes escape times of the Mandelbrot set in float64: loops of very different
// lengths within a warp.
var mandelbrot = Kernel{
	Name: "mandelbrot",
	build: func(size Size, rng *rand.Rand) *Case {
		width, height := choose(size, 32, 96, 320), choose(size, 12, 50, 180)
		most := choose(size, 40, 100, 150)
		x0, y0 := -2.1+0.1*rng.Float64(), -1.2+0.1*rng.Float64()
		step := 3.0 / float64(width)
		counts := make([]uint16, width*height)
		for i := range counts {
			cr, ci := x0+float64(float64(i%width)*step), y0+float64(float64(i/width)*step)
			zr, zi, count := 0.0, 0.0, 0
			for count < most && float64(zr*zr)+float64(zi*zi) <= 4 {
				zr, zi = float64(zr*zr)-float64(zi*zi)+cr, float64(2*zr*zi)+ci
				count++
			}
			counts[i] = uint16(count)
		}
		return &Case{
			Buffers: []Buffer{output("counts", counts)},
			Steps: []Launch{launch2("mandelbrot", blocksFor(width, 16), blocksFor(height, 8), 16, 8,
				ptr("counts"), f64(x0), f64(y0), f64(step), i32(width), i32(height), i32(most))},
		}
	},
}
