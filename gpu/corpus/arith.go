package corpus

import "math"

// fma32 returns a·b + c rounded once, like PTX's fma.rn.f32. The float64 product of two float32 is
// exact. The sum is not, and rounding it a second time to float32 can be wrong, so it is rounded to
// odd first (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms
// using rounding to odd", 2008).
func fma32(a, b, c float32) float32 {
	return float32(addOdd(float64(float64(a)*float64(b)), float64(c)))
}

// addOdd returns x + y rounded to odd: exact if representable, else the neighbour whose last bit is
// set.
func addOdd(x, y float64) float64 {
	s := x + y
	// Knuth's two-sum: s + e == x + y exactly. If s is infinite or NaN, e is NaN.
	xx := s - y
	e := (x - xx) + (y - (s - xx))
	bits := math.Float64bits(s)
	if inexact := e > 0 || e < 0; !inexact || bits&1 != 0 {
		return s
	}
	// The exact sum lies between s and its neighbour on e's side, and that neighbour is odd.
	if (e > 0) == (s > 0) {
		return math.Float64frombits(bits + 1)
	}
	return math.Float64frombits(bits - 1)
}

// sqrt32 is sqrt.rn.f32. float64 has more than twice float32's precision and two bits, so rounding
// twice is harmless.
func sqrt32(x float32) float32 { return float32(math.Sqrt(float64(x))) }

// float16 is an IEEE 754 half in its bits.
type float16 uint16

// float32 returns h's value, which is exact in float32.
func (h float16) float32() float32 {
	sign := uint32(h&0x8000) << 16
	exp, frac := uint32(h>>10&0x1f), uint32(h&0x3ff)
	switch {
	case exp == 0x1f:
		return math.Float32frombits(sign | 0x7f800000 | frac<<13)
	case exp == 0: // zero or subnormal: frac · 2⁻²⁴
		v := float32(frac) * 0x1p-24
		return math.Float32frombits(math.Float32bits(v) | sign)
	}
	return math.Float32frombits(sign | (exp+112)<<23 | frac<<13)
}

// half returns x rounded to the nearest half, ties to even. A NaN becomes PTX's canonical 0x7fff.
func half(x float64) float16 {
	if math.IsNaN(x) {
		return 0x7fff
	}
	sign := float16(0)
	if math.Signbit(x) {
		sign, x = 0x8000, -x
	}
	if x >= 65520 { // halfway between the largest half and the next power of two
		return sign | 0x7c00
	}
	if x < 0x1p-14 { // subnormal: a multiple of 2⁻²⁴
		return sign | float16(math.RoundToEven(x*0x1p24))
	}
	frac, exp := math.Frexp(x)                               // frac in [½, 1)
	m := math.RoundToEven(frac * 0x1p11)                     // 1024 … 2048
	return sign + float16(int(m)-1024) + float16(exp+14)<<10 // a carry moves into the exponent
}

// fma16 returns a·b + c rounded once to half.
func fma16(a, b, c float16) float16 {
	return half(addOdd(float64(a.float32())*float64(b.float32()), float64(c.float32())))
}
