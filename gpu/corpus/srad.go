package corpus

import "math/rand/v2"

// sradThreads is the block size of srad_scale.
const sradThreads = 256

// srad computes speckle reducing anisotropic diffusion: a float64 reduction by one block, two
// stencils, three launches an iteration.
var srad = Kernel{
	Name: "srad",
	build: func(size Size, rng *rand.Rand) *Case {
		const lambda = float32(0.5)
		const iterations = 2
		width, height := choose(size, 16, 90, 320), choose(size, 12, 70, 300)
		n := width * height
		start := uniform(rng, n, 0.5, 2)
		image := append([]float32(nil), start...)
		var scale, coefficients, before []float32
		c := &Case{}
		from, to := "a", "b"
		gridX, gridY := blocksFor(width, 16), blocksFor(height, 16)
		for range iterations {
			scale = []float32{sradScale(image)}
			coefficients = sradCoefficients(image, scale[0], width, height)
			before, image = image, sradUpdate(image, coefficients, width, height, lambda)
			c.Steps = append(c.Steps,
				launch("srad_scale", 1, sradThreads, ptr(from), ptr("scale"), i32(n)),
				launch2("srad_coefficients", gridX, gridY, 16, 16, ptr(from), ptr("scale"), ptr("coefficients"), i32(width), i32(height)),
				launch2("srad_update", gridX, gridY, 16, 16, ptr(from), ptr("coefficients"), ptr(to), i32(width), i32(height), f32(lambda)))
			from, to = to, from
		}
		c.Buffers = []Buffer{
			update("a", start, image), output("b", before),
			output("scale", scale), output("coefficients", coefficients),
		}
		return c
	},
}

func sradScale(image []float32) float32 {
	var sums, squares [sradThreads]float64
	for i, v := range image {
		value := float64(v)
		sums[i%sradThreads] += value
		squares[i%sradThreads] += float64(value * value)
	}
	for half := sradThreads / 2; half > 0; half /= 2 {
		for t := range half {
			sums[t] += sums[t+half]
			squares[t] += squares[t+half]
		}
	}
	n := float64(len(image))
	mean := sums[0] / n
	variance := squares[0]/n - float64(mean*mean)
	return float32(variance / float64(mean*mean))
}

// sradDifferences returns by how much the neighbours of pixel (x, y) exceed it.
func sradDifferences(image []float32, x, y, width, height int) (north, south, west, east float32) {
	j := image[y*width+x]
	return image[max(y-1, 0)*width+x] - j, image[min(y+1, height-1)*width+x] - j,
		image[y*width+max(x-1, 0)] - j, image[y*width+min(x+1, width-1)] - j
}

func sradCoefficients(image []float32, scale float32, width, height int) []float32 {
	out := make([]float32, len(image))
	for i := range out {
		j := image[i]
		north, south, west, east := sradDifferences(image, i%width, i/width, width, height)
		squares := float32(north*north) + float32(south*south) + float32(west*west) + float32(east*east)
		gradient2 := squares / float32(j*j)
		laplacian := (north + south + west + east) / j
		numerator := float32(0.5*gradient2) - float32(0.0625*float32(laplacian*laplacian))
		denominator := 1 + float32(0.25*laplacian)
		q2 := numerator / float32(denominator*denominator)
		c := 1 / (1 + (q2-scale)/float32(scale*(1+scale)))
		if c > 0 { // replaces a NaN by 0
			out[i] = min(c, 1)
		}
	}
	return out
}

func sradUpdate(image, coefficients []float32, width, height int, lambda float32) []float32 {
	out := make([]float32, len(image))
	for i := range out {
		x, y := i%width, i/width
		north, south, west, east := sradDifferences(image, x, y, width, height)
		here := coefficients[i]
		below, right := coefficients[min(y+1, height-1)*width+x], coefficients[y*width+min(x+1, width-1)]
		divergence := float32(here*north) + float32(below*south) + float32(here*west) + float32(right*east)
		out[i] = image[i] + float32(float32(0.25*lambda)*divergence)
	}
	return out
}
