package arith

import (
	"math"
	"math/big"
	"math/rand/v2"
)

// exactPrec holds any sum of a float64 and a product of two exactly.
const exactPrec = 4500

var rounds = []Round{RN, RZ, RM, RP}

func (r Round) String() string { return [...]string{"rn", "rz", "rm", "rp", "rna"}[r] }

// shape describes a format for the reference, independently of the code under test.
type shape struct {
	precision, minExp int     // minExp: of the least normal, as 1.f·2^minExp
	max               float64 // greatest finite
}

var (
	shapeF64  = shape{53, -1022, math.MaxFloat64}
	shapeF32  = shape{24, -126, math.MaxFloat32}
	shapeF16  = shape{11, -14, 65504}
	shapeBF16 = shape{8, -126, 0x1.fep127}
	shapeTF32 = shape{11, -126, 0x1.ffcp127}
	shapeE5M2 = shape{3, -14, 57344}
	shapeE4M3 = shape{4, -6, 448}
)

// round is the reference for every rounding: it rounds x to a multiple of the format's quantum, by
// integer division.
func (s shape) round(x *big.Float, r Round) float64 {
	if x.Sign() == 0 {
		if x.Signbit() {
			return math.Copysign(0, -1)
		}
		return 0
	}
	e := x.MantExp(nil) - 1 // x = 1.f·2^e
	quantum := max(e, s.minExp) - s.precision + 1
	scaled := new(big.Float).SetPrec(exactPrec).SetMantExp(x, -quantum)
	n, _ := scaled.Int(nil) // towards zero
	rest := new(big.Float).SetPrec(exactPrec).Sub(scaled, new(big.Float).SetPrec(exactPrec).SetInt(n))
	away := false
	switch half := rest.Abs(rest).Cmp(big.NewFloat(0.5)); r {
	case RN:
		away = half > 0 || half == 0 && n.Bit(0) == 1
	case RNA:
		away = half >= 0
	case RM:
		away = rest.Sign() != 0 && x.Signbit()
	case RP:
		away = rest.Sign() != 0 && !x.Signbit()
	}
	if away {
		n.Add(n, big.NewInt(int64(x.Sign())))
	}
	y := new(big.Float).SetPrec(exactPrec).SetInt(n)
	y.SetMantExp(y, quantum)
	if y.Sign() == 0 {
		return math.Copysign(0, float64(x.Sign()))
	}
	if new(big.Float).Abs(y).Cmp(big.NewFloat(s.max)) > 0 {
		if r == RZ || r == RM && x.Sign() > 0 || r == RP && x.Sign() < 0 {
			return math.Copysign(s.max, float64(x.Sign()))
		}
		return math.Inf(x.Sign())
	}
	f, _ := y.Float64()
	return f
}

func exact(x float64) *big.Float { return new(big.Float).SetPrec(exactPrec).SetFloat64(x) }

// refFma is a·b+c in shape s: IEEE 754's rules for infinities, NaN and zeros, and one rounding.
func refFma(s shape, a, b, c float64, r Round) float64 {
	p := new(big.Float).SetPrec(exactPrec)
	switch {
	case math.IsNaN(a) || math.IsNaN(b) || math.IsNaN(c) || math.IsInf(a, 0) && b == 0 || a == 0 && math.IsInf(b, 0):
		return math.NaN()
	case math.IsInf(a, 0) || math.IsInf(b, 0):
		inf := math.Inf(1)
		if math.Signbit(a) != math.Signbit(b) {
			inf = math.Inf(-1)
		}
		return inf + c // ∞−∞ is NaN
	case math.IsInf(c, 0):
		return c
	}
	p.Mul(exact(a), exact(b))
	if p.Sign() == 0 && c == 0 && p.Signbit() == math.Signbit(c) {
		return c
	}
	sum := new(big.Float).SetPrec(exactPrec).Add(p, exact(c))
	if sum.Sign() == 0 {
		if r == RM {
			return math.Copysign(0, -1)
		}
		return 0
	}
	return s.round(sum, r)
}

func refAdd(s shape, a, b float64, r Round) float64 { return refFma(s, a, 1, b, r) }

func refMul(s shape, a, b float64, r Round) float64 {
	// Adding a zero of the product's sign changes nothing.
	return refFma(s, a, b, math.Copysign(0, math.Copysign(1, a)*math.Copysign(1, b)), r)
}

// refDiv returns a/b. A quotient of two 53-bit numbers is either short or far from a rounding
// boundary, so 300 bits suffice.
func refDiv(s shape, a, b float64, r Round) float64 {
	if math.IsNaN(a) || math.IsNaN(b) || math.IsInf(a, 0) || math.IsInf(b, 0) || a == 0 || b == 0 {
		return a / b
	}
	return s.round(new(big.Float).SetPrec(300).Quo(exact(a), exact(b)), r)
}

func refSqrt(s shape, a float64, r Round) float64 {
	if !(a > 0) || math.IsInf(a, 0) {
		return math.Sqrt(a)
	}
	return s.round(new(big.Float).SetPrec(300).Sqrt(exact(a)), r)
}

// same reports whether values are equal. All NaN are equal; zeros differ by sign.
func same(a, b float64) bool {
	return math.Float64bits(a) == math.Float64bits(b) || a != a && b != b
}

// edges32 are the single-precision edge cases.
var edges32 = func() []float32 {
	var out []float32
	for _, b := range []uint32{
		0, 1, 2, 3, 0x7ffffe, 0x7fffff, 0x800000, 0x800001, 0x00ffffff, 0x01000000, // around the least normal
		0x3f7fffff, 0x3f800000, 0x3f800001, 0x3f800002, 0x3fc00000, 0x40000000, 0x3f000000, 0x3effffff, // around 1
		0x39800000, 0x3f801000, 0x33800000, 0x33800001, 0x337fffff, 0x34000000, // 2^-12, 1+2^-12, 2^-24, 2^-23
		0x4b000000, 0x4b7fffff, 0x4b800000, 0x4f000000, 0x5f000000, // 2^23 … 2^63
		0x1f800000, 0x20000000, 0x7e800000, 0x7effffff, 0x7f000000, 0x7f7ffffe, 0x7f7fffff, 0x7f800000, // to infinity
		0x7f800001, 0x7fc00000, 0x7fffffff, // NaN
		0x40490fdb, 0x3eaaaaab, 0x42f6e979, 0x0da24260, 0x17800000,
	} {
		out = append(out, math.Float32frombits(b), math.Float32frombits(b|0x80000000))
	}
	return out
}()

// edges64 are the double-precision edge cases.
var edges64 = func() []float64 {
	var out []float64
	for _, b := range []uint64{
		0, 1, 2, 3, 1<<52 - 1, 1 << 52, 1<<52 + 1, 2 << 52,
		0x3fefffffffffffff, 0x3ff0000000000000, 0x3ff0000000000001, 0x3ff8000000000000, 0x4000000000000000, 0x3fe0000000000000,
		0x3ca0000000000000, 0x3ca0000000000001, 0x3cb0000000000000, 0x3c90000000000000, 0x4330000000000000, 0x433fffffffffffff, 0x43e0000000000000,
		0x1ff0000000000000, 0x2000000000000000, 0x5fe0000000000000, 0x0360000000000000, 0x0350000000000001,
		0x7fd0000000000000, 0x7fe0000000000000, 0x7feffffffffffffe, 0x7fefffffffffffff, 0x7ff0000000000000,
		0x7ff0000000000001, 0x7ff8000000000000, 0x7ff8000000012345, 0x400921fb54442d18, 0x3fd5555555555555,
	} {
		out = append(out, math.Float64frombits(b), math.Float64frombits(b|1<<63))
	}
	return out
}()

// newRand returns a generator that makes a test repeatable.
func newRand() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

// random32 draws bits: any, or with few of them set at the ends, which gives ties and near ties, or
// near another exponent.
func random32(rnd *rand.Rand, near float32) float32 {
	b := rnd.Uint32()
	switch rnd.IntN(4) {
	case 0:
		b &= 0xff800000 | 0x3 | 0x7<<20
	case 1:
		b = b&0x807fffff | (math.Float32bits(near)>>23&0xff+rnd.Uint32N(60)-30)&0xff<<23
	case 2:
		return edges32[rnd.IntN(len(edges32))]
	}
	return math.Float32frombits(b)
}

// random64 is random32 in double precision.
func random64(rnd *rand.Rand, near float64) float64 {
	b := rnd.Uint64()
	switch rnd.IntN(4) {
	case 0:
		b &= 0xfff0000000000000 | 0x3 | 0x7<<49
	case 1:
		b = b&(1<<63|1<<52-1) | (math.Float64bits(near)>>52&0x7ff+rnd.Uint64N(130)-65)&0x7ff<<52
	case 2:
		return edges64[rnd.IntN(len(edges64))]
	}
	return math.Float64frombits(b)
}
