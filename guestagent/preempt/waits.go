package preempt

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"vgpud/ptx"
	"vgpud/ptx/flow"
)

// Blocks that wait for blocks.
//
// A loop waits for other blocks if it might not end while all other blocks stand still. A block
// that waits for one that never comes is a deadlock, and which blocks may not come depends on the
// form:
//
//   - A block that has started a task finishes it, in every form: no form checks the evict word within a task.
//   - In the early-exit forms any block may be skipped, even one with a lower index than one that has started: blocks check
//     at different times, and a relaunch runs only what was skipped.
//   - In the persistent form tasks are fetched in the order of their indices, and what was fetched is finished. So all tasks
//     before one that has started have started; later ones may have to wait until it ends.
//
// So a kernel whose blocks wait only for earlier blocks, a look-back, may have the persistent form,
// and a kernel whose blocks wait for others has no form. Neither what a loop waits for nor whether
// it waits is decidable in general, so every kind of polling counts as a wait: a loop whose end
// depends, by data or by control, on what an instruction in it reads from global memory or a
// surface, by any load, asynchronous copy or atomic operation. Only the following don't count,
// since they end while all other blocks stand still:
//
//   - Reading what no block writes: an ordinary load from an array that the kernel does not write. Another kernel may, but
//     then the original waits for that as well. It does count if the loop can end only because what it loads changes.
//   - Reading nothing twice: an access whose address moves on in every iteration.
//   - A list: an ordinary load from an address that each iteration takes from the next word of a list, in a loop that ends
//     after a number of iterations.
//   - A walk: an ordinary load, or a call of a function that makes only such loads, in a loop that synchronizes with nothing
//     (walks.go).
//   - A bound: an ordinary load of what a counter advances to.
//   - A retry: a compare-and-swap repeated with the value that it found, or that was loaded just before. If no other block
//     writes, the second one succeeds.
//   - A claim: a compare-and-swap that takes a free word of a table, or the end of a chain (claims.go).
//   - A draw: an addition of a positive constant to a counter, whose results are used as indices, until they reach a bound. A
//     thread that is alone reaches it by itself, if no other branch that depends on them leaves the loop.
//   - A few attempts, each at another word.
//
// A function that calls itself does not wait by that if it synchronizes with nothing, for the same
// reason as with walks. Locks do count: where a lock is awaited, nothing shows that its holder
// releases it. A wait that counts is either proven to look back (lookback.go), or the kernel is
// refused. The list is short on purpose; what is not on it may be sound, too.

// None of this is asked of kernels that GCC made of a region in OpenMP or OpenACC, see offloaded.

// maxTraceSteps bounds the work of looking for waits in one function, per instruction.
const maxTraceSteps = 256

// mayWait reports whether an instruction reads memory that other blocks may intentionally be
// writing: volatile, relaxed, acquire or atomic, from what may be global memory.
func mayWait(in *ptx.Instr) bool {
	switch in.Opcode {
	case "ld":
		// .cv reads the memory itself each time, as volatile does; .cg bypasses the only cache that
		// is not coherent, and hand-written barriers use it for that.
		if !ordered(in) && !in.Has("cv") && !in.Has("cg") {
			return false
		}
	case "atom", "multimem", "suld":
	default:
		return false
	}
	return mayBeGlobal(in)
}

// mayPoll reports whether an instruction reads what may be global memory or a surface in any way.
// Constant memory is not written, and a texture fetch from what the same grid writes is undefined,
// since the texture cache is not kept coherent during a launch. So neither can be relied on to see
// what another block writes.
func mayPoll(in *ptx.Instr) bool {
	switch in.Opcode {
	case "ld", "ldu":
		return mayBeGlobal(in)
	case "cp":
		return true
	case "wmma":
		return in.Has("load") && mayBeGlobal(in)
	}
	return mayWait(in)
}

// mayWrite reports whether an instruction other than a call may write global memory or a surface.
func mayWrite(in *ptx.Instr) bool {
	switch in.Opcode {
	case "st", "red", "atom", "multimem":
		return mayBeGlobal(in)
	case "sust", "sured":
		return true
	case "wmma":
		return in.Has("store") && mayBeGlobal(in)
	case "cp":
		to := slices.IndexFunc(in.Modifiers, func(m string) bool { return m == "global" || strings.HasPrefix(m, "shared") })
		return to >= 0 && in.Modifiers[to] == "global"
	case "call", "bar", "barrier":
		return false
	}
	return !flow.Known(in.Opcode)
}

// mayBeGlobal reports whether an instruction accesses global memory by its modifiers, or any memory
// by a generic address.
func mayBeGlobal(in *ptx.Instr) bool {
	for _, m := range in.Modifiers {
		if m == "local" || m == "const" || strings.HasPrefix(m, "param") || strings.HasPrefix(m, "shared") {
			return false
		}
	}
	return true
}

// checkWaits records whether the kernel's blocks may wait for other blocks, and refuses it unless
// they are proven to look back.
func (w *analyzer) checkWaits(e *entryInfo) {
	if offloaded(e.fn.Name) {
		return
	}
	var polls []int
	for _, f := range e.reach {
		if f.waits == nil {
			v := f.findWaits()
			f.waits = &v
		}
		v := f.waits
		e.waits = e.waits || v.why != "" || len(v.polls) > 0
		switch {
		case v.why != "":
			e.refuse(GridSync, "%s", v.why)
		case f == e.self:
			polls = v.polls
		case len(v.polls) > 0:
			e.refuse(GridSync, "%v may wait, in %s", f.code.Instrs[v.polls[0]], f.code.Func.Name)
		}
	}
	if len(polls) == 0 || e.refused != None {
		return
	}
	if why := e.self.waitResult.refuteLookBack(polls); why != "" {
		e.refuse(GridSync, "%s", why)
	}
}

// offloaded reports whether GCC made a kernel of an OpenMP target region or an OpenACC compute
// construct: it names such functions f$_omp_fn$0, f$_omp_fn$1 and so on, and where two of one name
// are linked, f$_omp_fn$0$lto_priv$0 and so on.
//
// Their blocks are teams or gangs, which may not wait for one another but at locks: barriers bind
// to a team or a gang, and an implementation may run one to its end before it starts the next
// (OpenACC 3.2, §1.2, says so, and warns of programs that rely on anything else). The holder of a
// lock has started its task, and finishes it in every form. Without this knowledge nearly all of
// these kernels would be refused: the runtime library that they are linked with has locks, queues
// of tasks and recursion through pointers.
func offloaded(kernel string) bool {
	_, number, ok := strings.Cut(kernel, "$_omp_fn$")
	number, private, copied := strings.Cut(number, "$lto_priv$")
	isNumber := func(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
	return ok && isNumber(number) && (!copied || isNumber(private))
}

// waits is what a function may wait for.
type waits struct {
	polls []int  // the loads by which it waits
	why   string // if not empty: it may wait in other ways, or that is unknown
}

// findWaits examines all loops of the function.
func (f *funcInfo) findWaits() waits {
	if !f.pollsDeep || len(f.graph.Loops) == 0 && f.graph.Reducible && !f.recursive {
		return waits{}
	}
	s, v := f.waitAnalysis(), waits{}
	switch {
	case f.recursive && (f.readsDeep || f.syncsDeep):
		v.why = f.code.Func.Name + " calls itself and reads what other blocks may write"
	case !f.graph.Reducible && slices.ContainsFunc(slices.Concat(f.polls, slices.Sorted(maps.Keys(s.calls))), s.isSource):
		v.why = f.code.Func.Name + " has a loop with several entries and reads what other blocks may write"
	}
	for l := 0; l < len(f.graph.Loops) && v.why == ""; l++ {
		s.checkLoop(l, &v)
	}
	return v
}

// waitAnalysis examines the loops of one function.
type waitAnalysis struct {
	f          *funcInfo
	effects    *flow.Effects
	defs, uses [][]int32 // the instructions that write and read each register and space, as flow.Effects numbers them
	trace      *flow.Trace
	calls      map[int][]callSite // by instruction
	work       int                // instructions examined

	roots    map[root]int // numbered
	nearVars sources      // the variables in shared and local memory
	from     []sources    // of each register and space
	written  sources      // the arrays in global memory that the function, or a function it calls, may write

	results []linear            // of each instruction that gives one register something; nil until needed
	reach   map[use][]int32     // the instructions that may have given a register its value
	draws   map[quantity]int    // the atomic operation that draws a ticket
	holds   map[int][]condition // by block
}

// waitAnalysis returns what is known of the function's registers.
func (f *funcInfo) waitAnalysis() *waitAnalysis {
	if f.waitResult != nil {
		return f.waitResult
	}
	e := f.graph.Effects()
	s := &waitAnalysis{
		f: f, effects: e, defs: make([][]int32, e.Numbers()), uses: make([][]int32, e.Numbers()), reach: map[use][]int32{}, trace: f.graph.NewTrace(e),
		calls: map[int][]callSite{}, roots: map[root]int{}, from: make([]sources, e.Numbers()), holds: map[int][]condition{},
	}
	f.waitResult = s
	// A value that is read back from global memory is a source itself.
	s.trace.Ignore, s.trace.Unrelated = e.Space(ptx.GlobalSpace), s.onlyStores
	for _, c := range f.calls {
		s.calls[c.instr] = append(s.calls[c.instr], c)
	}
	for i := range f.code.Instrs {
		for _, r := range e.Writes(i) {
			s.defs[r] = append(s.defs[r], int32(i))
		}
		for _, r := range e.Reads(i) {
			s.uses[r] = append(s.uses[r], int32(i))
		}
	}
	s.findSources()
	if !f.code.Func.Entry { // its callers may write anything
		s.written = everywhere
	}
	for i := range f.code.Instrs {
		if s.writes(i) {
			s.written |= s.array(i)
		}
	}
	return s
}

// callsAny reports whether instruction i calls a function for which is returns true.
func (s *waitAnalysis) callsAny(i int, is func(*funcInfo) bool) bool {
	return slices.ContainsFunc(s.calls[i], func(c callSite) bool { return slices.ContainsFunc(c.callees, is) })
}

// onlyStores reports whether instruction i is an atomic operation on global memory that uses
// register r, if at all, for what it stores: its result is what memory held.
func (s *waitAnalysis) onlyStores(i int, r int32) bool {
	in := s.f.code.Instrs[i]
	return in.Opcode == "atom" && in.Has("global") && register(address(in)) != r &&
		!(in.Guarded() && int32(in.Pred.Sym.Index) == r)
}

// writes reports whether an instruction may write global memory.
func (s *waitAnalysis) writes(i int) bool {
	in := s.f.code.Instrs[i]
	if in.Opcode == "call" {
		return s.callsAny(i, func(g *funcInfo) bool { return g.writesDeep })
	}
	return mayWrite(in) && (in.Opcode == "multimem" || !flow.Known(in.Opcode) || s.mayBeGlobal(i))
}

// isSource reports whether an instruction reads what other blocks may write.
func (s *waitAnalysis) isSource(i int) bool {
	in := s.f.code.Instrs[i]
	switch {
	case in.Opcode == "call":
		return slices.Contains(s.f.reads, i) || s.callsAny(i, func(g *funcInfo) bool { return g.readsDeep || g.pollsDeep && s.written != 0 })
	case !mayPoll(in) || !s.mayBeGlobal(i):
		return false
	case mayWait(in) || in.Opcode == "cp":
		return true
	}
	return s.array(i)&s.written != 0
}

// checkLoop records what loop l may wait for.
func (s *waitAnalysis) checkLoop(l int, v *waits) {
	code, g := s.f.code, s.f.graph
	var sources, others []int
	exits := false // a call in it may end the thread
	body := g.Body(l)
	for _, i := range s.instrs(body) {
		exits = exits || s.callsAny(i, func(g *funcInfo) bool { return g.exitsDeep })
		switch {
		case s.isSource(i):
			sources = append(sources, i)
		case s.written != 0 && mayPoll(code.Instrs[i]) && s.mayBeGlobal(i):
			others = append(others, i)
		}
	}
	if len(sources)+len(others) == 0 {
		return
	}
	r := s.newLoop(l, body)
	if len(others) > 0 && r.endless() {
		sources = append(sources, others...)
	}
	if len(sources) == 0 {
		return
	}
	depends := func(of ...int) bool {
		s.trace.Run(r.body, of, func(int) bool { return true })
		return exits || slices.ContainsFunc(r.leaving, func(b int) bool { return s.trace.Instr(g.Blocks[b].End - 1) })
	}
	if !s.exhausted() && !depends(sources...) {
		return
	}
	for _, i := range sources {
		switch in := code.Instrs[i]; {
		case s.exhausted():
			v.why = code.Func.Name + " has too many nested loops to analyze"
			return
		case !depends(i), r.monotonic(i), !exits && (r.gathers(i) || r.retries(i) || r.draws(i) || r.claims(i) || r.follows(i) || r.rereads(i) || r.walks(i) || r.bounds(i) || r.attempts(i)):
		case in.Opcode != "ld":
			v.why = fmt.Sprintf("%v polls", in)
			return
		case !slices.Contains(v.polls, i):
			v.polls = append(v.polls, i)
		}
	}
}

// address returns the address operand of an instruction; of a copy, the one that it reads.
func address(in *ptx.Instr) *ptx.Operand {
	last := &ptx.Operand{}
	for k := range in.Operands {
		if in.Operands[k].Kind == ptx.KindAddr {
			if last = &in.Operands[k]; in.Opcode != "cp" || k > 0 {
				break
			}
		}
	}
	return last
}

// exhausted reports whether more work was done than the function's size warrants. A kernel of which
// too little is known then is refused.
func (s *waitAnalysis) exhausted() bool {
	return s.work+s.trace.Steps() > maxTraceSteps*(len(s.f.code.Instrs)+64)
}
