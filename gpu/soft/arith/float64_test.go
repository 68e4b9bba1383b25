package arith

import (
	"math"
	"testing"
)

func check64(t *testing.T, got, want float64, format string, args ...any) {
	t.Helper()
	if !same(got, want) {
		t.Fatalf(format+" = %v (%#x), want %v (%#x)", append(args, got, math.Float64bits(got), want, math.Float64bits(want))...)
	}
}

func test64(t *testing.T, a, b float64) {
	for _, r := range rounds {
		check64(t, AddF64Round(a, b, r), refAdd(shapeF64, a, b, r), "add.%v(%v, %v)", r, a, b)
		check64(t, SubF64Round(a, b, r), refAdd(shapeF64, a, -b, r), "sub.%v(%v, %v)", r, a, b)
		check64(t, MulF64Round(a, b, r), refMul(shapeF64, a, b, r), "mul.%v(%v, %v)", r, a, b)
		check64(t, DivF64Round(a, b, r), refDiv(shapeF64, a, b, r), "div.%v(%v, %v)", r, a, b)
	}
}

func testUnary64(t *testing.T, a float64) {
	for _, r := range rounds {
		check64(t, SqrtF64Round(a, r), refSqrt(shapeF64, a, r), "sqrt.%v(%v)", r, a)
		check64(t, RcpF64Round(a, r), refDiv(shapeF64, 1, a, r), "rcp.%v(%v)", r, a)
	}
}

func testFma64(t *testing.T, a, b, c float64, rounds ...Round) {
	for _, r := range rounds {
		check64(t, FmaF64Round(a, b, c, r), refFma(shapeF64, a, b, c, r), "fma.%v(%v, %v, %v)", r, a, b, c)
	}
}

func TestF64AgainstBig(t *testing.T) {
	for _, a := range edges64 {
		testUnary64(t, a)
		for _, b := range edges64 {
			test64(t, a, b)
		}
	}
	rnd := newRand()
	for range 2000 {
		a := random64(rnd, 1)
		b := random64(rnd, a)
		test64(t, a, b)
		testUnary64(t, a)
	}
}

func TestFmaF64AgainstBig(t *testing.T) {
	rnd := newRand()
	for range 15000 {
		a := random64(rnd, 1)
		b := random64(rnd, 1/a)
		c := random64(rnd, a*b)
		testFma64(t, a, b, c, RN, rounds[1+rnd.IntN(3)])
		testFma64(t, a, b, -a*b, RN, rounds[1+rnd.IntN(3)]) // nearly everything cancels
	}
}

func FuzzF64(f *testing.F) {
	f.Add(uint64(0x3ff0000000000001), uint64(0x3ff0000000000001), uint64(0xbff0000000000002))
	f.Fuzz(func(t *testing.T, a, b, c uint64) {
		x, y, z := math.Float64frombits(a), math.Float64frombits(b), math.Float64frombits(c)
		testFma64(t, x, y, z, rounds...)
		test64(t, x, y)
		testUnary64(t, x)
	})
}

func TestF64NaN(t *testing.T) {
	signalling := math.Float64frombits(0x7ff0000000000123)
	other := math.Float64frombits(0xfff8000000000456)
	inf := math.Inf(1)
	for _, c := range []struct {
		name string
		got  float64
		want uint64
	}{
		{"add keeps the first payload, quieted", AddF64(signalling, other), 0x7ff8000000000123},
		{"mul keeps a second operand's", MulF64(1, other), 0xfff8000000000456},
		{"fma keeps an addend's", FmaF64(1, 2, other), 0xfff8000000000456},
		{"sub of infinities", SubF64(inf, inf), 0xfff8000000000000},
		{"mul of zero and infinity", MulF64(0, inf), 0xfff8000000000000},
		{"sqrt of −1", SqrtF64(-1), 0xfff8000000000000},
		{"div of zeros, .rz", DivF64Round(0, 0, RZ), 0xfff8000000000000},
		{"fma.rm keeps it too", FmaF64Round(signalling, 1, 1, RM), 0x7ff8000000000123},
		{"neg flips the sign alone", NegF64(other), 0x7ff8000000000456},
		{"min of NaN and 1", MinF64(signalling, 1), 0x3ff0000000000000},
		{"max of 1 and NaN", MaxF64(1, signalling), 0x3ff0000000000000},
		{"max of two NaN", MaxF64(signalling, other), 0x7ff8000000000123},
		{"min of zeros", MinF64(0, math.Copysign(0, -1)), 1 << 63},
		{"min of numbers", MinF64(3, -2), 0xc000000000000000},
		{"max of numbers", MaxF64(3, -2), 0x4008000000000000},
		{"min of two NaN", MinF64(other, signalling), 0xfff8000000000456},
		{"max of NaN and 1", MaxF64(other, 1), 0x3ff0000000000000},
		{"min of 1 and NaN", MinF64(1, other), 0x3ff0000000000000},
		{"abs keeps a payload", AbsF64(other), 0x7ff8000000000456},
		{"copysign takes the first's sign", CopysignF64(-1, 3), 0xc008000000000000},
		{"rcp of a NaN", RcpF64Round(signalling, RN), 0x7ff8000000000123},
		{"fma of two NaN keeps the first's", FmaF64(signalling, other, 1), 0x7ff8000000000123},
		{"rcp of 4", RcpF64Round(4, RN), 0x3fd0000000000000},
		{"div of a number by a NaN", DivF64(1, other), 0xfff8000000000456},
		{"max of zeros", MaxF64(math.Copysign(0, -1), 0), 0},
	} {
		if got := math.Float64bits(c.got); got != c.want {
			t.Errorf("%s: %#x, want %#x", c.name, got, c.want)
		}
	}
}
