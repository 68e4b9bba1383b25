package callable

import (
	"strconv"

	"vgpud/ptx"
	"vgpud/ptx/rewrite"
)

// Names of what is added, as rewrite.Names.Ours takes them.
const (
	argumentsName = "V_arguments"  // the first parameter
	argumentsReg  = "%V_arguments" // the address of the arguments, in the global space
	placeName     = "V_place"      // the second, or the first of a copy of a device function
	passedName    = "V_passed"     // with a number: the place as it is passed on
)

// wordReg returns the register that has a word of the place.
func wordReg(word int) string { return "%V_place" + strconv.Itoa(word) }

// writer copies one body.
type writer struct {
	*rewrite.Copier
	module  *module
	offsets map[string]int64 // of the kernel's parameters; nil in a device function
	entry   bool
	asyncs  bool
	used    [placeWords]bool // words of the place that the body reads or passes on
	address bool             // it uses the arguments' address
	passed  int
	out     []ptx.Stmt
}

func (w *writer) ours(name string) string { return w.module.names.Ours(name) }

func (w *writer) word(i int) ptx.Operand {
	w.used[i] = true
	return ptx.Reg(w.ours(wordReg(i)))
}

// makeFunction makes the function of a kernel.
func (t *module) makeFunction(f *function, name string, offsets map[string]int64, of *walk) *ptx.Func {
	fn := f.code.Func
	w := &writer{Copier: t.copier, module: t, offsets: offsets, entry: true, asyncs: of.asyncs}
	body := w.body(fn.Body)
	return &ptx.Func{
		Pos: fn.Pos, Linking: ptx.Visible, Name: name, Body: body,
		Params: []*ptx.Var{{Space: ptx.ParamSpace, Type: ptx.B64, Name: t.names.Ours(argumentsName)}, t.placeParam()},
	}
}

func (t *module) placeParam() *ptx.Var {
	return &ptx.Var{Space: ptx.ParamSpace, Align: 4, Type: ptx.B8, Name: t.names.Ours(placeName), Dims: []int64{PlaceBytes}}
}

// clone returns the name of the copy of a device function that takes its place.
func (t *module) clone(f *function) string {
	name, ok := t.clones[f]
	if !ok {
		name = f.code.Func.Name + "__" + t.names.Prefix + "placed"
		t.clones[f] = name
		t.order = append(t.order, f)
	}
	return name
}

// makeClones makes the copies of device functions that are needed, including those that the copies
// need.
func (t *module) makeClones() {
	for i := 0; i < len(t.order); i++ {
		f := t.order[i]
		fn := f.code.Func
		w := &writer{Copier: t.copier, module: t}
		t.copies = append(t.copies, &ptx.Func{
			Pos: fn.Pos, Name: t.clones[f], Returns: fn.Returns, Params: append([]*ptx.Var{t.placeParam()}, fn.Params...),
			Directives: fn.Directives, Body: w.body(fn.Body),
		})
	}
}

// body copies a body, and puts before it what reads the parameters. Declarations stay first.
func (w *writer) body(b *ptx.Block) *ptx.Block {
	w.stmts(b.Stmts, &w.out)
	var head []ptx.Stmt
	declare := func(t ptx.Type, name string) {
		head = append(head, &ptx.Var{Space: ptx.RegSpace, Type: t, Name: name})
	}
	load := func(form []string, reg, param string, offset int64) {
		head = append(head, &ptx.Instr{Opcode: "ld", Modifiers: form, Operands: []ptx.Operand{ptx.Reg(reg), ptx.MemSym(param, offset)}})
	}
	if w.address {
		reg := w.ours(argumentsReg)
		declare(ptx.B64, reg)
		load([]string{"param", "b64"}, reg, w.ours(argumentsName), 0)
		head = append(head, &ptx.Instr{Opcode: "cvta", Modifiers: []string{"to", "global", "u64"}, Operands: []ptx.Operand{ptx.Reg(reg), ptx.Reg(reg)}})
	}
	for i, used := range w.used {
		if used {
			reg := w.ours(wordReg(i))
			declare(ptx.B32, reg)
			load([]string{"param", "b32"}, reg, w.ours(placeName), int64(4*i))
		}
	}
	return &ptx.Block{Pos: b.Pos, End: b.End, Stmts: append(head, w.out...)}
}

// stmts copies statements to out. Line numbers belong to the original, which keeps them.
func (w *writer) stmts(list []ptx.Stmt, out *[]ptx.Stmt) {
	for _, s := range list {
		switch s := s.(type) {
		case *ptx.Loc:
		case *ptx.Block:
			b := &ptx.Block{Pos: s.Pos, End: s.End}
			w.stmts(s.Stmts, &b.Stmts)
			*out = append(*out, b)
		case *ptx.Label:
			if w.module.labels.Keep(s.Name) {
				*out = append(*out, s)
			}
		case *ptx.Instr:
			w.instr(s, out)
		default:
			*out = append(*out, w.Stmt(s))
		}
	}
}

// instr copies an instruction, with what it needs.
func (w *writer) instr(in *ptx.Instr, out *[]ptx.Stmt) {
	c := w.Instr(in)
	w.places(in.Operands, c.Operands)
	put := func(in *ptx.Instr) { *out = append(*out, in) }
	guarded := func(opcode string, form []string, operands ...ptx.Operand) *ptx.Instr {
		return &ptx.Instr{Pos: in.Pos, Pred: c.Pred, Opcode: opcode, Modifiers: form, Operands: operands}
	}
	switch {
	case in.Opcode == "ret" || in.Opcode == "exit":
		if w.entry {
			if w.asyncs {
				put(guarded("cp", []string{"async", "wait_all"}))
			}
			if in.Opcode == "exit" {
				c.Opcode = "ret"
			}
		}
	case in.Opcode == "call":
		if call, ok := in.Call(); ok && call.Target.Sym != nil && call.Target.Sym.Kind == ptx.SymFunc {
			if f := w.module.funcs[call.Target.Sym.Func.Name]; f != nil && f.needs {
				w.call(c, w.module.clone(f), out)
				return
			}
		}
	case w.entry:
		o := c.Operands
		switch parameterUse(in) {
		case loads:
			w.address = true
			o[1] = ptx.Operand{
				Kind: ptx.KindAddr, Base: ptx.KindReg, Name: w.ours(argumentsReg),
				Bits: uint64(w.offsets[in.Operands[1].Name] + in.Operands[1].Offset()),
			}
			c.Modifiers = global(in.Modifiers)
		case loadsAt, converts:
			c.Modifiers = global(in.Modifiers)
		case takes, takesPlain:
			w.address = true
			at := w.offsets[in.Operands[1].Name] + in.Operands[1].Offset()
			put(guarded("add", []string{"s64"}, o[0], ptx.Reg(w.ours(argumentsReg)), ptx.Int(at)))
			if parameterUse(in) == takesPlain {
				put(guarded("cvta", []string{"global", "u64"}, o[0], o[0]))
			}
			return
		}
	}
	put(c)
}

// global replaces the parameter space in modifiers.
func global(modifiers []string) []string {
	out := make([]string, len(modifiers))
	for i, m := range modifiers {
		if m == "param" || len(m) > 7 && m[:7] == "param::" {
			m = "global"
		}
		out[i] = m
	}
	return out
}

// places replaces special registers in the copy now of the operands was.
func (w *writer) places(was, now []ptx.Operand) {
	for i := range was {
		if word, whole, ok := placeOperand(&was[i]); ok && !whole {
			r := w.word(word)
			now[i].Name, now[i].Sel = r.Name, ptx.SelNone
		}
		if len(was[i].Elems) > 0 {
			w.places(was[i].Elems, now[i].Elems)
		}
	}
}

// call redirects a copied call to the function called name, which takes the place first.
func (w *writer) call(c *ptx.Instr, name string, out *[]ptx.Stmt) {
	arg := w.ours(passedName + strconv.Itoa(w.passed))
	w.passed++
	*out = append(*out, &ptx.Var{Space: ptx.ParamSpace, Align: 4, Type: ptx.B8, Name: arg, Dims: []int64{PlaceBytes}})
	for i := range placeWords {
		*out = append(*out, &ptx.Instr{
			Pos: c.Pos, Pred: c.Pred, Opcode: "st", Modifiers: []string{"param", "b32"},
			Operands: []ptx.Operand{ptx.MemSym(arg, int64(4*i)), w.word(i)},
		})
	}
	t := 0
	if c.Operands[0].Kind == ptx.KindList {
		t = 1
	}
	c.Operands[t].Name = name
	ops := append([]ptx.Operand(nil), c.Operands[:t+1]...)
	args, rest := []ptx.Operand{ptx.Sym(arg)}, c.Operands[t+1:]
	if len(rest) > 0 && rest[0].Kind == ptx.KindList {
		args, rest = append(args, rest[0].Elems...), rest[1:]
	}
	c.Operands = append(append(ops, ptx.List(args...)), rest...)
	*out = append(*out, c)
}
