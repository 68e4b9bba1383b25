package arith

import "math"

// indefinite64 is the NaN of an invalid operation on numbers.
const indefinite64 = 0xfff8000000000000

// quiet64 is the quiet bit of a NaN.
const quiet64 = 1 << 51

// nan64 returns the NaN result of an operation on a, b and c: the first NaN among them, quieted, or
// else the indefinite NaN.
func nan64(a, b, c float64) float64 {
	for _, x := range [3]float64{a, b, c} {
		if x != x {
			return math.Float64frombits(math.Float64bits(x) | quiet64)
		}
	}
	return math.Float64frombits(indefinite64)
}

// AddF64 is add.rn.f64.
func AddF64(a, b float64) float64 {
	if r := a + b; r == r {
		return r
	}
	return nan64(a, b, 0)
}

// SubF64 is sub.rn.f64.
func SubF64(a, b float64) float64 {
	if r := a - b; r == r {
		return r
	}
	return nan64(a, b, 0)
}

// MulF64 is mul.rn.f64. The conversion prevents Go from fusing the product with a sum in the
// caller.
func MulF64(a, b float64) float64 {
	if r := float64(a * b); r == r {
		return r
	}
	return nan64(a, b, 0)
}

// DivF64 is div.rn.f64.
func DivF64(a, b float64) float64 {
	if r := a / b; r == r {
		return r
	}
	return nan64(a, b, 0)
}

// SqrtF64 is sqrt.rn.f64.
func SqrtF64(a float64) float64 {
	if r := math.Sqrt(a); r == r {
		return r
	}
	return nan64(a, 0, 0)
}

// FmaF64 is fma.rn.f64: a·b+c rounded once.
func FmaF64(a, b, c float64) float64 {
	if r := math.FMA(a, b, c); r == r {
		return r
	}
	return nan64(a, b, c)
}

// MinF64 is min.f64: a NaN loses against a number, −0 is below +0; of two NaN the first is the
// result.
func MinF64(a, b float64) float64 {
	switch {
	case a == a && b == b:
		return min(a, b)
	case a == a:
		return a
	case b == b:
		return b
	}
	return nan64(a, b, 0)
}

// MaxF64 is max.f64: a NaN loses against a number, +0 is above −0; of two NaN the first is the
// result.
func MaxF64(a, b float64) float64 {
	switch {
	case a == a && b == b:
		return max(a, b)
	case a == a:
		return a
	case b == b:
		return b
	}
	return nan64(a, b, 0)
}

// AbsF64 is abs.f64; a NaN keeps its payload.
func AbsF64(a float64) float64 { return math.Float64frombits(math.Float64bits(a) &^ (1 << 63)) }

// NegF64 is neg.f64; a NaN keeps its payload.
func NegF64(a float64) float64 { return math.Float64frombits(math.Float64bits(a) ^ 1<<63) }

// CopysignF64 is copysign.f64: b with a's sign, in PTX's order of operands.
func CopysignF64(a, b float64) float64 { return math.Copysign(b, a) }
