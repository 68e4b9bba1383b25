package corpus

import "math/rand/v2"

const backpropSide = 16

// backprop trains a layer: sums by trees in shared memory, then the adjustment of the weights, which
// is bound by memory.
var backprop = Kernel{
	Name: "backprop",
	build: func(size Size, rng *rand.Rand) *Case {
		inputs, hidden := choose(size, 64, 512, 4_096), choose(size, 16, 32, 64)
		const rate, momentum = float32(0.3), float32(0.3)
		in, delta := uniform(rng, inputs, -1, 1), uniform(rng, hidden, -0.5, 0.5)
		weights, before := uniform(rng, inputs*hidden, -1, 1), uniform(rng, inputs*hidden, -0.1, 0.1)
		trained, changes := make([]float32, len(weights)), make([]float32, len(weights))
		for i, w := range weights {
			step := float32(float32(rate*delta[i%hidden]) * in[i/hidden])
			changes[i] = fma32(momentum, before[i], step)
			trained[i] = w + changes[i]
		}
		gridX, gridY := hidden/backpropSide, inputs/backpropSide
		return &Case{
			Buffers: []Buffer{
				input("in", in), input("delta", delta), update("weights", weights, trained), update("before", before, changes),
				output("partial", backpropForward(in, weights, hidden)),
			},
			Steps: []Launch{
				launch2("backprop_forward", gridX, gridY, backpropSide, backpropSide, ptr("in"), ptr("weights"), ptr("partial"), i32(hidden)),
				launch2("backprop_adjust", gridX, gridY, backpropSide, backpropSide,
					ptr("delta"), ptr("in"), ptr("weights"), ptr("before"), i32(hidden), f32(rate), f32(momentum)),
			},
		}
	},
}

// backpropForward returns the sums of each 16 inputs for every hidden unit, halves added to halves.
func backpropForward(in, weights []float32, hidden int) []float32 {
	partial := make([]float32, 0, len(in)/backpropSide*hidden)
	for base := 0; base < len(in); base += backpropSide {
		for unit := range hidden {
			var products [backpropSide]float32
			for y := range products {
				products[y] = weights[(base+y)*hidden+unit] * in[base+y]
			}
			for half := backpropSide / 2; half > 0; half /= 2 {
				for y := range half {
					products[y] += products[y+half]
				}
			}
			partial = append(partial, products[0])
		}
	}
	return partial
}
