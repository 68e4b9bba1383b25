package preempt

import (
	"fmt"
	"slices"

	"vgpud/mediator/vgpu/abi"
	"vgpud/ptx"
	"vgpud/ptx/flow"
)

// moduleInfo is what must be known of a module before it is rewritten. It refers to the module's
// own instructions.
type moduleInfo struct {
	entries []*entryInfo         // one for each kernel, in the module's order
	funcs   map[string]*funcInfo // functions and kernels with a body, by name
}

// entryInfo is what is known of a kernel and all that it calls.
type entryInfo struct {
	fn   *ptx.Func
	self *funcInfo // nil without a body
	// reach holds the functions that it may call, and itself first.
	reach []*funcInfo

	// refused is why the kernel has no form; None if it has at least one.
	refused Reason
	// loops is why a block can't run several tasks in turn, so that only the early exit with one
	// task a block is possible; None if it can.
	loops  Reason
	detail string // an instruction or name that explains refused or loops
	// waits means that its blocks may wait for other blocks, so only the persistent form is sound.
	waits bool
	// takesTasks means that it is already persistent, see funcInfo.takesTasks.
	takesTasks bool

	needsIndex   bool // it, or a function it calls, reads %ctaid or %nctaid
	placed       bool // it may reach a function that reads the index from shared memory
	sharedMemory bool // it, or a function it calls, may use shared memory
	asyncs       bool // it, or a function it calls, starts asynchronous copies (cp.async), which must end with their task
	barriers     barrierCount
	// rewrite holds its own barriers that only some threads of a block may pass: whether by control
	// flow or by a guard, all with number 0 and over the whole block. Functions that it calls have
	// none, or else loops says so.
	rewrite []barrier
	// shared maps its own loads from shared memory that give all threads the same value if the
	// barrier before them is repeated behind them, to that barrier; both are indices in
	// self.code.Instrs. See sharedLoads.
	shared map[int]int
}

// barrierCount counts the barriers of a kernel and what it calls, each once.
type barrierCount struct {
	total   int
	uniform int // passed by all threads of a block or by none; or with a thread count, by whole warps
	others  int
}

// fits reports whether the kernel may have form f, and otherwise why not.
func (e *entryInfo) fits(f abi.PreemptForm) (bool, Reason) {
	switch {
	case e.refused != None:
		return false, e.refused
	case f != abi.PreemptSingle && e.loops != None:
		return false, e.loops
	case f != abi.PreemptPersistent && e.waits:
		return false, GridSync
	}
	return true, None
}

// funcInfo is what is known of one function.
type funcInfo struct {
	code    *ptx.Code
	graph   *flow.Graph
	uniform *flow.Uniformity // nil if nothing in the function needs it

	readsIndex bool // it reads %ctaid or %nctaid itself
	needsIndex bool // itself, or through a direct call
	placed     bool // it needs the index, and is called through pointers: see placed.go
	recursive  bool // it may call itself, directly or not
	shared     bool // it may use shared memory itself
	asyncs     bool // it uses cp.async itself
	calls      []callSite
	edges      int // how many functions all its calls together may reach
	barriers   []barrier
	warp       []int // its warp exchanges, and its barriers with a thread count: instructions in code.Instrs
	active     bool  // it determines the lanes of a warp that run together, or exchanges between them, without naming them
	exits      []int // its exit instructions
	reads      []int // its volatile, relaxed, acquire or atomic reads of what may be global memory
	polls      []int // all its reads of what may be global memory or a surface
	writes     bool  // it may write global memory itself
	syncs      bool  // it may synchronize with other blocks itself, see synchronizes

	refused, loops Reason // by itself
	detail         string

	exitsDeep  bool          // it, or a function it calls, has an exit
	warpDeep   bool          // it, or a function it calls, has instructions as in warp
	readsDeep  bool          // it, or a function it calls, has reads as in reads
	pollsDeep  bool          // it, or a function it calls, reads what may be global memory
	writesDeep bool          // it, or a function it calls, may write global memory
	syncsDeep  bool          // it, or a function it calls, may synchronize with other blocks
	waits      *waits        // nil until it is needed
	waitResult *waitAnalysis // likewise
	warpRisk   bool          // lanes may have returned when others reach an instruction in warp; a device function's end counts as returning
}

// callSite is a call.
type callSite struct {
	instr   int
	callees []*funcInfo // functions with a body that it may reach
	direct  bool
}

// barrier is a barrier instruction of a block: bar or barrier, .sync, .red or .arrive.
type barrier struct {
	instr   int // in code.Instrs
	in      *ptx.Instr
	kind    string // "sync", "red" or "arrive"
	number  int    // -1: computed at run time
	partial bool   // with a thread count
	aligned bool   // all threads of a warp reach it together
}

const (
	// maxInstrs bounds a kernel with all that it calls.
	maxInstrs = 1 << 20
	// maxVisits bounds the functions visited for all kernels of a module together, and the
	// functions that all indirect calls together may reach.
	maxVisits = 1 << 20
)

// analyze finds out what can be done with the kernels of m, whose names p has bound.
func analyze(m *ptx.Module, p *ptx.Program) *moduleInfo {
	s := &moduleInfo{funcs: make(map[string]*funcInfo, len(p.Codes))}
	w := &analyzer{moduleInfo: s, prog: p}
	list := make([]*funcInfo, 0, len(p.Codes))
	for _, c := range p.Codes {
		f := &funcInfo{code: c}
		list = append(list, f)
		s.funcs[c.Func.Name] = f
	}
	for _, f := range list {
		w.function(f)
	}
	w.bindCalls(m, list)
	w.propagate(list)
	for _, f := range list {
		w.warpRisk(f)
	}
	seen := map[string]bool{}
	for _, it := range m.Items {
		f, ok := it.(*ptx.Func)
		if !ok || !f.Entry || seen[f.Name] {
			continue
		}
		seen[f.Name] = true
		s.entries = append(s.entries, w.entry(f))
	}
	return s
}

// analyzer builds a moduleInfo.
type analyzer struct {
	*moduleInfo
	prog     *ptx.Program
	indirect []indirectCall
	pointers *funcInfo // stands for all functions whose address is taken; it has no code. nil if nothing calls them
	visits   int       // functions visited so far for kernels
}

// refuse records why a function's callers have no form, unless a reason is recorded already.
func (f *funcInfo) refuse(r Reason, format string, args ...any) {
	if f.refused == None {
		f.refused, f.detail = r, fmt.Sprintf(format, args...)
	}
}

// refuseLoops records why a function's callers can't run in a loop.
func (f *funcInfo) refuseLoops(r Reason, format string, args ...any) {
	if f.loops == None && f.refused == None {
		f.loops, f.detail = r, fmt.Sprintf(format, args...)
	}
}

// entry combines what is known of a kernel and all that it may call.
func (w *analyzer) entry(fn *ptx.Func) *entryInfo {
	e := &entryInfo{fn: fn, self: w.funcs[fn.Name]}
	if e.self == nil {
		e.refused, e.detail = NoBody, "declared without a body"
		return e
	}
	e.fn = e.self.code.Func
	e.walk(w)
	e = w.shareLoads(e)
	if e.refused == None {
		w.checkWaits(e)
	}
	e.takesTasks = e.self.takesTasks()
	if e.refused == None && e.waits && e.loops != None {
		e.refused = e.loops
		e.detail = "blocks wait for blocks, and " + e.detail
	}
	return e
}

func (e *entryInfo) refuse(r Reason, format string, args ...any) {
	if e.refused == None {
		e.refused, e.detail = r, fmt.Sprintf(format, args...)
	}
}

func (e *entryInfo) refuseLoops(r Reason, format string, args ...any) {
	if e.loops == None && e.refused == None {
		e.loops, e.detail = r, fmt.Sprintf(format, args...)
	}
}

// walk visits all functions that the kernel may reach and combines their properties. A function is
// visited twice if some calls of it are convergent and others are not.
func (e *entryInfo) walk(w *analyzer) {
	type visit struct {
		f        *funcInfo
		together bool
	}
	seen := map[*funcInfo]uint8{} // bit 0: convergent, bit 1: not
	var work []visit
	come := func(f *funcInfo, together bool) {
		bit := uint8(1)
		if !together {
			bit = 2
		}
		if seen[f]&2 != 0 || seen[f]&bit != 0 {
			return // visited like this, or as not convergent, which is the weaker assumption
		}
		if seen[f] == 0 && f != w.pointers {
			e.reach = append(e.reach, f)
		}
		seen[f] |= bit
		work = append(work, visit{f, together})
		w.visits += 1 + (len(f.barriers)+f.edges)/8
	}
	come(e.self, true)
	instrs := 0
	for len(work) > 0 {
		v := work[len(work)-1]
		work = work[:len(work)-1]
		if w.visits > maxVisits {
			e.refuse(TooBig, "too many functions are called")
			return
		}
		for _, c := range v.f.calls {
			for _, g := range c.callees {
				come(g, v.together && c.direct && v.f.convergent(c.instr)) // not from pointers
			}
		}
	}
	// If threads may end in a device function, control flow does not show which threads remain.
	ends := false
	for _, f := range e.reach {
		instrs += len(f.code.Instrs)
		ends = ends || f != e.self && len(f.exits) > 0
	}
	if instrs > maxInstrs {
		e.refuse(TooBig, "%d instructions with all functions called, more than %d", instrs, maxInstrs)
		return
	}
	for _, f := range e.reach {
		e.needsIndex = e.needsIndex || f.needsIndex
		e.placed = e.placed || f.placed
		e.sharedMemory = e.sharedMemory || f.shared
		e.asyncs = e.asyncs || f.asyncs
		if f.refused != None {
			e.refuse(f.refused, "%s", f.detail)
		}
	}
	if ends {
		e.refuseLoops(ExitInFunction, "a device function ends its thread")
	}
	for _, f := range e.reach {
		if f.loops != None {
			e.refuseLoops(f.loops, "%s", f.detail)
		}
		if f.warpRisk {
			e.refuseLoops(WarpAfterReturn, "%s: lanes exchange values, or wait at a barrier with a thread count, when others of their warp may have returned", f.code.Func.Name)
		}
		for _, b := range f.barriers {
			e.barrier(f, b, seen[f] == 1 && !ends)
		}
	}
}

// barrier classifies one barrier; convergent says whether all threads of a block execute its
// function together.
func (e *entryInfo) barrier(f *funcInfo, b barrier, together bool) {
	e.barriers.total++
	whole := together && f.convergent(b.instr)
	switch {
	case b.kind == "arrive":
		// An arriving thread doesn't wait, so an arrival may remain when the task ends.
		e.barriers.others++
		e.refuseLoops(LastingState, "%v: arrivals may be left over", b.in)
	case b.partial && b.number <= 0:
		e.barriers.others++
		e.refuseLoops(DivergentNamedBarrier, "%v: over part of the block, and maybe at barrier 0", b.in)
	case whole, b.partial && !f.warpRisk:
		e.barriers.uniform++
	case b.partial:
		// It counts warps, each when all of its lanes that have not exited have come. In a loop,
		// lanes that returned have not exited, and wait elsewhere. So it is a warp exchange, and
		// walk has refused the loop.
		e.barriers.others++
	case f != e.self:
		e.barriers.others++
		e.refuseLoops(DivergentFunctionBarrier, "%v in %s: some threads may have returned", b.in, f.code.Func.Name)
	case b.number != 0:
		e.barriers.others++
		e.refuseLoops(DivergentNamedBarrier, "%v: some threads may have returned", b.in)
	default:
		e.barriers.others++
		e.rewrite = append(e.rewrite, b)
	}
}

// convergent reports whether the threads of a block that enter the function either all execute
// instruction i or none does.
func (f *funcInfo) convergent(i int) bool { return f.uniform.Together(i) }

// propagate carries properties from functions to their callers until nothing changes.
func (w *analyzer) propagate(list []*funcInfo) {
	if w.pointers != nil {
		list = append(list[:len(list):len(list)], w.pointers)
	}
	callers := map[*funcInfo][]*funcInfo{}
	for _, f := range list {
		for _, c := range f.calls {
			f.edges += len(c.callees)
			for _, g := range c.callees {
				callers[g] = append(callers[g], f)
			}
		}
	}
	up := func(has func(*funcInfo) *bool) {
		var work []*funcInfo
		for _, f := range list {
			if *has(f) {
				work = append(work, f)
			}
		}
		for len(work) > 0 {
			f := work[len(work)-1]
			work = work[:len(work)-1]
			for _, c := range callers[f] {
				if !*has(c) {
					*has(c) = true
					work = append(work, c)
				}
			}
		}
	}
	for _, f := range list {
		f.needsIndex, f.exitsDeep, f.warpDeep = f.readsIndex, len(f.exits) > 0, len(f.warp) > 0
		f.readsDeep, f.pollsDeep, f.writesDeep, f.syncsDeep = len(f.reads) > 0, len(f.polls) > 0, f.writes, f.syncs
	}
	up(func(f *funcInfo) *bool { return &f.needsIndex })
	up(func(f *funcInfo) *bool { return &f.exitsDeep })
	up(func(f *funcInfo) *bool { return &f.warpDeep })
	up(func(f *funcInfo) *bool { return &f.readsDeep })
	up(func(f *funcInfo) *bool { return &f.pollsDeep })
	up(func(f *funcInfo) *bool { return &f.writesDeep })
	up(func(f *funcInfo) *bool { return &f.syncsDeep })
	for _, f := range list {
		for _, c := range f.calls {
			if c.direct {
				continue
			}
			for _, g := range c.callees {
				g.placed = g.placed || g.needsIndex && g != w.pointers
			}
		}
	}
	markRecursive(list)
}

// markRecursive marks the functions that may call themselves: those in a strongly connected
// component of the call graph, by Tarjan's algorithm (1972).
func markRecursive(list []*funcInfo) {
	type state struct {
		index, low int
		open       bool
	}
	states := make(map[*funcInfo]*state, len(list))
	var stack []*funcInfo
	type frame struct {
		f       *funcInfo
		callees []*funcInfo
	}
	enter := func(f *funcInfo) frame {
		states[f] = &state{len(states), len(states), true}
		stack = append(stack, f)
		var callees []*funcInfo
		for _, c := range f.calls {
			callees = append(callees, c.callees...)
		}
		if slices.Contains(callees, f) {
			f.recursive = true
		}
		return frame{f, callees}
	}
	for _, root := range list {
		if states[root] != nil {
			continue
		}
		for frames := []frame{enter(root)}; len(frames) > 0; {
			top := &frames[len(frames)-1]
			st := states[top.f]
			if len(top.callees) > 0 {
				g := top.callees[0]
				top.callees = top.callees[1:]
				if to := states[g]; to == nil {
					frames = append(frames, enter(g))
				} else if to.open {
					st.low = min(st.low, to.index)
				}
				continue
			}
			f := top.f
			frames = frames[:len(frames)-1]
			if len(frames) > 0 {
				above := states[frames[len(frames)-1].f]
				above.low = min(above.low, st.low)
			}
			if st.low != st.index {
				continue
			}
			at := len(stack) - 1
			for stack[at] != f { // above it is the rest of the component
				at--
			}
			for _, g := range stack[at:] {
				states[g].open = false
				g.recursive = g.recursive || len(stack)-at > 1
			}
			stack = stack[:at]
		}
	}
}
