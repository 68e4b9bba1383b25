package preempt

import (
	"fmt"
	"maps"

	"vgpud/mediator/vgpu/abi"
	"vgpud/ptx"
	"vgpud/ptx/rewrite"
)

// Options configure Transform. The zero Options makes every sound form.
type Options struct {
	Forms Form  // a set of forms; 0 means all
	Check Check // how blocks learn that they are to leave
}

// Report describes what Transform did with one kernel.
type Report struct {
	Kernel      string
	Preemptible bool   // it has at least one sound form, whether asked for or not
	Forms       []Form // forms in the module, named by EntryName
	// Reason says why the kernel has no form, or only the early exit without a loop; None if it has
	// all.
	Reason Reason
	Detail string // explains Reason, for people

	Barriers struct {
		Total     int // in the kernel and the functions it calls
		Uniform   int // passed by all threads of a block or by none, so sound as they are
		Rewritten int // threads that are done keep meeting the others there, in the forms with a loop
	}
	WaitsForBlocks        bool // its blocks may wait for one another: only the persistent form, in grids of one dimension
	TakesTasks            bool // its blocks take tasks by themselves: it is already persistent
	VirtualRegistersAdded int  // the most that a form added
	SharedBytesAdded      int  // likewise
}

const (
	launchBytes = abi.PreemptArgsBytes
	launchAlign = 8
	// staticShared is how much static shared memory a kernel may have on any GPU. The persistent
	// form adds slotBytes or slotPaddedBytes to it.
	staticShared    = 48 << 10
	slotBytes       = 8
	slotPaddedBytes = 1 << 10
	// maxReturns bounds the barriers that are rewritten: each adds a path from the hub, and the
	// assembler keeps the registers that any of them needs live on all.
	maxReturns = 256
	// maxAdded bounds the instructions of all new kernels together: a kernel of twelve characters
	// becomes three of a hundred instructions each.
	maxAdded = 1 << 22
	// formInstrs is an upper bound of what a form adds to a body.
	formInstrs = 120
)

// Transform makes preemptible forms of m's kernels. It returns a module with everything that m has,
// under its own name, and with the new kernels (see EntryName), and a report for each kernel of m.
// A kernel's form is launched with [abi.PreemptArgs] behind its own parameters, whose offsets stay.
// If the module has a variable more, functions that are called through pointers read the block's
// index there, and the module's own kernels write it.
//
// m keeps its text, but Transform binds its names as ptx.Resolve does, so nothing else may use m
// meanwhile. The new module shares with it what neither changes, and must be resolved before use.
// The error, if any, is Resolve's; a kernel that can't be transformed is reported, not an error.
func Transform(m *ptx.Module, o Options) (*ptx.Module, []Report, error) {
	prog, err := ptx.Resolve(m)
	if err != nil {
		return nil, nil, fmt.Errorf("bind the module's names: %w", err)
	}
	if o.Forms == 0 {
		o.Forms = allForms
	}
	t := &module{
		m: m, check: o.Check, copier: &rewrite.Copier{}, names: newNames(m), info: analyze(m, prog),
		scans: map[*funcInfo]*scan{}, clones: map[*funcInfo]string{}, hubBarriers: map[*ptx.Instr]bool{}, sharedLoads: map[*ptx.Instr]*ptx.Instr{},
	}
	t.labels = rewrite.NewLabels(prog)
	t.checkPlaced()
	reports, placed := make([]Report, len(t.info.entries)), false
	for i, e := range t.info.entries {
		reports[i] = t.entry(e, o.Forms)
		placed = placed || e.placed && len(reports[i].Forms) > 0
	}
	if placed {
		t.place()
	}
	t.makeClones()
	return t.assemble(), reports, nil
}

// module is a module during its transformation.
type module struct {
	m      *ptx.Module
	check  Check
	copier *rewrite.Copier
	names  *names
	info   *moduleInfo

	labels rewrite.Labels // that copies keep

	scans map[*funcInfo]*scan

	clones map[*funcInfo]string // the names of device functions' copies that take their task
	order  []*funcInfo          // those that are needed, in order
	// hubBarriers are the barriers that are rewritten.
	hubBarriers map[*ptx.Instr]bool
	// sharedLoads maps loads behind which a barrier is repeated in a loop to that barrier; see
	// broadcast.go.
	sharedLoads map[*ptx.Instr]*ptx.Instr

	replaced map[*ptx.Func]*ptx.Func // functions and kernels that differ from the original module's; see place

	added   int         // instructions, approximately
	entries []*ptx.Func // made so far
	copies  []*ptx.Func // of device functions
}

// entry makes the forms of one kernel.
func (t *module) entry(e *entryInfo, forms Form) Report {
	k := &kernel{info: e, module: t}
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
		if ok, _ := e.fits(f); !ok || k.noRoom && f == Persistent {
			continue
		}
		r.Preemptible = true
		if f != Single {
			r.Barriers.Rewritten = len(e.rewrite)
		}
		if forms&f == 0 || !t.check.offers(f) {
			continue
		}
		fn, b := k.form(f)
		t.entries = append(t.entries, fn)
		r.Forms = append(r.Forms, f)
		r.VirtualRegistersAdded = max(r.VirtualRegistersAdded, b.regs)
		if e.placed {
			b.shared += placedBytes
		}
		r.SharedBytesAdded = max(r.SharedBytesAdded, b.shared)
	}
	return r
}

// plan finds what a kernel's forms need, and what rules forms out beside the analysis.
func (k *kernel) plan() {
	e, t := k.info, k.module
	if e.refused != None {
		return
	}
	k.checkModule()
	if e.refused != None {
		return
	}
	for _, f := range e.reach {
		if f != e.self && f.needsIndex {
			k.index, k.grid = 3, 3 // it takes all six
		}
	}
	for _, in := range e.self.code.Instrs {
		k.noteIndex(in.Operands)
	}
	k.hub = len(e.rewrite) > 0
	if e.loops == None {
		maps.Copy(t.sharedLoads, e.sharedLoads())
	}
	k.blockSync = fragBlockSync
	if k.hub {
		k.blockSync = fragThreadSync
	}
	warp := false
	for _, f := range e.reach {
		warp = warp || len(f.warp) > 0 || f.active
		for _, b := range f.barriers {
			if !b.aligned {
				k.blockSync = fragThreadSync
			}
			if !k.hub || e.loops != None {
				continue
			}
			switch {
			case b.number < 0:
				e.refuseLoops(DivergentNamedBarrier, "%v: maybe barrier 0, from which others may have returned", b.in)
			case b.number == 0 && b.kind == "sync" && !b.partial:
				if f != e.self {
					e.refuseLoops(DivergentFunctionBarrier, "%v in %s, beside one that others may have left", b.in, f.code.Func.Name)
				}
				t.hubBarriers[b.in] = true
			}
		}
	}
	if k.hub && e.loops == None {
		k.checkHub()
	}
	switch {
	case k.hub: // the hub separates them
	case e.sharedMemory || e.placed || e.barriers.total > 0, warp && !k.module.hasWarpBarrier():
		k.taskSync = k.blockSync
	case warp:
		k.taskSync = fragWarpSync
	}
}

// checkHub refuses a loop if the hub can't branch back to all barriers: labels in a nested block
// are invisible outside.
func (k *kernel) checkHub() {
	e, n := k.info, 0
	var block func(b *ptx.Block, nested bool)
	block = func(b *ptx.Block, nested bool) {
		for _, s := range b.Stmts {
			switch s := s.(type) {
			case *ptx.Block:
				block(s, true)
			case *ptx.Instr:
				if !k.module.hubBarriers[s] {
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
	if n > maxReturns {
		e.refuseLoops(TooBig, "%d barriers, some of which threads may have left, more than %d", n, maxReturns)
	}
}

// noteIndex records the components of %ctaid and %nctaid among operands.
func (k *kernel) noteIndex(list []ptx.Operand) {
	ptx.Walk(list, func(o *ptx.Operand) {
		switch which, component, ok := taskOperand(o); {
		case !ok:
		case which == 0:
			k.index = max(k.index, component+1)
		default:
			k.grid = max(k.grid, component+1)
		}
	})
}

// hasWarpBarrier reports whether the module may use warp barriers.
func (t *module) hasWarpBarrier() bool {
	return !t.m.Version.Less(ptx.Version{Major: 6}) && t.m.Architecture() >= 30
}

// checkModule refuses kernels for reasons in the module around them.
func (k *kernel) checkModule() {
	e, t := k.info, k.module
	name := e.fn.Name
	switch {
	case t.m.AddressSize == 32:
		e.refuse(UnsupportedInstruction, "32-bit addresses")
	case t.m.Version.Less(ptx.Version{Major: 2}) || t.m.Architecture() < 20:
		e.refuse(UnsupportedInstruction, "PTX %d.%d for sm_%d has no barrier reductions or generic addresses", t.m.Version.Major, t.m.Version.Minor, t.m.Architecture())
	case t.names.Specials:
		e.refuse(NameInUse, "the module declares the name of a special register")
	case !parametersFit(t.m, e.fn, launchBytes):
		e.refuse(Parameters, "no room for %d bytes behind the kernel's parameters", launchBytes)
	}
	for _, f := range eachForm {
		if n := EntryName(name, f); t.names.Globals[n] {
			e.refuse(NameInUse, "%s", n)
		}
	}
	static, named := int64(0), false
	if e.placed {
		static = placedBytes
	}
	first, seen := map[ptx.Stmt]bool{}, map[*ptx.Var]bool{}
	for _, s := range e.fn.Body.Stmts[:countDecls(e.fn.Body)] {
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
			k.noRoom = true
			if e.waits {
				e.refuse(UnsupportedInstruction, "%s reads how much shared memory there is", f.code.Func.Name)
			}
		}
		named = named || found.names
		for _, v := range found.shared {
			if !seen[v] {
				seen[v] = true
				k.slotMoves = k.slotMoves || !first[v] || v.Linking == ptx.Extern
				static = min(static+min(v.Size(), staticShared+1), staticShared+1)
			}
		}
	}
	slot := int64(slotBytes)
	if k.slotMoves {
		slot = slotPaddedBytes
	}
	if static+slot > staticShared || e.sharedMemory && !named { // memory that is accessed without a name must not move
		k.noRoom = true
		if e.waits {
			e.refuse(TooBig, "no static shared memory left for the task's number")
		}
	}
	if len(e.rewrite) > 0 && (t.m.Version.Less(ptx.Version{Major: 6}) || t.m.Architecture() < 70) {
		e.refuseLoops(DivergentNamedBarrier, "threads of a warp don't meet one by one before sm_70 and PTX 6.0")
	}
	for _, b := range e.rewrite {
		if b.kind != "sync" {
			e.refuseLoops(DivergentNamedBarrier, "%v: threads that have returned would be counted", b.in)
		}
	}
}

// scan is what matters of a function besides the analysis.
type scan struct {
	refused     string     // an instruction or variable that can't be copied
	initialised string     // a variable that would have to be initialized for each task
	shared      []*ptx.Var // shared variables that it uses
	names       bool       // it uses or declares shared variables
	sizes       bool       // it reads the size of the block's shared memory, to which the persistent form adds
}

// scan scans a function, once.
func (t *module) scan(f *funcInfo) *scan {
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
	for _, in := range f.code.Instrs {
		if c, ok := in.Call(); ok && c.Target.Sym != nil && c.Target.Sym.Kind == ptx.SymFunc && c.Target.Sym.Func.Entry {
			s.refused = in.String() // a kernel can't be called, although the text says so
		}
		ptx.Walk(in.Operands, func(o *ptx.Operand) {
			if _, component, ok := taskOperand(o); ok && component < 0 {
				s.refused = in.String() // it reads the whole vector
			}
			if y := o.Sym; y != nil && y.Kind == ptx.SymSpecial && (y.Name == "%total_smem_size" || y.Name == "%aggr_smem_size") {
				s.sizes = true
			} else if y != nil && y.Kind == ptx.SymVar && y.Var.Space == ptx.SharedSpace && !seen[y.Var] {
				seen[y.Var], s.names = true, true
				s.shared = append(s.shared, y.Var)
			}
		})
	}
	return s
}

// callee returns the name of the copy that a call must use, or "" if it stays.
func (t *module) callee(in *ptx.Instr) string {
	c, ok := in.Call()
	if !ok || c.Target.Sym == nil || c.Target.Sym.Kind != ptx.SymFunc {
		return ""
	}
	f := t.info.funcs[c.Target.Sym.Func.Name]
	if f == nil || !f.needsIndex || f.placed {
		return ""
	}
	name, ok := t.clones[f]
	if !ok {
		name = f.code.Func.Name + "__" + t.names.Prefix + "task"
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
		b := &builder{Copier: t.copier, names: t.names}
		b.add(fragArgs)
		task := &ptx.Var{Space: ptx.ParamSpace, Align: 4, Type: ptx.B8, Name: t.names.Ours("V_task"), Dims: []int64{4 * taskWords}}
		body := &rewriter{builder: b, module: t, index: true}
		body.stmts(fn.Body.Stmts, &b.stmts)
		t.copies = append(t.copies, &ptx.Func{
			Pos: fn.Pos, Name: t.clones[f], Returns: fn.Returns, Params: append([]*ptx.Var{task}, fn.Params...),
			Directives: fn.Directives, Body: b.body(fn.Body),
		})
	}
}

// assemble places the new functions behind the module's own, to which they may refer, and before
// the items that follow.
func (t *module) assemble() *ptx.Module {
	out := *t.m
	out.Items = make([]ptx.Item, 0, len(t.m.Items)+2*len(t.copies)+len(t.entries))
	last := -1
	for i, it := range t.m.Items {
		if _, ok := it.(*ptx.Func); ok {
			last = i
		}
	}
	if t.replaced != nil {
		out.Items = append(out.Items, t.placedDecl())
	}
	for i, it := range t.m.Items {
		if f, ok := it.(*ptx.Func); ok && t.replaced[f] != nil {
			it = t.replaced[f]
		} else if ok {
			it = t.copier.Function(f)
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
