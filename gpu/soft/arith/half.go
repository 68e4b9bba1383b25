package arith

import "math"

// Half is one of the two 16-bit floating-point types, whose values are passed as their bits. Sums,
// products and fused products are exact or rounded to odd in float64, and then rounded once to the
// type.
type Half struct {
	format  format
	mask    uint16 // the bits of the exponent
	widen32 func(uint16) float32
}

// F16 and BF16 are PTX's half-precision types.
var (
	F16  = &Half{formatF16, 0x7c00, CvtF32F16}
	BF16 = &Half{formatBF16, 0x7f80, CvtF32BF16}
)

// NaN16 is the NaN that half-precision instructions produce, for both types.
const NaN16 = 0x7fff

const sign16 = 0x8000

// CvtF32F16 is cvt.f32.f16: exact.
func CvtF32F16(h uint16) float32 {
	// In the format of float32 the exponent is 112 too small, subnormals included; a product
	// corrects that.
	x := math.Float32frombits(uint32(h&0x7fff)<<13) * 0x1p112
	if h&0x7c00 == 0x7c00 {
		if h&0x3ff != 0 {
			return math.Float32frombits(nan32Bits)
		}
		x = math.Float32frombits(0x7f800000)
	}
	return math.Float32frombits(math.Float32bits(x) | uint32(h&sign16)<<16)
}

// CvtF32BF16 is cvt.f32.bf16: exact, and a NaN keeps its payload, as bf16 is the upper half of an
// f32.
func CvtF32BF16(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// CvtF16F32 is cvt.rn.f16.f32.
func CvtF16F32(x float32) uint16 {
	b := math.Float32bits(x)
	sign := uint16(b >> 16 & sign16)
	b &= 0x7fffffff
	switch {
	case b > 0x7f800000:
		return NaN16
	case b >= 0x47800000: // 2^16
		return sign | 0x7c00
	case b < 0x38800000: // below 2^-14 the sum with 1/2 has f16's subnormals as its last bits
		return sign | uint16(math.Float32bits(math.Float32frombits(b)+0.5)-0x3f000000)
	}
	return sign | uint16((b-112<<23+0xfff+b>>13&1)>>13)
}

// Float32 widens a value of the type; exact.
func (h *Half) Float32(a uint16) float32 { return h.widen32(a) }

// IsNaN reports whether a is a NaN.
func (h *Half) IsNaN(a uint16) bool { return a&^sign16 > h.mask }

// Flush replaces a subnormal by a zero of its sign.
func (h *Half) Flush(a uint16) uint16 {
	if a&h.mask == 0 {
		return a & sign16
	}
	return a
}

// in applies .ftz to an operand and widens it.
func (h *Half) in(a uint16, m Mode) float64 {
	if m.FTZ {
		a = h.Flush(a)
	}
	return float64(h.widen32(a))
}

// round rounds x, which is exact or rounded to odd, to the type according to m.
func (h *Half) round(x float64, m Mode) uint16 {
	if x != x {
		return h.finish(NaN16, m)
	}
	return h.finish(uint16(h.format.narrow(x, m.Round)), m)
}

// finish applies .ftz, .sat and .relu to a rounded result.
func (h *Half) finish(r uint16, m Mode) uint16 {
	if m.FTZ {
		r = h.Flush(r)
	}
	switch {
	case m.Sat:
		one := uint16(h.format.bias) << (h.format.precision - 1)
		if h.IsNaN(r) || r&sign16 != 0 {
			return 0
		}
		return min(r, one)
	case m.Relu:
		if r&sign16 != 0 { // NaN here is canonical, hence positive
			return 0
		}
	}
	return r
}

// Add is add of the type: .f16 rounds .rn, with .ftz and .sat; .bf16 rounds .rn.
func (h *Half) Add(a, b uint16, m Mode) uint16 { return h.sum(h.in(a, m), h.in(b, m), m) }

// Sub is sub of the type.
func (h *Half) Sub(a, b uint16, m Mode) uint16 { return h.sum(h.in(a, m), -h.in(b, m), m) }

// Mul is mul of the type.
func (h *Half) Mul(a, b uint16, m Mode) uint16 { return h.round(h.in(a, m)*h.in(b, m), m) }

// Fma is fma of the type: a·b+c rounded once.
func (h *Half) Fma(a, b, c uint16, m Mode) uint16 {
	return h.sum(float64(h.in(a, m)*h.in(b, m)), h.in(c, m), m)
}

func (h *Half) sum(x, y float64, m Mode) uint16 { return h.round(oddSum(x, y), m) }

// Abs is abs of the type. The result for a NaN is the canonical NaN.
func (h *Half) Abs(a uint16, m Mode) uint16 { return h.sign(a&^sign16, a, m) }

// Neg is neg of the type. The result for a NaN is the canonical NaN.
func (h *Half) Neg(a uint16, m Mode) uint16 { return h.sign(a^sign16, a, m) }

// sign returns r, which is a with another sign, after .ftz, or the canonical NaN if a is a NaN.
func (h *Half) sign(r, a uint16, m Mode) uint16 {
	if h.IsNaN(a) {
		return NaN16
	}
	if m.FTZ {
		r = h.Flush(r)
	}
	return r
}

// Ex2 is ex2.approx of the type: the correctly rounded power, except within 2^-36 of a tie.
func (h *Half) Ex2(a uint16, m Mode) uint16 { return h.round(exp2(h.in(a, m)), m) }

// Tanh is tanh.approx of the type, as accurate as Ex2.
func (h *Half) Tanh(a uint16, m Mode) uint16 { return h.round(math.Tanh(h.in(a, m)), m) }

// Compare reports whether the relation c holds between a and b, after .ftz if m has it.
func (h *Half) Compare(c Cmp, a, b uint16, m Mode) bool { return Compare(c, h.in(a, m), h.in(b, m)) }

// Packed1 applies an operation to both halves of a pair.
func Packed1(a uint32, m Mode, op func(a uint16, m Mode) uint16) uint32 {
	return uint32(op(uint16(a>>16), m))<<16 | uint32(op(uint16(a), m))
}

// Packed2 applies an operation to both halves of two pairs, such as add.f16x2 with F16.Add.
func Packed2(a, b uint32, m Mode, op func(a, b uint16, m Mode) uint16) uint32 {
	return uint32(op(uint16(a>>16), uint16(b>>16), m))<<16 | uint32(op(uint16(a), uint16(b), m))
}

// Packed3 applies an operation to both halves of three pairs, such as fma.rn.bf16x2 with BF16.Fma.
func Packed3(a, b, c uint32, m Mode, op func(a, b, c uint16, m Mode) uint16) uint32 {
	return uint32(op(uint16(a>>16), uint16(b>>16), uint16(c>>16), m))<<16 | uint32(op(uint16(a), uint16(b), uint16(c), m))
}
