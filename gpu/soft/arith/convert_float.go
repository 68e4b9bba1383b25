package arith

import "math"

// CvtF32Int is cvt.f32 from an integer, with any rounding and .sat. With .rn alone it is Go's
// float32(x).
func CvtF32Int[I Integer](x I, m Mode) float32 {
	r := float32(x)
	if m.Round != RN {
		neg, magnitude := signMagnitude(x)
		r = math.Float32frombits(uint32(formatF32.pack(neg, 0, magnitude, m.Round)))
	}
	if m.Sat {
		r = SatF32(r)
	}
	return r
}

// CvtF64Int is cvt.f64 from an integer, with any rounding and .sat. With .rn alone it is Go's
// float64(x).
func CvtF64Int[I Integer](x I, m Mode) float64 {
	r := float64(x)
	if m.Round != RN {
		neg, magnitude := signMagnitude(x)
		r = math.Float64frombits(formatF64.pack(neg, 0, magnitude, m.Round))
	}
	if m.Sat {
		r = SatF64(r)
	}
	return r
}

// CvtHalfInt is cvt.f16 or cvt.bf16 from an integer.
func CvtHalfInt[I Integer](h *Half, x I, m Mode) uint16 {
	neg, magnitude := signMagnitude(x)
	return h.finish(uint16(h.format.pack(neg, 0, magnitude, m.Round)), m)
}

// signMagnitude returns the sign and the magnitude of an integer.
func signMagnitude[I Integer](x I) (neg bool, magnitude uint64) {
	if x < 0 {
		return true, -uint64(x)
	}
	return false, uint64(x)
}

// CvtF32F64 is cvt.rn.f32.f64.
func CvtF32F64(x float64) float32 { return CanonF32(float32(x)) }

// CvtF32F64Mode is cvt.f32.f64 in any mode; .ftz flushes the result.
func CvtF32F64Mode(x float64, m Mode) float32 { return m.round32(x) }

// CvtF64F32Mode is cvt.f64.f32, which is exact except for .ftz, which flushes the operand, and
// .sat. A NaN keeps its payload, quieted.
func CvtF64F32Mode(x float32, m Mode) float64 {
	r := float64(m.in32(x))
	if m.Sat {
		r = SatF64(r)
	}
	return r
}

// SatF64 is .sat: x clamped to [0, 1], NaN and −0 to +0.
func SatF64(x float64) float64 {
	if !(x > 0) {
		return 0
	}
	return min(x, 1)
}

// CvtF32F32 is cvt.f32.f32 without a rounding, with .ftz and .sat.
func CvtF32F32(x float32, m Mode) float32 { return m.finish32(CanonF32(x)) }

// IntegralF32 is cvt.f32.f32 with .rni, .rzi, .rmi or .rpi (m's Round), .ftz and .sat.
func IntegralF32(x float32, m Mode) float32 {
	return m.finish32(CanonF32(float32(Integral(float64(m.in32(x)), m.Round))))
}

// IntegralF64 is cvt.f64.f64 with .rni, .rzi, .rmi or .rpi.
func IntegralF64(x float64, m Mode) float64 {
	r := Integral(x, m.Round)
	if r != r {
		r = nan64(x, 0, 0)
	}
	if m.Sat {
		r = SatF64(r)
	}
	return r
}

// FromF32 is cvt to the type from f32, with m's rounding, .ftz (which only flushes the operand),
// .sat, .relu and .satfinite.
func (h *Half) FromF32(x float32, m Mode) uint16 { return h.fromFloat(float64(m.in32(x)), m) }

// FromF64 is cvt to the type from f64.
func (h *Half) FromF64(x float64, m Mode) uint16 { return h.fromFloat(x, m) }

// FromHalf is cvt to the type from the type from, which is f16 or bf16.
func (h *Half) FromHalf(from *Half, a uint16, m Mode) uint16 {
	return h.fromFloat(float64(from.Float32(a)), m)
}

func (h *Half) fromFloat(x float64, m Mode) uint16 {
	m.FTZ = false
	return h.finish(uint16(h.format.convert(x, NaN16, m)), m)
}

// Integral is cvt of the type to itself with .rni, .rzi, .rmi or .rpi (m's Round).
func (h *Half) Integral(a uint16, m Mode) uint16 {
	return h.fromFloat(Integral(float64(h.Float32(a)), m.Round), m)
}

// CvtTF32F32 is cvt.tf32.f32: 11 significant bits of an f32, the bits below zero. PTX has it with
// .rna, .rn and .rz.
func CvtTF32F32(x float32, m Mode) uint32 {
	if x != x {
		return nan32Bits
	}
	return uint32(formatTF32.convert(float64(x), 0, m)) << 13
}

// Float8 is one of the two 8-bit floating-point types, whose values are passed as their bits.
type Float8 struct {
	format format
	finite uint8 // the greatest magnitude that is a number or infinity
}

// E4M3 and E5M2 are PTX's 8-bit floats. E4M3 has no infinity, and one NaN.
var (
	E4M3 = &Float8{formatE4M3, 0x7e}
	E5M2 = &Float8{formatE5M2, 0x7c}
)

// NaN8 is the NaN that conversions to both 8-bit types produce.
const NaN8 = 0x7f

// FromF32 is cvt.rn.satfinite to the type from f32, one element of it.
func (f *Float8) FromF32(x float32, relu bool) uint8 {
	return uint8(f.format.convert(float64(x), NaN8, Mode{SatFinite: true, Relu: relu}))
}

// FromF16 is cvt.rn.satfinite to the type from f16, one element of it.
func (f *Float8) FromF16(a uint16, relu bool) uint8 { return f.FromF32(CvtF32F16(a), relu) }

// F16 is cvt.rn.f16 from the type, one element of it: exact.
func (f *Float8) F16(a uint8, relu bool) uint16 {
	magnitude := a & 0x7f
	switch {
	case magnitude > f.finite:
		return NaN16
	case relu && a&0x80 != 0:
		return 0
	case uint64(magnitude) > f.format.max:
		return uint16(a)&0x80<<8 | 0x7c00
	}
	return CvtF16F32(float32(f.format.value(uint64(a))))
}
