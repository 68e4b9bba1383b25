package corpus

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
)

// particlefilter is a particle filter: hashing, an exponential by polynomial, a prefix sum by one
// block, binary searches.
var particlefilter = Kernel{
	Name: "particlefilter",
	build: func(size Size, rng *rand.Rand) *Case {
		const frames, spread = 2, float32(0.3)
		n := choose(size, 250, 6_000, 60_000)
		start := uniform(rng, 2*n, -3, 3)
		velocity := [2]float32{0.5, -0.25}
		places := append([]float32(nil), start...)
		next, parents := make([]float32, 2*n), make([]int32, n)
		var weights, cumulative []float32
		c := &Case{}
		from, to := "a", "b"
		for frame := range frames {
			seen := [2]float32{0.4 * float32(frame), rng.Float32()}
			offset := rng.Float32()
			weights = particlesMove(places, velocity, seen, spread, uint32(frame))
			cumulative = particlesAccumulate(weights)
			for i := range n {
				wanted := float32((float32(i) + offset) / float32(n) * cumulative[n-1])
				p := particlesFirstAbove(cumulative, wanted)
				parents[i] = int32(p)
				copy(next[2*i:2*i+2], places[2*p:])
			}
			places, next = next, places
			c.Steps = append(c.Steps,
				launch("particles_move", blocksFor(n, 128), 128,
					ptr(from), ptr("weights"), float2(velocity), float2(seen), f32(spread), u32(uint32(frame)), i32(n)),
				launch("particles_accumulate", 1, particlesThreads, ptr("weights"), ptr("cumulative"), i32(n)),
				launch("particles_resample", blocksFor(n, 128), 128,
					ptr(from), ptr("cumulative"), ptr(to), ptr("parents"), f32(offset), i32(n)))
			from, to = to, from
		}
		c.Buffers = []Buffer{
			update("a", start, places), output("b", next),
			output("weights", weights), output("cumulative", cumulative), output("parents", parents),
		}
		return c
	},
}

// particlesThreads is the block size of particles_accumulate.
const particlesThreads = 256

func float2(v [2]float32) Arg {
	b := binary.LittleEndian.AppendUint32(nil, math.Float32bits(v[0]))
	return Arg{Bytes: binary.LittleEndian.AppendUint32(b, math.Float32bits(v[1]))}
}

// particlesMove moves the particles and returns their weights.
func particlesMove(places []float32, velocity, seen [2]float32, spread float32, step uint32) []float32 {
	n := uint32(len(places) / 2)
	weights := make([]float32, n)
	for i := range n {
		p := places[2*i : 2*i+2]
		p[0] += velocity[0] + float32(2*particlesNoise(step*2*n+2*i))
		p[1] += velocity[1] + float32(2*particlesNoise(step*2*n+2*i+1))
		dx, dy := p[0]-seen[0], p[1]-seen[1]
		exponent := float32(-(float32(dx*dx) + float32(dy*dy)) * spread)
		weights[i] = particlesExp(max(exponent, -80))
	}
	return weights
}

func particlesNoise(x uint32) float32 {
	x ^= x >> 16
	x *= 0x7feb352d
	x ^= x >> 15
	x *= 0x846ca68b
	x ^= x >> 16
	return float32(float32(int32(x)) * 4.6566129e-10)
}

// particlesExp returns exp(x) for x in [−80, 0], computed like the kernel does.
func particlesExp(x float32) float32 {
	k := float32(math.RoundToEven(float64(float32(x * 1.44269504))))
	r := fma32(k, -0.693359375, x)
	r = fma32(k, 2.12194440e-4, r)
	p := float32(1.9875691500e-4)
	for _, c := range []float32{1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1} {
		p = fma32(p, r, c)
	}
	p = fma32(p, float32(r*r), r) + 1
	return float32(p * math.Float32frombits(uint32(int32(k)+127)<<23))
}

// particlesAccumulate sums in the kernel's order: a run of neighbours for each thread, added to the
// sum of earlier runs.
func particlesAccumulate(weights []float32) []float32 {
	n := len(weights)
	run := blocksFor(n, particlesThreads)
	cumulative := make([]float32, n)
	before := float32(0)
	for t := range particlesThreads {
		from := min(t*run, n)
		to := min(from+run, n)
		own, sum := float32(0), before
		for i := from; i < to; i++ {
			own += weights[i]
			sum += weights[i]
			cumulative[i] = sum
		}
		before += own
	}
	return cumulative
}

// particlesFirstAbove searches like the kernel: cumulative sums of runs need not be monotonic, so
// the search's path determines the result.
func particlesFirstAbove(cumulative []float32, wanted float32) int {
	low, high := 0, len(cumulative)-1
	for low < high {
		middle := (low + high) / 2
		if cumulative[middle] > wanted {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return low
}
