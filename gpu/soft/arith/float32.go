package arith

import "math"

// nan32Bits is the NaN that single-precision instructions produce.
const nan32Bits = 0x7fffffff

// nan32 is the same NaN. Loading it uses less of an inlined function's budget than constructing it.
var nan32 = math.Float32frombits(nan32Bits)

// FlushF32 applies .ftz to an operand: a subnormal becomes a zero of its sign.
func FlushF32(x float32) float32 {
	if b := math.Float32bits(x); b&0x7f800000 == 0 {
		return math.Float32frombits(b & 0x80000000)
	}
	return x
}

// SatF32 applies .sat: it clamps x to [0, 1], and NaN and −0 become +0.
func SatF32(x float32) float32 {
	if !(x > 0) {
		return 0
	}
	return min(x, 1)
}

// CanonF32 returns x, or the canonical NaN for any NaN.
func CanonF32(x float32) float32 {
	if x != x {
		return math.Float32frombits(nan32Bits)
	}
	return x
}

// AddF32 is add.rn.f32.
func AddF32(a, b float32) float32 { return CanonF32(a + b) }

// SubF32 is sub.rn.f32.
func SubF32(a, b float32) float32 { return CanonF32(a - b) }

// MulF32 is mul.rn.f32. The conversion prevents Go from fusing the product with a sum in the
// caller.
func MulF32(a, b float32) float32 { return CanonF32(float32(a * b)) }

// DivF32 is div.rn.f32.
func DivF32(a, b float32) float32 { return CanonF32(a / b) }

// RcpF32 is rcp.rn.f32.
func RcpF32(a float32) float32 { return CanonF32(1 / a) }

// SqrtF32 is sqrt.rn.f32. The double rounding is harmless: 53 ≥ 2·24+2.
func SqrtF32(a float32) float32 { return CanonF32(float32(math.Sqrt(float64(a)))) }

// FmaF32 is fma.rn.f32: a·b+c rounded once. It fits the compiler's budget for inlining into loops
// over lanes.
//
// The product is exact in float64. The sum s may not be, and rounding it again is wrong only if s
// is halfway between two float32 values. Then its last 28 bits are zero, whether the result is
// normal or subnormal. In this case Knuth's TwoSum tells on which side of s the exact sum is, and s
// is moved there by a few of its last places, much less than its distance from any other halfway
// point. A NaN also takes this path: its last 28 bits are zero, since all operands were float32.
func FmaF32(a, b, c float32) float32 {
	p := float64(float64(a) * float64(b))
	s := p + float64(c)
	if math.Float64bits(s)<<36 == 0 && float64(float32(s)) != s {
		t := s - p
		t = s * ((p - (s - t)) + (float64(c) - t)) // positive: the exact sum is farther from zero than s
		if t > 0 {
			s *= 1 + 0x1p-50
		}
		if t < 0 {
			s *= 1 - 0x1p-50
		}
		if s != s {
			return nan32
		}
	}
	return float32(s)
}

// MinF32 is min.f32: a NaN loses against a number, −0 is below +0.
func MinF32(a, b float32) float32 {
	switch {
	case a != a:
		return CanonF32(b)
	case b != b:
		return a
	}
	return min(a, b)
}

// MaxF32 is max.f32: a NaN loses against a number, +0 is above −0.
func MaxF32(a, b float32) float32 {
	switch {
	case a != a:
		return CanonF32(b)
	case b != b:
		return a
	}
	return max(a, b)
}

// MinNaNF32 is min.NaN.f32: a NaN wins.
func MinNaNF32(a, b float32) float32 { return CanonF32(min(a, b)) }

// MaxNaNF32 is max.NaN.f32: a NaN wins.
func MaxNaNF32(a, b float32) float32 { return CanonF32(max(a, b)) }

// AbsF32 is abs.f32. The result for a NaN is the canonical NaN.
func AbsF32(a float32) float32 {
	return CanonF32(math.Float32frombits(math.Float32bits(a) &^ 0x80000000))
}

// NegF32 is neg.f32. The result for a NaN is the canonical NaN.
func NegF32(a float32) float32 { return CanonF32(-a) }

// CopysignF32 is copysign.f32: b with a's sign, in PTX's order of operands.
func CopysignF32(a, b float32) float32 {
	return math.Float32frombits(math.Float32bits(a)&0x80000000 | math.Float32bits(b)&^0x80000000)
}
