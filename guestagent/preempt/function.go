package preempt

import (
	"strings"

	"vgpud/ptx"
	"vgpud/ptx/flow"
)

// clusterRegisters holds the special registers that are meaningful only in clusters of blocks.
var clusterRegisters = words(`%clusterid %nclusterid %cluster_ctaid %cluster_nctaid %cluster_ctarank %cluster_nctarank
	%is_explicit_cluster`)

// clusterDirectives holds the directives of kernels whose blocks are launched in clusters.
var clusterDirectives = []string{"reqnctapercluster", "explicitcluster", "maxclusterrank"}

// otherOpcodes holds opcodes unknown to package flow that do nothing unsound in a preemptible
// kernel.
var otherOpcodes = words("movmatrix istypep multimem tensormap mbarrier wgmma tcgen05")

// builtins holds the functions that the driver defines and that do not depend on a block's place in
// the grid, and those that tables of abstract classes name, which no program calls.
var builtins = words("vprintf malloc free __assertfail __cxa_pure_virtual __cxa_deleted_virtual")

func words(list string) map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(list) {
		m[w] = true
	}
	return m
}

// function analyzes one function by itself.
func (w *analyzer) function(f *funcInfo) {
	var err error
	if f.graph, err = flow.Build(f.code); err != nil {
		f.refuse(UnsupportedInstruction, "%v", err)
		f.graph = nil
		return
	}
	for _, name := range clusterDirectives {
		if d, ok := f.code.Func.Directive(name); ok && f.code.Func.Entry {
			f.refuse(Cluster, ".%s", d.Name)
		}
	}
	for _, v := range f.code.Vars {
		f.shared = f.shared || v.Var.Space == ptx.SharedSpace
	}
	for i, in := range f.code.Instrs {
		w.instruction(f, i, in)
	}
	if len(f.barriers)+len(f.warp)+len(f.calls) > 0 {
		f.uniform = f.graph.Uniformity()
	}
	f.findNumbers()
}

// instruction records what one instruction means for its function.
func (w *analyzer) instruction(f *funcInfo, i int, in *ptx.Instr) {
	ptx.Walk(in.Operands, func(o *ptx.Operand) {
		switch {
		case o.Sym == nil:
		case o.Sym.Kind == ptx.SymSpecial:
			f.specialRegister(in, o.Sym.Name)
		case o.Sym.Kind == ptx.SymVar:
			f.shared = f.shared || o.Sym.Var.Space == ptx.SharedSpace
		}
	})
	if in.Guarded() && in.Pred.Sym.Kind == ptx.SymSpecial {
		f.specialRegister(in, in.Pred.Sym.Name)
	}
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
		f.exits = append(f.exits, i)
	case op == "call":
		w.call(f, i, in)
	case op == "bar" || op == "barrier":
		f.barrier(i, in)
	case op == "mapa" || op == "getctarank" || op == "clusterlaunchcontrol" || in.Has("async") && (op == "st" || op == "red"):
		f.refuse(Cluster, "%v", in)
	case op == "mbarrier" || op == "tcgen05" || op == "wgmma" || op == "setmaxnreg" || op == "alloca" || op == "stackrestore":
		f.refuseLoops(LastingState, "%v", in)
	case op == "cp" && (in.Has("bulk") || in.Has("mbarrier") || !in.Has("async")):
		f.refuseLoops(LastingState, "%v", in)
	case op == "cp":
		f.asyncs, f.shared = true, true
	case op == "multimem" && in.Has("cp"):
		f.refuseLoops(LastingState, "%v", in)
	case !flow.Known(op) && !otherOpcodes[op]:
		f.refuse(UnsupportedInstruction, "%v", in)
	}
	switch {
	case exchanges[in.Opcode] && in.Has("sync") || in.Opcode == "bar" && in.Has("warp"):
		f.warp = append(f.warp, i)
	case exchanges[in.Opcode] || in.Opcode == "activemask":
		f.active = true
	}
	if mayWait(in) {
		f.reads = append(f.reads, i)
	}
	if mayPoll(in) {
		f.polls = append(f.polls, i)
	}
	f.writes = f.writes || mayWrite(in)
	f.syncs = f.syncs || synchronizes(in)
}

// specialRegister records the use of a special register.
func (f *funcInfo) specialRegister(in *ptx.Instr, name string) {
	switch {
	case name == "%ctaid" || name == "%nctaid":
		f.readsIndex = true
	case strings.HasPrefix(name, "%envreg"):
		f.refuse(GridSync, "%v", in) // cooperative groups find the grid's barrier through these
	case clusterRegisters[name]:
		f.refuse(Cluster, "%v", in)
	case name == "%current_graph_exec":
		f.refuse(DeviceLaunch, "%v", in)
	case name == "%gridid":
		f.refuse(UnsupportedInstruction, "%v: it would change when the kernel is launched again", in)
	}
}

// barrier records a barrier of the block; a barrier of a warp counts as a warp exchange.
func (f *funcInfo) barrier(i int, in *ptx.Instr) {
	if in.Has("warp") {
		return
	}
	if in.Has("cluster") {
		f.refuse(Cluster, "%v", in)
		return
	}
	b := barrier{instr: i, in: in, number: -1, aligned: in.Opcode == "bar" || in.Has("aligned")}
	operands := in.Operands
	switch {
	case in.Has("sync"):
		b.kind, b.partial = "sync", len(operands) > 1
	case in.Has("arrive"):
		b.kind, b.partial = "arrive", true
	case in.Has("red"):
		b.kind, b.partial = "red", len(operands) > 3
		operands = operands[min(1, len(operands)):]
	default:
		f.refuse(UnsupportedInstruction, "%v", in)
		return
	}
	if len(operands) == 0 {
		f.refuse(UnsupportedInstruction, "%v", in)
		return
	}
	if o := &operands[0]; o.Kind == ptx.KindImm && o.Imm == ptx.ImmInt && o.Bits < 16 {
		b.number = int(o.Bits)
	}
	f.barriers = append(f.barriers, b)
	if b.partial && b.kind != "arrive" {
		f.warp = append(f.warp, i) // it waits for all lanes of the warp that have not exited
	}
}

// findNumbers finds the numbers of barriers that are given in a register: compilers emit mov.u32
// %r1, 0; barrier.sync %r1.
func (f *funcInfo) findNumbers() {
	var wanted []int32
	for k := range f.barriers {
		if r := f.barriers[k].numberReg(); r >= 0 {
			wanted = append(wanted, r)
		}
	}
	if len(wanted) == 0 {
		return
	}
	values := f.constants(wanted, f.graph.Effects())
	for k := range f.barriers {
		b := &f.barriers[k]
		if v, ok := values[b.numberReg()]; ok && v >= 0 && v < 16 {
			b.number = int(v)
		}
	}
}

// constants returns the values of those wanted registers that every writing instruction sets to the
// same constant.
func (f *funcInfo) constants(wanted []int32, effects *flow.Effects) map[int32]int64 {
	values, varies := map[int32]int64{}, map[int32]bool{}
	want := make(map[int32]bool, len(wanted))
	for _, r := range wanted {
		want[r] = true
	}
	for i, in := range f.code.Instrs {
		for _, r := range effects.Writes(i) {
			if !want[r] {
				continue
			}
			if in.Opcode != "mov" || len(in.Operands) != 2 || in.Operands[1].Kind != ptx.KindImm || in.Operands[1].Imm != ptx.ImmInt {
				varies[r] = true
				continue
			}
			v := in.Operands[1].Int()
			if old, ok := values[r]; ok && old != v {
				varies[r] = true
			}
			values[r] = v
		}
	}
	for r := range varies {
		delete(values, r)
	}
	return values
}

// numberReg returns the register that holds the barrier's number, or -1.
func (b *barrier) numberReg() int32 {
	o := &b.in.Operands[0]
	if b.kind == "red" {
		o = &b.in.Operands[1]
	}
	if o.Kind == ptx.KindReg && o.Sym.Kind == ptx.SymReg {
		return int32(o.Sym.Index)
	}
	return -1
}

// indirectCall is a call through a register whose callees are not yet known.
type indirectCall struct {
	from    *funcInfo
	site    int // in from.calls
	in      *ptx.Instr
	targets []string // from its list of targets; nil without one
	callees []*funcInfo
}

// call records a call.
func (w *analyzer) call(f *funcInfo, i int, in *ptx.Instr) {
	call, ok := in.Call()
	if !ok {
		f.refuse(UnsupportedInstruction, "%v", in)
		return
	}
	if s := call.Target.Sym; s != nil && s.Kind == ptx.SymFunc {
		if s.Func.Entry {
			f.refuse(UnsupportedInstruction, "%v: a kernel is called", in)
			return
		}
		if g := w.funcs[s.Func.Name]; g != nil {
			f.calls = append(f.calls, callSite{instr: i, callees: []*funcInfo{g}, direct: true})
			return
		}
		f.extern(i, in, s.Func.Name)
		return
	}
	c := indirectCall{from: f, site: len(f.calls), in: in}
	if s := call.Proto.Sym; s != nil && s.Kind == ptx.SymCalls {
		c.targets = s.Calls.Funcs
	}
	f.calls = append(f.calls, callSite{instr: i})
	w.indirect = append(w.indirect, c)
}

// extern records a call of a function that this module does not define.
func (f *funcInfo) extern(i int, in *ptx.Instr, name string) {
	switch {
	case name == "malloc": // it may succeed only when another block has freed memory
		f.reads, f.polls, f.syncs = append(f.reads, i), append(f.polls, i), true
	case builtins[name]:
	case strings.HasPrefix(name, "cuda") || strings.HasPrefix(name, "__cudaCDP") || strings.HasPrefix(name, "cnp"):
		f.refuse(DeviceLaunch, "calls %s", name)
	default:
		f.refuse(ExternalCall, "calls %s", name)
	}
}

// bindCalls finds what indirect calls may reach: the functions in their lists of targets, or else
// every function whose address is taken in the module. Those are reached through one node that
// stands for all of them, since there may be many such calls and many such functions.
func (w *analyzer) bindCalls(m *ptx.Module, list []*funcInfo) {
	edges := 0
	var anyTaken *funcInfo
	for k := range w.indirect {
		c := &w.indirect[k]
		if c.targets != nil {
			if edges += len(c.targets); edges > maxVisits {
				c.from.refuse(TooBig, "%v: too many functions may be called", c.in)
				continue
			}
			w.bindTargets(c, c.targets)
		} else {
			if anyTaken == nil {
				anyTaken = &funcInfo{}
				all := indirectCall{from: anyTaken, in: c.in}
				w.bindTargets(&all, w.addressesTaken(m, list))
				anyTaken.calls = []callSite{{callees: all.callees}}
				w.pointers = anyTaken
			}
			if anyTaken.refused != None {
				c.from.refuse(anyTaken.refused, "%s", anyTaken.detail)
			}
			c.callees = []*funcInfo{anyTaken}
		}
		c.from.calls[c.site].callees = c.callees
	}
}

// bindTargets finds the functions that an indirect call may reach by their names.
func (w *analyzer) bindTargets(c *indirectCall, targets []string) {
	if len(targets) == 0 {
		c.from.refuse(IndirectCall, "%v: no function's address is taken", c.in)
	}
	for _, name := range targets {
		s := w.prog.Globals[name]
		if s == nil || s.Kind != ptx.SymFunc {
			c.from.refuse(IndirectCall, "%v may reach %s, which is no function", c.in, name)
			continue
		}
		if g := w.funcs[s.Func.Name]; g != nil {
			c.callees = append(c.callees, g)
		} else if !builtins[name] {
			c.from.refuse(IndirectCall, "%v may reach %s, which is not defined here", c.in, name)
		}
	}
}

// addressesTaken returns the functions whose address is taken, by an instruction or an initializer.
func (w *analyzer) addressesTaken(m *ptx.Module, list []*funcInfo) []string {
	var names []string
	seen := map[string]bool{}
	take := func(name string) {
		s := w.prog.Globals[name]
		if s != nil && s.Kind == ptx.SymFunc && !s.Func.Entry && !seen[s.Func.Name] {
			seen[s.Func.Name] = true
			names = append(names, s.Func.Name)
		}
	}
	operand := func(o *ptx.Operand) {
		if s := o.Sym; s != nil && s.Kind == ptx.SymFunc {
			take(s.Name)
		}
	}
	for _, f := range list {
		for _, in := range f.code.Instrs {
			if in.Opcode != "call" {
				ptx.Walk(in.Operands, operand)
			} else if c, ok := in.Call(); ok {
				ptx.Walk(c.Args, operand)
			}
		}
		for _, v := range f.code.Vars {
			initializerNames(v.Var, take)
		}
	}
	for _, it := range m.Items {
		if v, ok := it.(*ptx.Var); ok {
			initializerNames(v, take)
		}
	}
	return names
}

// initializerNames calls take for each name in a variable's initializer.
func initializerNames(v *ptx.Var, take func(string)) {
	if v.Init == nil || !hasName(v.Init.Raw) {
		return
	}
	for x, err := range v.Values() {
		if err != nil {
			return // Parse has checked it
		}
		if x.Name != "" {
			take(x.Name)
		}
	}
}

// hasName reports whether an initializer contains a name. Numbers begin with a digit: 0xff,
// 0f3F800000.
func hasName(raw string) bool {
	within := false // a number or a name
	for i := range len(raw) {
		c := raw[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c == '$' || c == '%'
		if letter && !within {
			return true
		}
		within = letter || c >= '0' && c <= '9' || c == '.'
	}
	return false
}

// parametersFit reports whether a kernel's parameters leave room for the launch's arguments.
func parametersFit(m *ptx.Module, f *ptx.Func, bytes int) bool {
	limit, end := m.MaxParamBytes(), int64(0)
	for _, p := range f.Params {
		a := int64(max(p.Alignment(), 1))
		size := p.Size()
		if size < 0 || size > limit || a > limit {
			return false
		}
		end = (end+a-1)/a*a + size
		if end > limit {
			return false
		}
	}
	return (end+7)/8*8+int64(bytes) <= limit
}
