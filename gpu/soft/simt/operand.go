package simt

import (
	"math"

	"vgpud/gpu/soft/arith"
	"vgpud/ptx"
)

// immediate returns the bits of a constant operand of type t.
func immediate(o *ptx.Operand, t ptx.Type) uint64 {
	if t.Class() == ptx.Float {
		switch t {
		case ptx.F64:
			return math.Float64bits(o.Float())
		case ptx.F32, ptx.TF32:
			if o.Imm == ptx.ImmF32 {
				return o.Bits
			}
			return uint64(math.Float32bits(float32(o.Float())))
		case ptx.F16:
			if o.Imm != ptx.ImmInt {
				return uint64(arith.F16.FromF64(o.Float(), arith.Mode{}))
			}
		case ptx.BF16:
			if o.Imm != ptx.ImmInt {
				return uint64(arith.BF16.FromF64(o.Float(), arith.Mode{}))
			}
		}
		return o.Bits
	}
	if o.Imm == ptx.ImmF64 && t.Bits() == 32 {
		return uint64(math.Float32bits(float32(o.Float())))
	}
	return o.Bits
}

// src returns the register that holds a source operand of type t.
func (c *compiler) src(o *ptx.Operand, t ptx.Type) (operand, error) {
	want := classOf(t)
	switch o.Kind {
	case ptx.KindImm:
		return c.constant(want, immediate(o, t)), nil
	case ptx.KindWarpSize:
		return c.constant(want, lanes), nil
	case ptx.KindReg:
		r, err := c.reg(o)
		if err != nil {
			return r, err
		}
		if r.class != want {
			return r, c.invalid("operand %s is not of %d bits", o.Name, t.Bits())
		}
		return r, nil
	case ptx.KindSymbol:
		return c.addressOf(o, want)
	}
	return operand{}, c.unsupported("an operand that is neither register nor constant")
}

// anySrc returns the register of a source operand whose register may be wider than type t.
func (c *compiler) anySrc(o *ptx.Operand, t ptx.Type) (operand, error) {
	if o.Kind != ptx.KindReg {
		return c.src(o, t)
	}
	r, err := c.reg(o)
	if err == nil && (r.class == predReg || r.class < classOf(t)) {
		err = c.invalid("operand %s has less than %d bits", o.Name, t.Bits())
	}
	return r, err
}

// dst returns the register of a result of type t.
func (c *compiler) dst(o *ptx.Operand, t ptx.Type) (operand, error) {
	if o.Kind == ptx.KindSink {
		return c.newReg(classOf(t)), nil
	}
	r, err := c.anyDst(o)
	if err == nil && r.class != classOf(t) {
		err = c.invalid("result %s is not of %d bits", o.Name, t.Bits())
	}
	return r, err
}

// anyDst returns the register of a result of any width.
func (c *compiler) anyDst(o *ptx.Operand) (operand, error) {
	if o.Kind == ptx.KindSink {
		return operand{}, nil
	}
	if o.Kind != ptx.KindReg || o.Sym == nil || o.Sym.Kind != ptx.SymReg {
		return operand{}, c.invalid("the result is not a register")
	}
	return c.reg(o)
}

// reg returns the register that an operand names.
func (c *compiler) reg(o *ptx.Operand) (operand, error) {
	s := o.Sym
	if s == nil {
		return operand{}, c.invalid("%s is not declared", o.Name)
	}
	if s.Kind == ptx.SymSpecial {
		return c.specialReg(o)
	}
	if s.Kind != ptx.SymReg || s.Index >= len(c.cur.regs) {
		return operand{}, c.invalid("%s is not a register", o.Name)
	}
	r := c.cur.regs[s.Index]
	if r.class == noReg {
		return r, c.unsupported("register %s of type .%s", o.Name, s.Type)
	}
	if s.Vector > 0 {
		k, ok := o.Sel.Component()
		if !ok || k >= s.Vector {
			return r, c.unsupported("vector register %s as a whole", o.Name)
		}
		r.index += uint32(k)
	} else if o.Sel != ptx.SelNone {
		return r, c.unsupported("selector .%s", o.Sel)
	}
	r.not = o.Not
	return r, nil
}

// pred returns a source operand that is a predicate.
func (c *compiler) pred(o *ptx.Operand) (operand, error) {
	if o.Kind == ptx.KindImm {
		// Constant predicates are registers, too.
		r := c.always()
		r.not = (o.Bits == 0) != o.Not
		return r, nil
	}
	r, err := c.reg(o)
	if err == nil && r.class != predReg {
		err = c.invalid("operand %s is not a predicate", o.Name)
	}
	return r, err
}

// always returns a predicate that is true.
func (c *compiler) always() operand { return operand{index: 0, class: predReg} }

// dstPred returns a predicate that an instruction sets.
func (c *compiler) dstPred(o *ptx.Operand) (operand, error) {
	if o.Kind == ptx.KindSink {
		return c.newReg(predReg), nil
	}
	r, err := c.anyDst(o)
	if err == nil && r.class != predReg {
		err = c.invalid("result %s is not a predicate", o.Name)
	}
	return r, err
}

// arity checks the number of operands.
func (c *compiler) arity(in *ptx.Instr, least, most int) error {
	if n := len(in.Operands); n < least || n > most {
		return c.invalid("%d operands, expected %d", n, least)
	}
	return nil
}

// sources returns the registers of operands from the second on, which are all of type t.
func (c *compiler) sources(in *ptx.Instr, types ...ptx.Type) (d operand, src []operand, err error) {
	n := len(types)
	if err = c.arity(in, n, n); err != nil {
		return
	}
	if d, err = c.dst(&in.Operands[0], types[0]); err != nil {
		return
	}
	src = make([]operand, n-1)
	for i := range src {
		if src[i], err = c.src(&in.Operands[i+1], types[i+1]); err != nil {
			return
		}
	}
	return
}

// simple compiles an operation whose result and sources are of the given types.
func (c *compiler) simple(in *ptx.Instr, f opFunc, cost uint32, types ...ptx.Type) error {
	d, src, err := c.sources(in, types...)
	if err == nil {
		c.op(f, cost, d, src...)
	}
	return err
}

// repeat returns t n times.
func repeat(t ptx.Type, n int) []ptx.Type {
	list := make([]ptx.Type, n)
	for i := range list {
		list[i] = t
	}
	return list
}
