package simt

import (
	"vgpud/gpu/soft/arith"
	"vgpud/ptx"
)

// comparison returns the function that compares the lanes of two registers.
func comparison(t ptx.Type, cmp arith.Cmp, ftz bool) func(w *warp, in *inst) uint32 {
	if f, ok := wordCompares[t][cmp]; ok && !ftz {
		return f
	}
	switch t {
	case ptx.F32:
		return compareLanes(func(a, b float32) bool { return arith.Compare(cmp, arith.FlushF32(a), arith.FlushF32(b)) })
	case ptx.F64:
		return compareLanes(func(a, b float64) bool { return arith.Compare(cmp, a, b) })
	case ptx.B16, ptx.U16:
		return compareLanes(func(a, b uint32) bool { return arith.Compare(cmp, a, b) })
	case ptx.S16:
		return compareLanes(func(a, b uint32) bool { return arith.Compare(cmp, int16(a), int16(b)) })
	case ptx.F16, ptx.BF16:
		h := halfType(t)
		return compareLanes(func(a, b uint32) bool { return h.Compare(cmp, uint16(a), uint16(b), arith.Mode{FTZ: ftz}) })
	}
	return nil
}

func compareLanes[T value](f func(a, b T) bool) func(w *warp, in *inst) uint32 {
	return func(w *warp, in *inst) (v uint32) {
		a, b := vec[T](w, in.a), vec[T](w, in.b)
		for m := w.mask; m != 0; m &= m - 1 {
			i := first(m)
			v |= bit(f(a[i], b[i])) << i
		}
		return v
	}
}

type compareTable map[arith.Cmp]func(w *warp, in *inst) uint32

// wordCompares holds the comparisons with loops of their own.
var wordCompares = func() map[ptx.Type]compareTable {
	u32 := compareTable{
		arith.CmpEq: cmpEqU32, arith.CmpNe: cmpNeU32, arith.CmpLt: cmpLtU32, arith.CmpLe: cmpLeU32, arith.CmpGt: cmpGtU32, arith.CmpGe: cmpGeU32,
	}
	u64 := compareTable{
		arith.CmpEq: cmpEqU64, arith.CmpNe: cmpNeU64, arith.CmpLt: cmpLtU64, arith.CmpLe: cmpLeU64, arith.CmpGt: cmpGtU64, arith.CmpGe: cmpGeU64,
	}
	return map[ptx.Type]compareTable{
		ptx.U32: u32, ptx.B32: u32, ptx.U64: u64, ptx.B64: u64,
		ptx.S32: {
			arith.CmpEq: cmpEqU32, arith.CmpNe: cmpNeU32, arith.CmpLt: cmpLtS32, arith.CmpLe: cmpLeS32, arith.CmpGt: cmpGtS32, arith.CmpGe: cmpGeS32,
		},
		ptx.S64: {
			arith.CmpEq: cmpEqU64, arith.CmpNe: cmpNeU64, arith.CmpLt: cmpLtS64, arith.CmpLe: cmpLeS64, arith.CmpGt: cmpGtS64, arith.CmpGe: cmpGeS64,
		},
		ptx.F32: {
			arith.CmpEq: cmpEqF32, arith.CmpNe: cmpNeF32, arith.CmpLt: cmpLtF32, arith.CmpLe: cmpLeF32, arith.CmpGt: cmpGtF32, arith.CmpGe: cmpGeF32,
			arith.CmpEqu: cmpEquF32, arith.CmpNeu: cmpNeuF32, arith.CmpLtu: cmpLtuF32, arith.CmpLeu: cmpLeuF32, arith.CmpGtu: cmpGtuF32,
			arith.CmpGeu: cmpGeuF32, arith.CmpNum: cmpNumF32, arith.CmpNan: cmpNanF32,
		},
		ptx.F64: {
			arith.CmpEq: cmpEqF64, arith.CmpNe: cmpNeF64, arith.CmpLt: cmpLtF64, arith.CmpLe: cmpLeF64, arith.CmpGt: cmpGtF64, arith.CmpGe: cmpGeF64,
			arith.CmpEqu: cmpEquF64, arith.CmpNeu: cmpNeuF64, arith.CmpLtu: cmpLtuF64, arith.CmpLeu: cmpLeuF64, arith.CmpGtu: cmpGtuF64,
			arith.CmpGeu: cmpGeuF64, arith.CmpNum: cmpNumF64, arith.CmpNan: cmpNanF64,
		},
	}
}()

// combine consumes .and, .or or .xor.
func (m *mods) combine() func(a, b uint32) uint32 {
	switch m.any("and", "or", "xor") {
	case "and":
		return func(a, b uint32) uint32 { return a & b }
	case "or":
		return func(a, b uint32) uint32 { return a | b }
	case "xor":
		return func(a, b uint32) uint32 { return a ^ b }
	}
	return nil
}

// setp compiles setp. p and q of p|q are set to the comparison and its complement, each combined
// with a third predicate if there is one.
func setp(c *compiler, in *ptx.Instr, m *mods) error {
	cmp, ok := m.compare()
	if !ok {
		return c.invalid("no comparison")
	}
	join := m.combine()
	ftz := m.has("ftz")
	t := m.typ()
	if t == ptx.F16x2 || t == ptx.BF16x2 {
		return setpPair(c, in, cmp, ftz, t)
	}
	f := comparison(t, cmp, ftz)
	if f == nil {
		return c.unsupported("type .%s", t)
	}
	if err := c.arity(in, 3, 4); err != nil {
		return err
	}
	d, q, err := c.dstPreds(&in.Operands[0])
	if err != nil {
		return err
	}
	a, err := c.src(&in.Operands[1], t)
	if err != nil {
		return err
	}
	b, err := c.src(&in.Operands[2], t)
	if err != nil {
		return err
	}
	if join == nil && q.class == noReg {
		if len(in.Operands) == 4 {
			return c.invalid("a predicate to combine with, but no operator")
		}
		c.op(predicate(f), c.costs().Simple, d, a, b)
		return nil
	}
	third := c.always()
	if join == nil {
		join = func(a, _ uint32) uint32 { return a }
	} else if len(in.Operands) != 4 {
		return c.invalid("no predicate to combine with")
	} else if third, err = c.pred(&in.Operands[3]); err != nil {
		return err
	}
	not := -bit(third.not)
	two := q.class != noReg
	c.op(func(w *warp, in *inst) {
		v, r := f(w, in), w.pred[in.c]^not
		if two {
			w.setPred(q.index, w.mask, join(^v, r))
		}
		w.setPred(in.d, w.mask, join(v, r))
	}, c.costs().Simple, d, a, b, third)
	return nil
}

// dstPreds returns the predicates that p or p|q names.
func (c *compiler) dstPreds(o *ptx.Operand) (p, q operand, err error) {
	if o.Kind != ptx.KindPair {
		p, err = c.dstPred(o)
		return
	}
	if p, err = c.dstPred(&o.Elems[0]); err == nil {
		q, err = c.dstPred(&o.Elems[1])
	}
	return
}

// setpPair compiles setp of pairs, which sets one predicate for each half.
func setpPair(c *compiler, in *ptx.Instr, cmp arith.Cmp, ftz bool, t ptx.Type) error {
	if err := c.arity(in, 3, 3); err != nil {
		return err
	}
	p, q, err := c.dstPreds(&in.Operands[0])
	if err != nil {
		return err
	}
	a, err := c.src(&in.Operands[1], t)
	if err != nil {
		return err
	}
	b, err := c.src(&in.Operands[2], t)
	if err != nil {
		return err
	}
	h, mode := halfType(t), arith.Mode{FTZ: ftz}
	low := compareLanes(func(a, b uint32) bool { return h.Compare(cmp, uint16(a), uint16(b), mode) })
	high := compareLanes(func(a, b uint32) bool { return h.Compare(cmp, uint16(a>>16), uint16(b>>16), mode) })
	c.op(predicate(low), c.costs().Simple, p, a, b)
	if q.class != noReg {
		c.op(predicate(high), 0, q, a, b)
	}
	return nil
}

// set compiles set, whose true value is all ones, or 1.0 for a float type.
func set(c *compiler, in *ptx.Instr, m *mods) error {
	cmp, ok := m.compare()
	if !ok {
		return c.invalid("no comparison")
	}
	join := m.combine()
	ftz := m.has("ftz")
	dt, t := m.typ(), m.typ()
	f := comparison(t, cmp, ftz)
	yes, ok := map[ptx.Type]uint64{ptx.U32: 0xffffffff, ptx.S32: 0xffffffff, ptx.B32: 0xffffffff, ptx.F32: 0x3f800000, ptx.U16: 0xffff, ptx.S16: 0xffff, ptx.F16: 0x3c00, ptx.BF16: 0x3f80}[dt]
	if f == nil || !ok {
		return c.unsupported("types .%s.%s", dt, t)
	}
	if err := c.arity(in, 3, 4); err != nil {
		return err
	}
	d, err := c.dst(&in.Operands[0], dt)
	if err != nil {
		return err
	}
	a, err := c.src(&in.Operands[1], t)
	if err != nil {
		return err
	}
	b, err := c.src(&in.Operands[2], t)
	if err != nil {
		return err
	}
	third := c.always()
	if (join != nil) != (len(in.Operands) == 4) {
		return c.invalid("an operator without a predicate, or the other way round")
	}
	if join != nil {
		if third, err = c.pred(&in.Operands[3]); err != nil {
			return err
		}
	} else {
		join = func(a, _ uint32) uint32 { return a }
	}
	not := -bit(third.not)
	c.op(func(w *warp, in *inst) {
		spread(&w.r32[in.d], w.mask, join(f(w, in), w.pred[in.c]^not), uint32(yes), 0)
	}, c.costs().Simple, d, a, b, third)
	return nil
}

// selp compiles selp, which selects by a predicate.
func selp(c *compiler, in *ptx.Instr, m *mods) error {
	t := m.typ()
	if t.Bits() < 16 || t.Bits() > 64 {
		return c.unsupported("type .%s", t)
	}
	if err := c.arity(in, 4, 4); err != nil {
		return err
	}
	part := *in
	part.Operands = in.Operands[:3]
	d, src, err := c.sources(&part, t, t, t)
	if err != nil {
		return err
	}
	p, err := c.pred(&in.Operands[3])
	if err != nil {
		return err
	}
	if p.not {
		src[0], src[1] = src[1], src[0]
	}
	f := selp32
	if t.Bits() == 64 {
		f = selp64
	}
	c.op(f, c.costs().Simple, d, src[0], src[1], p)
	return nil
}

func selp32(w *warp, in *inst) { choose(w, &w.r32[in.d], &w.r32[in.a], &w.r32[in.b], w.pred[in.c]) }
func selp64(w *warp, in *inst) { choose(w, &w.r64[in.d], &w.r64[in.a], &w.r64[in.b], w.pred[in.c]) }

func choose[T uint32 | uint64](w *warp, d, a, b *[lanes]T, p uint32) {
	// Without branches, which a processor can't predict where the lanes differ.
	if w.mask == full {
		for i := range d {
			d[i] = b[i] ^ (a[i]^b[i])&-T(p>>i&1)
		}
		return
	}
	for m := w.mask; m != 0; m &= m - 1 {
		i := first(m)
		d[i] = b[i] ^ (a[i]^b[i])&-T(p>>i&1)
	}
}

// slct compiles slct, which selects by the sign of its third source.
func slct(c *compiler, in *ptx.Instr, m *mods) error {
	ftz := m.has("ftz")
	t, by := m.typ(), m.typ()
	if t.Bits() < 16 || t.Bits() > 64 || by != ptx.S32 && by != ptx.F32 {
		return c.unsupported("types .%s.%s", t, by)
	}
	positive := func(v uint32) bool { return int32(v) >= 0 }
	if by == ptx.F32 {
		positive = func(v uint32) bool {
			if ftz && v&0x7f800000 == 0 {
				v = 0
			}
			return v&0x7fffffff <= 0x7f800000 && (int32(v) >= 0 || v == 1<<31)
		}
	}
	f := lift3(func(a, b, c uint32) uint32 {
		if positive(c) {
			return a
		}
		return b
	})
	if t.Bits() == 64 {
		f = lift3(func(a, b uint64, c uint32) uint64 {
			if positive(c) {
				return a
			}
			return b
		})
	}
	return c.simple(in, f, c.costs().Simple, t, t, t, by)
}
