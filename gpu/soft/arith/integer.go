package arith

import (
	"math"
	"math/bits"
)

// Signed is a signed integer type of PTX.
type Signed interface {
	~int8 | ~int16 | ~int32 | ~int64
}

// Unsigned is an unsigned integer type of PTX.
type Unsigned interface {
	~uint8 | ~uint16 | ~uint32 | ~uint64
}

// Integer is an integer type of PTX.
type Integer interface{ Signed | Unsigned }

// Div is div of integers. Division by zero gives all bits set. The least integer divided by −1
// gives itself.
func Div[T Integer](a, b T) T {
	if b == 0 {
		return ^T(0)
	}
	return a / b // Go defines MinInt / −1 as MinInt
}

// Rem is rem of integers: the remainder of a division that rounds towards zero. Division by zero
// gives all bits set.
func Rem[T Integer](a, b T) T {
	if b == 0 {
		return ^T(0)
	}
	return a % b
}

// Abs is abs of signed integers. The least integer gives itself.
func Abs[T Signed](a T) T {
	if a < 0 {
		return -a
	}
	return a
}

// clampS32 saturates x to s32.
func clampS32(x int64) int32 {
	return int32(min(max(x, math.MinInt32), math.MaxInt32))
}

// AddSatS32 is add.sat.s32.
func AddSatS32(a, b int32) int32 { return clampS32(int64(a) + int64(b)) }

// SubSatS32 is sub.sat.s32.
func SubSatS32(a, b int32) int32 { return clampS32(int64(a) - int64(b)) }

// MulHiS16 is mul.hi.s16.
func MulHiS16(a, b int16) int16 { return int16(int32(a) * int32(b) >> 16) }

// MulHiU16 is mul.hi.u16.
func MulHiU16(a, b uint16) uint16 { return uint16(uint32(a) * uint32(b) >> 16) }

// MulHiS32 is mul.hi.s32.
func MulHiS32(a, b int32) int32 { return int32(int64(a) * int64(b) >> 32) }

// MulHiU32 is mul.hi.u32.
func MulHiU32(a, b uint32) uint32 { return uint32(uint64(a) * uint64(b) >> 32) }

// MulHiS64 is mul.hi.s64.
func MulHiS64(a, b int64) int64 {
	hi, _ := bits.Mul64(uint64(a), uint64(b))
	// Taken as unsigned, a negative factor is 2^64 too large.
	return int64(hi) - a>>63&b - b>>63&a
}

// MulHiU64 is mul.hi.u64.
func MulHiU64(a, b uint64) uint64 {
	hi, _ := bits.Mul64(a, b)
	return hi
}

// MulWideS16 is mul.wide.s16.
func MulWideS16(a, b int16) int32 { return int32(a) * int32(b) }

// MadHiSatS32 is mad.hi.sat.s32.
func MadHiSatS32(a, b, c int32) int32 { return AddSatS32(MulHiS32(a, b), c) }

// mulWide24S32 returns the 48-bit product of the operands' low 24 bits, taken as signed.
func mulWide24S32(a, b int32) int64 { return int64(a<<8>>8) * int64(b<<8>>8) }

// mulWide24U32 returns the 48-bit product of the operands' low 24 bits.
func mulWide24U32(a, b uint32) uint64 { return uint64(a&0xffffff) * uint64(b&0xffffff) }

// Mul24LoS32 is mul24.lo.s32: the low 32 bits of a 24-bit product.
func Mul24LoS32(a, b int32) int32 { return int32(mulWide24S32(a, b)) }

// Mul24HiS32 is mul24.hi.s32: bits 16 to 47 of a 24-bit product.
func Mul24HiS32(a, b int32) int32 { return int32(mulWide24S32(a, b) >> 16) }

// Mul24LoU32 is mul24.lo.u32.
func Mul24LoU32(a, b uint32) uint32 { return uint32(mulWide24U32(a, b)) }

// Mul24HiU32 is mul24.hi.u32.
func Mul24HiU32(a, b uint32) uint32 { return uint32(mulWide24U32(a, b) >> 16) }

// Mad24HiSatS32 is mad24.hi.sat.s32.
func Mad24HiSatS32(a, b, c int32) int32 { return AddSatS32(Mul24HiS32(a, b), c) }

// Sad is sad: c plus the absolute difference of a and b, all modulo the type's width.
func Sad[T Integer](a, b, c T) T {
	if a < b {
		return c + (b - a)
	}
	return c + (a - b)
}

// MinReluS32 is min.relu.s32.
func MinReluS32(a, b int32) int32 { return max(min(a, b), 0) }

// MaxReluS32 is max.relu.s32.
func MaxReluS32(a, b int32) int32 { return max(a, b, 0) }
