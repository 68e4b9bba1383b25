package arith

import (
	"math"
	"testing"
)

// check32 compares a single-precision result with the reference, with a canonical NaN.
func check32(t *testing.T, got float32, want float64, format string, args ...any) {
	t.Helper()
	bits := math.Float32bits(got)
	if want != want && bits == nan32Bits || want == want && same(float64(got), want) {
		return
	}
	t.Fatalf(format+" = %v (%#08x), want %v (%#08x)", append(args, got, bits, want, math.Float32bits(float32(want)))...)
}

func TestFmaRoundsOnce(t *testing.T) {
	a, c := float32(1+0x1p-12), float32(0x1p-80)
	if got, want := math.Float32bits(FmaF32(a, a, c)), uint32(0x3f801001); got != want {
		t.Errorf("FmaF32(1+2^-12, 1+2^-12, 2^-80) = %#x, want %#x", got, want)
	}
	// A tie among subnormals, which the last bit of the product decides.
	a, b, c := float32(0x1.000002p-75), float32(0x1p-75), float32(0x1p-127)
	check32(t, FmaF32(a, b, c), 0x1p-127+0x1p-149, "fma(%v, %v, %v)", a, b, c)
}

func test32(t *testing.T, a, b float32) {
	x, y := float64(a), float64(b)
	for _, r := range rounds {
		m := Mode{Round: r}
		check32(t, AddF32Mode(a, b, m), refAdd(shapeF32, x, y, r), "add.%v(%v, %v)", r, a, b)
		check32(t, SubF32Mode(a, b, m), refAdd(shapeF32, x, -y, r), "sub.%v(%v, %v)", r, a, b)
		check32(t, MulF32Mode(a, b, m), refMul(shapeF32, x, y, r), "mul.%v(%v, %v)", r, a, b)
		check32(t, DivF32Mode(a, b, m), refDiv(shapeF32, x, y, r), "div.%v(%v, %v)", r, a, b)
	}
	check32(t, AddF32(a, b), refAdd(shapeF32, x, y, RN), "add(%v, %v)", a, b)
	check32(t, SubF32(a, b), refAdd(shapeF32, x, -y, RN), "sub(%v, %v)", a, b)
	check32(t, MulF32(a, b), refMul(shapeF32, x, y, RN), "mul(%v, %v)", a, b)
	check32(t, DivF32(a, b), refDiv(shapeF32, x, y, RN), "div(%v, %v)", a, b)
}

func testUnary32(t *testing.T, a float32) {
	x := float64(a)
	for _, r := range rounds {
		m := Mode{Round: r}
		check32(t, SqrtF32Mode(a, m), refSqrt(shapeF32, x, r), "sqrt.%v(%v)", r, a)
		check32(t, RcpF32Mode(a, m), refDiv(shapeF32, 1, x, r), "rcp.%v(%v)", r, a)
	}
	check32(t, SqrtF32(a), refSqrt(shapeF32, x, RN), "sqrt(%v)", a)
	check32(t, RcpF32(a), refDiv(shapeF32, 1, x, RN), "rcp(%v)", a)
}

func testFma32(t *testing.T, a, b, c float32, rounds ...Round) {
	x, y, z := float64(a), float64(b), float64(c)
	for _, r := range rounds {
		check32(t, FmaF32Mode(a, b, c, Mode{Round: r}), refFma(shapeF32, x, y, z, r), "fma.%v(%v, %v, %v)", r, a, b, c)
	}
	check32(t, FmaF32(a, b, c), refFma(shapeF32, x, y, z, RN), "fma(%v, %v, %v)", a, b, c)
}

func TestF32AgainstBig(t *testing.T) {
	for _, a := range edges32 {
		testUnary32(t, a)
		for _, b := range edges32 {
			test32(t, a, b)
		}
	}
	rnd := newRand()
	for range 3000 {
		a := random32(rnd, 1)
		b := random32(rnd, a)
		test32(t, a, b)
		testUnary32(t, a)
	}
}

func TestFmaF32AgainstBig(t *testing.T) {
	rnd := newRand()
	for range 30000 {
		a := random32(rnd, 1)
		b := random32(rnd, 1/a)
		c := random32(rnd, a*b)
		testFma32(t, a, b, c, RN, rounds[rnd.IntN(4)])
	}
}

// fmaTie returns operands whose product and sum are very close to a tie, which random operands
// never are.
func TestFmaF32NearTies(t *testing.T) {
	rnd := newRand()
	for range 4000 {
		// c has half an ulp of room below; a·b is that half ulp, or slightly more.
		c := math.Float32frombits(rnd.Uint32N(0x50000000) + 0x18000000)
		_, e := math.Frexp(float64(c))
		half := math.Ldexp(1, e-25)
		a := float32(1 + float64(rnd.IntN(3)-1)*0x1p-23)
		b := float32(half * (1 + float64(rnd.IntN(3)-1)*0x1p-23))
		if rnd.IntN(2) == 0 {
			b = -b
		}
		testFma32(t, a, b, c, rounds...)
		// The same among subnormals.
		c = math.Float32frombits(rnd.Uint32N(1 << 23))
		b = float32(math.Copysign(0x1p-75, float64(b)))
		testFma32(t, a*0x1p-75, b, c, rounds...)
	}
}

func FuzzFmaF32(f *testing.F) {
	f.Add(uint32(0x3f800800), uint32(0x3f800800), uint32(0x17800000))
	f.Fuzz(func(t *testing.T, a, b, c uint32) {
		x, y, z := math.Float32frombits(a), math.Float32frombits(b), math.Float32frombits(c)
		testFma32(t, x, y, z, rounds...)
		test32(t, x, y)
		testUnary32(t, x)
	})
}

func TestF32Modes(t *testing.T) {
	const tiny = 0x1p-130
	negZero := float32(math.Copysign(0, -1))
	nan, inf := nan32, float32(math.Inf(1))
	ftz, sat := Mode{FTZ: true}, Mode{Sat: true}
	for _, c := range []struct {
		name      string
		got, want float32
	}{
		{"add.ftz of subnormals", AddF32Mode(tiny, tiny, ftz), 0},
		{"add.ftz of negative subnormals", AddF32Mode(-tiny, -tiny, ftz), negZero},
		{"add.ftz to a subnormal", AddF32Mode(0x1.8p-126, -0x1p-126, ftz), 0},
		{"sub.ftz to a subnormal", SubF32Mode(0x1p-126, 0x1.8p-126, ftz), negZero},
		{"mul.ftz to a subnormal", MulF32Mode(-0x1p-100, 0x1p-30, ftz), negZero},
		{"mul.ftz to the least normal", MulF32Mode(0x1p-100, 0x1p-26, ftz), 0x1p-126},
		{"fma.ftz of a subnormal addend", FmaF32Mode(0, 1, tiny, ftz), 0},
		{"div.ftz by a subnormal", DivF32Mode(1, -tiny, ftz), -inf},
		{"rcp.ftz of the greatest", RcpF32Mode(math.MaxFloat32, ftz), 0},
		{"sqrt.ftz of a subnormal", SqrtF32Mode(tiny, ftz), 0},
		{"add.sat above", AddF32Mode(1, 1, sat), 1},
		{"add.sat below", AddF32Mode(-1, 0.5, sat), 0},
		{"add.sat of NaN", AddF32Mode(nan, 1, sat), 0},
		{"add.sat to −0", AddF32Mode(negZero, negZero, sat), 0},
		{"fma.sat within", FmaF32Mode(0.5, 0.5, 0.25, sat), 0.5},
		{"fma.sat of ∞", FmaF32Mode(inf, 1, 0, sat), 1},
		{"add.rm of opposites", AddF32Mode(1, -1, Mode{Round: RM}), negZero},
		{"add.rn of opposites", AddF32Mode(1, -1, Mode{}), 0},
		{"neg of NaN", NegF32(math.Float32frombits(0xff800123)), nan},
		{"abs of NaN", AbsF32(math.Float32frombits(0xff800123)), nan},
		{"abs", AbsF32(-3), 3},
		{"copysign takes the first's sign", CopysignF32(negZero, 3), -3},
	} {
		if math.Float32bits(c.got) != math.Float32bits(c.want) {
			t.Errorf("%s = %v, want %v", c.name, c.got, c.want)
		}
	}
}
