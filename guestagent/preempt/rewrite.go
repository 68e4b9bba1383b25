package preempt

import (
	"strconv"

	"vgpud/ptx"
)

// rewriter copies a body as the task of a transformed function.
type rewriter struct {
	*builder
	module  *module
	index   bool     // %ctaid and %nctaid become registers
	end     string   // where ret and exit branch to; "" if they stay
	hub     bool     // block barriers go through the hub
	returns []string // the labels behind them
	args    int      // numbers the parameters added to calls
	halves  int      // numbers the 16-bit registers added
}

// stmts copies a list of statements to out.
func (r *rewriter) stmts(list []ptx.Stmt, out *[]ptx.Stmt) {
	if n := len(list) + len(*out); cap(*out) < n {
		*out = append(make([]ptx.Stmt, 0, n+16), *out...)
	}
	for _, s := range list {
		switch s := s.(type) {
		case *ptx.Loc:
			// Line numbers belong to the original, which keeps them.
		case *ptx.Block:
			b := &ptx.Block{Pos: s.Pos, End: s.End}
			r.stmts(s.Stmts, &b.Stmts)
			*out = append(*out, b)
		case *ptx.Label:
			if r.module.labels.Keep(s.Name) {
				*out = append(*out, s)
			}
		case *ptx.Instr:
			r.instr(s, out)
		default:
			*out = append(*out, r.Stmt(s))
		}
	}
}

// instr copies an instruction to out, preceded by what it needs.
func (r *rewriter) instr(in *ptx.Instr, out *[]ptx.Stmt) {
	switch in.Opcode {
	case "ret", "exit":
		if r.end != "" {
			j := r.jumpTo("V_end")
			j.Pos, j.Pred = in.Pos, ptx.Pred{Name: in.Pred.Name, Not: in.Pred.Not}
			*out = append(*out, j)
			return
		}
	case "bar", "barrier":
		if r.hub && r.module.hubBarriers[in] {
			r.toHub(in, out)
			return
		}
	case "call":
		if name := r.module.callee(in); name != "" {
			r.call(in, name, out)
			return
		}
	}
	c := r.Instr(in)
	if r.index {
		r.indices(in, in.Operands, c.Operands, out)
	}
	*out = append(*out, c)
	if b := r.module.sharedLoads[in]; b != nil && r.end != "" {
		r.instr(b, out)
	}
}

// toHub replaces a barrier by a branch to the hub and a label to return to.
func (r *rewriter) toHub(in *ptx.Instr, out *[]ptx.Stmt) {
	r.returns = append(r.returns, r.names.Prefix+"way"+strconv.Itoa(len(r.returns)+1))
	for _, s := range r.names.fragment(fragToHub) {
		c := r.fresh(s.(*ptx.Instr))
		c.Pos, c.Pred = in.Pos, ptx.Pred{Name: in.Pred.Name, Not: in.Pred.Not}
		if c.Opcode == "mov" {
			c.Operands[1] = ptx.Int(int64(len(r.returns)))
		}
		*out = append(*out, c)
	}
	*out = append(*out, &ptx.Label{Pos: in.Pos, Name: r.returns[len(r.returns)-1]})
}

// components are the registers that replace the components of %ctaid and %nctaid.
var components = [...][3]string{{"%V_x", "%V_y", "%V_z"}, {"%V_gx", "%V_gy", "%V_gz"}}

// taskOperand returns which component of %ctaid (0) or %nctaid (1) an operand is.
func taskOperand(o *ptx.Operand) (which, component int, ok bool) {
	if o.Sym == nil || o.Sym.Kind != ptx.SymSpecial {
		return 0, 0, false
	}
	switch o.Sym.Name {
	case "%ctaid":
	case "%nctaid":
		which = 1
	default:
		return 0, 0, false
	}
	if o.Sel == ptx.SelNone {
		return which, -1, true
	}
	component, ok = o.Sel.Component()
	return which, component, ok && component < 3 // the fourth is a constant
}

// indices replaces %ctaid and %nctaid in the copy now of the operands was.
func (r *rewriter) indices(in *ptx.Instr, was, now []ptx.Operand, out *[]ptx.Stmt) {
	for i := range was {
		o := &was[i]
		if which, component, ok := taskOperand(o); ok && component >= 0 {
			name := r.names.Ours(components[which][component])
			if narrow(in) {
				name = r.halfRegister(name, out)
			}
			now[i].Name, now[i].Sel = name, ptx.SelNone
		}
		if len(o.Elems) > 0 {
			r.indices(in, o.Elems, now[i].Elems, out)
		}
	}
}

// narrow reports whether an instruction takes a special register as 16 bits, as programs of PTX 1
// do. Conversions take the wider register.
func narrow(in *ptx.Instr) bool {
	return in.Opcode != "cvt" && (in.Has("u16") || in.Has("s16") || in.Has("b16"))
}

// halfRegister adds a 16-bit copy of a 32-bit register.
func (r *rewriter) halfRegister(name string, out *[]ptx.Stmt) string {
	h := "%" + r.names.Prefix + "h" + strconv.Itoa(r.halves)
	r.halves++
	r.regs++
	*out = append(*out,
		&ptx.Var{Space: ptx.RegSpace, Type: ptx.B16, Name: h},
		&ptx.Instr{Opcode: "cvt", Modifiers: []string{"u16", "u32"}, Operands: []ptx.Operand{ptx.Reg(h), ptx.Reg(name)}})
	return h
}

// call copies a direct call, redirected to the function called name, which takes the task first.
func (r *rewriter) call(in *ptx.Instr, name string, out *[]ptx.Stmt) {
	c := r.Instr(in)
	t := 0
	if c.Operands[0].Kind == ptx.KindList {
		t = 1
	}
	c.Operands[t].Name = name
	arg := r.names.Prefix + "task" + strconv.Itoa(r.args)
	r.args++
	*out = append(*out, &ptx.Var{Space: ptx.ParamSpace, Align: 4, Type: ptx.B8, Name: arg, Dims: []int64{4 * taskWords}})
	// A guard is only for the call: PTX allows none at the stores of arguments.
	offset := int64(0)
	for which := range components {
		for _, reg := range components[which] {
			st := r.NewInstr()
			ops := r.NewOperands(2)
			ops[0], ops[1] = ptx.MemSym(arg, offset), ptx.Reg(r.names.Ours(reg))
			*st = ptx.Instr{Opcode: "st", Modifiers: stParam, Operands: ops}
			*out = append(*out, st)
			offset += 4
		}
	}
	ops := make([]ptx.Operand, 0, len(c.Operands)+1)
	ops = append(ops, c.Operands[:t+1]...)
	rest := c.Operands[t+1:]
	args := []ptx.Operand{ptx.Sym(arg)}
	if len(rest) > 0 && rest[0].Kind == ptx.KindList {
		args = append(args, rest[0].Elems...)
		rest = rest[1:]
	}
	ops = append(ops, ptx.List(args...))
	c.Operands = append(ops, rest...)
	*out = append(*out, c)
}

var stParam = []string{"param", "b32"}
