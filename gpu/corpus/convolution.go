package corpus

import "math/rand/v2"

// A block of convolution computes filters of images at one place.
const (
	convolutionBatch   = 64
	convolutionFilters = 16
	convolutionThreads = 64
)

// convolution convolves a batch of images with filters as two layers of LeNet have it, in
// cuda-convnet's two forms: every filter over all of a few channels, and groups of filters over
// their own of many. Each thread keeps 16 sums.
var convolution = Kernel{
	Name: "convolution",
	build: func(size Size, rng *rand.Rand) *Case {
		batch, filter := choose(size, 64, 64, 128), choose(size, 3, 5, 5)
		first := convolutionLayer{batch: batch, width: choose(size, 3, 7, 10), size: filter, channels: 3, filters: 16, seen: 3}
		groups := choose(size, 1, 1, 2)
		second := convolutionLayer{batch: batch, width: choose(size, 3, 5, 7), size: filter, channels: 8 * groups, filters: 16 * groups, seen: 8}
		group := make([]int32, groups)
		for g := range group {
			group[g] = rng.Int32N(int32(second.channels - second.seen + 1))
		}
		images, filters := first.inputs(rng)
		images2, filters2 := second.inputs(rng)
		return &Case{
			Buffers: []Buffer{
				input("images", images), input("filters", filters), output("out", first.convolve(images, filters, nil)),
				input("images 2", images2), input("filters 2", filters2), input("group", group),
				output("out 2", second.convolve(images2, filters2, group)),
			},
			Steps: []Launch{
				first.launch("conv_color", ptr("images"), ptr("filters"), ptr("out")),
				second.launch("conv_sparse", ptr("images 2"), ptr("filters 2"), ptr("group"), ptr("out 2")),
			},
		}
	},
}

// convolutionLayer is the shape of one layer.
type convolutionLayer struct {
	batch, width, size, channels, filters int
	seen                                  int // channels that a filter sees
}

func (l *convolutionLayer) outside() int { return l.width - l.size + 1 }

func (l *convolutionLayer) inputs(rng *rand.Rand) (images, filters []float32) {
	return uniform(rng, l.channels*l.width*l.width*l.batch, -1, 1), uniform(rng, l.seen*l.size*l.size*l.filters, -0.5, 0.5)
}

func (l *convolutionLayer) launch(entry string, buffers ...Arg) Launch {
	args := append(buffers, i32(l.batch), i32(l.width), i32(l.size), i32(l.seen), i32(l.filters))
	step := launch2(entry, l.batch/convolutionBatch, l.outside()*l.outside(), convolutionThreads, 1, args...)
	step.Grid[2] = uint32(l.filters / convolutionFilters)
	return step
}

// convolve is the reference. Without groups the channels of a tap follow each other, else the taps
// of a channel do.
func (l *convolutionLayer) convolve(images, filters []float32, group []int32) []float32 {
	outside, area := l.outside(), l.size*l.size
	out := make([]float32, 0, l.filters*outside*outside*l.batch)
	for f := range l.filters {
		for place := range outside * outside {
			sums := make([]float32, l.batch)
			for t := range l.seen * area {
				channel, tap, offset := t%l.seen, t/l.seen, 0
				if group != nil {
					channel, tap, offset = t/area, t%area, int(group[f/convolutionFilters])
				}
				x, y := place%outside+tap%l.size, place/outside+tap/l.size
				weight := filters[(channel*area+tap)*l.filters+f]
				row := images[(((offset+channel)*l.width+y)*l.width+x)*l.batch:]
				for i := range sums {
					sums[i] = fma32(weight, row[i], sums[i])
				}
			}
			out = append(out, sums...)
		}
	}
	return out
}
