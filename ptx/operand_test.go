package ptx

import "math"

// Float32 returns a single-precision constant.
func Float32(v float32) Operand {
	return Operand{Kind: KindImm, Imm: ImmF32, Bits: uint64(math.Float32bits(v))}
}

// Float64 returns a double-precision constant.
func Float64(v float64) Operand {
	return Operand{Kind: KindImm, Imm: ImmF64, Bits: math.Float64bits(v)}
}

// Mem returns the address operand [base+offset] with a register as its base.
func Mem(base string, offset int64) Operand {
	return Operand{Kind: KindAddr, Base: KindReg, Name: base, Bits: uint64(offset)}
}

// Vec returns a vector operand.
func Vec(elems ...Operand) Operand { return Operand{Kind: KindVector, Elems: elems} }

// Pair returns the operand a|b.
func Pair(a, b Operand) Operand { return Operand{Kind: KindPair, Elems: []Operand{a, b}} }
