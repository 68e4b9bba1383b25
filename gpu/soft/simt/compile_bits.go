package simt

import (
	"vgpud/gpu/soft/arith"
	"vgpud/ptx"
)

// logic makes the handler of and, or and xor, which work on predicates too.
func logic(word32, word64 opFunc, short func(a, b uint16) uint16, pred func(a, b uint32) uint32) handler {
	table := byType{ptx.B16: short2(short), ptx.B32: word32, ptx.B64: word64}
	return func(c *compiler, in *ptx.Instr, m *mods) error {
		if m.has("pred") {
			if err := c.arity(in, 3, 3); err != nil {
				return err
			}
			return c.predLogic(in, pred)
		}
		return plain(2, simpleCost, table)(c, in, m)
	}
}

// predLogic compiles an operation on masks.
func (c *compiler) predLogic(in *ptx.Instr, f func(a, b uint32) uint32) error {
	d, err := c.dstPred(&in.Operands[0])
	if err != nil {
		return err
	}
	a, err := c.pred(&in.Operands[1])
	if err != nil {
		return err
	}
	b, err := c.pred(&in.Operands[len(in.Operands)-1])
	if err != nil {
		return err
	}
	na, nb := -bit(a.not), -bit(b.not)
	c.op(func(w *warp, in *inst) {
		w.setPred(in.d, w.mask, f(w.pred[in.a]^na, w.pred[in.b]^nb))
	}, c.costs().Simple, d, a, b)
	return nil
}

func notOp(c *compiler, in *ptx.Instr, m *mods) error {
	if m.has("pred") {
		if err := c.arity(in, 2, 2); err != nil {
			return err
		}
		return c.predLogic(in, func(a, _ uint32) uint32 { return ^a })
	}
	return plain(1, simpleCost, byType{ptx.B16: short1(func(a uint16) uint16 { return ^a }), ptx.B32: opNot32, ptx.B64: opNot64})(c, in, m)
}

// shift makes the handler of shl and shr, whose second source is a u32.
func shift(table byType) handler {
	return func(c *compiler, in *ptx.Instr, m *mods) error {
		t := m.typ()
		f, ok := table.find(t)
		if !ok {
			return c.unsupported("type .%s", t)
		}
		return c.simple(in, f, c.costs().Simple, t, t, ptx.U32)
	}
}

func shortShift(f func(a uint16, n uint32) uint16) opFunc {
	return lift2(func(a, n uint32) uint32 { return uint32(f(uint16(a), n)) })
}

// funnel compiles shf.
func funnel(c *compiler, in *ptx.Instr, m *mods) error {
	f := map[string]opFunc{
		"l.wrap": opShfLWrap, "l.clamp": lift3(arith.ShfLClamp), "r.wrap": opShfRWrap, "r.clamp": lift3(arith.ShfRClamp),
	}[m.any("l", "r")+"."+m.any("wrap", "clamp")]
	if f == nil || m.typ() != ptx.B32 {
		return c.unsupported("a form of shf")
	}
	return c.simple(in, f, c.costs().Simple, repeat(ptx.B32, 4)...)
}

// count makes the handler of popc and clz, whose result is a u32.
func count(word, long opFunc) handler {
	return func(c *compiler, in *ptx.Instr, m *mods) error {
		t := m.typ()
		switch t {
		case ptx.B32:
			return c.simple(in, word, c.costs().Convert, ptx.U32, t)
		case ptx.B64:
			return c.simple(in, long, c.costs().Convert, ptx.U32, t)
		}
		return c.unsupported("type .%s", t)
	}
}

func bfind(c *compiler, in *ptx.Instr, m *mods) error {
	amount := m.has("shiftamt")
	t := m.typ()
	shift := func(p uint32) uint32 {
		if amount {
			return arith.BfindShift(p, uint32(t.Bits()))
		}
		return p
	}
	f, ok := byType{
		ptx.U32: lift1(func(a uint32) uint32 { return shift(arith.BfindU32(a)) }),
		ptx.S32: lift1(func(a int32) uint32 { return shift(arith.BfindS32(a)) }),
		ptx.U64: lift1(func(a uint64) uint32 { return shift(arith.BfindU64(a)) }),
		ptx.S64: lift1(func(a int64) uint32 { return shift(arith.BfindS64(a)) }),
	}[t]
	if !ok {
		return c.unsupported("type .%s", t)
	}
	return c.simple(in, f, c.costs().Convert, ptx.U32, t)
}

// bfe compiles bfe. Position and length are u32 for every type.
func bfe(c *compiler, in *ptx.Instr, m *mods) error {
	t := m.typ()
	f, ok := byType{
		ptx.U32: opBfeU32, ptx.S32: lift3(arith.BfeS32), ptx.U64: lift3(arith.BfeU64), ptx.S64: lift3(arith.BfeS64),
	}[t]
	if !ok {
		return c.unsupported("type .%s", t)
	}
	return c.simple(in, f, c.costs().Simple, t, t, ptx.U32, ptx.U32)
}

// bfi compiles bfi. It has four sources; the last is passed in the result's register.
func bfi(c *compiler, in *ptx.Instr, m *mods) error {
	t := m.typ()
	if t != ptx.B32 && t != ptx.B64 {
		return c.unsupported("type .%s", t)
	}
	d, src, err := c.sources(in, t, t, t, ptx.U32, ptx.U32)
	if err != nil {
		return err
	}
	length := src[3].index
	op := func(w *warp, in *inst) {
		d, a, b := &w.r32[in.d], &w.r32[in.a], &w.r32[in.b]
		pos, n := &w.r32[in.c], &w.r32[length]
		for m := w.mask; m != 0; m &= m - 1 {
			i := first(m)
			d[i] = arith.Bfi32(a[i], b[i], pos[i], n[i])
		}
	}
	if t == ptx.B64 {
		op = func(w *warp, in *inst) {
			d, a, b := &w.r64[in.d], &w.r64[in.a], &w.r64[in.b]
			pos, n := &w.r32[in.c], &w.r32[length]
			for m := w.mask; m != 0; m &= m - 1 {
				i := first(m)
				d[i] = arith.Bfi64(a[i], b[i], pos[i], n[i])
			}
		}
	}
	c.op(op, c.costs().Simple, d, src[:3]...)
	return nil
}

// constantOf returns an operand that must be a constant.
func (c *compiler) constantOf(in *ptx.Instr, i int) (uint64, error) {
	if i >= len(in.Operands) || in.Operands[i].Kind != ptx.KindImm {
		return 0, c.invalid("operand %d is not a constant", i+1)
	}
	return in.Operands[i].Bits, nil
}

func lop3(c *compiler, in *ptx.Instr, m *mods) error {
	combine := m.any("or", "and")
	if t := m.typ(); t != ptx.B32 {
		return c.unsupported("type .%s", t)
	}
	if err := c.arity(in, 5, 6); err != nil {
		return err
	}
	v, err := c.constantOf(in, 4)
	if err != nil {
		return err
	}
	table := uint8(v)
	part := *in
	part.Operands = in.Operands[:4]
	var p operand
	if in.Operands[0].Kind == ptx.KindPair {
		part.Operands = append([]ptx.Operand{in.Operands[0].Elems[0]}, in.Operands[1:4]...)
		if p, err = c.dstPred(&in.Operands[0].Elems[1]); err != nil {
			return err
		}
	}
	d, src, err := c.sources(&part, repeat(ptx.B32, 4)...)
	if err != nil {
		return err
	}
	c.op(lift3(func(a, b, c uint32) uint32 { return arith.Lop3(a, b, c, table) }), c.costs().Simple, d, src...)
	if p.class == noReg {
		return nil
	}
	if len(in.Operands) != 6 || combine == "" {
		return c.unsupported("this form of lop3")
	}
	q, err := c.pred(&in.Operands[5])
	if err != nil {
		return err
	}
	zero := c.constant(reg32, 0)
	not := -bit(q.not)
	c.op(func(w *warp, in *inst) {
		v, q := cmpNeU32(w, in), w.pred[in.c]^not
		if combine == "or" {
			v |= q
		} else {
			v &= q
		}
		w.setPred(in.d, w.mask, v)
	}, 0, p, d, zero, q)
	return nil
}

func prmt(c *compiler, in *ptx.Instr, m *mods) error {
	mode := map[string]arith.Permute{
		"f4e": arith.PermuteF4E, "b4e": arith.PermuteB4E, "rc8": arith.PermuteRC8,
		"ecl": arith.PermuteECL, "ecr": arith.PermuteECR, "rc16": arith.PermuteRC16,
	}[m.any("f4e", "b4e", "rc8", "ecl", "ecr", "rc16")]
	if t := m.typ(); t != ptx.B32 {
		return c.unsupported("type .%s", t)
	}
	f := lift3(arith.Prmt)
	if mode != arith.PermuteIndex {
		f = lift3(func(a, b, control uint32) uint32 { return arith.PrmtMode(mode, a, b, control) })
	}
	return c.simple(in, f, c.costs().Simple, repeat(ptx.B32, 4)...)
}

// fns compiles fns.b32: the position of the n-th set bit from a base.
func fns(c *compiler, in *ptx.Instr, m *mods) error {
	if t := m.typ(); t != ptx.B32 {
		return c.unsupported("type .%s", t)
	}
	return c.simple(in, lift3(arith.Fns), c.costs().Slow, ptx.B32, ptx.B32, ptx.B32, ptx.S32)
}

func szext(c *compiler, in *ptx.Instr, m *mods) error {
	table := byType{ptx.U32: lift2(arith.SzextClampU32), ptx.S32: lift2(arith.SzextClampS32)}
	if m.any("clamp", "wrap") == "wrap" {
		table = byType{ptx.U32: lift2(arith.SzextWrapU32), ptx.S32: lift2(arith.SzextWrapS32)}
	}
	t := m.typ()
	f, ok := table[t]
	if !ok {
		return c.unsupported("type .%s", t)
	}
	return c.simple(in, f, c.costs().Simple, t, t, ptx.U32)
}

func bmsk(c *compiler, in *ptx.Instr, m *mods) error {
	f := lift2(arith.BmskClamp)
	if m.any("clamp", "wrap") == "wrap" {
		f = lift2(arith.BmskWrap)
	}
	if t := m.typ(); t != ptx.B32 {
		return c.unsupported("type .%s", t)
	}
	return c.simple(in, f, c.costs().Simple, ptx.B32, ptx.U32, ptx.U32)
}

// dot compiles dp4a and dp2a.
func dot(two bool) handler {
	return func(c *compiler, in *ptx.Instr, m *mods) error {
		f := arith.Dp4a
		if two {
			f = arith.Dp2aLo
			if m.any("lo", "hi") == "hi" {
				f = arith.Dp2aHi
			}
		}
		ta, tb := m.typ(), m.typ()
		if ta.Bits() != 32 || tb.Bits() != 32 {
			return c.unsupported("types .%s.%s", ta, tb)
		}
		sa, sb := ta == ptx.S32, tb == ptx.S32
		return c.simple(in, lift3(func(a, b, c uint32) uint32 { return f(a, b, c, sa, sb) }), c.costs().Simple, repeat(ptx.B32, 4)...)
	}
}
