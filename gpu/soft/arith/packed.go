package arith

// MinS16x2 is min.s16x2. MinU16x2, MaxS16x2 and MaxU16x2 are similar.
func MinS16x2(a, b uint32) uint32 {
	return lanes16(min(int16(a>>16), int16(b>>16)), min(int16(a), int16(b)))
}

// MinU16x2 is min.u16x2.
func MinU16x2(a, b uint32) uint32 {
	return uint32(min(uint16(a>>16), uint16(b>>16)))<<16 | uint32(min(uint16(a), uint16(b)))
}

// MaxS16x2 is max.s16x2.
func MaxS16x2(a, b uint32) uint32 {
	return lanes16(max(int16(a>>16), int16(b>>16)), max(int16(a), int16(b)))
}

// MaxU16x2 is max.u16x2.
func MaxU16x2(a, b uint32) uint32 {
	return uint32(max(uint16(a>>16), uint16(b>>16)))<<16 | uint32(max(uint16(a), uint16(b)))
}

// MinReluS16x2 is min.relu.s16x2.
func MinReluS16x2(a, b uint32) uint32 { return MaxS16x2(MinS16x2(a, b), 0) }

// MaxReluS16x2 is max.relu.s16x2.
func MaxReluS16x2(a, b uint32) uint32 { return MaxS16x2(MaxS16x2(a, b), 0) }

// lanes16 packs two halves.
func lanes16(hi, lo int16) uint32 { return uint32(uint16(hi))<<16 | uint32(uint16(lo)) }

// AddU16x2 is add.u16x2 and add.s16x2.
func AddU16x2(a, b uint32) uint32 { return (a+b)&0xffff | (a&^0xffff + b&^0xffff) }
