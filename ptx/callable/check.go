package callable

import (
	"fmt"
	"strings"

	"vgpud/ptx"
	"vgpud/ptx/flow"
)

// function is what is known of one function or kernel by itself.
type function struct {
	code    *ptx.Code
	graph   *flow.Graph
	uniform *flow.Uniformity // nil unless needed

	reason Reason // why what calls it can't be called
	detail string

	place    bool       // it reads its place
	needs    bool       // it, or a function that it calls, does
	exits    bool       // it has an exit
	asyncs   bool       // it starts asynchronous copies
	warp     []int      // instructions by which lanes of a warp exchange values or wait for each other
	warpDeep bool       // it, or a function that it calls, has such
	barriers []int      // barriers of the block
	barred   bool       // it, or a function that it calls, has such
	calls    []callSite // of functions with a body
	indirect bool       // it calls through pointers
	shared   bool       // it accesses shared memory
	vars     []*ptx.Var // shared variables that it names or declares
	waits    bool       // it may wait for other blocks

	registers int // alive at a time
	callers   []*function
}

// callSite is a direct call.
type callSite struct {
	instr int
	to    *function
}

func (f *function) refuse(r Reason, format string, args ...any) {
	if f.reason == None {
		f.reason, f.detail = r, fmt.Sprintf(format, args...)
	}
}

func words(list string) map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(list) {
		m[w] = true
	}
	return m
}

var (
	placeNames   = []string{"%tid", "%ntid", "%ctaid", "%nctaid"}
	clusterNames = words(`%clusterid %nclusterid %cluster_ctaid %cluster_nctaid %cluster_ctarank %cluster_nctarank %is_explicit_cluster`)
	// callersNames are registers that would have the caller's values.
	callersNames      = words(`%gridid %total_smem_size %aggr_smem_size %dynamic_smem_size`)
	clusterDirectives = []string{"reqnctapercluster", "explicitcluster", "maxclusterrank"}
	// exchanges are the opcodes by which lanes of a warp exchange values, or which a warp executes as
	// a whole.
	exchanges = words("elect ldmatrix match mma movmatrix redux shfl stmatrix vote wgmma wmma")
	// lasting are those that leave something behind.
	lasting = words("mbarrier tcgen05 wgmma setmaxnreg alloca stackrestore")
	// others are opcodes that package flow does not know and that need no care.
	others = words("movmatrix istypep multimem tensormap")
	// builtins are the functions that the driver defines and that know nothing of a thread's place.
	builtins = words("vprintf malloc free __assertfail")
)

// placeOperand returns which component of the place an operand is, in the order of placeNames.
func placeOperand(o *ptx.Operand) (word int, whole, ok bool) {
	if o.Sym == nil || o.Sym.Kind != ptx.SymSpecial {
		return 0, false, false
	}
	for i, name := range placeNames {
		if o.Sym.Name != name {
			continue
		}
		if o.Sel == ptx.SelNone {
			return 0, true, true
		}
		c, ok := o.Sel.Component()
		return 3*i + c, false, ok && c < 3 // the fourth is a constant
	}
	return 0, false, false
}

// examine finds what matters of a function.
func (t *module) examine(code *ptx.Code) *function {
	f := &function{code: code}
	var err error
	if f.graph, err = flow.Build(code); err != nil {
		f.refuse(UnsupportedInstruction, "%v", err)
		return f
	}
	if t.m.AddressSize == 32 {
		f.refuse(UnsupportedInstruction, "32-bit addresses")
	}
	if t.names.Specials {
		f.refuse(NameInUse, "the module declares the name of a special register")
	}
	for _, name := range clusterDirectives {
		if _, ok := code.Func.Directive(name); ok && code.Func.Entry {
			f.refuse(Cluster, ".%s", name)
		}
	}
	seen := map[*ptx.Var]bool{}
	variable := func(v *ptx.Var) {
		if v.Space == ptx.SharedSpace && !seen[v] {
			seen[v], f.shared = true, true
			f.vars = append(f.vars, v)
		}
	}
	for _, s := range code.Vars {
		switch v := s.Var; v.Space {
		case ptx.GlobalSpace, ptx.ConstSpace:
			f.refuse(UnsupportedInstruction, "%s is declared in a function, and its copy would have another", v.Name)
		case ptx.SharedSpace, ptx.LocalSpace:
			if v.Init != nil {
				f.refuse(LastingState, "%s has an initial value", v.Name)
			}
			variable(v)
		}
	}
	for i, in := range code.Instrs {
		ptx.Walk(in.Operands, func(o *ptx.Operand) {
			if o.Sym != nil && o.Sym.Kind == ptx.SymVar {
				variable(o.Sym.Var)
			}
		})
		f.special(in)
		t.instruction(f, i, in)
		if code.Func.Entry {
			f.parameter(in)
		}
	}
	if code.Func.Entry {
		f.launchable()
	}
	if f.reason != None {
		return f
	}
	f.uniform = f.graph.Uniformity()
	effects := f.graph.Effects()
	f.waits = f.mayWait(effects)
	if f.registers = alive(f.graph, effects); f.registers < 0 {
		f.refuse(TooBig, "%s: too many registers are alive across blocks", code.Func.Name)
	}
	return f
}

// launchable refuses a kernel whose parameters no launch could pass (PTX §5.1.6.1).
func (f *function) launchable() {
	const most = 32764
	end := int64(0)
	for _, p := range f.code.Func.Params {
		size, align := p.Size(), int64(max(p.Alignment(), 1))
		if size < 0 || size > most || align > most {
			f.refuse(Parameters, "%s is too large", p.Name)
			return
		}
		if end = (end+align-1)/align*align + size; end > most {
			f.refuse(Parameters, "more than %d bytes", most)
			return
		}
	}
}

// special records the special registers that an instruction reads.
func (f *function) special(in *ptx.Instr) {
	ptx.Walk(in.Operands, func(o *ptx.Operand) {
		if _, whole, ok := placeOperand(o); ok || whole {
			f.place = true
			if whole {
				f.refuse(UnsupportedInstruction, "%v: it reads the whole vector", in)
			} else if narrow(in) {
				f.refuse(UnsupportedInstruction, "%v: it reads half a register", in)
			}
			return
		}
		if o.Sym == nil || o.Sym.Kind != ptx.SymSpecial {
			return
		}
		switch name := o.Sym.Name; {
		case strings.HasPrefix(name, "%envreg"):
			f.refuse(Cooperative, "%v", in) // cooperative groups find the grid's barrier through these
		case clusterNames[name]:
			f.refuse(Cluster, "%v", in)
		case name == "%current_graph_exec":
			f.refuse(DeviceLaunch, "%v", in)
		case callersNames[name], strings.HasPrefix(name, "%reserved_smem"):
			f.refuse(UnsupportedInstruction, "%v: it would be the caller's", in)
		}
	})
}

// narrow reports whether an instruction takes a special register as 16 bits, as programs of PTX 1
// do.
func narrow(in *ptx.Instr) bool {
	return in.Opcode != "cvt" && (in.Has("u16") || in.Has("s16") || in.Has("b16"))
}

// instruction records what an instruction means for its function.
func (t *module) instruction(f *function, i int, in *ptx.Instr) {
	for _, m := range in.Modifiers {
		switch {
		case strings.HasPrefix(m, "shared"):
			f.shared = true
		case m == "multicast::cluster":
			f.refuse(Cluster, "%v", in)
		}
	}
	switch op := in.Opcode; {
	case op == "exit":
		f.exits = true
	case op == "call":
		t.call(f, i, in)
	case (op == "bar" || op == "barrier") && in.Has("warp"), exchanges[op], op == "activemask":
		f.warp = append(f.warp, i)
		if lasting[op] {
			f.refuse(LastingState, "%v", in)
		}
	case op == "bar" || op == "barrier":
		switch {
		case in.Has("cluster"):
			f.refuse(Cluster, "%v", in)
		case in.Has("arrive"):
			f.refuse(Barrier, "%v: arrivals may be left over", in)
		default:
			f.barriers = append(f.barriers, i)
		}
	case op == "mapa" || op == "getctarank" || op == "clusterlaunchcontrol" || in.Has("async") && (op == "st" || op == "red"):
		f.refuse(Cluster, "%v", in)
	case op == "griddepcontrol":
		f.refuse(Cooperative, "%v", in) // its grid waits for others, or lets them start
	case lasting[op], op == "cp" && (in.Has("bulk") || in.Has("mbarrier") || !in.Has("async")), op == "multimem" && in.Has("cp"):
		f.refuse(LastingState, "%v", in)
	case op == "cp":
		f.asyncs, f.shared = true, true
	case !flow.Known(op) && !others[op]:
		f.refuse(UnsupportedInstruction, "%v", in)
	}
}

// call records a call.
func (t *module) call(f *function, i int, in *ptx.Instr) {
	c, ok := in.Call()
	if !ok {
		f.refuse(UnsupportedInstruction, "%v", in)
		return
	}
	s := c.Target.Sym
	if s == nil || s.Kind != ptx.SymFunc {
		f.indirect = true
		return
	}
	switch name := s.Func.Name; {
	case s.Func.Entry:
		f.refuse(UnsupportedInstruction, "%v: a kernel is called", in)
	case t.prog.Code(name) != nil:
		f.calls = append(f.calls, callSite{instr: i}) // spread finds the function
	case builtins[name]:
	case strings.HasPrefix(name, "cuda") || strings.HasPrefix(name, "__cudaCDP") || strings.HasPrefix(name, "cnp"):
		f.refuse(DeviceLaunch, "calls %s", name)
	default:
		f.refuse(ExternalCall, "calls %s", name)
	}
}

// parameter refuses uses of a kernel's parameters that body.go does not change.
func (f *function) parameter(in *ptx.Instr) {
	if parameterUse(in) == badUse {
		f.refuse(Parameters, "%v", in)
	}
}

// use is how an instruction uses the parameters of its kernel.
type use int

const (
	noUse      use = iota
	loads          // ld.param of a name
	loadsAt        // ld.param of an address in a register
	takes          // mov of an address in parameter space
	takesPlain     // cvta.param: of a generic address
	converts       // cvta.param of an address in a register
	badUse
)

// parameterUse returns how an instruction uses the parameters of its kernel. Calls have parameters of
// their own, which are variables of the body.
func parameterUse(in *ptx.Instr) use {
	named := 0
	ptx.Walk(in.Operands, func(o *ptx.Operand) {
		if o.Sym != nil && o.Sym.Kind == ptx.SymParam {
			named++
		}
	})
	space := false
	for _, m := range in.Modifiers {
		space = space || m == "param" || strings.HasPrefix(m, "param::")
	}
	two := len(in.Operands) == 2
	switch {
	case named == 0 && !space:
		return noUse
	case !two || named > 1 || in.Has("volatile") || in.Has("to"):
		return badUse
	}
	o := &in.Operands[1]
	byName := o.Sym != nil && o.Sym.Kind == ptx.SymParam
	switch {
	case named > 0 && !byName:
		return badUse
	case in.Opcode == "ld" && space && byName && o.Kind == ptx.KindAddr:
		return loads
	case in.Opcode == "ld" && space && o.Kind == ptx.KindAddr && o.Sym != nil && o.Sym.Kind == ptx.SymReg:
		return loadsAt
	case in.Opcode == "ld" && space && ofCall(o), in.Opcode == "st" && space && ofCall(&in.Operands[0]):
		return noUse
	case in.Opcode == "mov" && byName && o.Kind == ptx.KindSymbol && (in.Has("u64") || in.Has("b64") || in.Has("s64")):
		return takes
	case in.Opcode == "cvta" && space && byName && o.Kind == ptx.KindSymbol:
		return takesPlain
	case in.Opcode == "cvta" && space && o.Kind == ptx.KindReg:
		return converts
	}
	return badUse
}

// ofCall reports whether an address is that of a call's parameter: a variable of the body.
func ofCall(o *ptx.Operand) bool { return o.Sym != nil && o.Sym.Kind == ptx.SymVar }
