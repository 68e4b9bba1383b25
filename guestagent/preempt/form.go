package preempt

import (
	"vgpud/mediator/vgpu/abi"
	"vgpud/ptx"
)

// Form is a form of a kernel that leaves the GPU when asked, or a set of them joined by |.
type Form = abi.PreemptForm

// The forms.
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

// EntryName is the name of kernel's form f in a transformed module; kernel itself for anything that is not one form.
func EntryName(kernel string, f Form) string { return kernel + suffixes[f] }

// builder gathers the statements of one function.
type builder struct {
	*copier
	names  *names
	launch string     // the name of the appended parameter
	decls  []ptx.Stmt // declarations, which stand before all code
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
	in = b.instr(in)
	for i := range in.Operands {
		if o := &in.Operands[i]; o.Name == launchName {
			o.Name = b.launch
		}
	}
	return in
}

// head returns how many declarations a body begins with.
func head(body *ptx.Block) int {
	for i, s := range body.Stmts {
		if _, ok := s.(*ptx.Var); !ok {
			return i
		}
	}
	return len(body.Stmts)
}

// body is what has been gathered, as a function's body in the place of another.
func (b *builder) body(of *ptx.Block) *ptx.Block {
	return &ptx.Block{Pos: of.Pos, End: of.End, Stmts: append(b.decls, b.stmts...)}
}

// upTo appends the first n of a list of fragments that begins with 1.
func (b *builder) upTo(n int, list []string) {
	for i := 1; i <= n; i++ {
		b.add(list[i])
	}
}

// label appends one of our labels.
func (b *builder) label(name string) {
	b.stmts = append(b.stmts, &ptx.Label{Name: b.names.own(name)})
}

// branch appends an unconditional branch to one of our labels.
func (b *builder) branch(name string) { b.stmts = append(b.stmts, b.jump(name)) }

// ret appends a return.
func (b *builder) ret() { b.stmts = append(b.stmts, &ptx.Instr{Opcode: "ret"}) }

func (b *builder) jump(name string) *ptx.Instr {
	ops := b.ops.take(1)
	ops[0] = ptx.Sym(b.names.own(name))
	in := &b.instrs.take(1)[0]
	*in = ptx.Instr{Opcode: "bra", Operands: ops}
	return in
}

// kernel is an entry and what of it the forms need.
type kernel struct {
	study  *entryStudy
	module *module
	// index and grid say how many of x, y and z of %ctaid and %nctaid are wanted, the larger including the smaller.
	index, grid int
	meet        bool   // some barriers are such that only some threads pass them, so all are rewritten
	together    string // the fragment by which all threads of a block meet
	// apart is the fragment that keeps a task apart from the next one.
	apart   string
	crowded bool // there is no static shared memory left to add some, or it would show
	// moves: what the persistent form adds to static shared memory may stand before what the kernel has there.
	moves bool
}

// form makes the kernel's form f.
func (k *kernel) form(f Form) (*ptx.Func, *builder) {
	fn := k.study.fn
	name := EntryName(fn.Name, f)
	b := &builder{copier: k.module.copier, names: k.module.names, launch: fn.Name + "_" + k.module.names.prefix + "launch"}
	body := &rewriter{builder: b, module: k.module, index: true, meet: k.meet && f != Single}
	if f != Single {
		body.end = b.names.own("V_end")
	}
	n := head(fn.Body)
	stmts := fn.Body.Stmts[n:]
	b.decls = append(b.decls, fn.Body.Stmts[:n]...) // first here as well
	if n := len(stmts); n > 0 && leaves(stmts[n-1]) {
		stmts = stmts[:n-1] // what we put behind the body is where it would go
	}
	b.stmts = make([]ptx.Stmt, 0, len(stmts)+formInstrs)
	b.add(fragFirst)
	b.add(k.module.look.first()...)
	if body.meet {
		b.add(fragNeed)
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

// leaves reports whether a statement ends the thread's task whatever its state.
func leaves(s ptx.Stmt) bool {
	in, ok := s.(*ptx.Instr)
	return ok && !in.Guarded() && (in.Opcode == "ret" || in.Opcode == "exit")
}

func (k *kernel) launchParam(name string) *ptx.Var {
	return &ptx.Var{Space: ptx.ParamSpace, Align: launchAlign, Type: ptx.B8, Name: name, Dims: []int64{abi.PreemptArgsBytes}}
}

// single is the early exit without a loop. The body is as it was, returns and barriers too: the block ends with it.
func (k *kernel) single(b *builder, body *rewriter, stmts []ptx.Stmt) {
	b.add(fragWhole, fragUnit)
	b.label("V_look")
	b.add(k.module.look.exit())
	b.upTo(k.sizes(), fragGrid[:])
	if k.index > 0 {
		b.upTo(k.index, fragIndex[:])
		whole := &ptx.Instr{Pred: ptx.Pred{Name: b.names.own("%V_whole")}, Opcode: "bra", Operands: []ptx.Operand{ptx.Sym(b.names.own("V_whole"))}}
		b.stmts = append(b.stmts, whole)
		b.add(fragPlace[k.index])
		b.branch("V_body")
		b.label("V_whole")
		b.upTo(k.index, fragOwn[:])
		b.label("V_body")
	}
	body.stmts(stmts, &b.stmts)
	b.ret()
	b.label("V_skip")
	b.add(fragLinear, fragNote)
}

// coarse is the early exit with a loop over the tasks of a unit.
func (k *kernel) coarse(b *builder, body *rewriter, stmts []ptx.Stmt) {
	b.add(fragUnit, k.module.look.exit(), fragTasks)
	k.begin(b)
	k.task(b, body, stmts)
	k.end(b, body)
	b.label("V_last")
	b.label("V_done")
	b.ret()
	b.label("V_skip")
	b.add(fragNote)
}

// persistent is the papers' form (EffiSha §5, FLEP §4.1), with tasks fetched in chunks and one reader.
func (k *kernel) persistent(b *builder, body *rewriter, stmts []ptx.Stmt) {
	if k.moves {
		b.add(fragSlotApart)
	} else {
		b.add(fragSlot)
	}
	b.add(fragEnter)
	k.declare(b)
	b.add(k.module.look.fetch(k.together), k.together, fragGot)
	k.place(b)
	k.task(b, body, stmts)
	k.end(b, body)
	b.label("V_last")
	b.branch("V_fetch")
	b.add(fragLeave)
}

// sizes is how many components of the grid's size are wanted, by the body or to find an index from a task's number.
func (k *kernel) sizes() int { return max(k.grid, min(k.index, 2)) }

// begin finds the index of the first task.
func (k *kernel) begin(b *builder) {
	k.declare(b)
	k.place(b)
}

func (k *kernel) declare(b *builder) {
	b.upTo(k.sizes(), fragGrid[:])
	b.upTo(k.index, fragIndex[:])
}

func (k *kernel) place(b *builder) {
	if k.index > 0 {
		b.add(fragPlace[k.index])
	}
}

// task is the body.
func (k *kernel) task(b *builder, body *rewriter, stmts []ptx.Stmt) {
	b.label("V_task")
	body.stmts(stmts, &b.stmts)
}

// end is the end of a task in a loop, and the way to the next one.
func (k *kernel) end(b *builder, body *rewriter) {
	b.label("V_end")
	if k.study.asyncs {
		b.add(fragDrain)
	}
	if k.meet {
		b.add(fragHub)
		ways := append([]string{b.names.own("V_hub")}, body.ways...)
		b.stmts = append(b.stmts, &ptx.BranchTargets{Name: b.names.own("V_ways"), Labels: ways})
		b.add(fragAway)
	}
	b.add(fragNext)
	if k.apart != "" {
		b.add(k.apart)
	}
	if k.index > 0 {
		b.add(fragStep[k.index])
	}
	b.branch("V_task")
}
