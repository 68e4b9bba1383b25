package corpus

import (
	"math"
	"math/rand/v2"
)

// kmeans is Lloyd's k-means, three launches an iteration: 64-bit atomic sums in fixed point,
// float64 division.
var kmeans = Kernel{
	Name: "kmeans",
	build: func(size Size, rng *rand.Rand) *Case {
		n, k := choose(size, 200, 2_000, 16_000), choose(size, 3, 5, 8)
		features, iterations := choose(size, 3, 6, 8), choose(size, 2, 2, 3)
		points := make([]float32, features*n) // feature by feature, around k centres
		for i := range n {
			for f := range features {
				points[f*n+i] = float32((i+f)%k) + 0.4*float32(rng.NormFloat64())
			}
		}
		start := make([]float32, k*features)
		for c := range k {
			for f := range features {
				start[c*features+f] = points[f*n+c]
			}
		}
		centroids := append([]float32(nil), start...)
		var membership []int32
		c := &Case{}
		for range iterations {
			membership = kmeansAssign(points, centroids, n, k, features)
			kmeansMean(points, centroids, membership, n, features)
			c.Steps = append(c.Steps,
				launch("kmeans_assign", blocksFor(n, 128), 128, ptr("points"), ptr("centroids"), ptr("membership"), i32(n), i32(k), i32(features)),
				launch("kmeans_sum", blocksFor(n, 128), 128, ptr("points"), ptr("membership"), ptr("sums"), ptr("sizes"), i32(n), i32(features)),
				launch("kmeans_mean", k, features, ptr("sums"), ptr("sizes"), ptr("centroids"), i32(features)))
		}
		zeroSums, zeroSizes := make([]int64, k*features), make([]uint32, k)
		c.Buffers = []Buffer{
			input("points", points), update("centroids", start, centroids), output("membership", membership),
			update("sums", zeroSums, zeroSums), update("sizes", zeroSizes, zeroSizes),
		}
		return c
	},
}

func kmeansAssign(points, centroids []float32, n, k, features int) []int32 {
	membership := make([]int32, n)
	for i := range membership {
		least := float32(3.4e38)
		for c := range k {
			distance2 := float32(0)
			for f := range features {
				d := points[f*n+i] - centroids[c*features+f]
				distance2 = fma32(d, d, distance2)
			}
			if distance2 < least {
				least, membership[i] = distance2, int32(c)
			}
		}
	}
	return membership
}

// kmeansMean moves the centroids to the means of their points.
func kmeansMean(points, centroids []float32, membership []int32, n, features int) {
	const fixed = 1 << 20
	sums, sizes := make([]int64, len(centroids)), make([]int, len(centroids)/features)
	for i, c := range membership {
		sizes[c]++
		for f := range features {
			sums[int(c)*features+f] += int64(math.RoundToEven(float64(points[f*n+i] * fixed)))
		}
	}
	for i := range centroids {
		if size := sizes[i/features]; size > 0 {
			centroids[i] = float32(float64(sums[i]) / float64(fixed*size))
		}
	}
}
