package arith

import "math/bits"

// Shl is shl. Shifting by the width or more gives zero, as in Go.
func Shl[T Unsigned](a T, n uint32) T { return a << n }

// Shr is shr. Shifting by the width or more gives zero, or the sign of a signed type in all bits,
// as in Go.
func Shr[T Integer](a T, n uint32) T { return a >> n }

// ShfLWrap is shf.l.wrap.b32: the high word of b:a shifted left by the low five bits of n.
func ShfLWrap(a, b, n uint32) uint32 { return shfL(a, b, n&31) }

// ShfLClamp is shf.l.clamp.b32: the high word of b:a shifted left by n, at most 32.
func ShfLClamp(a, b, n uint32) uint32 { return shfL(a, b, min(n, 32)) }

// ShfRWrap is shf.r.wrap.b32: the low word of b:a shifted right by the low five bits of n.
func ShfRWrap(a, b, n uint32) uint32 { return shfR(a, b, n&31) }

// ShfRClamp is shf.r.clamp.b32: the low word of b:a shifted right by n, at most 32.
func ShfRClamp(a, b, n uint32) uint32 { return shfR(a, b, min(n, 32)) }

func shfL(a, b, n uint32) uint32 { return b<<n | a>>(32-n) }

func shfR(a, b, n uint32) uint32 { return a>>n | b<<(32-n) }

// Popc32 is popc.b32.
func Popc32(a uint32) uint32 { return uint32(bits.OnesCount32(a)) }

// Popc64 is popc.b64.
func Popc64(a uint64) uint32 { return uint32(bits.OnesCount64(a)) }

// Clz32 is clz.b32: 32 for zero.
func Clz32(a uint32) uint32 { return uint32(bits.LeadingZeros32(a)) }

// Clz64 is clz.b64: 64 for zero.
func Clz64(a uint64) uint32 { return uint32(bits.LeadingZeros64(a)) }

// Brev32 is brev.b32.
func Brev32(a uint32) uint32 { return bits.Reverse32(a) }

// Brev64 is brev.b64.
func Brev64(a uint64) uint64 { return bits.Reverse64(a) }

// NotFound is the result of bfind and fns if there is no such bit.
const NotFound = 0xffffffff

// BfindU32 is bfind.u32: the position of the highest set bit.
func BfindU32(a uint32) uint32 { return uint32(bits.Len32(a) - 1) }

// BfindS32 is bfind.s32: the position of the highest bit that differs from the sign.
func BfindS32(a int32) uint32 { return BfindU32(uint32(a ^ a>>31)) }

// BfindU64 is bfind.u64.
func BfindU64(a uint64) uint32 { return uint32(bits.Len64(a) - 1) }

// BfindS64 is bfind.s64.
func BfindS64(a int64) uint32 { return BfindU64(uint64(a ^ a>>63)) }

// BfindShift converts bfind's result for a type of the given width to that of bfind.shiftamt: the
// left shift that moves the bit to the top.
func BfindShift(position, width uint32) uint32 {
	if position == NotFound {
		return NotFound
	}
	return width - 1 - position
}

// BfeU32 is bfe.u32: length bits of a from position on, zero-extended. Only the operands' low 8
// bits count.
func BfeU32(a, position, length uint32) uint32 {
	return a >> (position & 0xff) & (1<<(length&0xff) - 1)
}

// BfeS32 is bfe.s32: length bits of a from position on, sign-extended. A field that exceeds a is
// filled with a's sign.
func BfeS32(a int32, position, length uint32) int32 {
	position, length = position&0xff, length&0xff
	if length == 0 {
		return 0
	}
	field := a >> position
	if length >= 32 {
		return field
	}
	return field << (32 - length) >> (32 - length)
}

// BfeU64 is bfe.u64.
func BfeU64(a uint64, position, length uint32) uint64 {
	return a >> (position & 0xff) & (1<<(length&0xff) - 1)
}

// BfeS64 is bfe.s64.
func BfeS64(a int64, position, length uint32) int64 {
	position, length = position&0xff, length&0xff
	if length == 0 {
		return 0
	}
	field := a >> position
	if length >= 64 {
		return field
	}
	return field << (64 - length) >> (64 - length)
}

// Bfi32 is bfi.b32: b with length bits from position on replaced by a's low bits. Only the low 8
// bits of position and length count.
func Bfi32(a, b, position, length uint32) uint32 {
	mask := uint32(1<<(length&0xff)-1) << (position & 0xff)
	return b&^mask | a<<(position&0xff)&mask
}

// Bfi64 is bfi.b64.
func Bfi64(a, b uint64, position, length uint32) uint64 {
	mask := uint64(1<<(length&0xff)-1) << (position & 0xff)
	return b&^mask | a<<(position&0xff)&mask
}

// Fns is fns.b32: the position of the offset-th set bit of mask, counted from base upwards if
// offset is positive and downwards if it is negative, including base. For offset 0 it is base, if
// that bit is set. A base above 31 finds nothing.
func Fns(mask, base uint32, offset int32) uint32 {
	if base > 31 {
		return NotFound
	}
	switch {
	case offset > 0:
		rest := mask >> base << base
		for ; offset > 1 && rest != 0; offset-- {
			rest &= rest - 1
		}
		if rest == 0 {
			return NotFound
		}
		return uint32(bits.TrailingZeros32(rest))
	case offset < 0:
		rest := mask << (31 - base) >> (31 - base)
		for ; offset < -1 && rest != 0; offset++ {
			rest &^= 1 << (bits.Len32(rest) - 1)
		}
		return BfindU32(rest)
	}
	if mask>>base&1 != 0 {
		return base
	}
	return NotFound
}

// BmskWrap is bmsk.wrap.b32: width set bits from position on. Only the low five bits of both count.
func BmskWrap(position, width uint32) uint32 { return (1<<(width&31) - 1) << (position & 31) }

// BmskClamp is bmsk.clamp.b32: width set bits from position on, cut off at the word's end.
func BmskClamp(position, width uint32) uint32 { return (1<<width - 1) << position }

// SzextWrapS32 is szext.wrap.s32: the low bits of a, sign-extended. Their number is the low five
// bits of width.
func SzextWrapS32(a int32, width uint32) int32 { return BfeS32(a, 0, width&31) }

// SzextClampS32 is szext.clamp.s32: the low width bits of a, sign-extended; all of a for 32 and
// more.
func SzextClampS32(a int32, width uint32) int32 { return BfeS32(a, 0, min(width, 32)) }

// SzextWrapU32 is szext.wrap.u32: the low bits of a. Their number is the low five bits of width.
func SzextWrapU32(a, width uint32) uint32 { return a & (1<<(width&31) - 1) }

// SzextClampU32 is szext.clamp.u32: the low width bits of a; all of a for 32 and more.
func SzextClampU32(a, width uint32) uint32 { return a & (1<<width - 1) }

// Cnot is cnot: 1 of zero, else 0.
func Cnot[T Unsigned](a T) T {
	if a == 0 {
		return 1
	}
	return 0
}
