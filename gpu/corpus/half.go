package corpus

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
)

// halfprecision exercises half precision: arithmetic on values and pairs, fused and saturated,
// comparisons, conversions.
var halfprecision = Kernel{
	Name: "half",
	build: func(size Size, rng *rand.Rand) *Case {
		n := 2 * choose(size, 500, 10_000, 150_000)
		x, y := halves(rng, n, -4, 4), halves(rng, n, -4, 4)
		a := half(float64(rng.Float32()))
		axpy := make([]float16, n)
		for i := range axpy {
			axpy[i] = fma16(a, x[i], y[i])
		}
		wildX, wildY := wildHalves(rng, n), wildHalves(rng, n)
		ops := make([]float16, halfRows*n)
		for i := range n {
			for row, v := range halfOps(wildX[i], wildY[i]) {
				ops[row*n+i] = v
			}
		}
		return &Case{
			Buffers: []Buffer{
				input("x", x), update("y", y, axpy),
				input("wild x", wildX), input("wild y", wildY), output("ops", ops),
			},
			Steps: []Launch{
				launch("half_axpy", blocksFor(n/2, 128), 128, ptr("x"), ptr("y"),
					Arg{Bytes: binary.LittleEndian.AppendUint16(nil, uint16(a))}, i32(n/2)),
				launch("half_ops", blocksFor(n, 128), 128, ptr("wild x"), ptr("wild y"), ptr("ops"), i32(n)),
			},
		}
	},
}

// halfRows is the number of half_ops' results for each pair.
const halfRows = 12

// halfOps returns half_ops' results for a finite pair. A sum, difference or product of halves is
// rounded only once here: the product is exact in float64, and what float64 drops of a sum cannot
// affect a half.
func halfOps(a, b float16) [halfRows]float16 {
	x, y := float64(a.float32()), float64(b.float32())
	hundredfold := float64(half(y * 100).float32())
	whole := int32(max(math.MinInt32, min(math.RoundToEven(hundredfold), math.MaxInt32)))
	sum := float64(half(math.Abs(x) + y).float32())
	return [halfRows]float16{
		half(x + y), half(x - y), half(x * y), fma16(a, b, b),
		a ^ 0x8000, a & 0x7fff,
		half(math.Min(x, y)), half(math.Max(x, y)),
		half(float64(truth(x < y))),
		half(float64(sqrt32(float32(math.Abs(x))))),
		half(float64(whole)),
		half(max(0, min(sum, 1))),
	}
}

// halves returns n halves drawn evenly from [low, high).
func halves(rng *rand.Rand, n int, low, high float32) []float16 {
	v := make([]float16, n)
	for i, f := range uniform(rng, n, low, high) {
		v[i] = half(float64(f))
	}
	return v
}

// wildHalves returns n halves drawn evenly from all finite bit patterns.
func wildHalves(rng *rand.Rand, n int) []float16 {
	v := make([]float16, n)
	for i := range v {
		for v[i] = 0x7c00; v[i]&0x7c00 == 0x7c00; {
			v[i] = float16(rng.Uint32())
		}
	}
	return v
}
