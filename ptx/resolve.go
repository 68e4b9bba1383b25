package ptx

// Resolve binds the names in m: it sets Sym in every operand and guard, and the Syms of branch
// targets. Afterwards an operand's Kind is KindReg exactly if its Sym is a SymReg or SymSpecial.
// Resolve writes to the tree, so nothing else may use m meanwhile; it must run again after the tree
// has changed. The error, if any, is of type [Errors] and names undeclared and multiply declared
// names.
//
// Names are looked up as PTX scopes them (§4.3.2, §8): a register or variable from its declaration
// to the end of its block, a label throughout its block and the blocks within, functions and
// variables of the module everywhere.
func Resolve(m *Module) (*Program, error) {
	r := &resolver{prog: &Program{Module: m, Globals: map[string]*Symbol{}, byFunc: map[*Func]*Code{}}}
	r.globals()
	for _, it := range m.Items {
		if f, ok := it.(*Func); ok && f.Body != nil && len(r.errs) < maxResolveErrors {
			c := r.function(f)
			r.prog.Codes = append(r.prog.Codes, c)
			r.prog.byFunc[f] = c
		}
	}
	if len(r.errs) > 0 {
		return nil, r.errs
	}
	return r.prog, nil
}

const maxResolveErrors = 10

type resolver struct {
	prog *Program
	errs Errors
	syms slab[Symbol]

	code   *Code
	loc    *Loc
	names  map[string]binding
	ranges map[string][]regRange // open declarations of name<N>, outermost first
	scopes [][]shadow            // the names that each open scope hides
	ranged int                   // depth of the innermost scope with a range in it
}

// binding is the current meaning of a name, and the depth of the scope that declares it.
type binding struct {
	sym   *Symbol
	depth int
}

// regRange is a declaration of name<N>.
type regRange struct {
	v     *Var
	depth int
}

// shadow is the meaning of a name before a scope redeclared it; the zero binding if it had none.
type shadow struct {
	name  string
	was   binding
	ofReg bool // the name of a range: one entry is removed from ranges
}

func (r *resolver) fail(pos Pos, msg, name string) {
	if len(r.errs) < maxResolveErrors {
		r.errs = append(r.errs, &Error{Pos: pos, Msg: msg + " " + quotedShort(name)})
	}
}

// symbol makes a symbol.
func (r *resolver) symbol(s Symbol) *Symbol {
	p := r.syms.one()
	*p = s
	return p
}

// globals binds the declarations at module scope. Of several declarations of a name the defining
// one counts.
func (r *resolver) globals() {
	for _, it := range r.prog.Module.Items {
		switch it := it.(type) {
		case *Func:
			if old := r.prog.Globals[it.Name]; old == nil {
				r.prog.Globals[it.Name] = r.symbol(Symbol{Kind: SymFunc, Name: it.Name, Func: it})
			} else if old.Kind != SymFunc || old.Func.Body != nil && it.Body != nil {
				r.fail(it.Pos, "second declaration of", it.Name)
			} else if it.Body != nil {
				old.Func = it
			}
		case *Var:
			s := Symbol{Kind: SymVar, Name: it.Name, Type: it.Type, Vector: it.Vector, Var: it}
			if old := r.prog.Globals[it.Name]; old == nil {
				r.prog.Globals[it.Name] = r.symbol(s)
			} else if old.Kind != SymVar || old.Var.Linking != Extern && it.Linking != Extern {
				r.fail(it.Pos, "second declaration of", it.Name)
			} else if it.Linking != Extern {
				*old = s
			}
		}
	}
	for _, it := range r.prog.Module.Items {
		a, ok := it.(*Alias)
		if !ok {
			continue
		}
		of := r.prog.Globals[a.Of]
		switch old := r.prog.Globals[a.Name]; {
		case of == nil || of.Kind != SymFunc:
			r.fail(a.Pos, "alias of a function that is not declared,", a.Of)
		case old != nil && (old.Kind != SymFunc || old.Func.Body != nil):
			r.fail(a.Pos, "second declaration of", a.Name)
		default:
			r.prog.Globals[a.Name] = of
		}
	}
}

// function binds the names in one function and flattens it.
func (r *resolver) function(f *Func) *Code {
	c := &Code{Func: f, Instrs: make([]*Instr, 0, len(f.Body.Stmts))}
	r.code, r.loc, r.ranged = c, nil, 0
	if r.names == nil {
		r.names, r.ranges = map[string]binding{}, map[string][]regRange{}
	}
	r.open()
	bind := func(list []*Var, returns bool) []*Symbol {
		out := make([]*Symbol, len(list))
		for i, v := range list {
			s := Symbol{Kind: SymParam, Name: v.Name, Type: v.Type, Vector: v.Vector, Var: v, Index: i, Return: returns}
			if v.Space == RegSpace {
				out[i] = r.register(v, v.Name)
			} else {
				out[i] = r.symbol(s)
			}
			if v.Name != "_" {
				r.declare(v.Pos, v.Name, out[i])
			}
		}
		return out
	}
	c.Returns = bind(f.Returns, true)
	c.Params = bind(f.Params, false)
	r.block(f.Body)
	r.close()
	return c
}

// open begins a scope.
func (r *resolver) open() { r.scopes = append(r.scopes, nil) }

// close ends the innermost scope and restores the meanings of its names.
func (r *resolver) close() {
	depth := len(r.scopes) - 1
	hidden := r.scopes[depth]
	r.scopes = r.scopes[:depth]
	for i := len(hidden) - 1; i >= 0; i-- {
		switch h := hidden[i]; {
		case h.ofReg:
			r.ranges[h.name] = r.ranges[h.name][:len(r.ranges[h.name])-1]
			r.ranged = h.was.depth
		case h.was.sym == nil:
			delete(r.names, h.name)
		default:
			r.names[h.name] = h.was
		}
	}
}

// declare gives name a meaning in the innermost scope.
func (r *resolver) declare(pos Pos, name string, s *Symbol) {
	depth := len(r.scopes) - 1
	if old, ok := r.names[name]; ok && old.depth == depth {
		r.fail(pos, "second declaration of", name)
		return
	}
	r.bind(depth, name, s)
}

// bind gives name a meaning in the scope at depth, which no deeper scope may hide.
func (r *resolver) bind(depth int, name string, s *Symbol) {
	r.scopes[depth] = append(r.scopes[depth], shadow{name: name, was: r.names[name]})
	r.names[name] = binding{s, depth}
}

// register makes and numbers the symbol of a register.
func (r *resolver) register(v *Var, name string) *Symbol {
	s := r.symbol(Symbol{Kind: SymReg, Name: name, Type: v.Type, Vector: v.Vector, Var: v, Index: len(r.code.Regs)})
	r.code.Regs = append(r.code.Regs, s)
	return s
}

// block binds the names in a scope, in order.
func (r *resolver) block(b *Block) {
	r.open()
	for _, s := range b.Stmts { // these may be used before their declaration
		switch s := s.(type) {
		case *Label:
			r.declare(s.Pos, s.Name, r.symbol(Symbol{Kind: SymLabel, Name: s.Name, Index: -1}))
		case *BranchTargets:
			r.declare(s.Pos, s.Name, r.symbol(Symbol{Kind: SymTargets, Name: s.Name, Branch: s}))
		case *CallTargets:
			r.declare(s.Pos, s.Name, r.symbol(Symbol{Kind: SymCalls, Name: s.Name, Calls: s}))
		case *CallPrototype:
			r.declare(s.Pos, s.Name, r.symbol(Symbol{Kind: SymPrototype, Name: s.Name, Proto: s}))
		}
	}
	for _, s := range b.Stmts {
		switch s := s.(type) {
		case *Instr:
			r.instr(s)
		case *Block:
			r.block(s)
		case *Var:
			r.variable(s)
		case *Loc:
			r.loc = s
			if r.code.Locs == nil {
				r.code.Locs = make([]*Loc, len(r.code.Instrs), cap(r.code.Instrs))
			}
		case *Label:
			if l := r.names[s.Name].sym; l.Kind == SymLabel && l.Index < 0 {
				l.Index = len(r.code.Instrs)
				r.code.Labels = append(r.code.Labels, l)
			}
		case *BranchTargets:
			s.Syms = make([]*Symbol, len(s.Labels))
			for i, name := range s.Labels {
				s.Syms[i] = r.lookup(s.Pos, name)
				if s.Syms[i] != nil && s.Syms[i].Kind != SymLabel {
					r.fail(s.Pos, "branch target that is no label,", name)
				}
			}
		case *CallTargets:
			for _, name := range s.Funcs {
				r.lookup(s.Pos, name)
			}
		}
	}
	r.close()
}

// variable binds a variable or register from here on.
func (r *resolver) variable(v *Var) {
	switch {
	case v.Count > 0:
		depth := len(r.scopes) - 1
		open := r.ranges[v.Name]
		if n := len(open); n > 0 && open[n-1].depth == depth {
			r.fail(v.Pos, "second declaration of", v.Name+"<>")
			return
		}
		r.ranges[v.Name] = append(open, regRange{v, depth})
		r.scopes[depth] = append(r.scopes[depth], shadow{name: v.Name, was: binding{depth: r.ranged}, ofReg: true})
		r.ranged = depth
	case v.Space == RegSpace || v.Space == SregSpace:
		r.declare(v.Pos, v.Name, r.register(v, v.Name))
	default:
		r.declare(v.Pos, v.Name, r.local(v))
	}
}

// local returns a new variable of the body.
func (r *resolver) local(v *Var) *Symbol {
	s := r.symbol(Symbol{Kind: SymVar, Name: v.Name, Type: v.Type, Vector: v.Vector, Var: v})
	r.code.Vars = append(r.code.Vars, s)
	return s
}

// member returns a new symbol for one of the names of a range: a register, or a variable, as GCC
// declares the parameters of calls (.param .u64 %P<2>).
func (r *resolver) member(v *Var, name string) *Symbol {
	if v.Space == RegSpace || v.Space == SregSpace {
		return r.register(v, name)
	}
	one := *v
	one.Name, one.Count = name, 0
	return r.local(&one)
}

// instr binds an instruction's names and adds it to the code.
func (r *resolver) instr(i *Instr) {
	r.code.Instrs = append(r.code.Instrs, i)
	if r.code.Locs != nil {
		r.code.Locs = append(r.code.Locs, r.loc)
	}
	if i.Guarded() {
		i.Pred.Sym = r.lookup(i.Pos, i.Pred.Name)
		if i.Pred.Sym != nil && !i.Pred.Sym.register() {
			r.fail(i.Pos, "guard that is no register,", i.Pred.Name)
		}
	}
	r.operands(i.Pos, i.Operands)
}

func (r *resolver) operands(pos Pos, list []Operand) {
	for i := range list {
		o := &list[i]
		switch o.Kind {
		case KindReg, KindSymbol:
			o.Kind = r.operand(pos, o)
		case KindAddr:
			if o.Base != KindImm {
				o.Base = r.operand(pos, o)
			}
		}
		if len(o.Elems) > 0 {
			r.operands(pos, o.Elems)
		}
	}
}

// operand binds one operand's name and returns its kind, which the name's first letter may have
// misclassified.
func (r *resolver) operand(pos Pos, o *Operand) OperandKind {
	o.Sym = r.lookup(pos, o.Name)
	if o.Sym == nil || o.Sym.register() {
		return KindReg
	}
	if o.Sel != SelNone || o.Not || o.Neg {
		r.fail(pos, "operand that is no register,", o.Name)
	}
	return KindSymbol
}

// lookup returns the current meaning of name; nil after an error.
func (r *resolver) lookup(pos Pos, name string) *Symbol {
	b, known := r.names[name]
	if known && b.depth >= r.ranged {
		return b.sym
	}
	// A member of a range gets its symbol when it is first used; the innermost declaration
	// counts, among ranges and single names.
	var in regRange
	for base, number := range rangeSplits(name) {
		list := r.ranges[base]
		for i := len(list) - 1; i >= 0; i-- {
			if number < list[i].v.Count {
				if in.v == nil || list[i].depth > in.depth {
					in = list[i]
				}
				break
			}
		}
	}
	switch {
	case in.v != nil && (!known || in.depth > b.depth):
		s := r.member(in.v, name)
		r.bind(in.depth, name, s)
		return s
	case known:
		return b.sym
	}
	if s := r.prog.Globals[name]; s != nil {
		return s
	}
	if s := specials[name]; s != nil {
		return s
	}
	r.fail(pos, "undeclared name", name)
	return nil
}
