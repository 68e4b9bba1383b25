package arith

import (
	"math"
	"testing"
)

// The elementary functions are compared with package math, which is accurate to about 2^-52: sine
// and cosine by the absolute error, as PTX does, the others by the relative one.
func TestElementaryErrors(t *testing.T) {
	const bound = 0x1p-35
	rnd := newRand()
	worst := map[string]float64{}
	check := func(name string, x, got, want, scale float64) {
		t.Helper()
		e := math.Abs(got-want) / scale
		if worst[name] = max(worst[name], e); e > bound {
			t.Fatalf("%s(%v) = %v, want %v", name, x, got, want)
		}
	}
	for range 40000 {
		x := float64(float32(rnd.Float64()*270 - 145))
		check("exp2", x, exp2(x), math.Exp2(x), math.Exp2(x))
		x = float64(float32(rnd.Float64() - 0.5))
		check("exp2", x, exp2(x), math.Exp2(x), math.Exp2(x))
		x = float64(math.Float32frombits(rnd.Uint32N(0x7f800000)))
		if want := math.Log2(x); want != 0 {
			check("log2", x, log2(x), want, math.Abs(want))
		}
		x = float64(float32(0.7 + rnd.Float64()*0.8)) // around 1, where Log2 itself loses bits
		if want := math.Log1p(x-1) / math.Ln2; want != 0 {
			check("log2", x, log2(x), want, math.Abs(want))
		}
		for _, reach := range []float64{math.Pi / 2, 100 * math.Pi, 2 * maxAngle} {
			x = float64(float32((rnd.Float64()*2 - 1) * reach))
			check("sin", x, sin(x), math.Sin(x), 1)
			check("cos", x, cos(x), math.Cos(x), 1)
		}
	}
	t.Logf("greatest errors: %v", worst)
}

// Small angles keep their relative accuracy, and powers of two are exact in both directions.
func TestElementaryExactCases(t *testing.T) {
	for e := -149; e <= 127; e++ {
		x := math.Ldexp(1, e)
		if got := exp2(float64(e)); got != x {
			t.Errorf("exp2(%d) = %v", e, got)
		}
		if got := log2(x); got != float64(e) {
			t.Errorf("log2(2^%d) = %v", e, got)
		}
		if e < -14 && float32(sin(x)) != float32(x) {
			t.Errorf("sin(2^%d) = %v", e, sin(x))
		}
	}
	// This is the single-precision number closest to a multiple of π/2, relative to its size.
	for _, x := range []float64{0x1.921fb6p0, 0x1.921fb6p1, 16367173 * 0x1p-3, 0x1.2d97c8p2} {
		if got, want := float32(cos(x)), float32(math.Cos(x)); got != want {
			t.Errorf("cos(%v) = %v, want %v", x, got, want)
		}
		if got, want := float32(sin(x)), float32(math.Sin(x)); got != want {
			t.Errorf("sin(%v) = %v, want %v", x, got, want)
		}
	}
}
