package simt

import (
	"encoding/binary"
	"math"

	"vgpud/gpu/soft/arith"
	"vgpud/ptx"
)

// atomics32 and atomics64 hold the operations of atom and red: they compute the new value from the
// old value and the operands.
var atomics32 = map[string]map[ptx.Type]func(old, b, c uint32) uint32{
	"add": {
		ptx.U32: func(old, b, _ uint32) uint32 { return old + b }, ptx.S32: func(old, b, _ uint32) uint32 { return old + b },
		ptx.F16x2:  func(old, b, _ uint32) uint32 { return arith.Packed2(old, b, arith.Mode{}, arith.F16.Add) },
		ptx.BF16x2: func(old, b, _ uint32) uint32 { return arith.Packed2(old, b, arith.Mode{}, arith.BF16.Add) },
	},
	"min": {
		ptx.U32: func(old, b, _ uint32) uint32 { return min(old, b) },
		ptx.S32: func(old, b, _ uint32) uint32 { return uint32(min(int32(old), int32(b))) },
	},
	"max": {
		ptx.U32: func(old, b, _ uint32) uint32 { return max(old, b) },
		ptx.S32: func(old, b, _ uint32) uint32 { return uint32(max(int32(old), int32(b))) },
	},
	"inc":  {ptx.U32: func(old, b, _ uint32) uint32 { return arith.AtomInc(old, b) }},
	"dec":  {ptx.U32: func(old, b, _ uint32) uint32 { return arith.AtomDec(old, b) }},
	"and":  {ptx.B32: func(old, b, _ uint32) uint32 { return old & b }},
	"or":   {ptx.B32: func(old, b, _ uint32) uint32 { return old | b }},
	"xor":  {ptx.B32: func(old, b, _ uint32) uint32 { return old ^ b }},
	"exch": {ptx.B32: func(_, b, _ uint32) uint32 { return b }},
	"cas":  {ptx.B32: func(old, b, c uint32) uint32 { return arith.AtomCas(old, b, c) }},
}

var atomics64 = map[string]map[ptx.Type]func(old, b, c uint64) uint64{
	"add": {ptx.U64: func(old, b, _ uint64) uint64 { return old + b }, ptx.S64: func(old, b, _ uint64) uint64 { return old + b }},
	"min": {
		ptx.U64: func(old, b, _ uint64) uint64 { return min(old, b) },
		ptx.S64: func(old, b, _ uint64) uint64 { return uint64(min(int64(old), int64(b))) },
	},
	"max": {
		ptx.U64: func(old, b, _ uint64) uint64 { return max(old, b) },
		ptx.S64: func(old, b, _ uint64) uint64 { return uint64(max(int64(old), int64(b))) },
	},
	"and":  {ptx.B64: func(old, b, _ uint64) uint64 { return old & b }},
	"or":   {ptx.B64: func(old, b, _ uint64) uint64 { return old | b }},
	"xor":  {ptx.B64: func(old, b, _ uint64) uint64 { return old ^ b }},
	"exch": {ptx.B64: func(_, b, _ uint64) uint64 { return b }},
	"cas":  {ptx.B64: func(old, b, c uint64) uint64 { return arith.AtomCas(old, b, c) }},
}

var atomics16 = map[string]map[ptx.Type]func(old, b, c uint32) uint32{
	"add": {
		ptx.F16:  func(old, b, _ uint32) uint32 { return uint32(arith.F16.Add(uint16(old), uint16(b), arith.Mode{})) },
		ptx.BF16: func(old, b, _ uint32) uint32 { return uint32(arith.BF16.Add(uint16(old), uint16(b), arith.Mode{})) },
	},
	"exch": {ptx.B16: func(_, b, _ uint32) uint32 { return b }},
	"cas":  {ptx.B16: func(old, b, c uint32) uint32 { return arith.AtomCas(old, b, c) }},
}

// atomic compiles atom and red. The lanes perform the operation in order.
func atomic(c *compiler, in *ptx.Instr, m *mods) error {
	reduce := in.Opcode == "red"
	m.has("async")
	space := m.space()
	op := m.any("add", "min", "max", "inc", "dec", "and", "or", "xor", "exch", "cas")
	system := m.has("sys")
	m.skip(ordering...)
	m.skip("noftz")
	if n := m.vector(); n > 1 {
		return c.unsupported("vectors")
	}
	t := m.typ()
	ops := in.Operands
	d := operand{class: noReg}
	var err error
	if !reduce {
		if len(ops) < 3 {
			return c.invalid("%d operands", len(ops))
		}
		if ops[0].Kind != ptx.KindSink {
			if d, err = c.dst(&ops[0], t); err != nil {
				return err
			}
		}
		ops = ops[1:]
	}
	want := 2
	if op == "cas" {
		want = 3
	}
	if len(ops) < want || len(ops) > want+1 {
		return c.invalid("%d operands", len(in.Operands))
	}
	p, err := c.address(&ops[0], space)
	if err != nil {
		return err
	}
	if p.param != nil || p.space == ptx.ConstSpace || p.space == ptx.LocalSpace {
		return c.invalid("in space .%s", p.space)
	}
	b, err := c.src(&ops[1], t)
	if err != nil {
		return err
	}
	third := b
	if want == 3 {
		if third, err = c.src(&ops[2], t); err != nil {
			return err
		}
	}
	move := atomicMover(op, t, space, d, b, third)
	if system && move != nil {
		move = systemMover(op, t, move, d, b, third)
	}
	if move == nil {
		return c.unsupported("operation .%s on .%s", op, t)
	}
	c.memory(p, d, t.Size(), true, move)
	return nil
}

func atomicMover(op string, t ptx.Type, space ptx.Space, d, b, third operand) mover {
	switch {
	case t == ptx.F32 && op == "add":
		f := arith.AddF32
		if space != ptx.SharedSpace {
			f = arith.AtomAddGlobalF32
		}
		return floatAdd32(f, d, b)
	case t == ptx.F64 && op == "add":
		return floatAdd64(d, b)
	case t.Bits() == 64:
		if f := atomics64[op][t]; f != nil {
			return func(w *warp, in *inst, data []byte) {
				w.chargeAtomics()
				for m := w.mask; m != 0; m &= m - 1 {
					i := first(m)
					p := data[w.off[i]:]
					old := binary.LittleEndian.Uint64(p)
					binary.LittleEndian.PutUint64(p, f(old, w.r64[b.index][i], w.r64[third.index][i]))
					if d.class != noReg {
						w.r64[d.index][i] = old
					}
				}
			}
		}
	case t.Bits() == 32:
		if f := atomics32[op][t]; f != nil {
			return func(w *warp, in *inst, data []byte) {
				w.chargeAtomics()
				for m := w.mask; m != 0; m &= m - 1 {
					i := first(m)
					p := data[w.off[i]:]
					old := binary.LittleEndian.Uint32(p)
					binary.LittleEndian.PutUint32(p, f(old, w.r32[b.index][i], w.r32[third.index][i]))
					if d.class != noReg {
						w.r32[d.index][i] = old
					}
				}
			}
		}
	case t.Bits() == 16:
		if f := atomics16[op][t]; f != nil {
			return func(w *warp, in *inst, data []byte) {
				w.chargeAtomics()
				for m := w.mask; m != 0; m &= m - 1 {
					i := first(m)
					p := data[w.off[i]:]
					old := uint32(binary.LittleEndian.Uint16(p))
					binary.LittleEndian.PutUint16(p, uint16(f(old, w.r32[b.index][i], w.r32[third.index][i])))
					if d.class != noReg {
						w.r32[d.index][i] = old
					}
				}
			}
		}
	}
	return nil
}

func floatAdd32(f func(old, b float32) float32, d, b operand) mover {
	return func(w *warp, in *inst, data []byte) {
		w.chargeAtomics()
		v := vec[float32](w, b.index)
		for m := w.mask; m != 0; m &= m - 1 {
			i := first(m)
			p := data[w.off[i]:]
			old := binary.LittleEndian.Uint32(p)
			binary.LittleEndian.PutUint32(p, math.Float32bits(f(math.Float32frombits(old), v[i])))
			if d.class != noReg {
				w.r32[d.index][i] = old
			}
		}
	}
}

func floatAdd64(d, b operand) mover {
	return func(w *warp, in *inst, data []byte) {
		w.chargeAtomics()
		v := vec[float64](w, b.index)
		for m := w.mask; m != 0; m &= m - 1 {
			i := first(m)
			p := data[w.off[i]:]
			old := binary.LittleEndian.Uint64(p)
			binary.LittleEndian.PutUint64(p, math.Float64bits(arith.AddF64(math.Float64frombits(old), v[i])))
			if d.class != noReg {
				w.r64[d.index][i] = old
			}
		}
	}
}

// chargeAtomics charges for the lanes of an atomic operation.
func (w *warp) chargeAtomics() {
	w.counts.Cycles += uint64(popcount(w.mask)) * uint64(w.grid.costs.Atomic)
}
