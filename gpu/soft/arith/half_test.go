package arith

import (
	"math"
	"testing"
)

// halves are the two types with their descriptions for the reference.
var halves = []struct {
	name  string
	half  *Half
	shape shape
	// widen is an independent decoder.
	widen func(uint16) float64
}{
	{"f16", F16, shapeF16, func(h uint16) float64 { return decode(h, 5, 10) }},
	{"bf16", BF16, shapeBF16, func(h uint16) float64 { return decode(h, 8, 7) }},
}

// decode reads a format with infinities and the given exponent and fraction bits.
func decode(h uint16, exponent, fraction int) float64 {
	sign := 1.0
	if h>>(exponent+fraction) != 0 {
		sign = -1
	}
	e, f := int(h>>fraction)&(1<<exponent-1), float64(h&(1<<fraction-1))
	bias := 1<<(exponent-1) - 1
	switch {
	case e == 1<<exponent-1 && f != 0:
		return math.NaN()
	case e == 1<<exponent-1:
		return math.Inf(int(sign))
	case e == 0:
		return math.Copysign(math.Ldexp(f, 1-bias-fraction), sign)
	}
	return sign * math.Ldexp(1+math.Ldexp(f, -fraction), e-bias)
}

func checkHalf(t *testing.T, h *Half, got uint16, want float64, format string, args ...any) {
	t.Helper()
	if want != want && got == NaN16 || want == want && same(float64(h.Float32(got)), want) {
		return
	}
	t.Fatalf(format+" = %#04x (%v), want %v", append(args, got, h.Float32(got), want)...)
}

func TestHalfWidensAndNarrows(t *testing.T) {
	for _, c := range halves {
		t.Run(c.name, func(t *testing.T) {
			for a := range uint32(1 << 16) {
				h := uint16(a)
				want := c.widen(h)
				if got := float64(c.half.Float32(h)); !same(got, want) {
					t.Fatalf("%#04x widens to %v, want %v", h, got, want)
				}
				if c.half.IsNaN(h) != (want != want) {
					t.Fatalf("%#04x: IsNaN is %v", h, c.half.IsNaN(h))
				}
				checkHalf(t, c.half, c.half.FromF32(float32(want), Mode{}), want, "cvt of %#04x and back", h)
			}
		})
	}
}

func TestHalfNarrowsEveryWay(t *testing.T) {
	rnd := newRand()
	for range 5000 {
		x := random32(rnd, 1)
		if rnd.IntN(2) == 0 { // on or near a tie or a value of either type
			x = math.Float32frombits(math.Float32bits(x)&^0x1fff + uint32(rnd.IntN(3)-1)<<uint(rnd.IntN(2)*12))
		}
		for _, c := range halves {
			for _, r := range rounds {
				want := float64(x)
				if finite(want) {
					want = c.shape.round(exact(want), r)
				}
				checkHalf(t, c.half, c.half.FromF32(x, Mode{Round: r}), want, "cvt.%v.%s.f32(%v)", r, c.name, x)
			}
		}
		if got, want := CvtF16F32(x), F16.FromF32(x, Mode{}); got != want {
			t.Fatalf("CvtF16F32(%v) = %#04x, want %#04x", x, got, want)
		}
	}
}

func TestHalfArithmeticAgainstBig(t *testing.T) {
	rnd := newRand()
	for range 4000 {
		a, b, d := uint16(rnd.Uint32()), uint16(rnd.Uint32()), uint16(rnd.Uint32())
		if rnd.IntN(3) == 0 { // exponents close together
			b, d = a&0x7c00|b&0x83ff, a&0x7c00|d&0x83ff
		}
		for _, c := range halves {
			h, m := c.half, Mode{}
			x, y, z := c.widen(a), c.widen(b), c.widen(d)
			checkHalf(t, h, h.Add(a, b, m), refAdd(c.shape, x, y, RN), "add.%s(%v, %v)", c.name, x, y)
			checkHalf(t, h, h.Sub(a, b, m), refAdd(c.shape, x, -y, RN), "sub.%s(%v, %v)", c.name, x, y)
			checkHalf(t, h, h.Mul(a, b, m), refMul(c.shape, x, y, RN), "mul.%s(%v, %v)", c.name, x, y)
			checkHalf(t, h, h.Fma(a, b, d, m), refFma(c.shape, x, y, z, RN), "fma.%s(%v, %v, %v)", c.name, x, y, z)
		}
	}
}

// A tie that only the last bit of a far smaller product breaks needs more than float64's 53 bits.
func TestHalfFmaBeyondFloat64(t *testing.T) {
	for _, c := range []struct {
		half          *Half
		a, b, d, want uint16
	}{
		{F16, 0x0001, 0x0001, 0x7bff, 0x7bff},  // 65504 + 2^-48
		{BF16, 0x3f81, 0x3fc0, 0x0000, 0x3fc2}, // 387/256, a tie, to even
		{BF16, 0x3f81, 0x3fc0, 0x8001, 0x3fc1}, // and 2^-133 less
		{BF16, 0x3f81, 0x0001, 0x0000, 0x0001}, // 1.0078·least subnormal
		{BF16, 0x3f00, 0x0001, 0x0000, 0x0000}, // half of it: a tie, to even
		{BF16, 0x3f01, 0x0001, 0x0000, 0x0001}, // slightly more
	} {
		if got := c.half.Fma(c.a, c.b, c.d, Mode{}); got != c.want {
			t.Errorf("fma(%#04x, %#04x, %#04x) = %#04x, want %#04x", c.a, c.b, c.d, got, c.want)
		}
	}
}

func TestHalfUnaryEverywhere(t *testing.T) {
	for _, c := range halves {
		t.Run(c.name, func(t *testing.T) {
			h, relative := c.half, math.Ldexp(1, -c.shape.precision)
			for a := range uint32(1 << 16) {
				a := uint16(a)
				x := c.widen(a)
				checkHalf(t, h, h.Abs(a, Mode{}), math.Abs(x), "abs(%v)", x)
				checkHalf(t, h, h.Neg(a, Mode{}), -x, "neg(%v)", x)
				checkHalf(t, h, h.Integral(a, Mode{Round: RM}), math.Floor(x), "cvt.rmi(%v)", x)
				sat := min(max(x, 0), 1)
				if x != x || x <= 0 {
					sat = 0
				}
				checkHalf(t, h, h.FromHalf(h, a, Mode{Sat: true}), sat, "cvt.sat(%v)", x)
				ex2, tanh := h.Float32(h.Ex2(a, Mode{})), h.Float32(h.Tanh(a, Mode{}))
				if want := math.Exp2(x); want >= math.Ldexp(1, c.shape.minExp) && want <= c.shape.max && math.Abs(float64(ex2)-want) > want*relative {
					t.Fatalf("ex2(%v) = %v, want %v", x, ex2, want)
				}
				if want := math.Tanh(x); math.Abs(want) >= math.Ldexp(1, c.shape.minExp) && math.Abs(float64(tanh)-want) > math.Abs(want)*relative {
					t.Fatalf("tanh(%v) = %v, want %v", x, tanh, want)
				}
			}
		})
	}
}

func TestHalfModes(t *testing.T) {
	for _, c := range []struct {
		name      string
		got, want uint16
	}{
		{"add.f16 of NaN", F16.Add(0xfe01, 0x3c00, Mode{}), 0x7fff},
		{"add.ftz of subnormals", F16.Add(0x0001, 0x0001, Mode{FTZ: true}), 0},
		{"add.ftz to a subnormal", F16.Add(0x0600, 0x8400, Mode{FTZ: true}), 0},
		{"sub.ftz to a negative subnormal", F16.Sub(0x0400, 0x0600, Mode{FTZ: true}), 0x8000},
		{"add.sat above", F16.Add(0x3c00, 0x3c00, Mode{Sat: true}), 0x3c00},
		{"add.sat below", F16.Add(0xbc00, 0x3800, Mode{Sat: true}), 0},
		{"add.sat of NaN", F16.Add(0x7e00, 0x3800, Mode{Sat: true}), 0},
		{"fma.relu below", F16.Fma(0xbc00, 0x3c00, 0, Mode{Relu: true}), 0},
		{"fma.relu of NaN", F16.Fma(0xfe00, 0x3c00, 0, Mode{Relu: true}), 0x7fff},
		{"fma.relu.bf16 above", BF16.Fma(0x3f80, 0x4000, 0, Mode{Relu: true}), 0x4000},
		{"add.f16 beyond the greatest", F16.Add(0x7bff, 0x7bff, Mode{}), 0x7c00},
		{"ex2.ftz.bf16 of a subnormal", BF16.Ex2(0x8001, Mode{FTZ: true}), 0x3f80},
		{"ex2.f16 of −∞", F16.Ex2(0xfc00, Mode{}), 0},
		{"ex2.f16 of ∞", F16.Ex2(0x7c00, Mode{}), 0x7c00},
		{"tanh.f16 of −0", F16.Tanh(0x8000, Mode{}), 0x8000},
		{"tanh.bf16 of −∞", BF16.Tanh(0xff80, Mode{}), 0xbf80},
		{"neg.ftz.f16", F16.Neg(0x0001, Mode{FTZ: true}), 0x8000},
		{"cvt.satfinite.f16 of ∞", F16.FromF32(float32(math.Inf(1)), Mode{SatFinite: true}), 0x7bff},
		{"cvt.satfinite.bf16 of −∞", BF16.FromF32(float32(math.Inf(-1)), Mode{SatFinite: true}), 0xff7f},
		{"cvt.satfinite.f16 of NaN", F16.FromF32(nan32, Mode{SatFinite: true}), 0x7fff},
		{"cvt.relu.f16 of −1", F16.FromF32(-1, Mode{Relu: true}), 0},
		{"cvt.rz.f16 above the greatest", F16.FromF32(1e6, Mode{Round: RZ}), 0x7bff},
		{"cvt.ftz.bf16 of a subnormal", BF16.FromF32(0x1p-127, Mode{FTZ: true}), 0},
		{"cvt.ftz.f16 keeps f16's subnormals", F16.FromF32(0x1p-24, Mode{FTZ: true}), 1},
		{"cvt.bf16.f16", BF16.FromHalf(F16, 0x3c00, Mode{}), 0x3f80},
		{"cvt.f16.f64 rounds once", F16.FromF64(1+0x1p-11+0x1p-40, Mode{}), 0x3c01},
		{"cvt.rz.f16.s32", CvtHalfInt(F16, int32(-2049), Mode{Round: RZ}), 0xe800},
		{"cvt.rn.f16.u32 beyond", CvtHalfInt(F16, uint32(70000), Mode{}), 0x7c00},
	} {
		if c.got != c.want {
			t.Errorf("%s = %#04x, want %#04x", c.name, c.got, c.want)
		}
	}
	if got, want := Packed3(0x3c004000, 0x40004000, 0x3c003c00, Mode{}, F16.Fma), uint32(0x42004500); got != want {
		t.Errorf("fma.f16x2 = %#x, want %#x", got, want)
	}
	if got, want := Packed2(0x3f804000, 0x3f803f80, Mode{}, BF16.Add), uint32(0x40004040); got != want {
		t.Errorf("add.bf16x2 = %#x, want %#x", got, want)
	}
	if got, want := Packed1(0x3c00bc00, Mode{}, F16.Neg), uint32(0xbc003c00); got != want {
		t.Errorf("neg.f16x2 = %#x, want %#x", got, want)
	}
}

func TestFloat8(t *testing.T) {
	for _, c := range []struct {
		name  string
		float *Float8
		shape shape
		value func(uint8) float64
	}{
		{"e5m2", E5M2, shapeE5M2, func(a uint8) float64 { return decode(uint16(a), 5, 2) }},
		{"e4m3", E4M3, shapeE4M3, func(a uint8) float64 {
			switch magnitude := a & 0x7f; { // no infinity: the top exponent is one more of numbers
			case magnitude == 0x7f:
				return math.NaN()
			case magnitude >= 0x78:
				return math.Copysign(math.Ldexp(1+float64(a&7)/8, 8), 1-2*float64(a>>7))
			}
			return decode(uint16(a), 4, 3)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for a := range 256 {
				want := c.value(uint8(a))
				h := c.float.F16(uint8(a), false)
				checkHalf(t, F16, h, want, "cvt.f16 of %#02x", a)
				back := c.float.FromF16(h, false)
				switch {
				case want != want:
					if back != NaN8 {
						t.Errorf("NaN %#02x comes back as %#02x", a, back)
					}
				case math.IsInf(want, 0):
					if back != uint8(a)&0x80|uint8(c.float.format.max) {
						t.Errorf("infinity %#02x comes back as %#02x", a, back)
					}
				case back != uint8(a):
					t.Errorf("%#02x (%v) comes back as %#02x", a, want, back)
				}
			}
			rnd := newRand()
			for range 5000 {
				x := random32(rnd, 1)
				if x != x {
					continue
				}
				want := math.Copysign(c.shape.max, float64(x))
				if math.Abs(float64(x)) <= c.shape.max {
					want = c.shape.round(exact(float64(x)), RN)
				}
				if got := c.value(c.float.FromF32(x, false)); !same(got, want) {
					t.Fatalf("cvt.rn.satfinite(%v) = %v, want %v", x, got, want)
				}
			}
			if got := c.float.FromF32(-3, true); got != 0 {
				t.Errorf("cvt.relu of −3 = %#02x", got)
			}
			if got := c.float.FromF32(nan32, true); got != NaN8 {
				t.Errorf("cvt.relu of NaN = %#02x", got)
			}
		})
	}
}

func TestTF32(t *testing.T) {
	rnd := newRand()
	for range 5000 {
		x := random32(rnd, 1)
		for _, r := range []Round{RN, RZ, RNA} {
			want := float64(x)
			if finite(want) {
				want = shapeTF32.round(exact(want), r)
			}
			got := CvtTF32F32(x, Mode{Round: r})
			check32(t, math.Float32frombits(got), want, "cvt.%v.tf32.f32(%v)", r, x)
			if x == x && got&0x1fff != 0 {
				t.Fatalf("cvt.%v.tf32.f32(%v) = %#x has low bits", r, x, got)
			}
		}
	}
	if got, want := CvtTF32F32(float32(math.Inf(-1)), Mode{Round: RNA, SatFinite: true}), uint32(0xff7fe000); got != want {
		t.Errorf("cvt.rna.satfinite.tf32 of −∞ = %#x, want %#x", got, want)
	}
}
