package arith

// Permute is prmt's mode.
type Permute uint8

const (
	PermuteIndex Permute = iota // no mode: a selector for each byte
	PermuteF4E                  // .f4e: four bytes forward
	PermuteB4E                  // .b4e: four bytes backward
	PermuteRC8                  // .rc8: one byte replicated
	PermuteECL                  // .ecl: edge clamp left
	PermuteECR                  // .ecr: edge clamp right
	PermuteRC16                 // .rc16: one half replicated
)

// permuteSelectors holds the selectors that give the same result without a mode, for each special
// mode and each value of the control's two low bits.
var permuteSelectors = [...][4]uint32{
	PermuteF4E:  {0x3210, 0x4321, 0x5432, 0x6543},
	PermuteB4E:  {0x5670, 0x6701, 0x7012, 0x0123},
	PermuteRC8:  {0x0000, 0x1111, 0x2222, 0x3333},
	PermuteECL:  {0x3210, 0x3211, 0x3222, 0x3333},
	PermuteECR:  {0x0000, 0x1110, 0x2210, 0x3210},
	PermuteRC16: {0x1010, 0x3232, 0x1010, 0x3232},
}

// Prmt is prmt.b32 without a mode. Each nibble of the selectors names a byte of b:a, or that byte's
// sign in all bits if the nibble's top bit is set.
func Prmt(a, b, selectors uint32) uint32 {
	bytes := uint64(b)<<32 | uint64(a)
	var r uint32
	for i := 0; i < 32; i += 8 {
		selector := selectors & 0xf
		selectors >>= 4
		v := uint8(bytes >> (selector & 7 * 8))
		if selector&8 != 0 {
			v = uint8(int8(v) >> 7)
		}
		r |= uint32(v) << i
	}
	return r
}

// PrmtMode is prmt.b32 with a mode. Only the two low bits of control count.
func PrmtMode(mode Permute, a, b, control uint32) uint32 {
	if mode == PermuteIndex {
		return Prmt(a, b, control)
	}
	return Prmt(a, b, permuteSelectors[mode][control&3])
}
