package callable

import (
	"slices"
	"strings"

	"vgpud/ptx"
	"vgpud/ptx/flow"
)

// spread binds calls to functions, and carries properties from functions to their callers.
func (t *module) spread() {
	all := make([]*function, 0, len(t.funcs))
	for _, c := range t.prog.Codes {
		f := t.funcs[c.Func.Name]
		all = append(all, f)
		for k := range f.calls {
			call, _ := f.code.Instrs[f.calls[k].instr].Call()
			to := t.funcs[call.Target.Sym.Func.Name]
			f.calls[k].to = to
			to.callers = append(to.callers, f)
		}
		f.needs, f.barred, f.warpDeep = f.place, len(f.barriers) > 0, len(f.warp) > 0
	}
	for _, has := range []func(*function) *bool{
		func(f *function) *bool { return &f.needs },
		func(f *function) *bool { return &f.barred },
		func(f *function) *bool { return &f.warpDeep },
	} {
		var work []*function
		for _, f := range all {
			if *has(f) {
				work = append(work, f)
			}
		}
		for len(work) > 0 {
			f := work[len(work)-1]
			work = work[:len(work)-1]
			for _, c := range f.callers {
				if !*has(c) {
					*has(c) = true
					work = append(work, c)
				}
			}
		}
	}
}

// walk combines what is known of a kernel and all that it may call.
type walk struct {
	module *module
	entry  *function

	reason Reason
	detail string

	block, waits bool
	asyncs       bool
	shared       int64
	registers    int
}

func (w *walk) refuse(r Reason, detail string) {
	if w.reason == None {
		w.reason, w.detail = r, detail
	}
}

// run visits the functions that the kernel may reach. One that is called where only some threads of
// a block may come is visited as such.
func (w *walk) run() {
	type visit struct {
		f        *function
		together bool
	}
	seen := map[*function]bool{} // whether it was visited as called by all threads together
	var work []visit
	come := func(f *function, together bool) {
		if before, known := seen[f]; known && (!before || together) {
			return
		}
		seen[f] = together
		work = append(work, visit{f, together})
	}
	come(w.entry, true)
	vars, deepest := map[*ptx.Var]bool{}, 0
	counted := map[*function]bool{}
	spent := 0
	for len(work) > 0 && w.reason == None {
		v := work[len(work)-1]
		work = work[:len(work)-1]
		f := v.f
		if !counted[f] {
			counted[f] = true
			n := 1 + len(f.code.Instrs) + len(f.vars)
			if spent += n; spent > maxInstrs {
				w.refuse(TooBig, "too many instructions with all functions called")
				return
			}
			if w.module.added += n; w.module.added > maxAdded {
				w.refuse(TooBig, "the module's kernels together")
				return
			}
			w.combine(f, vars)
			if f != w.entry {
				deepest = max(deepest, f.registers)
			}
		}
		if w.reason != None {
			return
		}
		w.together(f, v.together)
		for _, c := range f.calls {
			come(c.to, v.together && f.uniform.Together(c.instr))
		}
		if f.indirect {
			p := w.module.pointed()
			w.module.added += len(p.vars)
			w.add(p, vars)
			deepest = max(deepest, p.registers)
		}
	}
	for v := range vars {
		if w.shared = min(w.shared+max(v.Size(), 0), staticShared+1); w.shared > staticShared {
			w.refuse(TooBig, "too much static shared memory")
		}
	}
	w.registers = w.entry.registers + deepest
}

// combine adds what is known of one function.
func (w *walk) combine(f *function, vars map[*ptx.Var]bool) {
	if f != w.entry && f.exits {
		w.refuse(ExitInFunction, f.code.Func.Name)
	}
	w.add(f, vars)
}

// add adds what is known of one function, or of all that a pointer may lead to.
func (w *walk) add(f *function, vars map[*ptx.Var]bool) {
	if f.reason != None {
		w.refuse(f.reason, f.detail)
		return
	}
	w.block = w.block || f.shared || len(f.barriers) > 0
	w.waits = w.waits || f.waits
	w.asyncs = w.asyncs || f.asyncs
	for _, v := range f.vars {
		vars[v] = true
	}
}

// together checks a function's barriers and warp exchanges; all says whether all threads of a block
// call it together.
func (w *walk) together(f *function, all bool) {
	var meets []int
	for _, i := range f.barriers {
		if !all || !f.uniform.Together(i) {
			w.refuse(Barrier, f.code.Instrs[i].String()+": some threads may have returned")
			return
		}
		if whole(f.code.Instrs[i]) {
			meets = append(meets, i)
		}
	}
	at := slices.Clone(f.warp)
	for _, c := range f.calls {
		if c.to.warpDeep {
			at = append(at, c.instr)
		}
	}
	if f.uniform.AfterReturn(at, meets) {
		w.refuse(WarpAfterReturn, f.code.Func.Name+": lanes exchange values when others of their warp may have returned")
	}
}

// whole reports whether a barrier is of all threads of a block.
func whole(in *ptx.Instr) bool {
	if in.Has("red") {
		return len(in.Operands) <= 3
	}
	return len(in.Operands) <= 1
}

// pointed returns what is known of all functions that a call through a pointer may reach, any of the
// module's, as if they were one.
func (t *module) pointed() *function {
	if t.pointers != nil {
		return t.pointers
	}
	all := &function{}
	t.pointers = all
	seen := map[*ptx.Var]bool{}
	for _, c := range t.prog.Codes {
		f := t.funcs[c.Func.Name]
		switch {
		case c.Func.Entry:
			continue
		case f.reason != None:
			all.refuse(f.reason, "%s", f.detail)
		case f.needs || f.barred || f.warpDeep || f.exits:
			all.refuse(IndirectCall, "%s may be reached through a pointer, and reads its place, exits, or has barriers or exchanges within a warp", c.Func.Name)
		}
		all.shared, all.waits, all.asyncs = all.shared || f.shared, all.waits || f.waits, all.asyncs || f.asyncs
		all.registers = max(all.registers, f.registers)
		for _, v := range f.vars {
			if !seen[v] {
				seen[v] = true
				all.vars = append(all.vars, v)
			}
		}
	}
	// In the module's order, so that the same is reported each time.
	for _, it := range t.m.Items {
		if f, ok := it.(*ptx.Func); ok && !f.Entry && t.funcs[f.Name] == nil && !builtins[f.Name] {
			all.refuse(IndirectCall, "%s may be reached through a pointer, and is not defined here", f.Name)
		}
	}
	return all
}

// maxTraceSteps bounds the work of looking for waits in one function, per instruction.
const maxTraceSteps = 256

// mayWait reports whether a function may wait for other blocks: whether a loop ends because of what
// a volatile, relaxed, acquiring or atomic read of what may be global memory gave. It overestimates.
func (f *function) mayWait(e *flow.Effects) bool {
	var sources []int
	for i, in := range f.code.Instrs {
		if polls(in) || in.Opcode == "call" {
			sources = append(sources, i)
		}
	}
	if len(sources) == 0 || len(f.graph.Loops) == 0 {
		return false
	}
	trace, limit, spent := f.graph.NewTrace(e), maxTraceSteps*(len(f.code.Instrs)+1), 0
	for l := range f.graph.Loops {
		body := f.graph.Body(l)
		if spent += len(body) + len(sources); spent > limit {
			return true
		}
		inside := slices.DeleteFunc(slices.Clone(sources), func(i int) bool {
			_, ok := slices.BinarySearch(body, f.graph.BlockOf(i))
			return !ok
		})
		if len(inside) == 0 {
			continue
		}
		trace.Run(body, inside, nil)
		if trace.Steps() > limit {
			return true
		}
		for _, b := range f.graph.Leaving(body) {
			if trace.Instr(f.graph.Blocks[b].End - 1) {
				return true
			}
		}
	}
	return false
}

// polls reports whether an instruction reads memory that other blocks may intentionally be writing.
func polls(in *ptx.Instr) bool {
	switch in.Opcode {
	case "ld":
		if !in.Has("volatile") && !in.Has("relaxed") && !in.Has("acquire") && !in.Has("cv") && !in.Has("cg") && !in.Has("mmio") {
			return false
		}
	case "atom", "multimem", "suld":
	default:
		return false
	}
	return !slices.ContainsFunc(in.Modifiers, func(m string) bool {
		return strings.HasPrefix(m, "shared") || m == "local" || m == "const" || strings.HasPrefix(m, "param")
	})
}
