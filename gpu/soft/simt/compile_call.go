package simt

import (
	"vgpud/ptx"
)

// call compiles a call of a function of the module, of a function of the device runtime (vprintf,
// malloc …), or through a pointer.
func call(c *compiler, in *ptx.Instr, m *mods) error {
	m.skip("uni")
	parts, ok := in.Call()
	if !ok {
		return c.invalid("no call")
	}
	var callee *function
	var target operand
	var err error
	switch {
	case parts.Target.Kind == ptx.KindReg:
		if target, err = c.src(&parts.Target, ptx.B64); err != nil {
			return err
		}
		if !c.cur.unknown {
			return c.invalid("a call through a pointer that was not seen")
		}
	case parts.Target.Sym == nil || parts.Target.Sym.Kind != ptx.SymFunc:
		return c.invalid("%s is no function", parts.Target.Name)
	default:
		if callee = c.funcs[parts.Target.Sym.Func]; callee == nil {
			return c.builtin(parts)
		}
		if len(callee.params) != len(parts.Args) || len(callee.returns) != len(parts.Returns) {
			return c.invalid("%d arguments and %d results where %s has %d and %d", len(parts.Args), len(parts.Returns),
				parts.Target.Name, len(callee.params), len(callee.returns))
		}
	}
	if err := c.charge(len(parts.Args) + len(parts.Returns)); err != nil {
		return err
	}
	site := &callSite{callee: callee}
	for i := range parts.Args {
		v, err := c.pass(&parts.Args[i], callee, i)
		if err != nil {
			return err
		}
		site.args = append(site.args, v)
	}
	for i := range parts.Returns {
		if parts.Returns[i].Kind == ptx.KindSink {
			site.returns = append(site.returns, passed{none: true})
			continue
		}
		v, err := c.pass(&parts.Returns[i], callee, i)
		if err != nil {
			return err
		}
		site.returns = append(site.returns, v)
	}
	size := c.cur.frame.size
	if callee == nil || callee.group == c.cur.group {
		seen := map[operand]bool{}
		for i, r := range c.cur.regs {
			if r.class = storage(r.class); r.class == noReg {
				continue
			}
			for range max(c.cur.code.Regs[i].Vector, 1) {
				if !seen[r] {
					seen[r] = true
					s := saved{reg: r}
					size = alignUp(size, uint64(s.bytes()))
					s.at = uint32(size)
					size += uint64(s.bytes())
					site.saves = append(site.saves, s)
				}
				r.index++
			}
		}
	}
	if err := c.charge(len(site.saves)); err != nil {
		return err
	}
	site.frame = uint32(alignUp(size, 16))
	c.emit(inst{op: doCall, a: target.index, x: &extra{call: site}}, c.costs().Control)
	return nil
}

// pass finds the location of an argument or result in the caller.
func (c *compiler) pass(o *ptx.Operand, callee *function, i int) (passed, error) {
	switch {
	case o.Kind == ptx.KindSymbol && o.Sym != nil && o.Sym.Var != nil:
		at, ok := c.cur.frame.at[o.Sym.Var]
		if !ok {
			return passed{}, c.invalid("%s can't be passed", o.Name)
		}
		n, _ := sizeOf(o.Sym.Var, maxFrame)
		return passed{at: uint32(at), size: uint32(n)}, nil
	case o.Kind == ptx.KindReg:
		r, err := c.reg(o)
		if err != nil {
			return passed{}, err
		}
		return passed{reg: r, size: uint32(map[regClass]int{predReg: 1, reg8: 1, reg16: 2, reg32: 4, reg64: 8}[r.class])}, nil
	case o.Kind == ptx.KindImm && callee != nil && i < len(callee.params):
		class := map[uint32]regClass{1: reg8, 2: reg16, 4: reg32, 8: reg64}[callee.params[i].size]
		if class == noReg {
			return passed{}, c.invalid("a constant for parameter %d", i+1)
		}
		return passed{reg: c.constant(class, o.Bits), size: callee.params[i].size}, nil
	}
	return passed{}, c.unsupported("argument %d", i+1)
}
