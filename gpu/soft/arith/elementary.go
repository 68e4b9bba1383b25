package arith

import "math"

// Elementary functions in float64, accurate to about 2^-36 of their value. After rounding to single
// precision the error is below 0.51 ulp, in a third of the time that package math needs for full
// accuracy. Products are rounded explicitly, so that every machine gives the same bits.

// mulAdd returns a·b+c, rounded twice on every machine.
func mulAdd(a, b, c float64) float64 { return float64(a*b) + c }

// toInteger rounds a number of less than 51 bits to an integer if it is added and subtracted again.
const toInteger = 0x1.8p52

// exp2 returns 2^x for results in the range of single precision, and infinity or zero beyond it.
func exp2(x float64) float64 {
	switch {
	case x != x:
		return x
	case x > 130:
		return math.Inf(1)
	case x < -160:
		return 0
	}
	n := x + toInteger - toInteger
	f := x - n // in [−1/2, 1/2]
	// Taylor's series of exp(f·ln 2). The first omitted term is below 2^-37.
	f2 := float64(f * f)
	f4 := float64(f2 * f2)
	low := mulAdd(mulAdd(0x1.c6b08d704a0c0p-5, f, 0x1.ebfbdff82c58fp-3), f2, mulAdd(0x1.62e42fefa39efp-1, f, 1))
	high := mulAdd(mulAdd(0x1.ffcbfc588b0c7p-17, f, 0x1.430912f86c787p-13), f2, mulAdd(0x1.5d87fe78a6731p-10, f, 0x1.3b2ab6fba4e77p-7))
	p := mulAdd(mulAdd(mulAdd(0x1.b5253d395e7c4p-24, f, 0x1.62c0223a5c824p-20), f4, high), f4, low)
	return p * math.Float64frombits(uint64(int64(n)+1023)<<52)
}

// log2 returns the base-2 logarithm of x. No single-precision number is subnormal here.
func log2(x float64) float64 {
	switch {
	case x == 0:
		return math.Inf(-1)
	case x < 0:
		return math.NaN()
	case !finite(x):
		return x
	}
	const one, fraction = 1023 << 52, 1<<52 - 1
	b := math.Float64bits(x)
	e := float64(int(b>>52) - 1023)
	m := math.Float64frombits(b&fraction | one)
	if m > math.Sqrt2 {
		m *= 0.5
		e++
	}
	// ln m = 2·artanh z. z² is at most 0.03. The first omitted term is below 2^-39 of the whole.
	z := (m - 1) / (m + 1)
	w := float64(z * z)
	w2 := float64(w * w)
	p := mulAdd(mulAdd(mulAdd(1./13, w2, mulAdd(1./11, w, 1./9)), w2, mulAdd(1./7, w, 1./5)), w2, mulAdd(1./3, w, 1))
	return mulAdd(z*(2/math.Ln2), p, e)
}

// The angle up to which quadrant's two-piece π/2 is accurate enough for single precision's sine.
const maxAngle = 1 << 20

// quadrant reduces x to r in [−π/4, π/4]. It also returns how many times it subtracted π/2, modulo
// 4. π/2 is split as by Cody and Waite; the first piece is short enough for its multiples to be
// exact.
func quadrant(x float64) (r float64, n int) {
	const (
		head = 0x1.921fb544p0
		tail = 0x1.0b4611a626331p-34
	)
	k := float64(x*(2/math.Pi)) + toInteger - toInteger
	return x - float64(k*head) - float64(k*tail), int(k) & 3
}

// sinSmall returns sin r for |r| ≤ π/4, by Taylor's series. The first omitted term is below 2^-37.
func sinSmall(r float64) float64 {
	w := float64(r * r)
	w2 := float64(w * w)
	p := mulAdd(mulAdd(mulAdd(-1./39916800, w, 1./362880), w2, mulAdd(-1./5040, w, 1./120)), w, -1./6)
	return mulAdd(float64(r*w), p, r)
}

// cosSmall returns cos r for |r| ≤ π/4, by Taylor's series. The first omitted term is below 2^-41.
func cosSmall(r float64) float64 {
	w := float64(r * r)
	w2 := float64(w * w)
	p := mulAdd(mulAdd(mulAdd(1./479001600, w, -1./3628800), w2, mulAdd(1./40320, w, -1./720)), w2, mulAdd(1./24, w, -1./2))
	return mulAdd(p, w, 1)
}

// sin returns the sine of a single-precision x.
func sin(x float64) float64 {
	if x == 0 || !(math.Abs(x) < maxAngle) {
		return math.Sin(x) // keeps −0, and reduces large angles by enough bits of π
	}
	r, n := quadrant(x)
	return sinAt(r, n)
}

// cos returns the cosine of a single-precision x.
func cos(x float64) float64 {
	if !(math.Abs(x) < maxAngle) {
		return math.Cos(x)
	}
	r, n := quadrant(x)
	return sinAt(r, n+1)
}

// sinAt returns the sine of r + n·π/2.
func sinAt(r float64, n int) float64 {
	y := 0.0
	if n&1 == 0 {
		y = sinSmall(r)
	} else {
		y = cosSmall(r)
	}
	if n&2 != 0 {
		return -y
	}
	return y
}
