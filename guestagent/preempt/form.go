package preempt

import (
	"vgpud/mediator/vgpu/abi"
	"vgpud/ptx"
	"vgpud/ptx/rewrite"
)

// Form is a preemptible form of a kernel, or a set of forms joined by |.
type Form = abi.PreemptForm

// The forms of a kernel.
const (
	Single     = abi.PreemptSingle
	Coarse     = abi.PreemptCoarse
	Persistent = abi.PreemptPersistent

	allForms = Single | Coarse | Persistent
)

var eachForm = []Form{Single, Coarse, Persistent}

var suffixes = map[Form]string{
	Single:     "__vgpud_single",
	Coarse:     "__vgpud_coarse",
	Persistent: "__vgpud_persist",
}

// EntryName returns the name of kernel's form f in a transformed module, or kernel itself if f is
// not a single form.
func EntryName(kernel string, f Form) string { return kernel + suffixes[f] }

// builder collects the statements of one function.
type builder struct {
	*rewrite.Copier
	names  *names
	launch string     // the name of the appended parameter
	decls  []ptx.Stmt // declarations, which precede all code
	stmts  []ptx.Stmt
	regs   int // registers added
	shared int // bytes of shared memory added
}

// add appends fragments.
func (b *builder) add(texts ...string) {
	for _, text := range texts {
		for _, s := range b.names.fragment(text) {
			switch s := s.(type) {
			case *ptx.Var:
				switch s.Space {
				case ptx.RegSpace:
					b.regs++
				case ptx.SharedSpace:
					b.shared += int(s.Size())
				}
				b.decls = append(b.decls, s)
			case *ptx.Instr:
				b.stmts = append(b.stmts, b.fresh(s))
			default:
				b.stmts = append(b.stmts, s)
			}
		}
	}
}

// fresh copies a fragment's instruction for this function.
func (b *builder) fresh(in *ptx.Instr) *ptx.Instr {
	in = b.Instr(in)
	for i := range in.Operands {
		if o := &in.Operands[i]; o.Name == launchName {
			o.Name = b.launch
		}
	}
	return in
}

// countDecls returns how many declarations a body begins with.
func countDecls(body *ptx.Block) int {
	for i, s := range body.Stmts {
		if _, ok := s.(*ptx.Var); !ok {
			return i
		}
	}
	return len(body.Stmts)
}

// body returns the collected statements as a function's body, at the position of another.
func (b *builder) body(of *ptx.Block) *ptx.Block {
	return &ptx.Block{Pos: of.Pos, End: of.End, Stmts: append(b.decls, b.stmts...)}
}

// upTo appends the first n of a list of fragments that begins with 1.
func (b *builder) upTo(n int, list []string) {
	for i := 1; i <= n; i++ {
		b.add(list[i])
	}
}

// label appends a label of the transformation.
func (b *builder) label(name string) {
	b.stmts = append(b.stmts, &ptx.Label{Name: b.names.Ours(name)})
}

// branch appends an unconditional branch to a label of the transformation.
func (b *builder) branch(name string) { b.stmts = append(b.stmts, b.jumpTo(name)) }

// ret appends a return.
func (b *builder) ret() { b.stmts = append(b.stmts, &ptx.Instr{Opcode: "ret"}) }

func (b *builder) jumpTo(name string) *ptx.Instr {
	ops := b.NewOperands(1)
	ops[0] = ptx.Sym(b.names.Ours(name))
	in := b.NewInstr()
	*in = ptx.Instr{Opcode: "bra", Operands: ops}
	return in
}

// kernel is an entry and what its forms need of it.
type kernel struct {
	info   *entryInfo
	module *module
	// index and grid are how many of x, y and z of %ctaid and %nctaid are needed; a larger number
	// includes the smaller.
	index, grid int
	hub         bool   // only some threads pass some of its barriers, so all barriers go through the hub
	blockSync   string // the fragment that synchronizes the threads of a block
	taskSync    string // the fragment that separates a task from the next one
	noRoom      bool   // static shared memory has no room for more, or its size is visible to the kernel
	// slotMoves means that shared memory which the persistent form adds may be placed before the
	// kernel's own.
	slotMoves bool
}

// form makes the kernel's form f.
func (k *kernel) form(f Form) (*ptx.Func, *builder) {
	fn := k.info.fn
	name := EntryName(fn.Name, f)
	b := &builder{Copier: k.module.copier, names: k.module.names, launch: fn.Name + "_" + k.module.names.Prefix + "launch"}
	body := &rewriter{builder: b, module: k.module, index: true, hub: k.hub && f != Single}
	if f != Single {
		body.end = b.names.Ours("V_end")
	}
	n := countDecls(fn.Body)
	stmts := fn.Body.Stmts[n:]
	b.decls = append(b.decls, fn.Body.Stmts[:n]...) // first here as well
	if n := len(stmts); n > 0 && endsThread(stmts[n-1]) {
		stmts = stmts[:n-1] // what follows the body is where it would go
	}
	b.stmts = make([]ptx.Stmt, 0, len(stmts)+formInstrs)
	b.add(fragFirst)
	if k.info.placed {
		b.add(fragPlace)
	}
	b.add(k.module.check.prologue()...)
	if body.hub {
		b.add(fragHubRegs)
	}
	switch f {
	case Single:
		k.single(b, body, stmts)
	case Coarse:
		k.coarse(b, body, stmts)
	case Persistent:
		k.persistent(b, body, stmts)
	}
	out := &ptx.Func{
		Pos: fn.Pos, Entry: true, Linking: fn.Linking, Attributes: fn.Attributes, Name: name,
		Params:     append(fn.Params[:len(fn.Params):len(fn.Params)], k.launchParam(b.launch)),
		Directives: fn.Directives,
		Body:       b.body(fn.Body),
	}
	return out, b
}

// endsThread reports whether a statement always ends the thread's task.
func endsThread(s ptx.Stmt) bool {
	in, ok := s.(*ptx.Instr)
	return ok && !in.Guarded() && (in.Opcode == "ret" || in.Opcode == "exit")
}

func (k *kernel) launchParam(name string) *ptx.Var {
	return &ptx.Var{Space: ptx.ParamSpace, Align: launchAlign, Type: ptx.B8, Name: name, Dims: []int64{abi.PreemptArgsBytes}}
}

// single makes the early exit without a loop. The body keeps its returns and barriers: the block
// ends with it.
func (k *kernel) single(b *builder, body *rewriter, stmts []ptx.Stmt) {
	b.add(fragOriginal, fragUnit)
	b.label("V_look")
	b.add(k.module.check.earlyExit())
	b.upTo(k.sizes(), fragGrid[:])
	if k.index > 0 {
		b.upTo(k.index, fragIndexRegs[:])
		whole := &ptx.Instr{Pred: ptx.Pred{Name: b.names.Ours("%V_whole")}, Opcode: "bra", Operands: []ptx.Operand{ptx.Sym(b.names.Ours("V_whole"))}}
		b.stmts = append(b.stmts, whole)
		b.add(fragFirstIndex[k.index])
		b.branch("V_body")
		b.label("V_whole")
		b.upTo(k.index, fragHardwareIndex[:])
		b.label("V_body")
	}
	if k.info.placed {
		b.add(fragKeep)
	}
	body.stmts(stmts, &b.stmts)
	b.ret()
	b.label("V_skip")
	b.add(fragLinear, fragSkip)
}

// coarse makes the early exit with a loop over the tasks of a unit.
func (k *kernel) coarse(b *builder, body *rewriter, stmts []ptx.Stmt) {
	b.add(fragUnit, k.module.check.earlyExit(), fragTasks)
	k.start(b)
	k.task(b, body, stmts)
	k.end(b, body)
	b.label("V_last")
	b.label("V_done")
	b.ret()
	b.label("V_skip")
	b.add(fragSkip)
}

// persistent makes the papers' form (EffiSha §5, FLEP §4.1), with tasks fetched in chunks by one
// thread.
func (k *kernel) persistent(b *builder, body *rewriter, stmts []ptx.Stmt) {
	if k.slotMoves {
		b.add(fragSlotPadded)
	} else {
		b.add(fragSlot)
	}
	b.add(fragEnter)
	k.declare(b)
	b.add(k.module.check.fetch(k.blockSync), k.blockSync, fragFetched)
	k.firstIndex(b)
	k.task(b, body, stmts)
	k.end(b, body)
	b.label("V_last")
	b.branch("V_fetch")
	b.add(fragLeave)
}

// sizes returns how many components of the grid's size are needed, by the body or to compute an
// index from a task's number.
func (k *kernel) sizes() int { return max(k.grid, min(k.index, 2)) }

// start computes the index of the first task.
func (k *kernel) start(b *builder) {
	k.declare(b)
	k.firstIndex(b)
}

func (k *kernel) declare(b *builder) {
	b.upTo(k.sizes(), fragGrid[:])
	b.upTo(k.index, fragIndexRegs[:])
}

func (k *kernel) firstIndex(b *builder) {
	if k.index > 0 {
		b.add(fragFirstIndex[k.index])
	}
}

// task adds the body.
func (k *kernel) task(b *builder, body *rewriter, stmts []ptx.Stmt) {
	b.label("V_task")
	if k.info.placed {
		b.add(fragKeep)
	}
	body.stmts(stmts, &b.stmts)
}

// end adds the end of a task in a loop, and the branch to the next one.
func (k *kernel) end(b *builder, body *rewriter) {
	b.label("V_end")
	if k.info.asyncs {
		b.add(fragDrain)
	}
	if k.hub {
		b.add(fragHub)
		ways := append([]string{b.names.Ours("V_hub")}, body.returns...)
		b.stmts = append(b.stmts, &ptx.BranchTargets{Name: b.names.Ours("V_ways"), Labels: ways})
		b.add(fragReturn)
	}
	b.add(fragNext)
	if k.taskSync != "" {
		b.add(k.taskSync)
	}
	if k.index > 0 {
		b.add(fragStep[k.index])
	}
	b.branch("V_task")
}
