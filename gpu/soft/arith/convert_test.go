package arith

import (
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

// refInt is cvt to an integer: round, clamp; x is a number.
func refInt[I Integer](x float64, r Round) *big.Int {
	least, greatest := limits[I]()
	if math.IsInf(x, 1) {
		return toBig(greatest)
	}
	if math.IsInf(x, -1) {
		return toBig(least)
	}
	n, _ := exact(x).Int(nil) // towards zero
	rest := new(big.Float).Sub(exact(x), new(big.Float).SetPrec(exactPrec).SetInt(n))
	half := new(big.Float).Abs(rest).Cmp(big.NewFloat(0.5))
	switch {
	case r == RN && (half > 0 || half == 0 && n.Bit(0) == 1),
		r == RM && rest.Sign() < 0, r == RP && rest.Sign() > 0:
		n.Add(n, big.NewInt(int64(rest.Sign())))
	}
	if n.Cmp(toBig(least)) < 0 {
		return toBig(least)
	}
	if n.Cmp(toBig(greatest)) > 0 {
		return toBig(greatest)
	}
	return n
}

func testFloatToInt[I Integer](t *testing.T) {
	rnd := newRand()
	topBit := I(1) << (width[I]() - 1)
	for i := range 4000 {
		x := random64(rnd, []float64{1, 0x1p8, 0x1p16, 0x1p32, 0x1p64}[i%5])
		if i%2 == 0 { // about the ends of the range, and halves
			least, greatest := limits[I]()
			x = []float64{float64(least), float64(greatest), 0}[i/2%3] + float64(rnd.IntN(17)-8)/4
		}
		r := rounds[rnd.IntN(4)]
		got := CvtIntF64[I](x, r)
		if x != x {
			if got != topBit {
				t.Fatalf("cvt from f64 NaN = %d", got)
			}
		} else if want := refInt[I](x, r); toBig(got).Cmp(want) != 0 {
			t.Fatalf("cvt.%v of %v = %d, want %d", r, x, got, want)
		}
		y := float32(x)
		got = CvtIntF32[I](y, r)
		switch {
		case y == y:
			if want := refInt[I](float64(y), r); toBig(got).Cmp(want) != 0 {
				t.Fatalf("cvt.%v of %v = %d, want %d", r, y, got, want)
			}
		case width[I]() == 64:
			if got != topBit {
				t.Fatalf("cvt from f32 NaN = %d", got)
			}
		case got != 0:
			t.Fatalf("cvt from f32 NaN = %d", got)
		}
		if got, want := CvtS32F32(y), CvtIntF32[int32](y, RZ); got != want {
			t.Fatalf("CvtS32F32(%v) = %d, want %d", y, got, want)
		}
	}
}

func TestFloatToInt(t *testing.T) {
	t.Run("s8", testFloatToInt[int8])
	t.Run("u8", testFloatToInt[uint8])
	t.Run("s16", testFloatToInt[int16])
	t.Run("u16", testFloatToInt[uint16])
	t.Run("s32", testFloatToInt[int32])
	t.Run("u32", testFloatToInt[uint32])
	t.Run("s64", testFloatToInt[int64])
	t.Run("u64", testFloatToInt[uint64])
}

func testIntToFloat[I Integer](t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := anyInt[I](t, "x")
		if rapid.Bool().Draw(t, "near a tie") {
			low := rapid.IntRange(0, width[I]()-1).Draw(t, "low bits")
			x = x>>low<<low + I(rapid.IntRange(-2, 2).Draw(t, "off"))
		}
		v := new(big.Float).SetPrec(exactPrec).SetInt(toBig(x))
		for _, r := range rounds {
			m := Mode{Round: r}
			if got, want := float64(CvtF32Int(x, m)), shapeF32.round(v, r); !same(got, want) {
				t.Fatalf("cvt.%v.f32 of %d = %v, want %v", r, x, got, want)
			}
			if got, want := CvtF64Int(x, m), shapeF64.round(v, r); !same(got, want) {
				t.Fatalf("cvt.%v.f64 of %d = %v, want %v", r, x, got, want)
			}
			for _, c := range halves {
				if got, want := float64(c.half.Float32(CvtHalfInt(c.half, x, m))), c.shape.round(v, r); !same(got, want) {
					t.Fatalf("cvt.%v.%s of %d = %v, want %v", r, c.name, x, got, want)
				}
			}
		}
		if got, want := CvtF64Int(x, Mode{Sat: true}), min(max(float64(x), 0), 1); got != want {
			t.Fatalf("cvt.sat.f64 of %d = %v, want %v", x, got, want)
		}
		if got, want := CvtF32Int(x, Mode{Sat: true}), float32(min(max(float64(x), 0), 1)); got != want {
			t.Fatalf("cvt.sat.f32 of %d = %v, want %v", x, got, want)
		}
	})
}

func TestIntToFloat(t *testing.T) {
	t.Run("s8", testIntToFloat[int8])
	t.Run("u16", testIntToFloat[uint16])
	t.Run("s32", testIntToFloat[int32])
	t.Run("u32", testIntToFloat[uint32])
	t.Run("s64", testIntToFloat[int64])
	t.Run("u64", testIntToFloat[uint64])
}

func TestDoubleToSingle(t *testing.T) {
	rnd := newRand()
	for range 8000 {
		x := random64(rnd, 1)
		if rnd.IntN(2) == 0 { // a tie of single precision, or its neighbour; subnormals too
			x = math.Ldexp(float64(rnd.Uint64N(1<<26)), rnd.IntN(280)-170)
			x = math.Float64frombits(math.Float64bits(x) + rnd.Uint64N(3) - 1)
		}
		for _, r := range rounds {
			want := x
			if finite(x) {
				want = shapeF32.round(exact(x), r)
			}
			check32(t, CvtF32F64Mode(x, Mode{Round: r}), want, "cvt.%v.f32.f64(%v)", r, x)
			if r == RN {
				check32(t, CvtF32F64(x), want, "cvt.rn.f32.f64(%v)", x)
			}
		}
	}
}

func TestFloatToFloat(t *testing.T) {
	negZero := math.Copysign(0, -1)
	nan := math.Float64bits(math.NaN()) // any: compared as NaN
	for _, c := range []struct {
		name      string
		got, want float64
	}{
		{"cvt.rni.f32.f32 of 2.5", float64(IntegralF32(2.5, Mode{})), 2},
		{"cvt.rmi.f32.f32 of −0.5", float64(IntegralF32(-0.5, Mode{Round: RM})), -1},
		{"cvt.rpi.f32.f32 of −0.5", float64(IntegralF32(-0.5, Mode{Round: RP})), negZero},
		{"cvt.rzi.ftz.f32.f32 of a subnormal", float64(IntegralF32(-0x1p-130, Mode{Round: RZ, FTZ: true})), negZero},
		{"cvt.rpi.f32.f32 of a subnormal", float64(IntegralF32(0x1p-130, Mode{Round: RP})), 1},
		{"cvt.rpi.ftz.f32.f32 of a subnormal", float64(IntegralF32(0x1p-130, Mode{Round: RP, FTZ: true})), 0},
		{"cvt.rni.sat.f32.f32", float64(IntegralF32(3.7, Mode{Sat: true})), 1},
		{"cvt.rni.f64.f64 of 3.5", IntegralF64(3.5, Mode{}), 4},
		{"cvt.rzi.f64.f64 of −3.5", IntegralF64(-3.5, Mode{Round: RZ}), -3},
		{"cvt.rni.sat.f64.f64 of NaN", IntegralF64(math.Float64frombits(nan), Mode{Sat: true}), 0},
		{"cvt.sat.f32.f32", float64(CvtF32F32(0.25, Mode{Sat: true})), 0.25},
		{"cvt.ftz.f32.f32", float64(CvtF32F32(-0x1p-130, Mode{FTZ: true})), negZero},
		{"cvt.ftz.f64.f32", CvtF64F32Mode(0x1p-130, Mode{FTZ: true}), 0},
		{"cvt.f64.f32 of a subnormal", CvtF64F32Mode(0x1p-130, Mode{}), 0x1p-130},
		{"cvt.sat.f64.f32", CvtF64F32Mode(-3, Mode{Sat: true}), 0},
		{"cvt.ftz.f32.f64 to a subnormal", float64(CvtF32F64Mode(-0x1p-130, Mode{FTZ: true})), negZero},
		{"cvt.sat.f32.f64", float64(CvtF32F64Mode(7, Mode{Sat: true})), 1},
	} {
		if !same(c.got, c.want) {
			t.Errorf("%s = %v, want %v", c.name, c.got, c.want)
		}
	}
	if got := IntegralF64(math.Float64frombits(0x7ff0000000000001), Mode{}); math.Float64bits(got) != 0x7ff8000000000001 {
		t.Errorf("cvt.rni.f64.f64 of a signalling NaN = %#x", math.Float64bits(got))
	}
}
