package simt

import (
	"math/bits"

	"vgpud/gpu/soft/arith"
	"vgpud/ptx"
)

// extended returns the handler of addc, subc or madc, which use the carry.
func extended(opcode string) handler {
	return func(c *compiler, in *ptx.Instr, m *mods) error {
		name := opcode
		if part := m.any("lo", "hi"); part != "" {
			name += "." + part
		}
		cc := m.has("cc")
		return carryOp(c, in, name, m.typ(), true, cc)
	}
}

// carryOp compiles the extended-precision instructions. The condition code is a mask of lanes.
func carryOp(c *compiler, in *ptx.Instr, name string, t ptx.Type, takes, gives bool) error {
	var f opFunc
	n := 2
	switch {
	case name == "mad.lo" || name == "mad.hi":
		n = 3
		f = madCarry(name == "mad.hi", t, takes, gives)
	case name != "add" && name != "sub":
	case t.Bits() == 32:
		step := arith.AddC32
		if name == "sub" {
			step = arith.SubC32
		}
		f = func(w *warp, in *inst) {
			d, a, b := &w.r32[in.d], &w.r32[in.a], &w.r32[in.b]
			for m := w.mask; m != 0; m &= m - 1 {
				i := first(m)
				v, out := step(a[i], b[i], w.carryIn(i, takes))
				d[i] = v
				w.carryOut(i, out, gives)
			}
		}
	case t.Bits() == 64:
		step := arith.AddC64
		if name == "sub" {
			step = arith.SubC64
		}
		f = func(w *warp, in *inst) {
			d, a, b := &w.r64[in.d], &w.r64[in.a], &w.r64[in.b]
			for m := w.mask; m != 0; m &= m - 1 {
				i := first(m)
				v, out := step(a[i], b[i], uint64(w.carryIn(i, takes)))
				d[i] = v
				w.carryOut(i, uint32(out), gives)
			}
		}
	}
	if f == nil {
		return c.unsupported("type .%s", t)
	}
	return c.simple(in, f, c.costs().Simple, repeat(t, n+1)...)
}

func (w *warp) carryIn(lane int, takes bool) uint32 {
	if takes {
		return w.carry >> lane & 1
	}
	return 0
}

func (w *warp) carryOut(lane int, c uint32, gives bool) {
	if gives {
		w.carry = w.carry&^(1<<lane) | c<<lane
	}
}

// madCarry returns the operation of mad.cc or madc: half of a product, plus the third operand and
// the carry.
func madCarry(high bool, t ptx.Type, takes, gives bool) opFunc {
	product32 := func(a, b uint32) uint32 { return a * b }
	product64 := func(a, b uint64) uint64 { return a * b }
	if high {
		product32 = arith.MulHiU32
		product64 = arith.MulHiU64
		if t.Class() == ptx.Signed {
			product32 = func(a, b uint32) uint32 { return uint32(arith.MulHiS32(int32(a), int32(b))) }
			product64 = func(a, b uint64) uint64 { return uint64(arith.MulHiS64(int64(a), int64(b))) }
		}
	}
	switch t.Bits() {
	case 32:
		return func(w *warp, in *inst) {
			d, a, b, c := &w.r32[in.d], &w.r32[in.a], &w.r32[in.b], &w.r32[in.c]
			for m := w.mask; m != 0; m &= m - 1 {
				i := first(m)
				v, out := bits.Add32(product32(a[i], b[i]), c[i], w.carryIn(i, takes))
				d[i] = v
				w.carryOut(i, out, gives)
			}
		}
	case 64:
		return func(w *warp, in *inst) {
			d, a, b, c := &w.r64[in.d], &w.r64[in.a], &w.r64[in.b], &w.r64[in.c]
			for m := w.mask; m != 0; m &= m - 1 {
				i := first(m)
				v, out := bits.Add64(product64(a[i], b[i]), c[i], uint64(w.carryIn(i, takes)))
				d[i] = v
				w.carryOut(i, uint32(out), gives)
			}
		}
	}
	return nil
}
