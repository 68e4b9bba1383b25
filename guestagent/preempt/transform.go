package preempt

import (
	"fmt"
	"maps"

	"vgpud/mediator/vgpu/abi"
	"vgpud/ptx"
)

// Options say what Transform makes. The zero Options makes every form that is sound.
type Options struct {
	Forms Form // a set of forms; 0 for all
	Look  Look // how blocks learn that they are to leave
}

// Report says what Transform made of one kernel.
type Report struct {
	Kernel      string
	Preemptible bool   // it has at least one form that is sound, whether asked for or not
	Forms       []Form // those in the module: EntryName tells under which names
	// Reason says why the kernel has no form, or only the early exit without a loop; None if nothing is wrong with it.
	Reason Reason
	Detail string // what Reason is about, for people

	Barriers struct {
		Total     int // in the kernel and what it calls
		Uniform   int // passed by all threads of a block or by none, so sound as they are
		Rewritten int // so that threads which are done go on meeting the others, in the forms with a loop
	}
	WaitsForBlocks        bool // its blocks may wait for one another: only the persistent form, in grids of one dimension
	TakesTasks            bool // its blocks take task after task by themselves: it is persistent already
	VirtualRegistersAdded int  // the most that a form added
	SharedBytesAdded      int  // likewise
}

const (
	launchBytes = abi.PreemptArgsBytes
	launchAlign = 8
	// staticShared is how much static shared memory a kernel may have on any GPU, and slotBytes or slotApartBytes what
	// the persistent form adds to it.
	staticShared   = 48 << 10
	slotBytes      = 8
	slotApartBytes = 1 << 10
	// maxWays bounds the barriers that are rewritten: each is a way from the hub, for all of which the assembler keeps
	// the registers that any of them needs.
	maxWays = 256
	// maxAdded bounds the instructions of all new kernels together: of a kernel of twelve characters become three of a
	// hundred instructions each.
	maxAdded = 1 << 22
	// formInstrs is more than a form adds to a body.
	formInstrs = 120
)

// Transform makes preemptible forms of m's kernels: a module with everything that m has, under its own name, and new
// kernels beside (see EntryName), and a report for each kernel of m. A kernel is launched in one of its forms with
// [abi.PreemptArgs] behind its own parameters, whose offsets stay.
//
// m keeps its text, but its names are bound as ptx.Resolve does, so nothing else may use m meanwhile. The new module
// shares with it what neither changes, and needs to be resolved. The error, if any, is Resolve's; there is a report for
// a kernel that can't be transformed, not an error.
func Transform(m *ptx.Module, o Options) (*ptx.Module, []Report, error) {
	prog, err := ptx.Resolve(m)
	if err != nil {
		return nil, nil, fmt.Errorf("bind the module's names: %w", err)
	}
	if o.Forms == 0 {
		o.Forms = allForms
	}
	t := &module{
		m: m, look: o.Look, copier: &copier{}, names: newNames(m), studies: study(m, prog),
		scans: map[*funcStudy]*scan{}, clones: map[*funcStudy]string{}, meets: map[*ptx.Instr]bool{}, settled: map[*ptx.Instr]*ptx.Instr{},
	}
	t.findLabels(prog)
	reports := make([]Report, len(t.studies.entries))
	for i, e := range t.studies.entries {
		reports[i] = t.entry(e, o.Forms)
	}
	t.makeClones()
	return t.assemble(), reports, nil
}

// module is a module in transformation.
type module struct {
	m       *ptx.Module
	look    Look
	copier  *copier
	names   *names
	studies *studies

	dropLabels bool            // labels that nothing branches to may be known to debug sections: only the originals keep them
	targets    map[string]bool // names of labels that something branches to

	scans map[*funcStudy]*scan

	clones map[*funcStudy]string // the names of device functions' copies that are given their task
	order  []*funcStudy          // those asked for, in order
	meets  map[*ptx.Instr]bool   // the barriers that are rewritten
	// settled holds loads behind which a barrier comes again in a loop, see settle.go, with that barrier.
	settled map[*ptx.Instr]*ptx.Instr

	added   int         // instructions, about
	entries []*ptx.Func // made so far
	copies  []*ptx.Func // of device functions
}

// entry makes the forms of one kernel.
func (t *module) entry(e *entryStudy, forms Form) Report {
	k := &kernel{study: e, module: t}
	r := Report{Kernel: e.fn.Name, WaitsForBlocks: e.waits, TakesTasks: e.takesTasks}
	r.Barriers.Total, r.Barriers.Uniform = e.barriers.total, e.barriers.uniform
	k.plan()
	if e.refused == None {
		t.added += len(eachForm) * (len(e.self.code.Instrs) + formInstrs)
		if t.added > maxAdded {
			e.refuse(TooBig, "the module's kernels together")
		}
	}
	r.Reason, r.Detail = e.loops, e.detail
	if e.refused != None {
		r.Reason = e.refused
		return r
	}
	for _, f := range eachForm {
		if ok, _ := e.fits(f); !ok || k.crowded && f == Persistent {
			continue
		}
		r.Preemptible = true
		if f != Single {
			r.Barriers.Rewritten = len(e.rewrite)
		}
		if forms&f == 0 || !t.look.offers(f) {
			continue
		}
		fn, b := k.form(f)
		t.entries = append(t.entries, fn)
		r.Forms = append(r.Forms, f)
		r.VirtualRegistersAdded = max(r.VirtualRegistersAdded, b.regs)
		r.SharedBytesAdded = max(r.SharedBytesAdded, b.shared)
	}
	return r
}

// plan finds what the forms of a kernel need, and what speaks against them beside what the study found.
func (k *kernel) plan() {
	e, t := k.study, k.module
	if e.refused != None {
		return
	}
	k.check()
	if e.refused != None {
		return
	}
	for _, f := range e.reach {
		if f != e.self && f.needsIndex {
			k.index, k.grid = 3, 3 // it is handed all six
		}
	}
	for _, in := range e.self.code.Instrs {
		k.wants(in.Operands)
	}
	k.meet = len(e.rewrite) > 0
	if e.loops == None {
		maps.Copy(t.settled, e.settling())
	}
	k.together = fragBlockMeets
	if k.meet {
		k.together = fragThreadsMeet
	}
	warp := false
	for _, f := range e.reach {
		warp = warp || len(f.warp) > 0 || f.active
		for _, b := range f.barriers {
			if !b.aligned {
				k.together = fragThreadsMeet
			}
			if !k.meet || e.loops != None {
				continue
			}
			switch {
			case b.number < 0:
				e.refuseLoops(DivergentNamedBarrier, "%v: maybe barrier 0, which others may have left", b.in)
			case b.number == 0 && b.kind == "sync" && !b.partial:
				if f != e.self {
					e.refuseLoops(DivergentFunctionBarrier, "%v in %s, beside one that others may have left", b.in, f.code.Func.Name)
				}
				t.meets[b.in] = true
			}
		}
	}
	if k.meet && e.loops == None {
		k.ways()
	}
	switch {
	case k.meet: // the hub has kept them apart
	case e.shared || e.barriers.total > 0, warp && !k.module.warpsMeet():
		k.apart = k.together
	case warp:
		k.apart = fragWarpMeets
	}
}

// ways refuses a loop where the hub can't lead back to all barriers: labels in a nested block can't be seen from outside.
func (k *kernel) ways() {
	e, n := k.study, 0
	var block func(b *ptx.Block, nested bool)
	block = func(b *ptx.Block, nested bool) {
		for _, s := range b.Stmts {
			switch s := s.(type) {
			case *ptx.Block:
				block(s, true)
			case *ptx.Instr:
				if !k.module.meets[s] {
					continue
				}
				if nested {
					e.refuseLoops(DivergentNamedBarrier, "%v in a nested block", s)
				}
				n++
			}
		}
	}
	block(e.fn.Body, false)
	if n > maxWays {
		e.refuseLoops(TooBig, "%d barriers, some of which threads may have left, more than %d", n, maxWays)
	}
}

// wants notes the components of %ctaid and %nctaid among operands.
func (k *kernel) wants(list []ptx.Operand) {
	for i := range list {
		if which, component, ok := taskOperand(&list[i]); ok {
			if which == 0 {
				k.index = max(k.index, component+1)
			} else {
				k.grid = max(k.grid, component+1)
			}
		}
		if len(list[i].Elems) > 0 {
			k.wants(list[i].Elems)
		}
	}
}

// warpsMeet reports whether the module may have barriers of a warp.
func (t *module) warpsMeet() bool {
	return !t.m.Version.Less(ptx.Version{Major: 6}) && architecture(t.m) >= 30
}

// check refuses what the module around a kernel does not allow.
func (k *kernel) check() {
	e, t := k.study, k.module
	name := e.fn.Name
	switch {
	case t.m.AddressSize == 32:
		e.refuse(UnsupportedInstruction, "32-bit addresses")
	case t.m.Version.Less(ptx.Version{Major: 2}) || architecture(t.m) < 20:
		e.refuse(UnsupportedInstruction, "PTX %d.%d for sm_%d has no barrier reductions or generic addresses", t.m.Version.Major, t.m.Version.Minor, architecture(t.m))
	case t.names.specials:
		e.refuse(NameInUse, "the module declares the name of a special register")
	case !parametersFit(t.m, e.fn, launchBytes):
		e.refuse(Parameters, "no room for %d bytes behind the kernel's parameters", launchBytes)
	}
	for _, f := range eachForm {
		if n := EntryName(name, f); t.names.globals[n] {
			e.refuse(NameInUse, "%s", n)
		}
	}
	static, named := int64(0), false
	first, seen := map[ptx.Stmt]bool{}, map[*ptx.Var]bool{}
	for _, s := range e.fn.Body.Stmts[:head(e.fn.Body)] {
		first[s] = true
	}
	for _, f := range e.reach {
		found := t.scan(f)
		if found.refused != "" {
			e.refuse(UnsupportedInstruction, "%s", found.refused)
		}
		if found.initialised != "" {
			e.refuseLoops(LastingState, "%s has an initial value", found.initialised)
		}
		if found.sizes {
			k.crowded = true
			if e.waits {
				e.refuse(UnsupportedInstruction, "%s reads how much shared memory there is", f.code.Func.Name)
			}
		}
		named = named || found.names
		for _, v := range found.shared {
			if !seen[v] {
				seen[v] = true
				k.moves = k.moves || !first[v] || v.Linking == ptx.Extern
				static = min(static+min(v.Size(), staticShared+1), staticShared+1)
			}
		}
	}
	slot := int64(slotBytes)
	if k.moves {
		slot = slotApartBytes
	}
	if static+slot > staticShared || e.shared && !named { // what is found without a name must not move
		k.crowded = true
		if e.waits {
			e.refuse(TooBig, "no static shared memory left for the task's number")
		}
	}
	if len(e.rewrite) > 0 && (t.m.Version.Less(ptx.Version{Major: 6}) || architecture(t.m) < 70) {
		e.refuseLoops(DivergentNamedBarrier, "threads of a warp don't meet one by one before sm_70 and PTX 6.0")
	}
	for _, b := range e.rewrite {
		if b.kind != "sync" {
			e.refuseLoops(DivergentNamedBarrier, "%v: threads that have returned would be counted", b.in)
		}
	}
}

// scan is what matters in a function besides what the study finds.
type scan struct {
	refused     string     // an instruction or variable that can't be copied
	initialised string     // a variable that would have to be set up for each task
	shared      []*ptx.Var // shared variables that it uses
	names       bool       // it uses or declares some
	sizes       bool       // it reads how much shared memory the block has, to which the persistent form adds
}

// scan looks at a function once.
func (t *module) scan(f *funcStudy) *scan {
	if s, ok := t.scans[f]; ok {
		return s
	}
	s := &scan{}
	t.scans[f] = s
	for _, sym := range f.code.Vars {
		switch v := sym.Var; v.Space {
		case ptx.SharedSpace, ptx.LocalSpace:
			s.names = s.names || v.Space == ptx.SharedSpace
			if v.Init != nil {
				s.initialised = v.Name
			}
		case ptx.GlobalSpace, ptx.ConstSpace:
			s.refused = v.Name + " is declared in a function, and its copy would have another"
		}
	}
	seen := map[*ptx.Var]bool{}
	var operands func(list []ptx.Operand)
	operands = func(list []ptx.Operand) {
		for i := range list {
			if y := list[i].Sym; y != nil && y.Kind == ptx.SymSpecial && (y.Name == "%total_smem_size" || y.Name == "%aggr_smem_size") {
				s.sizes = true
			} else if y != nil && y.Kind == ptx.SymVar && y.Var.Space == ptx.SharedSpace && !seen[y.Var] {
				seen[y.Var], s.names = true, true
				s.shared = append(s.shared, y.Var)
			}
			if len(list[i].Elems) > 0 {
				operands(list[i].Elems)
			}
		}
	}
	for _, in := range f.code.Instrs {
		if c, ok := in.Call(); ok && c.Target.Sym != nil && c.Target.Sym.Kind == ptx.SymFunc && c.Target.Sym.Func.Entry {
			s.refused = in.String() // a kernel is no function, whatever the text says
		}
		if whole(in.Operands) {
			s.refused = in.String()
		}
		operands(in.Operands)
	}
	return s
}

// whole reports whether %ctaid or %nctaid is among the operands with all its components at once.
func whole(list []ptx.Operand) bool {
	for i := range list {
		if _, component, ok := taskOperand(&list[i]); ok && component < 0 {
			return true
		}
		if len(list[i].Elems) > 0 && whole(list[i].Elems) {
			return true
		}
	}
	return false
}

// findLabels finds the labels that something branches to, where that matters.
func (t *module) findLabels(p *ptx.Program) {
	for _, it := range t.m.Items {
		if _, ok := it.(*ptx.Section); ok {
			t.dropLabels = true
		}
	}
	if !t.dropLabels {
		return
	}
	t.targets = map[string]bool{}
	var operands func(list []ptx.Operand)
	operands = func(list []ptx.Operand) {
		for i := range list {
			switch s := list[i].Sym; {
			case s == nil:
			case s.Kind == ptx.SymLabel:
				t.targets[s.Name] = true
			case s.Kind == ptx.SymTargets:
				for _, name := range s.Branch.Labels {
					t.targets[name] = true
				}
			}
			operands(list[i].Elems)
		}
	}
	for _, c := range p.Codes {
		for _, in := range c.Instrs {
			operands(in.Operands)
		}
	}
}

// callee returns the name of the copy that a call must go to, "" if it goes where it went.
func (t *module) callee(in *ptx.Instr) string {
	c, ok := in.Call()
	if !ok || c.Target.Sym == nil || c.Target.Sym.Kind != ptx.SymFunc {
		return ""
	}
	f := t.studies.funcs[c.Target.Sym.Func.Name]
	if f == nil || !f.needsIndex {
		return ""
	}
	name, ok := t.clones[f]
	if !ok {
		name = f.code.Func.Name + "__" + t.names.prefix + "task"
		t.clones[f] = name
		t.order = append(t.order, f)
	}
	return name
}

// makeClones makes the copies of device functions that were asked for, and those that they ask for.
func (t *module) makeClones() {
	for i := 0; i < len(t.order); i++ {
		f := t.order[i]
		fn := f.code.Func
		b := &builder{copier: t.copier, names: t.names}
		b.add(fragArgs)
		task := &ptx.Var{Space: ptx.ParamSpace, Align: 4, Type: ptx.B8, Name: t.names.own("V_task"), Dims: []int64{4 * taskWords}}
		body := &rewriter{builder: b, module: t, index: true}
		body.stmts(fn.Body.Stmts, &b.stmts)
		t.copies = append(t.copies, &ptx.Func{
			Pos: fn.Pos, Name: t.clones[f], Returns: fn.Returns, Params: append([]*ptx.Var{task}, fn.Params...),
			Directives: fn.Directives, Body: b.body(fn.Body),
		})
	}
}

// assemble puts the new functions behind the module's own, which they may refer to, and before what follows them.
func (t *module) assemble() *ptx.Module {
	out := *t.m
	out.Items = make([]ptx.Item, 0, len(t.m.Items)+2*len(t.copies)+len(t.entries))
	last := -1
	for i, it := range t.m.Items {
		if _, ok := it.(*ptx.Func); ok {
			last = i
		}
	}
	for i, it := range t.m.Items {
		if f, ok := it.(*ptx.Func); ok {
			it = t.copier.function(f)
		}
		out.Items = append(out.Items, it)
		if i != last {
			continue
		}
		for _, f := range t.copies { // they may call one another in any order
			decl := *f
			decl.Body = nil
			out.Items = append(out.Items, &decl)
		}
		for _, f := range t.copies {
			out.Items = append(out.Items, f)
		}
		for _, f := range t.entries {
			out.Items = append(out.Items, f)
		}
	}
	return &out
}
