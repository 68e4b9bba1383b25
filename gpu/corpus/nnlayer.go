package corpus

import (
	"math"
	"math/rand/v2"
)

// nnlayer computes two fully connected layers over a batch: shared inputs, the fast exponential
// (ex2.approx).
var nnlayer = Kernel{
	Name: "nnlayer",
	build: func(size Size, rng *rand.Rand) *Case {
		samples := choose(size, 3, 12, 48)
		inputs, hidden, outputs := choose(size, 50, 200, 500), choose(size, 40, 128, 300), choose(size, 10, 10, 40)
		in := uniform(rng, samples*inputs, -1, 1)
		w1, b1 := uniform(rng, hidden*inputs, -0.2, 0.2), uniform(rng, hidden, -0.1, 0.1)
		w2, b2 := uniform(rng, outputs*hidden, -0.2, 0.2), uniform(rng, outputs, -0.1, 0.1)

		h := denseSums(in, w1, b1, samples)
		for i := range h {
			h[i] = max(h[i], 0)
		}
		out := denseSums(h, w2, b2, samples)
		for i := range out {
			out[i] = float32(1 / (1 + math.Exp(-float64(out[i]))))
		}
		const tile = 64
		layer := func(from, weights, bias, to string, inputs, outputs, activation int) Launch {
			return launch2("dense", blocksFor(outputs, tile), samples, tile, 1,
				ptr(from), ptr(weights), ptr(bias), ptr(to), i32(inputs), i32(outputs), i32(activation))
		}
		return &Case{
			Buffers: []Buffer{
				input("in", in), input("w1", w1), input("b1", b1), input("w2", w2), input("b2", b2),
				output("hidden", h),
				output("out", out).within(Tolerance{Rel: 1e-6, Why: "ex2.approx.f32 in the logistic function"}),
			},
			Steps: []Launch{
				layer("in", "w1", "b1", "hidden", inputs, hidden, 0),
				layer("hidden", "w2", "b2", "out", hidden, outputs, 1),
			},
		}
	},
}

// denseSums returns W·in + b for each sample, summed in order.
func denseSums(in, weights, bias []float32, samples int) []float32 {
	inputs, outputs := len(in)/samples, len(bias)
	sums := make([]float32, 0, samples*outputs)
	for s := range samples {
		for o, sum := range bias {
			for k := range inputs {
				sum = fma32(weights[o*inputs+k], in[s*inputs+k], sum)
			}
			sums = append(sums, sum)
		}
	}
	return sums
}
