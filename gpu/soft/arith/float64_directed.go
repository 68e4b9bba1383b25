package arith

import (
	"math"
	"math/bits"
)

// There is no wider type for double precision, so its directed roundings are done on integers of
// 128 bits.

// wide is the number ±(hi·2^64 + lo)·2^exp. It is zero if both words are; otherwise the top bit of
// hi is set. Bit 0 of lo may be sticky.
type wide struct {
	neg    bool
	exp    int
	hi, lo uint64
}

// widen unpacks a finite x.
func widen(x float64) wide {
	neg, exp, sig := split(x)
	return wide{neg, exp - 64, sig, 0}.normal()
}

// normal shifts w left until its top bit is set.
func (w wide) normal() wide {
	if w.hi == 0 {
		w.hi, w.lo = w.lo, 0
		w.exp -= 64
	}
	if n := bits.LeadingZeros64(w.hi); n > 0 && n < 64 {
		w.hi = w.hi<<n | w.lo>>(64-n)
		w.lo <<= n
		w.exp -= n
	}
	return w
}

// down shifts w's words right by n > 0 and keeps the lost bits as a sticky bit.
func (w wide) down(n int) wide {
	var lost uint64
	switch {
	case n >= 128:
		lost, w.hi, w.lo = w.hi|w.lo, 0, 0
	case n >= 64:
		lost = w.lo | w.hi<<(128-n) // n = 64: a shift by 64 is 0 in Go
		w.hi, w.lo = 0, w.hi>>(n-64)
	default:
		lost = w.lo << (64 - n)
		w.hi, w.lo = w.hi>>n, w.lo>>n|w.hi<<(64-n)
	}
	if lost != 0 {
		w.lo |= 1
	}
	w.exp += n
	return w
}

// mul returns the exact product of two numbers from widen.
func (w wide) mul(v wide) wide {
	hi, lo := bits.Mul64(w.hi, v.hi)
	return wide{w.neg != v.neg, w.exp + v.exp + 128, hi, lo}.normal()
}

// add returns w+v with a sticky last bit. w and v have at most 106 significant bits. An exact zero
// is negative only if r is .rm or both are negative.
func (w wide) add(v wide, r Round) wide {
	switch {
	case w.hi == 0 && v.hi == 0:
		w.neg = w.neg && v.neg || r == RM && w.neg != v.neg
		return w
	case w.hi == 0:
		return v
	case v.hi == 0:
		return w
	}
	if w.exp < v.exp || w.exp == v.exp && (w.hi < v.hi || w.hi == v.hi && w.lo < v.lo) {
		w, v = v, w
	}
	if n := w.exp - v.exp; n > 0 {
		v = v.down(n)
	}
	if w.neg != v.neg {
		var borrow uint64
		w.lo, borrow = bits.Sub64(w.lo, v.lo, 0)
		w.hi, _ = bits.Sub64(w.hi, v.hi, borrow)
		if w.hi|w.lo == 0 {
			w.neg = r == RM
		}
		return w.normal()
	}
	var carry uint64
	w.lo, carry = bits.Add64(w.lo, v.lo, 0)
	w.hi, carry = bits.Add64(w.hi, v.hi, carry)
	if carry != 0 {
		w = w.down(1)
		w.hi |= 1 << 63
	}
	return w
}

// float64 rounds w.
func (w wide) float64(r Round) float64 {
	sig := w.hi
	if w.lo != 0 {
		sig |= 1
	}
	return math.Float64frombits(formatF64.pack(w.neg, w.exp+64, sig, r))
}

// finite reports whether x is neither infinite nor NaN.
func finite(x float64) bool { return x-x == 0 }

// AddF64Round is add.f64 in any rounding.
func AddF64Round(a, b float64, r Round) float64 {
	if r == RN || !finite(a) || !finite(b) {
		return AddF64(a, b)
	}
	return widen(a).add(widen(b), r).float64(r)
}

// SubF64Round is sub.f64 in any rounding.
func SubF64Round(a, b float64, r Round) float64 {
	if r == RN || !finite(a) || !finite(b) {
		return SubF64(a, b)
	}
	return widen(a).add(widen(-b), r).float64(r)
}

// MulF64Round is mul.f64 in any rounding.
func MulF64Round(a, b float64, r Round) float64 {
	if r == RN || !finite(a) || !finite(b) {
		return MulF64(a, b)
	}
	return widen(a).mul(widen(b)).float64(r)
}

// FmaF64Round is fma.f64 in any rounding.
func FmaF64Round(a, b, c float64, r Round) float64 {
	if r == RN || !finite(a) || !finite(b) || !finite(c) {
		return FmaF64(a, b, c)
	}
	return widen(a).mul(widen(b)).add(widen(c), r).float64(r)
}

// DivF64Round is div.f64 in any rounding.
func DivF64Round(a, b float64, r Round) float64 {
	if r == RN || !finite(a) || !finite(b) || a == 0 || b == 0 {
		return DivF64(a, b)
	}
	x, y := widen(a), widen(b)
	q, rest := bits.Div64(x.hi>>1, 0, y.hi) // x.hi is even, and half of it is below 2^63 ≤ y.hi
	if rest != 0 {
		q |= 1
	}
	return math.Float64frombits(formatF64.pack(x.neg != y.neg, x.exp-y.exp-63, q, r))
}

// RcpF64Round is rcp.f64 in any rounding.
func RcpF64Round(a float64, r Round) float64 { return DivF64Round(1, a, r) }

// SqrtF64Round is sqrt.f64 in any rounding.
func SqrtF64Round(a float64, r Round) float64 {
	if r == RN || !finite(a) || a <= 0 {
		return SqrtF64(a)
	}
	x := widen(a)
	// a = m·2^(2k) with m in [1, 4), where the remainder of the root is exact.
	e := x.exp + 127 // a is in [2^e, 2^(e+1))
	k := e >> 1
	m := math.Ldexp(float64(x.hi>>11), e&1-52)
	q := math.Sqrt(m)
	_, exp, sig := split(q)
	sig <<= 2
	switch rest := math.FMA(-q, q, m); {
	case rest > 0:
		sig++
	case rest < 0:
		sig--
	}
	return math.Float64frombits(formatF64.pack(false, exp-2+k, sig, r))
}
