package corpus

import (
	"math"
	"math/big"
	"math/rand/v2"
)

// rounding exercises the rules of floating point: directed rounding, saturation, infinities, NaN,
// subnormals, conversions.
var rounding = Kernel{
	Name: "rounding",
	build: func(size Size, rng *rand.Rand) *Case {
		n := choose(size, 400, 7_000, 90_000)
		x, y := wildFloats(rng, n), wildFloats(rng, n)
		out, ints := make([]float32, roundingRows*n), make([]int32, roundingIntRows*n)
		wideX, wideY := wideFloats(rng, n), wideFloats(rng, n)
		wideOut := make([]float64, wideRows*n)
		narrow := make([]float32, wideNarrowRows*n)
		wideInts := make([]int64, wideIntRows*n)
		for i := range n {
			for row, v := range rounding32(x[i], y[i]) {
				out[row*n+i] = v
			}
			for row, v := range roundingInts(x[i], y[i]) {
				ints[row*n+i] = v
			}
			for row, v := range rounding64(wideX[i], wideY[i]) {
				wideOut[row*n+i] = v
			}
			for row, v := range roundingNarrow(wideX[i], i) {
				narrow[row*n+i] = v
			}
			for row, v := range roundingWideInts(wideX[i], wideY[i]) {
				wideInts[row*n+i] = v
			}
		}
		return &Case{
			Buffers: []Buffer{
				input("x", x), input("y", y), output("out", out), output("ints", ints),
				input("wide x", wideX), input("wide y", wideY),
				output("wide out", wideOut), output("narrow", narrow), output("wide ints", wideInts),
			},
			Steps: []Launch{
				launch("rounding32", blocksFor(n, 128), 128, ptr("x"), ptr("y"), ptr("out"), ptr("ints"), i32(n)),
				launch("rounding64", blocksFor(n, 128), 128, ptr("wide x"), ptr("wide y"), ptr("wide out"), ptr("narrow"), ptr("wide ints"), i32(n)),
			},
		}
	},
}

// The numbers of the kernels' results for each pair.
const (
	roundingRows    = 23
	roundingIntRows = 9
	wideRows        = 12
	wideNarrowRows  = 4
	wideIntRows     = 4
)

// canonicalNaN is the NaN that PTX's float32 arithmetic produces.
var canonicalNaN = math.Float32frombits(0x7fffffff)

// wildFloats returns n float32 of all kinds: ordinary, with random bits, and special.
func wildFloats(rng *rand.Rand, n int) []float32 {
	special := []float32{
		0, float32(math.Copysign(0, -1)), 1, -1, 0.5, 1.5, 2.5, -2.5, 0x1p-149, -0x1p-126, 0x1p31, -0x1p31, 0x1p32,
		math.MaxFloat32, -math.MaxFloat32, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()),
	}
	v := make([]float32, n)
	for i := range v {
		switch rng.IntN(4) {
		case 0:
			v[i] = special[rng.IntN(len(special))]
		case 1:
			v[i] = math.Float32frombits(rng.Uint32())
		case 2:
			v[i] = float32(rng.IntN(4000)-2000) / 16 // exact sums and ties
		default:
			v[i] = float32(rng.NormFloat64() * 100)
		}
		if math.IsNaN(float64(v[i])) {
			v[i] = float32(math.NaN()) // never a signalling NaN
		}
	}
	return v
}

// wideFloats returns n finite float64 whose products are normal numbers.
func wideFloats(rng *rand.Rand, n int) []float64 {
	v := make([]float64, n)
	for i := range v {
		switch rng.IntN(3) {
		case 0:
			v[i] = math.Ldexp(rng.Float64()-0.5, rng.IntN(600)-300)
		case 1:
			v[i] = float64(2*rng.IntN(4000)-3999) / 16
		default:
			v[i] = rng.NormFloat64() * 100
		}
	}
	return v
}

// direction is a rounding direction.
type direction int

const (
	nearestEven direction = iota
	towardZero
	upward
	downward
)

// toFloat32 rounds x in the given direction. x may be a sum rounded to odd, which does not change
// any later rounding to a shorter format.
func toFloat32(x float64, d direction) float32 {
	r := float32(x)
	if math.IsNaN(x) {
		return canonicalNaN
	}
	wide := float64(r)
	switch {
	case d == towardZero && math.Abs(wide) > math.Abs(x):
		return math.Nextafter32(r, 0)
	case d == upward && wide < x:
		return math.Nextafter32(r, float32(math.Inf(1)))
	case d == downward && wide > x:
		return math.Nextafter32(r, float32(math.Inf(-1)))
	}
	return r
}

// add32 returns a + b, each exact in float64, rounded once. The sum of opposite numbers is −0 if
// rounded down, else +0.
func add32(a, b float64, d direction) float32 {
	if sum := addOdd(a, b); sum != 0 || d != downward {
		return toFloat32(sum, d)
	}
	if a == 0 && b == 0 && !math.Signbit(a) && !math.Signbit(b) {
		return 0
	}
	return float32(math.Copysign(0, -1))
}

func rounding32(a, b float32) [roundingRows]float32 {
	x, y := float64(a), float64(b)
	unlessNaN := func(v, then float32) float32 {
		if v != v {
			return 0
		}
		return then
	}
	saturated := float32(0)
	if a > 0 {
		saturated = min(a, 1)
	}
	// The quotient and the root of float32 may be rounded to float64 first, which has more than
	// twice the precision.
	return [...]float32{
		add32(x, y, nearestEven), add32(x, y, towardZero), add32(x, y, upward), add32(x, y, downward),
		toFloat32(x*y, nearestEven), toFloat32(x*y, towardZero), toFloat32(x*y, upward), toFloat32(x*y, downward),
		add32(x*y, x, nearestEven), add32(x*y, x, towardZero),
		toFloat32(x/y, nearestEven), toFloat32(math.Sqrt(x), nearestEven), toFloat32(1/y, nearestEven),
		saturated,
		either32(a, b, min(a, b)), either32(a, b, max(a, b)),
		toFloat32(math.RoundToEven(x), nearestEven), toFloat32(math.Floor(x), nearestEven),
		toFloat32(math.Ceil(x), nearestEven), toFloat32(math.Trunc(x), nearestEven),
		unlessNaN(a, float32(math.Copysign(x, y))), unlessNaN(b, float32(math.Abs(y))), unlessNaN(a, -a),
	}
}

// either32 returns the result of min.f32 or max.f32: the chosen one of two numbers (−0 is below +0,
// as in Go), or the other operand if one is NaN.
func either32(a, b, chosen float32) float32 {
	switch {
	case a != a && b != b:
		return canonicalNaN
	case a != a:
		return b
	case b != b:
		return a
	}
	return chosen
}

func roundingInts(a, b float32) [roundingIntRows]int32 {
	x := float64(a)
	clamp := func(v float64, low, high int64) int32 {
		if math.IsNaN(v) {
			return 0
		}
		return int32(int64(max(float64(low), min(v, float64(high)))))
	}
	signed := func(v float64) int32 { return clamp(v, math.MinInt32, math.MaxInt32) }
	class := int32(0)
	switch {
	case math.IsNaN(x):
		class = 1
	case math.IsInf(x, 0):
		class = 2
	}
	if math.Signbit(x) {
		class |= 4
	}
	return [...]int32{
		signed(math.RoundToEven(x)), signed(math.Trunc(x)), signed(math.Ceil(x)), signed(math.Floor(x)),
		clamp(math.Trunc(x), 0, math.MaxUint32),
		int32(truth(a < b)), int32(truth(a == b)), int32(truth(!(a >= b))), class,
	}
}

func rounding64(a, b float64) [wideRows]float64 {
	directed := func(mode big.RoundingMode, op func(z, x, y *big.Float) *big.Float) float64 {
		z := new(big.Float).SetPrec(53).SetMode(mode)
		v, _ := op(z, big.NewFloat(a), big.NewFloat(b)).Float64()
		return v
	}
	return [...]float64{
		a + b, a * b, math.FMA(a, b, a), a / b, math.Sqrt(math.Abs(a)),
		directed(big.ToZero, (*big.Float).Add), directed(big.ToPositiveInf, (*big.Float).Mul),
		min(a, b), max(a, b), math.Floor(a), math.RoundToEven(b), float64(float32(b)),
	}
}

func roundingNarrow(a float64, i int) [wideNarrowRows]float32 {
	return [...]float32{
		toFloat32(a, nearestEven), toFloat32(a, towardZero), toFloat32(a, upward),
		float32(int64(i) * 0x123456789ab),
	}
}

func roundingWideInts(a, b float64) [wideIntRows]int64 {
	signed := func(v float64) int64 {
		switch {
		case v >= 0x1p63:
			return math.MaxInt64
		case v < -0x1p63:
			return math.MinInt64
		}
		return int64(v)
	}
	unsigned := uint64(0)
	switch t := math.Trunc(a); {
	case t >= 0x1p64:
		unsigned = math.MaxUint64
	case t > 0:
		unsigned = uint64(t)
	}
	return [...]int64{signed(math.RoundToEven(a)), signed(math.Trunc(b)), int64(unsigned), int64(math.Float64bits(a))}
}
