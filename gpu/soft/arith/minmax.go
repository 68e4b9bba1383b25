package arith

import "math"

// Pick holds the modifiers of a floating-point min or max.
type Pick struct {
	Max     bool // max rather than min
	NaN     bool // .NaN: the result is NaN if an operand is, rather than the other operand
	Abs     bool // .abs: compare and return magnitudes
	XorSign bool // .xorsign: the result, unless it is NaN, gets the exclusive or of the operands' signs
	FTZ     bool // .ftz
}

// F32 is min.f32 or max.f32 of two operands.
func (p Pick) F32(a, b float32) float32 {
	if p.FTZ {
		a, b = FlushF32(a), FlushF32(b)
	}
	signs := (math.Float32bits(a) ^ math.Float32bits(b)) & 0x80000000
	if p.Abs {
		a, b = AbsF32(a), AbsF32(b)
	}
	var r float32
	switch {
	case p.NaN && p.Max:
		r = MaxNaNF32(a, b)
	case p.NaN:
		r = MinNaNF32(a, b)
	case p.Max:
		r = MaxF32(a, b)
	default:
		r = MinF32(a, b)
	}
	if p.XorSign && r == r {
		r = math.Float32frombits(math.Float32bits(r)&^0x80000000 | signs)
	}
	return r
}

// F32x3 is min.f32 or max.f32 of three operands.
func (p Pick) F32x3(a, b, c float32) float32 { return p.F32(p.F32(a, b), c) }

// Half is min or max of half-precision operands of type h.
func (p Pick) Half(h *Half, a, b uint16) uint16 {
	if p.FTZ {
		a, b = h.Flush(a), h.Flush(b)
	}
	signs := (a ^ b) & sign16
	if p.Abs {
		a, b = a&^sign16, b&^sign16
	}
	nanA, nanB := h.IsNaN(a), h.IsNaN(b)
	var r uint16
	switch {
	case nanA && nanB, p.NaN && (nanA || nanB):
		return NaN16
	case nanA:
		r = b
	case nanB:
		r = a
	case (order16(a) > order16(b)) == p.Max:
		r = a
	default:
		r = b
	}
	if p.XorSign {
		r = r&^sign16 | signs
	}
	return r
}

// order16 maps the bits of a half, not a NaN, to an integer in the order of the values, with −0
// below +0.
func order16(a uint16) int16 {
	if a&sign16 != 0 {
		return ^int16(a &^ sign16)
	}
	return int16(a)
}

// HalfPair is min or max of both halves of two pairs.
func (p Pick) HalfPair(h *Half, a, b uint32) uint32 {
	return uint32(p.Half(h, uint16(a>>16), uint16(b>>16)))<<16 | uint32(p.Half(h, uint16(a), uint16(b)))
}
