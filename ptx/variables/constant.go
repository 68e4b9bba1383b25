package variables

import (
	"vgpud/ptx"
	"vgpud/ptx/flow"
)

// maxPasses limits the passes of data flow. Compilers' code needs few.
const maxPasses = 100

// constants follows addresses in constant space through a function, without regard to its control
// flow: a register counts for all that is ever written to it.
type constants struct {
	code    *ptx.Code
	graph   *flow.Graph
	effects *flow.Effects
	// sure are the registers that hold nothing but addresses of constant variables that the function
	// names; may are those that may hold one, or what was computed from one.
	sure, may []bool
}

// followConstants refuses a function with an address in constant space that does not come from a
// variable that it names, or that may leave it: through memory, in a parameter, or to other threads.
func followConstants(code *ptx.Code) error {
	g, err := flow.Build(code)
	if err != nil {
		return refuse(UnsupportedUse, "%v", err)
	}
	n := len(code.Regs)
	f := &constants{code: code, graph: g, effects: g.Effects(), sure: make([]bool, n), may: make([]bool, n)}
	f.each(func(i int, _ *ptx.Instr) {
		for _, r := range f.written(i) {
			f.sure[r] = true
		}
	})
	for _, s := range code.Params {
		if s.Kind == ptx.SymReg {
			f.sure[s.Index] = false
		}
	}
	for passes, changed := 0, true; changed; passes++ {
		if passes == maxPasses {
			return refuse(UnsupportedUse, "%s: addresses in constant space take too many steps to follow", code.Func.Name)
		}
		changed = false
		f.each(func(i int, in *ptx.Instr) { changed = f.pass(i, in) || changed })
	}
	f.each(func(_ int, in *ptx.Instr) {
		if err == nil {
			err = f.use(in)
		}
	})
	for _, s := range code.Returns {
		if err == nil && s.Kind == ptx.SymReg && f.may[s.Index] {
			err = refuse(ConstantAddress, "%s may return one", code.Func.Name)
		}
	}
	return err
}

// each calls visit for each instruction that may be executed.
func (f *constants) each(visit func(i int, in *ptx.Instr)) {
	for i, in := range f.code.Instrs {
		if f.graph.Blocks[f.graph.BlockOf(i)].Reachable {
			visit(i, in)
		}
	}
}

// written returns the registers that instruction i writes, without the carry flag and memory.
func (f *constants) written(i int) (list []int32) {
	for _, r := range f.effects.Writes(i) {
		if int(r) < len(f.sure) {
			list = append(list, r)
		}
	}
	return list
}

// pass updates what is known of the registers that an instruction writes.
func (f *constants) pass(i int, in *ptx.Instr) (changed bool) {
	sure, may := f.result(in)
	for _, r := range f.written(i) {
		if f.sure[r] && !sure || !f.may[r] && may {
			f.sure[r], f.may[r] = f.sure[r] && sure, f.may[r] || may
			changed = true
		}
	}
	return changed
}

// result returns whether an instruction's result is an address of a constant variable, and whether it
// may be or come from one.
func (f *constants) result(in *ptx.Instr) (sure, may bool) {
	o := in.Operands
	if !flow.Pure(in.Opcode) || len(o) < 2 {
		return false, false // a load's is what lies there; others' operands are checked by use
	}
	is := func(j int) bool { return j < len(o) && f.isConstant(&o[j]) }
	switch in.Opcode {
	case "set", "setp", "testp", "isspacep":
		return false, false
	case "cvta":
		if in.Has("const") {
			return in.Has("to"), in.Has("to")
		}
	case "mov":
		sure = len(o) == 2 && is(1)
	case "add", "or": // compilers add to what they know to be aligned by or
		sure = is(1) || is(2)
	case "sub":
		sure = is(1) && !f.mayBe(&o[min(2, len(o)-1)])
	case "mad", "mad24":
		sure = is(3)
	case "selp", "min", "max":
		sure = is(1) && is(2)
	}
	for j := range o[1:] {
		may = may || f.mayBe(&o[1+j])
	}
	return sure, may
}

// isConstant reports whether an operand is an address of a constant variable.
func (f *constants) isConstant(o *ptx.Operand) bool {
	switch {
	case o.Sym == nil:
		return false
	case o.Sym.Kind == ptx.SymVar:
		return o.Kind == ptx.KindSymbol && !o.Generic && o.Sym.Var.Space == ptx.ConstSpace
	}
	return o.Sym.Kind == ptx.SymReg && o.Sel == ptx.SelNone && f.sure[o.Sym.Index]
}

// mayBe reports whether an operand, or an element of it, may come from such an address. The memory that an
// address operand leads to is something else.
func (f *constants) mayBe(o *ptx.Operand) bool {
	if o.Kind == ptx.KindAddr {
		return false
	}
	if s := o.Sym; s != nil {
		if s.Kind == ptx.SymReg && f.may[s.Index] || s.Kind == ptx.SymVar && s.Var.Space == ptx.ConstSpace && !o.Generic {
			return true
		}
	}
	for i := range o.Elems {
		if f.mayBe(&o.Elems[i]) {
			return true
		}
	}
	return false
}

// use refuses an instruction that needs an address in constant space and may have another, or by
// which one may leave.
func (f *constants) use(in *ptx.Instr) error {
	o := in.Operands
	switch {
	case in.Opcode == "ld" && in.Has("const"):
		if len(o) != 2 || o[1].Kind != ptx.KindAddr {
			return refuse(UnsupportedUse, "%v", in)
		}
		if s := o[1].Sym; s != nil && (s.Kind == ptx.SymVar || s.Kind == ptx.SymReg && o[1].Sel == ptx.SelNone && f.sure[s.Index]) {
			return nil
		}
		return refuse(ConstantAddress, "%v: it may not come from a variable named there", in)
	case in.Opcode == "cvta" && in.Has("const") && !in.Has("to"):
		if len(o) == 2 && f.isConstant(&o[1]) {
			return nil
		}
		return refuse(ConstantAddress, "%v: it may not come from a variable named there", in)
	case flow.Pure(in.Opcode), in.Opcode == "ld", in.Opcode == "ldu":
		return nil
	}
	for j := range o {
		if f.mayBe(&o[j]) {
			return refuse(ConstantAddress, "%v: one may leave %s", in, f.code.Func.Name)
		}
	}
	return nil
}
