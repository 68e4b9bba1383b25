package arith

import (
	"math"
	"math/bits"
)

// Round is a rounding direction of PTX: .rn, .rz, .rm, .rp for results, .rni, .rzi, .rmi, .rpi for
// integral values.
type Round uint8

const (
	RN  Round = iota // to nearest, ties to even
	RZ               // towards zero
	RM               // towards −∞
	RP               // towards +∞
	RNA              // to nearest, ties away from zero
)

// Mode holds the modifiers of a floating-point instruction. Its zero value is .rn alone.
type Mode struct {
	Round Round
	FTZ   bool // .ftz: subnormal operands and results become zeros of their sign
	Sat   bool // .sat: clamp to [0, 1], NaN to +0
	Relu  bool // .relu: negative to +0, NaN to the canonical NaN

	SatFinite bool // .satfinite: conversions give the greatest finite value instead of anything above it
}

// format describes a binary floating-point format of up to 64 bits.
type format struct {
	precision int    // significant bits, including the hidden one
	bias      int    // of the exponent
	max       uint64 // bits of the greatest finite magnitude
	over      uint64 // bits of what is above max: infinity, or NaN if the format has no infinity
	sign      uint64 // the sign's bit
}

var (
	formatF64  = format{53, 1023, 0x7fefffffffffffff, 0x7ff0000000000000, 1 << 63}
	formatF32  = format{24, 127, 0x7f7fffff, 0x7f800000, 1 << 31}
	formatTF32 = format{11, 127, 0x3fbff, 0x3fc00, 1 << 18}
	formatF16  = format{11, 15, 0x7bff, 0x7c00, 1 << 15}
	formatBF16 = format{8, 127, 0x7f7f, 0x7f80, 1 << 15}
	formatE5M2 = format{3, 15, 0x7b, 0x7c, 1 << 7}
	formatE4M3 = format{4, 7, 0x7e, 0x7f, 1 << 7}
)

// pack rounds ±sig·2^exp to format f. Bit 0 of sig may be sticky, for any non-zero remainder below
// it, if sig has at least two significant bits more than the format.
func (f *format) pack(neg bool, exp int, sig uint64, r Round) uint64 {
	var sign uint64
	if neg {
		sign = f.sign
	}
	if sig == 0 {
		return sign
	}
	lz := bits.LeadingZeros64(sig)
	sig <<= lz
	biased := exp - lz + 63 + f.bias // the exponent field if the result is normal
	drop := 64 - f.precision
	if biased < 1 {
		drop += 1 - biased
		biased = 1
	}
	var kept, rest uint64 // rest: the dropped bits; its top bit is one half of kept's lowest
	switch {
	case drop < 64:
		kept, rest = sig>>drop, sig<<(64-drop)
	case drop == 64:
		rest = sig
	default:
		rest = 1 // more than nothing, less than half
	}
	const half = 1 << 63
	var up bool
	switch r {
	case RN:
		up = rest > half || rest == half && kept&1 != 0
	case RNA:
		up = rest >= half
	case RM:
		up = neg && rest != 0
	case RP:
		up = !neg && rest != 0
	}
	if up {
		kept++
	}
	// A carry out of kept increments the exponent field, as it should; a subnormal has field 0 and
	// no hidden bit.
	out := uint64(biased-1)<<(f.precision-1) + kept
	if out > f.max {
		out = f.over
		if r == RZ || r == RM && !neg || r == RP && neg {
			out = f.max
		}
	}
	return sign | out
}

// split returns the parts of a finite x = ±sig·2^exp.
func split(x float64) (neg bool, exp int, sig uint64) {
	b := math.Float64bits(x)
	neg = b>>63 != 0
	sig = b & (1<<52 - 1)
	exp = int(b >> 52 & 0x7ff)
	if exp == 0 {
		exp = 1
	} else {
		sig |= 1 << 52
	}
	return neg, exp - 1075, sig
}

// narrow rounds a finite or infinite x to format f. The caller handles NaN.
func (f *format) narrow(x float64, r Round) uint64 {
	if math.IsInf(x, 0) {
		if x < 0 {
			return f.sign | f.over
		}
		return f.over
	}
	neg, exp, sig := split(x)
	return f.pack(neg, exp, sig, r)
}

// odd changes s, a correctly rounded result whose exact value is s+err, to the result of rounding
// to odd: an inexact result gets its last bit set. Only the sign of err matters; s is not zero
// unless err is.
func odd(s, err float64) float64 {
	b := math.Float64bits(s)
	if err == 0 || b&1 != 0 || s-s != 0 { // exact, already odd, infinite or NaN
		return s
	}
	if (err > 0) == (s > 0) {
		return math.Float64frombits(b + 1)
	}
	return math.Float64frombits(b - 1)
}

// convert rounds any x to format f like a conversion with m's rounding, .satfinite and .relu. nan
// is the result for a NaN.
func (f *format) convert(x float64, nan uint64, m Mode) uint64 {
	if x != x {
		return nan
	}
	r := f.narrow(x, m.Round)
	if m.SatFinite && r&^f.sign > f.max {
		r = r&f.sign | f.max
	}
	if m.Relu && r&f.sign != 0 {
		return 0
	}
	return r
}

// value returns the number that bits represent, which is not a NaN or infinity.
func (f *format) value(bits uint64) float64 {
	sig := int64(bits & (1<<(f.precision-1) - 1))
	exp := int(bits &^ f.sign >> (f.precision - 1))
	if exp == 0 {
		exp = 1
	} else {
		sig |= 1 << (f.precision - 1)
	}
	return math.Copysign(math.Ldexp(float64(sig), exp-f.bias-f.precision+1), 1-2*float64(bits&f.sign/f.sign))
}

// oddSum returns a+b rounded to odd. |a| and |b| must be well within float64's range, as
// single-precision values and products of two are.
func oddSum(a, b float64) float64 {
	s := a + b
	// Knuth's TwoSum gives the rounding error of s exactly.
	bb := s - a
	return odd(s, (a-(s-bb))+(b-bb))
}
