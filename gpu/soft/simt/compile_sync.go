package simt

import (
	"vgpud/ptx"
)

// bar compiles bar and barrier in all their forms.
func bar(c *compiler, in *ptx.Instr, m *mods) error {
	if m.has("warp") {
		m.skip("sync")
		if err := c.arity(in, 1, 1); err != nil {
			return err
		}
		member, err := c.member(in, 0)
		if err != nil {
			return err
		}
		c.exchange(in, exchange{run: func(*warp, *inst, uint32, uint32, offer) {}}, member, operand{})
		return nil
	}
	if m.has("cluster") {
		return c.unsupported("clusters")
	}
	m.skip("cta")
	how := m.any("sync", "arrive", "red")
	m.skip("aligned")
	ops := in.Operands
	var x extra
	f := barSync
	red, d, pred := noReduction, operand{}, c.always()
	var err error
	switch how {
	case "arrive":
		f = barArrive
	case "red":
		switch m.any("popc", "and", "or") {
		case "popc":
			red = reducePopc
		case "and":
			red = reduceAnd
		case "or":
			red = reduceOr
		}
		m.skip("pred", "u32")
		if red == noReduction || len(ops) < 3 {
			return c.invalid("a reduction without operation or operands")
		}
		if red == reducePopc {
			d, err = c.dst(&ops[0], ptx.U32)
		} else {
			d, err = c.dstPred(&ops[0])
		}
		if err != nil {
			return err
		}
		if pred, err = c.pred(&ops[len(ops)-1]); err != nil {
			return err
		}
		x.votes, x.votesNot = pred.index, -bit(pred.not)
		ops = ops[1 : len(ops)-1]
	case "":
		return c.unsupported("this form of bar")
	}
	if len(ops) < 1 || len(ops) > 2 {
		return c.invalid("%d operands", len(in.Operands))
	}
	id, err := c.src(&ops[0], ptx.U32)
	if err != nil {
		return err
	}
	expect := c.constant(reg32, 0)
	if len(ops) == 2 {
		if expect, err = c.src(&ops[1], ptx.U32); err != nil {
			return err
		}
	}
	c.emit(inst{op: f, d: d.index, a: id.index, b: expect.index, imm: uint64(red), x: &x}, c.costs().Control)
	return nil
}

// nanosleep makes the path sleep.
func nanosleep(c *compiler, in *ptx.Instr, m *mods) error {
	if t := m.typ(); t != ptx.U32 {
		return c.unsupported("type .%s", t)
	}
	if err := c.arity(in, 1, 1); err != nil {
		return err
	}
	a, err := c.src(&in.Operands[0], ptx.U32)
	if err != nil {
		return err
	}
	c.emit(inst{op: sleep, a: a.index}, c.costs().Control)
	return nil
}

// maxSleep is the maximum duration of one nanosleep: 1 ms according to the PTX ISA.
const maxSleep = 1_000_000

func sleep(w *warp, in *inst) {
	var longest uint32
	for m := w.mask; m != 0; m &= m - 1 {
		longest = max(longest, w.r32[in.a][first(m)])
	}
	w.pc++
	wake := w.block.nanos(w.block.spent+w.counts.Cycles) + uint64(min(longest, maxSleep))
	w.park(waitTime).wake = wake
	w.block.nextWake = min(w.block.nextWake, wake)
	w.next()
}

// nothing compiles instructions without an effect here: fences, since every access is performed in
// order, prefetches and other hints.
func nothing(c *compiler, in *ptx.Instr, m *mods) error {
	m.used = full64
	c.op(func(*warp, *inst) {}, c.costs().Simple, operand{})
	return nil
}

// createPolicy compiles createpolicy. Caches are not modelled, so any policy will do.
func createPolicy(c *compiler, in *ptx.Instr, m *mods) error {
	m.used = full64
	if err := c.arity(in, 1, 4); err != nil {
		return err
	}
	d, err := c.dst(&in.Operands[0], ptx.B64)
	if err != nil {
		return err
	}
	return c.movReg(d, c.constant(reg64, 0))
}

const full64 = ^uint64(0)

// refuse returns the handler of instructions that this GPU does not have.
func refuse(what string) handler {
	return func(c *compiler, in *ptx.Instr, m *mods) error { return c.unsupported("%s", what) }
}
