package corpus

import (
	"math"
	"math/rand/v2"
)

// nbody computes gravity between all pairs through shared tiles: fused multiply-adds and
// rsqrt.approx.
var nbody = Kernel{
	Name: "nbody",
	build: func(size Size, rng *rand.Rand) *Case {
		const threads, softening2 = 128, float32(0.01)
		n := choose(size, 128, 384, 1280)
		bodies := uniform(rng, 4*n, -1, 1)
		for i := range n {
			bodies[4*i+3] = float32(math.Abs(float64(bodies[4*i+3]))) // a mass
		}
		out := make([]float32, 4*n)
		for i := range n {
			p, a := bodies[4*i:], out[4*i:]
			for j := range n {
				q := bodies[4*j:]
				dx, dy, dz := q[0]-p[0], q[1]-p[1], q[2]-p[2]
				r2 := fma32(dx, dx, fma32(dy, dy, fma32(dz, dz, softening2)))
				inverse := float32(1 / math.Sqrt(float64(r2)))
				scale := float32(float32(float32(q[3]*inverse)*inverse) * inverse)
				a[0], a[1], a[2] = fma32(dx, scale, a[0]), fma32(dy, scale, a[1]), fma32(dz, scale, a[2])
			}
		}
		return &Case{
			Buffers: []Buffer{
				input("bodies", bodies),
				// A sum of n terms of at most about 400, each with an error of at most 2⁻²¹ of
				// itself, with different signs.
				output("accelerations", out).within(Tolerance{Abs: 1e-3, Rel: 1e-5, Why: "rsqrt.approx.f32"}),
			},
			Steps: []Launch{launch("nbody", n/threads, threads, ptr("bodies"), ptr("accelerations"), f32(softening2), i32(n))},
		}
	},
}
