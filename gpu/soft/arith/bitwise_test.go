package arith

import (
	"testing"

	"pgregory.net/rapid"
)

// bit returns bit i of x.
func bit[T Unsigned](x T, i int) T { return x >> i & 1 }

// refBfe extracts bit by bit, like the ISA's pseudocode: position and length count modulo 256, and
// bits beyond the field or the word are the sign.
func refBfe[T Unsigned](a T, position, length uint32, signed bool) T {
	pos, n, msb := int(position&0xff), int(length&0xff), width[T]()-1
	var sign, d T
	if signed && n != 0 {
		sign = bit(a, min(pos+n-1, msb))
	}
	for i := range msb + 1 {
		v := sign
		if i < n && pos+i <= msb {
			v = bit(a, pos+i)
		}
		d |= v << i
	}
	return d
}

func refBfi[T Unsigned](a, b T, position, length uint32) T {
	pos, n, msb := int(position&0xff), int(length&0xff), width[T]()-1
	for i := 0; i < n && pos+i <= msb; i++ {
		b = b&^(1<<(pos+i)) | bit(a, i)<<(pos+i)
	}
	return b
}

func TestBitFields(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.Uint64().Draw(t, "a"), rapid.Uint64().Draw(t, "b")
		small := rapid.OneOf(rapid.Uint32Range(0, 70), rapid.Uint32Range(250, 300), rapid.Uint32())
		pos, n := small.Draw(t, "position"), small.Draw(t, "length")
		for _, c := range []struct {
			name      string
			got, want uint64
		}{
			{"bfe.u32", uint64(BfeU32(uint32(a), pos, n)), uint64(refBfe(uint32(a), pos, n, false))},
			{"bfe.s32", uint64(uint32(BfeS32(int32(a), pos, n))), uint64(refBfe(uint32(a), pos, n, true))},
			{"bfe.u64", BfeU64(a, pos, n), refBfe(a, pos, n, false)},
			{"bfe.s64", uint64(BfeS64(int64(a), pos, n)), refBfe(a, pos, n, true)},
			{"bfi.b32", uint64(Bfi32(uint32(a), uint32(b), pos, n)), uint64(refBfi(uint32(a), uint32(b), pos, n))},
			{"bfi.b64", Bfi64(a, b, pos, n), refBfi(a, b, pos, n)},
		} {
			if c.got != c.want {
				t.Fatalf("%s = %#x, want %#x", c.name, c.got, c.want)
			}
		}
	})
}

// refBmsk is the ISA's pseudocode.
func refBmsk(a, b uint32, clamp bool) uint32 {
	a1, b1 := a&0x1f, b&0x1f
	mask0, sum := ^uint32(0)<<a1, a1+b1
	mask1 := ^uint32(0) << sum
	if clamp && a >= 32 {
		mask0, mask1 = 0, 0
	}
	switch {
	case sum >= 32 || clamp && b >= 32:
		mask1 = 0
	case b1 == 0:
		mask1 = ^uint32(0)
	}
	return mask0 &^ mask1
}

// refSzext is the ISA's pseudocode.
func refSzext(a, b uint32, clamp, signed bool) uint32 {
	b1, tooLarge := b&0x1f, clamp && b >= 32
	var mask uint32
	if !tooLarge {
		mask = ^uint32(0) << b1
	}
	if b1 != 0 && !tooLarge && signed && a>>(b1-1)&1 != 0 {
		return a | mask
	}
	return a &^ mask
}

// refFns is the ISA's pseudocode.
func refFns(mask, base uint32, offset int32) uint32 {
	if offset == 0 {
		if bit(mask, int(base)) == 1 {
			return base
		}
		return NotFound
	}
	step, count := 1, int(offset)-1
	if offset < 0 {
		step, count = -1, -int(offset)-1
	}
	for pos := int(base); pos >= 0 && pos < 32; pos += step {
		if bit(mask, pos) == 1 {
			if count == 0 {
				return uint32(pos)
			}
			count--
		}
	}
	return NotFound
}

// refPrmt moves byte by byte, following PTX's table of the special modes.
func refPrmt(mode Permute, a, b, c uint32) uint32 {
	source := [8]uint8{uint8(a), uint8(a >> 8), uint8(a >> 16), uint8(a >> 24), uint8(b), uint8(b >> 8), uint8(b >> 16), uint8(b >> 24)}
	var d uint32
	n := int(c & 3)
	for i := range 4 {
		var v uint8
		switch mode {
		case PermuteIndex:
			selector := c >> (4 * i) & 15
			v = source[selector&7]
			if selector&8 != 0 {
				v = uint8(int8(v) >> 7)
			}
		case PermuteF4E:
			v = source[n+i]
		case PermuteB4E:
			v = source[(n-i+8)%8]
		case PermuteRC8:
			v = source[n]
		case PermuteECL:
			v = source[max(n, i)]
		case PermuteECR:
			v = source[min(n, i)]
		case PermuteRC16:
			v = source[n&1*2+i&1]
		}
		d |= uint32(v) << (8 * i)
	}
	return d
}

func TestBits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := rapid.Uint32().Draw(t, "a"), rapid.Uint32().Draw(t, "b"), rapid.Uint32().Draw(t, "c")
		n := rapid.OneOf(rapid.Uint32Range(0, 70), rapid.Uint32()).Draw(t, "n")
		m := rapid.OneOf(rapid.Uint32Range(0, 40), rapid.Uint32()).Draw(t, "m")
		table := uint8(c)
		prepared := PrepareLop3(table)
		var lop uint32
		for i := range 32 {
			lop |= uint32(table>>(bit(a, i)<<2|bit(b, i)<<1|bit(c, i))&1) << i
		}
		offset := int32(m) - 20
		both := uint64(b)<<32 | uint64(a)
		for _, c := range []struct {
			name      string
			got, want uint32
		}{
			{"lop3", prepared.Do(a, b, c), lop},
			{"lop3 on one word", Lop3(a, b, c, table), lop},
			{"shf.l.wrap", ShfLWrap(a, b, n), uint32(both << (n & 31) >> 32)},
			{"shf.l.clamp", ShfLClamp(a, b, n), uint32(both << min(n, 32) >> 32)},
			{"shf.r.wrap", ShfRWrap(a, b, n), uint32(both >> (n & 31))},
			{"shf.r.clamp", ShfRClamp(a, b, n), uint32(both >> min(n, 32))},
			{"bmsk.wrap", BmskWrap(n, m), refBmsk(n, m, false)},
			{"bmsk.clamp", BmskClamp(n, m), refBmsk(n, m, true)},
			{"szext.wrap.s32", uint32(SzextWrapS32(int32(a), n)), refSzext(a, n, false, true)},
			{"szext.clamp.s32", uint32(SzextClampS32(int32(a), n)), refSzext(a, n, true, true)},
			{"szext.wrap.u32", SzextWrapU32(a, n), refSzext(a, n, false, false)},
			{"szext.clamp.u32", SzextClampU32(a, n), refSzext(a, n, true, false)},
			{"fns", Fns(a&b, n&31, offset), refFns(a&b, n&31, offset)},
		} {
			if c.got != c.want {
				t.Fatalf("%s = %#x, want %#x", c.name, c.got, c.want)
			}
		}
		for mode := PermuteIndex; mode <= PermuteRC16; mode++ {
			if got, want := PrmtMode(mode, a, b, c), refPrmt(mode, a, b, c); got != want {
				t.Fatalf("prmt mode %d = %#x, want %#x", mode, got, want)
			}
		}
	})
}

func TestCounts(t *testing.T) {
	for _, c := range []struct {
		name      string
		got, want uint32
	}{
		{"popc.b32", Popc32(0xf0f0), 8},
		{"popc.b64", Popc64(^uint64(0)), 64},
		{"clz.b32 of 0", Clz32(0), 32},
		{"clz.b64 of 1", Clz64(1), 63},
		{"brev.b32", Brev32(1), 1 << 31},
		{"brev.b64", uint32(Brev64(1) >> 32), 1 << 31},
		{"bfind.u32 of 0", BfindU32(0), NotFound},
		{"bfind.u32", BfindU32(0x00f0), 7},
		{"bfind.s32 of −1", BfindS32(-1), NotFound},
		{"bfind.s32 of −2", BfindS32(-2), 0},
		{"bfind.s32 of the least", BfindS32(-1 << 31), 30},
		{"bfind.u64", BfindU64(1 << 40), 40},
		{"bfind.s64", BfindS64(-1 << 40), 39},
		{"bfind.shiftamt.u32", BfindShift(BfindU32(0x00f0), 32), 24},
		{"bfind.shiftamt.s64", BfindShift(BfindS64(-1<<40), 64), 24},
		{"bfind.shiftamt of nothing", BfindShift(BfindU32(0), 32), NotFound},
		{"shl by the width", Shl[uint32](1, 32), 0},
		{"shl by a lot", uint32(Shl[uint64](1, 1<<31)), 0},
		{"shr.s32 by a lot", uint32(Shr[int32](-5, 99)), 0xffffffff},
		{"shr.u16 by the width", uint32(Shr[uint16](0xffff, 16)), 0},
		{"cnot of 0", Cnot[uint32](0), 1},
		{"cnot of 7", uint32(Cnot[uint16](7)), 0},
		{"fns from a base beyond", Fns(^uint32(0), 32, 1), NotFound},
	} {
		if c.got != c.want {
			t.Errorf("%s = %#x, want %#x", c.name, c.got, c.want)
		}
	}
}
