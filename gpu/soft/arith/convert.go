package arith

import "math"

// width returns the number of bits of I. It shifts by variables so that it compiles for every I, to
// a constant.
func width[I Integer]() int {
	n := 8
	if I(1)<<n == 0 {
		return n
	}
	n = 16
	if I(1)<<n == 0 {
		return n
	}
	n = 32
	if I(1)<<n == 0 {
		return n
	}
	return 64
}

// limits returns the least and the greatest value of I.
func limits[I Integer]() (least, greatest I) {
	if ^I(0) > 0 {
		return 0, ^I(0)
	}
	least = I(1) << (width[I]() - 1)
	return least, ^least
}

// Integral is cvt.rni, .rzi, .rmi and .rpi from a float type to itself: x rounded to an integral
// value.
func Integral(x float64, r Round) float64 {
	switch r {
	case RN:
		return math.RoundToEven(x)
	case RZ:
		return math.Trunc(x)
	case RM:
		return math.Floor(x)
	case RP:
		return math.Ceil(x)
	}
	return math.Round(x)
}

// CvtIntF64 is cvt to an integer type from f64. r is .rni, .rzi, .rmi or .rpi. Values out of range
// are clamped, and NaN gives the integer with only the top bit set.
func CvtIntF64[I Integer](x float64, r Round) I {
	if x != x {
		return I(1) << (width[I]() - 1)
	}
	return clampTo[I](Integral(x, r))
}

// CvtIntF32 is cvt to an integer type from f32 (and, widened, f16 and bf16). It differs from
// CvtIntF64 in that NaN gives 0 for integers of less than 64 bits.
func CvtIntF32[I Integer](x float32, r Round) I {
	if x != x && width[I]() < 64 {
		return 0
	}
	return CvtIntF64[I](float64(x), r)
}

// clampTo converts an integral x to I and clamps it.
func clampTo[I Integer](x float64) I {
	least, greatest := limits[I]()
	// As float64, the greatest value of a 64-bit type rounds up to the first one out of range; the
	// others are exact.
	switch {
	case x >= float64(greatest):
		return greatest
	case x <= float64(least):
		return least
	}
	return I(x)
}

// CvtS32F32 is cvt.rzi.s32.f32, the conversion of C's (int).
func CvtS32F32(x float32) int32 {
	if x > -1<<31 && x < 1<<31 {
		return int32(x)
	}
	return CvtIntF32[int32](x, RZ)
}
