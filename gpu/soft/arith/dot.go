package arith

// Dp4a is dp4a: c plus the products of the four bytes of a and b, each signed or unsigned. Sums
// wrap.
func Dp4a(a, b, c uint32, signedA, signedB bool) uint32 {
	for i := range 4 {
		c += byteOf(a, i, signedA) * byteOf(b, i, signedB)
	}
	return c
}

// Dp2aLo is dp2a.lo: c plus the products of the two halves of a and the two lower bytes of b.
func Dp2aLo(a, b, c uint32, signedA, signedB bool) uint32 {
	return c + halfOf(a, 0, signedA)*byteOf(b, 0, signedB) + halfOf(a, 1, signedA)*byteOf(b, 1, signedB)
}

// Dp2aHi is dp2a.hi: c plus the products of the two halves of a and the two upper bytes of b.
func Dp2aHi(a, b, c uint32, signedA, signedB bool) uint32 {
	return Dp2aLo(a, b>>16, c, signedA, signedB)
}

// byteOf returns byte i of a, extended to 32 bits.
func byteOf(a uint32, i int, signed bool) uint32 {
	v := uint8(a >> (8 * i))
	if signed {
		return uint32(int8(v))
	}
	return uint32(v)
}

// halfOf returns half i of a, extended to 32 bits.
func halfOf(a uint32, i int, signed bool) uint32 {
	v := uint16(a >> (16 * i))
	if signed {
		return uint32(int16(v))
	}
	return uint32(v)
}
