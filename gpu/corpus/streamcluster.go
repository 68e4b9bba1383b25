package corpus

import "math/rand/v2"

// streamcluster computes what opening a centre at a point would save (stream clustering): a shared
// row of coordinates, scattered accumulation.
var streamcluster = Kernel{
	Name: "streamcluster",
	build: func(size Size, rng *rand.Rand) *Case {
		n, dimensions := choose(size, 256, 1_500, 8_000), choose(size, 16, 64, 128)
		centres, candidates := choose(size, 4, 8, 16), choose(size, 3, 4, 5)
		points, weights := uniform(rng, n*dimensions, 0, 1), uniform(rng, n, 1, 4)
		// The first points are the centres.
		centre, assigned := make([]int32, n), make([]int32, n)
		costs := make([]float32, n)
		for i := range n {
			if i < centres {
				centre[i], assigned[i] = int32(i), int32(i)
				continue
			}
			assigned[i] = rng.Int32N(int32(centres))
			costs[i] = float32(weights[i] * float32(float32(dimensions)*(0.1+0.15*rng.Float32())))
		}
		savings, lost, switches := make([]float32, n), make([]float32, n*centres), make([]uint8, n)
		zeroSavings, zeroLost := append([]float32(nil), savings...), append([]float32(nil), lost...)
		c := &Case{}
		for range candidates {
			candidate := rng.IntN(n)
			for i := range n {
				distance2 := float32(0)
				for d := range dimensions {
					by := points[d*n+i] - points[d*n+candidate]
					distance2 = fma32(by, by, distance2)
				}
				switches[i] = 0
				if change := fma32(distance2, weights[i], -costs[i]); change < 0 {
					switches[i] = 1
					savings[i] += change
				} else {
					lost[i*centres+int(centre[assigned[i]])] -= change
				}
			}
			c.Steps = append(c.Steps, launch("streamcluster_gain", blocksFor(n, 128), 128,
				ptr("points"), ptr("weights"), ptr("costs"), ptr("assigned"), ptr("centre"), ptr("savings"), ptr("lost"), ptr("switches"),
				i32(n), i32(dimensions), i32(centres), i32(candidate)))
		}
		c.Buffers = []Buffer{
			input("points", points), input("weights", weights), input("costs", costs), input("assigned", assigned), input("centre", centre),
			update("savings", zeroSavings, savings), update("lost", zeroLost, lost), output("switches", switches),
		}
		return c
	},
}
