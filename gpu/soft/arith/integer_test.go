package arith

import (
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

// wrap returns x modulo 2^width, as a signed or unsigned number of that width.
func wrap(x *big.Int, width uint, signed bool) *big.Int {
	modulus := new(big.Int).Lsh(big.NewInt(1), width)
	x = new(big.Int).Mod(x, modulus)
	if signed && x.Bit(int(width)-1) != 0 {
		x.Sub(x, modulus)
	}
	return x
}

func toBig[T Integer](x T) *big.Int {
	if x < 0 {
		return big.NewInt(int64(x))
	}
	return new(big.Int).SetUint64(uint64(x))
}

// checkInt compares got with an exact result, wrapped to T.
func checkInt[T Integer](t *rapid.T, name string, got T, want *big.Int) {
	t.Helper()
	if want = wrap(want, uint(width[T]()), T(0)-1 < 0); toBig(got).Cmp(want) != 0 {
		t.Fatalf("%s = %d, want %d", name, got, want)
	}
}

// anyInt draws integers, including the ends of the range.
func anyInt[T Integer](t *rapid.T, name string) T {
	least, greatest := limits[T]()
	if rapid.IntRange(0, 7).Draw(t, name+" special") == 0 {
		return rapid.SampledFrom([]T{least, least + 1, 0, 1, ^T(0), greatest - 1, greatest}).Draw(t, name)
	}
	return T(rapid.Uint64().Draw(t, name))
}

func testDivision[T Integer](t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := anyInt[T](t, "a"), anyInt[T](t, "b")
		if b == 0 {
			if Div(a, b) != ^T(0) || Rem(a, b) != ^T(0) {
				t.Fatalf("%d by zero = %d, %d", a, Div(a, b), Rem(a, b))
			}
			return
		}
		q, r := new(big.Int).QuoRem(toBig(a), toBig(b), new(big.Int))
		checkInt(t, "div", Div(a, b), q)
		checkInt(t, "rem", Rem(a, b), r)
		c := anyInt[T](t, "c")
		diff := new(big.Int).Sub(toBig(a), toBig(b))
		checkInt(t, "sad", Sad(a, b, c), diff.Add(diff.Abs(diff), toBig(c)))
	})
}

func TestDivision(t *testing.T) {
	t.Run("s16", testDivision[int16])
	t.Run("u16", testDivision[uint16])
	t.Run("s32", testDivision[int32])
	t.Run("u32", testDivision[uint32])
	t.Run("s64", testDivision[int64])
	t.Run("u64", testDivision[uint64])
	if got := Div[int32](math.MinInt32, -1); got != math.MinInt32 {
		t.Errorf("MinInt32 / −1 = %d", got)
	}
	if got := Rem[int64](math.MinInt64, -1); got != 0 {
		t.Errorf("MinInt64 %% −1 = %d", got)
	}
	if got := Abs[int16](math.MinInt16); got != math.MinInt16 {
		t.Errorf("abs of MinInt16 = %d", got)
	}
}

func TestProducts(t *testing.T) {
	high := func(a, b *big.Int, shift uint) *big.Int {
		p := new(big.Int).Mul(a, b)
		return p.Rsh(p, shift)
	}
	rapid.Check(t, func(t *rapid.T) {
		x, y := anyInt[int64](t, "x"), anyInt[int64](t, "y")
		s16, s16b, u16, u16b := int16(x), int16(y), uint16(x), uint16(y)
		s32, s32b, u32, u32b := int32(x), int32(y), uint32(x), uint32(y)
		u64, u64b := uint64(x), uint64(y)
		checkInt(t, "mul.hi.s16", MulHiS16(s16, s16b), high(toBig(s16), toBig(s16b), 16))
		checkInt(t, "mul.hi.u16", MulHiU16(u16, u16b), high(toBig(u16), toBig(u16b), 16))
		checkInt(t, "mul.hi.s32", MulHiS32(s32, s32b), high(toBig(s32), toBig(s32b), 32))
		checkInt(t, "mul.hi.u32", MulHiU32(u32, u32b), high(toBig(u32), toBig(u32b), 32))
		checkInt(t, "mul.hi.s64", MulHiS64(x, y), high(toBig(x), toBig(y), 64))
		checkInt(t, "mul.hi.u64", MulHiU64(u64, u64b), high(toBig(u64), toBig(u64b), 64))
		checkInt(t, "mul.wide.s16", MulWideS16(s16, s16b), high(toBig(s16), toBig(s16b), 0))

		s24, s24b := wrap(toBig(s32), 24, true), wrap(toBig(s32b), 24, true)
		u24, u24b := wrap(toBig(u32), 24, false), wrap(toBig(u32b), 24, false)
		checkInt(t, "mul24.lo.s32", Mul24LoS32(s32, s32b), high(s24, s24b, 0))
		checkInt(t, "mul24.hi.s32", Mul24HiS32(s32, s32b), high(s24, s24b, 16))
		checkInt(t, "mul24.lo.u32", Mul24LoU32(u32, u32b), high(u24, u24b, 0))
		checkInt(t, "mul24.hi.u32", Mul24HiU32(u32, u32b), high(u24, u24b, 16))
	})
}

func TestSaturation(t *testing.T) {
	const least, greatest = math.MinInt32, math.MaxInt32
	for _, c := range []struct {
		name      string
		got, want int32
	}{
		{"add.sat up", AddSatS32(greatest, 1), greatest},
		{"add.sat down", AddSatS32(least, -1), least},
		{"add.sat within", AddSatS32(least, greatest), -1},
		{"sub.sat up", SubSatS32(0, least), greatest},
		{"sub.sat down", SubSatS32(least, 1), least},
		{"mad.hi.sat up", MadHiSatS32(least, least, greatest), greatest},
		{"mad.hi.sat within", MadHiSatS32(1<<30, 8, -2), 0},
		{"mad24.hi.sat up", Mad24HiSatS32(0x7fffff, 0x7fffff, greatest), greatest},
		{"mad24.hi.sat down", Mad24HiSatS32(0x800000, 0x7fffff, least), least},
		{"min.relu", MinReluS32(-3, 4), 0},
		{"max.relu", MaxReluS32(-3, -4), 0},
		{"max.relu above", MaxReluS32(-3, 4), 4},
	} {
		if c.got != c.want {
			t.Errorf("%s = %d, want %d", c.name, c.got, c.want)
		}
	}
}

// A chain of carries is arithmetic on longer integers.
func TestCarry(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := anyInt[uint64](t, "a"), anyInt[uint64](t, "b")
		lo, cf := AddC32(uint32(a), uint32(b), 0)
		hi, out := AddC32(uint32(a>>32), uint32(b>>32), cf)
		sum, out64 := AddC64(a, b, 0)
		if got := uint64(hi)<<32 | uint64(lo); got != a+b || sum != a+b || uint64(out) != out64 || (out == 1) != (a+b < a) {
			t.Fatalf("%#x + %#x = %#x carry %d, and %#x carry %d", a, b, got, out, sum, out64)
		}
		lo, cf = SubC32(uint32(a), uint32(b), 0)
		hi, out = SubC32(uint32(a>>32), uint32(b>>32), cf)
		diff, out64 := SubC64(a, b, 0)
		if got := uint64(hi)<<32 | uint64(lo); got != a-b || diff != a-b || uint64(out) != out64 || (out == 1) != (a < b) {
			t.Fatalf("%#x − %#x = %#x borrow %d, and %#x borrow %d", a, b, got, out, diff, out64)
		}
	})
}

func TestDotProducts(t *testing.T) {
	for _, c := range []struct {
		name      string
		got, want uint32
	}{
		{"dp4a.u32.u32", Dp4a(0x01020304, 0x05060708, 100, false, false), 100 + 5 + 12 + 21 + 32},
		{"dp4a.s32.s32", Dp4a(0xff80017f, 0x02ff807f, 0, true, true), uint32(0xffffffff & (-2 + 128 - 128 + 127*127))},
		{"dp4a.s32.u32", Dp4a(0xff000000, 0xff000000, 0, true, false), uint32(0xffffff01)},
		{"dp4a.u32.s32", Dp4a(0x000000ff, 0x00000080, 1, false, true), uint32(0xffffffff & (1 - 255*128))},
		{"dp2a.lo.u32.u32", Dp2aLo(0x00030002, 0x11100504, 1, false, false), 1 + 2*4 + 3*5},
		{"dp2a.hi.u32.u32", Dp2aHi(0x00030002, 0x05041110, 1, false, false), 1 + 2*4 + 3*5},
		{"dp2a.lo.s32.s32", Dp2aLo(0xffff8000, 0x0000ff01, 0, true, true), uint32(0xffffffff & (-32768 + 1))},
	} {
		if c.got != c.want {
			t.Errorf("%s = %#x, want %#x", c.name, c.got, c.want)
		}
	}
}

func TestAtomicOperations(t *testing.T) {
	for _, c := range []struct {
		name      string
		got, want uint64
	}{
		{"inc below", uint64(AtomInc[uint32](4, 5)), 5},
		{"inc at the limit", uint64(AtomInc[uint32](5, 5)), 0},
		{"inc above", uint64(AtomInc[uint32](9, 5)), 0},
		{"inc to the end", AtomInc(uint64(math.MaxUint64-1), math.MaxUint64), math.MaxUint64},
		{"dec", uint64(AtomDec[uint32](4, 5)), 3},
		{"dec of zero", uint64(AtomDec[uint32](0, 5)), 5},
		{"dec above", uint64(AtomDec[uint32](6, 5)), 5},
		{"dec at the limit", uint64(AtomDec[uint32](5, 5)), 4},
		{"cas that fits", AtomCas[uint64](1, 1, 2), 2},
		{"cas that does not", uint64(AtomCas[uint16](1, 3, 2)), 1},
		{"add.f32 in global memory flushes", uint64(math.Float32bits(AtomAddGlobalF32(0x1p-130, -0x1p-130))), 0},
		{"add.f32 in global memory", uint64(math.Float32bits(AtomAddGlobalF32(1, 2))), 0x40400000},
	} {
		if c.got != c.want {
			t.Errorf("%s = %#x, want %#x", c.name, c.got, c.want)
		}
	}
}
