package simt

import (
	"vgpud/gpu/soft/arith"
	"vgpud/ptx"
)

// handler compiles the instructions of one opcode.
type handler func(c *compiler, in *ptx.Instr, m *mods) error

// byType selects an operation by operand type. Types share code if the sign makes no difference:
// b32, u32 and s32.
type byType map[ptx.Type]opFunc

func (t byType) find(typ ptx.Type) (opFunc, bool) {
	if f, ok := t[typ]; ok {
		return f, true
	}
	// A signed or unsigned type falls back to the untyped one of its size.
	if typ.Class() == ptx.Signed || typ.Class() == ptx.Unsigned {
		f, ok := t[[...]ptx.Type{1: ptx.B16, 2: ptx.B32, 3: ptx.B64}[min(typ.Bits()/16-typ.Bits()/64, 3)]]
		return f, ok && typ.Bits() >= 16 && typ.Lanes() == 1
	}
	return nil, false
}

// plain compiles instructions of n sources, all of one type.
func plain(n int, cost func(*CostModel) uint32, table byType) handler {
	return func(c *compiler, in *ptx.Instr, m *mods) error {
		t := m.typ()
		f, ok := table.find(t)
		if !ok {
			return c.unsupported("type .%s", t)
		}
		return c.simple(in, f, cost(c.costs()), repeat(t, n+1)...)
	}
}

func simpleCost(m *CostModel) uint32 { return m.Simple }

var intBinary = map[string]byType{
	"add": {
		ptx.B16: short2(func(a, b uint16) uint16 { return a + b }), ptx.B32: opAdd32, ptx.B64: opAdd64,
		ptx.U16x2: lift2(arith.AddU16x2), ptx.S16x2: lift2(arith.AddU16x2),
	},
	"sub": {ptx.B16: short2(func(a, b uint16) uint16 { return a - b }), ptx.B32: opSub32, ptx.B64: opSub64},
	"min": {
		ptx.U16: short2(func(a, b uint16) uint16 { return min(a, b) }), ptx.S16: short2(func(a, b int16) int16 { return min(a, b) }),
		ptx.U32: opMinU32, ptx.S32: opMinS32, ptx.U64: opMinU64, ptx.S64: opMinS64,
		ptx.U16x2: lift2(arith.MinU16x2), ptx.S16x2: lift2(arith.MinS16x2),
	},
	"max": {
		ptx.U16: short2(func(a, b uint16) uint16 { return max(a, b) }), ptx.S16: short2(func(a, b int16) int16 { return max(a, b) }),
		ptx.U32: opMaxU32, ptx.S32: opMaxS32, ptx.U64: opMaxU64, ptx.S64: opMaxS64,
		ptx.U16x2: lift2(arith.MaxU16x2), ptx.S16x2: lift2(arith.MaxS16x2),
	},
	"div": {
		ptx.U16: short2(arith.Div[uint16]), ptx.S16: short2(arith.Div[int16]), ptx.U32: lift2(arith.Div[uint32]),
		ptx.S32: lift2(arith.Div[int32]), ptx.U64: lift2(arith.Div[uint64]), ptx.S64: lift2(arith.Div[int64]),
	},
	"rem": {
		ptx.U16: short2(arith.Rem[uint16]), ptx.S16: short2(arith.Rem[int16]), ptx.U32: lift2(arith.Rem[uint32]),
		ptx.S32: lift2(arith.Rem[int32]), ptx.U64: lift2(arith.Rem[uint64]), ptx.S64: lift2(arith.Rem[int64]),
	},
	"mul.lo": {ptx.B16: short2(func(a, b uint16) uint16 { return a * b }), ptx.B32: opMulLo32, ptx.B64: opMulLo64},
	"mul.hi": {
		ptx.U16: short2(arith.MulHiU16), ptx.S16: short2(arith.MulHiS16), ptx.U32: opMulHiU32, ptx.S32: opMulHiS32,
		ptx.U64: lift2(arith.MulHiU64), ptx.S64: lift2(arith.MulHiS64),
	},
	"mul24.lo": {ptx.U32: lift2(arith.Mul24LoU32), ptx.S32: lift2(arith.Mul24LoS32)},
	"mul24.hi": {ptx.U32: lift2(arith.Mul24HiU32), ptx.S32: lift2(arith.Mul24HiS32)},
}

var intTernary = map[string]byType{
	"mad.lo": {ptx.B16: short3(func(a, b, c uint16) uint16 { return a*b + c }), ptx.B32: opMadLo32, ptx.B64: opMadLo64},
	"mad.hi": {
		ptx.U16: short3(func(a, b, c uint16) uint16 { return arith.MulHiU16(a, b) + c }),
		ptx.S16: short3(func(a, b, c int16) int16 { return arith.MulHiS16(a, b) + c }),
		ptx.U32: lift3(func(a, b, c uint32) uint32 { return arith.MulHiU32(a, b) + c }),
		ptx.S32: lift3(func(a, b, c int32) int32 { return arith.MulHiS32(a, b) + c }),
		ptx.U64: lift3(func(a, b, c uint64) uint64 { return arith.MulHiU64(a, b) + c }),
		ptx.S64: lift3(func(a, b, c int64) int64 { return arith.MulHiS64(a, b) + c }),
	},
	"mad24.lo": {
		ptx.U32: lift3(func(a, b, c uint32) uint32 { return arith.Mul24LoU32(a, b) + c }),
		ptx.S32: lift3(func(a, b, c int32) int32 { return arith.Mul24LoS32(a, b) + c }),
	},
	"mad24.hi": {
		ptx.U32: lift3(func(a, b, c uint32) uint32 { return arith.Mul24HiU32(a, b) + c }),
		ptx.S32: lift3(func(a, b, c int32) int32 { return arith.Mul24HiS32(a, b) + c }),
	},
	"sad": {
		ptx.U16: short3(arith.Sad[uint16]), ptx.S16: short3(arith.Sad[int16]), ptx.U32: lift3(arith.Sad[uint32]),
		ptx.S32: lift3(arith.Sad[int32]), ptx.U64: lift3(arith.Sad[uint64]), ptx.S64: lift3(arith.Sad[int64]),
	},
}

// wide holds the operations whose result is twice as wide as their factors.
var wide = map[string]byType{
	"mul": {
		ptx.U16: lift2(func(a, b uint32) uint32 { return a * b }),
		ptx.S16: lift2(func(a, b uint32) uint32 { return uint32(arith.MulWideS16(int16(a), int16(b))) }),
		ptx.U32: opMulWideU32, ptx.S32: opMulWideS32,
	},
	"mad": {
		ptx.U16: lift3(func(a, b, c uint32) uint32 { return a*b + c }),
		ptx.S16: lift3(func(a, b, c uint32) uint32 { return uint32(arith.MulWideS16(int16(a), int16(b))) + c }),
		ptx.U32: opMadWideU32, ptx.S32: opMadWideS32,
	},
}

// twice returns the type of twice the size.
func twice(t ptx.Type) ptx.Type {
	switch t {
	case ptx.U16:
		return ptx.U32
	case ptx.S16:
		return ptx.S32
	case ptx.U32:
		return ptx.U64
	}
	return ptx.S64
}

// arithmetic compiles an opcode that has integer and floating-point forms.
func arithmetic(opcode string, n int) handler {
	return func(c *compiler, in *ptx.Instr, m *mods) error {
		if isFloat(in) {
			return floatOp(c, in, m, opcode, n)
		}
		name := opcode
		switch part := m.any("lo", "hi", "wide"); {
		case part == "wide":
			t := m.typ()
			f, ok := wide[opcode][t]
			if !ok {
				return c.unsupported("type .%s", t)
			}
			types := []ptx.Type{twice(t), t, t, twice(t)}
			return c.simple(in, f, c.costs().Simple, types[:n+1]...)
		case part != "":
			name += "." + part
		}
		cc, sat := m.has("cc"), m.has("sat")
		t := m.typ()
		switch {
		case cc:
			return carryOp(c, in, name, t, false, true)
		case sat:
			return saturated(c, in, name, t)
		case m.has("relu"):
			f, ok := map[string]byType{
				"min": {ptx.S32: lift2(arith.MinReluS32), ptx.S16x2: lift2(arith.MinReluS16x2)},
				"max": {ptx.S32: lift2(arith.MaxReluS32), ptx.S16x2: lift2(arith.MaxReluS16x2)},
			}[opcode][t]
			if !ok {
				return c.unsupported("modifier .relu")
			}
			return c.simple(in, f, c.costs().Simple, t, t, t)
		}
		table := intBinary
		if n == 3 {
			table = intTernary
		}
		f, ok := table[name].find(t)
		if !ok {
			return c.unsupported("type .%s", t)
		}
		cost := c.costs().Simple
		switch {
		case opcode == "div" || opcode == "rem":
			cost = c.costs().Special
		case t.Bits() == 64 && (opcode == "mul" || opcode == "mad"):
			cost = c.costs().Wide
		}
		return c.simple(in, f, cost, repeat(t, n+1)...)
	}
}

// saturated compiles the signed 32-bit operations with .sat.
func saturated(c *compiler, in *ptx.Instr, name string, t ptx.Type) error {
	f := map[string]opFunc{
		"add": lift2(arith.AddSatS32), "sub": lift2(arith.SubSatS32),
		"mad.hi": lift3(arith.MadHiSatS32), "mad24.hi": lift3(arith.Mad24HiSatS32),
	}[name]
	if f == nil || t != ptx.S32 {
		return c.unsupported("modifier .sat")
	}
	return c.simple(in, f, c.costs().Simple, repeat(t, len(in.Operands))...)
}

func isFloat(in *ptx.Instr) bool {
	for _, s := range in.Modifiers {
		if t, ok := ptx.ParseType(s); ok {
			return t.Class() == ptx.Float
		}
	}
	return false
}

// unary compiles neg and abs.
func unary(opcode string) handler {
	table := map[string]byType{
		"neg": {ptx.S16: short1(func(a uint16) uint16 { return -a }), ptx.S32: opNeg32, ptx.S64: opNeg64},
		"abs": {ptx.S16: short1(arith.Abs[int16]), ptx.S32: opAbsS32, ptx.S64: opAbsS64},
	}[opcode]
	return func(c *compiler, in *ptx.Instr, m *mods) error {
		if isFloat(in) {
			return floatOp(c, in, m, opcode, 1)
		}
		return plain(1, simpleCost, table)(c, in, m)
	}
}
