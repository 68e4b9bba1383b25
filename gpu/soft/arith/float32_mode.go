package arith

import "math"

// in32 applies .ftz to an operand and widens it.
func (m Mode) in32(x float32) float32 {
	if m.FTZ {
		return FlushF32(x)
	}
	return x
}

// finish32 applies .ftz and .sat to a rounded result.
func (m Mode) finish32(r float32) float32 {
	if m.FTZ {
		r = FlushF32(r)
	}
	if m.Sat {
		r = SatF32(r)
	}
	return r
}

// round32 rounds x, which is exact or rounded to odd, according to m.
func (m Mode) round32(x float64) float32 {
	var r float32
	switch {
	case x != x:
		r = math.Float32frombits(nan32Bits)
	case m.Round == RN:
		r = float32(x)
	default:
		r = math.Float32frombits(uint32(formatF32.narrow(x, m.Round)))
	}
	return m.finish32(r)
}

// sum32 returns x+y rounded according to m. x and y are float32 values or products of two. If they
// cancel, only .rm gives −0.
func (m Mode) sum32(x, y float64) float32 {
	s := oddSum(x, y)
	if s == 0 && m.Round == RM && (math.Signbit(x) || math.Signbit(y)) {
		s = math.Copysign(0, -1)
	}
	return m.round32(s)
}

// AddF32Mode is add.f32 in any mode.
func AddF32Mode(a, b float32, m Mode) float32 {
	a, b = m.in32(a), m.in32(b)
	if m.Round == RN {
		return m.finish32(AddF32(a, b))
	}
	return m.sum32(float64(a), float64(b))
}

// SubF32Mode is sub.f32 in any mode.
func SubF32Mode(a, b float32, m Mode) float32 { return AddF32Mode(a, -b, m) }

// MulF32Mode is mul.f32 in any mode.
func MulF32Mode(a, b float32, m Mode) float32 {
	a, b = m.in32(a), m.in32(b)
	if m.Round == RN {
		return m.finish32(MulF32(a, b))
	}
	return m.round32(float64(a) * float64(b))
}

// FmaF32Mode is fma.f32 (and mad.f32) in any mode.
func FmaF32Mode(a, b, c float32, m Mode) float32 {
	a, b, c = m.in32(a), m.in32(b), m.in32(c)
	if m.Round == RN {
		return m.finish32(FmaF32(a, b, c))
	}
	return m.sum32(float64(float64(a)*float64(b)), float64(c))
}

// DivF32Mode is div.f32 with a rounding (.rn, .rz, .rm, .rp).
func DivF32Mode(a, b float32, m Mode) float32 {
	a, b = m.in32(a), m.in32(b)
	if m.Round == RN {
		return m.finish32(DivF32(a, b))
	}
	x, y := float64(a), float64(b)
	q := x / y
	if finite(q) && q != 0 { // the sign of the remainder gives the side of q on which the quotient is
		rest := math.FMA(-q, y, x)
		if y < 0 {
			rest = -rest
		}
		q = odd(q, rest)
	}
	return m.round32(q)
}

// RcpF32Mode is rcp.f32 with a rounding.
func RcpF32Mode(a float32, m Mode) float32 { return DivF32Mode(1, a, m) }

// SqrtF32Mode is sqrt.f32 with a rounding.
func SqrtF32Mode(a float32, m Mode) float32 {
	a = m.in32(a)
	if m.Round == RN {
		return m.finish32(SqrtF32(a))
	}
	x := float64(a)
	q := math.Sqrt(x)
	return m.round32(odd(q, math.FMA(-q, q, x)))
}
