package arith

import (
	"math"
	"math/big"
	"testing"
)

func TestApproxSpecialCases(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	negZero := math.Copysign(0, -1)
	const sub = 0x1p-130
	type row struct{ in, out float64 }
	unary := func(f func(float32, bool) float32, ftz bool) func(float32) float32 {
		return func(x float32) float32 { return f(x, ftz) }
	}
	for _, c := range []struct {
		name string
		f    func(float32) float32
		rows []row
	}{
		{"rcp.approx", unary(RcpApproxF32, false), []row{{-inf, negZero}, {negZero, -inf}, {0, inf}, {inf, 0}, {nan, nan}, {0x1p-127, 0x1p127}, {0x1p127, 0x1p-127}}},
		{"rcp.approx.ftz", unary(RcpApproxF32, true), []row{{-sub, -inf}, {sub, inf}, {0x1p127, 0}, {-0x1p127, negZero}, {nan, nan}}},
		{"sqrt.approx", unary(SqrtApproxF32, false), []row{{-inf, nan}, {-1, nan}, {negZero, negZero}, {0, 0}, {inf, inf}, {nan, nan}, {sub, 0x1p-65}, {-sub, nan}}},
		{"sqrt.approx.ftz", unary(SqrtApproxF32, true), []row{{-sub, negZero}, {sub, 0}}},
		{"rsqrt.approx", unary(RsqrtApproxF32, false), []row{{-inf, nan}, {-1, nan}, {negZero, -inf}, {0, inf}, {inf, 0}, {nan, nan}, {sub, 0x1p65}}},
		{"rsqrt.approx.ftz", unary(RsqrtApproxF32, true), []row{{-sub, -inf}, {sub, inf}}},
		{"sin.approx", unary(SinApproxF32, false), []row{{-inf, nan}, {negZero, negZero}, {0, 0}, {inf, nan}, {nan, nan}, {sub, sub}}},
		{"sin.approx.ftz", unary(SinApproxF32, true), []row{{-sub, negZero}, {sub, 0}}},
		{"cos.approx", unary(CosApproxF32, false), []row{{-inf, nan}, {negZero, 1}, {0, 1}, {inf, nan}, {nan, nan}, {sub, 1}}},
		{"lg2.approx", unary(Lg2ApproxF32, false), []row{{-inf, nan}, {-1, nan}, {-sub, nan}, {negZero, -inf}, {0, -inf}, {inf, inf}, {nan, nan}, {sub, -130}, {1, 0}, {8, 3}}},
		{"lg2.approx.ftz", unary(Lg2ApproxF32, true), []row{{-sub, -inf}, {sub, -inf}}},
		{"ex2.approx", unary(Ex2ApproxF32, false), []row{{-inf, 0}, {negZero, 1}, {0, 1}, {inf, inf}, {nan, nan}, {sub, 1}, {128, inf}, {-130, sub}, {-200, 0}, {10, 1024}}},
		{"ex2.approx.ftz", unary(Ex2ApproxF32, true), []row{{-130, 0}, {-126, 0x1p-126}, {-sub, 1}}},
		{"tanh.approx", TanhApproxF32, []row{{-inf, -1}, {negZero, negZero}, {0, 0}, {inf, 1}, {nan, nan}, {sub, sub}, {50, 1}}},
	} {
		for _, r := range c.rows {
			check32(t, c.f(float32(r.in)), r.out, "%s(%v)", c.name, r.in)
		}
	}
	for _, c := range []struct {
		name string
		got  float32
		want float64
	}{
		{"div.approx", DivApproxF32(1, 3, false), float64(float32(1. / 3))},
		{"div.approx by more than 2^126", DivApproxF32(1, -0x1p127, false), negZero},
		{"div.approx of −1 by more than 2^126", DivApproxF32(-1, -0x1p127, false), 0},
		{"div.approx of ∞ by more than 2^126", DivApproxF32(float32(inf), 0x1.8p126, false), nan},
		{"div.approx by 2^126", DivApproxF32(0x1p100, 0x1p126, false), 0x1p-26},
		{"div.approx by ∞", DivApproxF32(1, float32(inf), false), 0},
		{"div.approx.ftz by a subnormal", DivApproxF32(-1, sub, true), -inf},
		{"div.approx.ftz to a subnormal", DivApproxF32(0x1p-100, 0x1p30, true), 0},
		{"div.approx.ftz of zeros", DivApproxF32(sub, sub, true), nan},
		{"div.full by 2^127", DivFullF32(0x1p100, 0x1p127, false), 0x1p-27},
		{"div.full.ftz to a subnormal", DivFullF32(0x1p-100, 0x1p30, true), 0},
	} {
		check32(t, c.got, c.want, "%s", c.name)
	}
}

func TestGrossF64(t *testing.T) {
	for _, c := range []struct {
		name string
		got  float64
		want uint64
	}{
		{"rcp of −∞", RcpGrossF64(math.Inf(-1)), 1 << 63},
		{"rcp of −0", RcpGrossF64(math.Copysign(0, -1)), 0xfff << 52},
		{"rcp of a subnormal", RcpGrossF64(0x1p-1060), 0x7ff << 52},
		{"rcp to a subnormal", RcpGrossF64(-0x1p1023), 1 << 63},
		{"rcp of NaN", RcpGrossF64(math.NaN()), 0x7fffffff << 32},
		{"rcp of 4", RcpGrossF64(4), 0x3fd0000000000000},
		{"rsqrt of −1", RsqrtGrossF64(-1), 0x7fffffff << 32},
		{"rsqrt of −0", RsqrtGrossF64(math.Copysign(0, -1)), 0xfff << 52},
		{"rsqrt of ∞", RsqrtGrossF64(math.Inf(1)), 0},
		{"rsqrt of 4", RsqrtGrossF64(4), 0x3fe0000000000000},
		{"rsqrt.approx.f64 of 4", RsqrtApproxF64(4), 0x3fe0000000000000},
		{"rsqrt.approx.f64 of −1", RsqrtApproxF64(-1), indefinite64},
	} {
		if got := math.Float64bits(c.got); got != c.want {
			t.Errorf("%s = %#x, want %#x", c.name, got, c.want)
		}
	}
	rnd := newRand()
	for range 10000 {
		x := math.Exp2(rnd.Float64()*2000 - 1000)
		r := RcpGrossF64(x)
		if math.Abs(r*x-1) > 0x1p-19 || math.Float64bits(r)<<32 != 0 {
			t.Fatalf("rcp of %v = %v", x, r)
		}
		r = RsqrtGrossF64(x)
		if math.Abs(r*r*x-1) > 0x1p-18 || math.Float64bits(r)<<32 != 0 {
			t.Fatalf("rsqrt of %v = %v", x, r)
		}
	}
}

// ulps returns the distance of got from an exact positive want, in units of got's last place.
func ulps(got float32, want *big.Float) float64 {
	ulp := float64(math.Nextafter32(got, float32(math.Inf(1)))) - float64(got)
	d, _ := new(big.Float).Sub(exact(float64(got)), want).Float64()
	return math.Abs(d) / ulp
}

// The algebraic approximations are compared with math/big, the others by their functional
// equations, which also show the errors of float64.
func TestApproxErrors(t *testing.T) {
	rnd := newRand()
	for range 6000 {
		x := math.Float32frombits(rnd.Uint32N(0x7e000000-0x01000000) + 0x01000000)
		root := new(big.Float).SetPrec(200).Sqrt(exact(float64(x)))
		if e := ulps(SqrtApproxF32(x, false), root); e > 0.5 {
			t.Fatalf("sqrt.approx(%v) is off by %v ulp", x, e)
		}
		if e := ulps(RsqrtApproxF32(x, false), root.Quo(exact(1), root)); e > 0.51 {
			t.Fatalf("rsqrt.approx(%v) is off by %v ulp", x, e)
		}
		if e := ulps(RcpApproxF32(x, false), new(big.Float).SetPrec(200).Quo(exact(1), exact(float64(x)))); e > 0.5 {
			t.Fatalf("rcp.approx(%v) is off by %v ulp", x, e)
		}
		y := float32(rnd.Float64()*250 - 125)
		// lg2(2^y) = y: an ulp of the power is 2^-23/ln 2 of the logarithm.
		if back := Lg2ApproxF32(Ex2ApproxF32(y, false), false); math.Abs(float64(back-y)) > 0x1p-22+math.Abs(float64(y))*0x1p-22 {
			t.Fatalf("lg2(ex2(%v)) = %v", y, back)
		}
		a := float32(rnd.Float64()*200*math.Pi - 100*math.Pi)
		s, c := float64(SinApproxF32(a, false)), float64(CosApproxF32(a, false))
		if math.Abs(s*s+c*c-1) > 0x1p-22 || math.Abs(s-math.Sin(float64(a))) > 0x1p-24 {
			t.Fatalf("sin, cos(%v) = %v, %v", a, s, c)
		}
		z := rnd.Float64()*20 - 10
		if th, want := float64(TanhApproxF32(float32(z))), 1-2/(math.Exp(2*float64(float32(z)))+1); math.Abs(th-want) > 0x1p-24 {
			t.Fatalf("tanh(%v) = %v, want %v", z, th, want)
		}
	}
}
