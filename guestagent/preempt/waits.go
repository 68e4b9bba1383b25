package preempt

import (
	"fmt"
	"slices"
	"strings"

	"vgpud/ptx"
	"vgpud/ptx/flow"
)

// Blocks that wait for blocks.
//
// A loop whose exit depends, by data or by control, on a volatile, relaxed, acquire or atomic read of global memory
// inside it may wait for another block of the grid: nothing else that it computes changes while it spins, so what ends
// it is what somebody else writes. (A read before the loop decides how long the loop runs, not until when; a loop with
// no such read inside ends by itself or never.) It is a deadlock if the block waited for doesn't come. Who may not come
// differs by the form:
//
//   - A block that has started a task finishes it, in every form: no form looks at the evict word within a task. So
//     whoever waits for something that a *started* task does in its own course is safe: the holder of a lock, a rival in
//     a compare-and-swap.
//   - In the early-exit forms any block may be skipped, also one with a lower index than one that has started: blocks look
//     at different times, and a relaunch runs only what was skipped. So whoever waits for a task that may not have
//     started, be it an earlier one, may wait for ever.
//   - In the persistent form tasks are fetched in the order of their indices, and what was fetched is finished. So all
//     tasks before one that has started have started: waiting for earlier tasks is safe (a decoupled look-back), while
//     waiting for later ones, and so for all (a barrier over the grid), is not: there may be more of them than blocks
//     that fit the GPU, and after an eviction nobody fetches them.
//
// The rule is therefore: a kernel with such a loop gets the persistent form only, whatever it waits for; the program
// cannot be told from one that waits for an unstarted block by what a compare-and-swap loop looks like (a flag can be
// awaited by compare-and-swap too). And where the loop may wait for all blocks, the kernel is refused. Since a
// transformation must never be unsound, what is let pass are these shapes, and the rest counts as a grid barrier:
//
//   - progress: the read is an atomic operation that changes the word, so that the loop takes something: a
//     compare-and-swap retried with the value that it found, until it succeeds (whoever fails has lost to one that
//     succeeded); a lock, zero while it is free, taken by compare-and-swap or exchange (waiting is for its holder, who
//     has started); a ticket drawn from a counter.
//   - an end in sight: the loop also ends after a number of rounds that is fixed when it begins, and what it reads is
//     compared with constants, like the flag by which a search is called off. (A barrier that loses patience is none.)
//   - look-back: the read polls a word whose address differs from block to block by %ctaid or by a drawn ticket, and
//     compares it with constants, as flags are. A barrier's counter or flag is at one address for all; one counted up
//     per block would be compared with a count; and a word whose array the kernel also counts up by atomic additions
//     counts as a counter.
//
// A value compared with anything that comes of %nctaid is a grid barrier in any shape. So is one compared with a
// parameter, which may be the number of blocks. What remains is trust that a look-back looks back: a kernel that waits
// for *later* blocks through flags of their own needs all blocks on the GPU at once already in the original.

// maxTraceSteps bounds the work of looking for waits in one function, per instruction.
const maxTraceSteps = 256

// mayWait reports whether an instruction reads memory that other blocks may be writing meanwhile, on purpose: volatile,
// relaxed, acquire or atomic, from global memory or what may be global.
func mayWait(in *ptx.Instr) bool {
	switch in.Opcode {
	case "ld":
		// .cv asks for the memory's own content each time, as volatile does; .cg passes by the one cache that is not
		// coherent, which is what barriers made by hand use it for.
		if !in.Has("volatile") && !in.Has("relaxed") && !in.Has("acquire") && !in.Has("mmio") && !in.Has("cv") && !in.Has("cg") {
			return false
		}
	case "atom", "multimem":
	default:
		return false
	}
	return mayBeGlobal(in)
}

// mayBeGlobal reports whether an instruction accesses global memory by its modifiers, or any by a generic address.
func mayBeGlobal(in *ptx.Instr) bool {
	for _, m := range in.Modifiers {
		if m == "local" || m == "const" || strings.HasPrefix(m, "param") || strings.HasPrefix(m, "shared") {
			return false
		}
	}
	return true
}

// fences reports whether an instruction orders memory between blocks. A compiler reads memory anew behind it, so in a
// loop with a fence an ordinary load may poll as a volatile one does.
func fences(in *ptx.Instr) bool {
	switch in.Opcode {
	case "membar":
		return !in.Has("cta")
	case "fence":
		return in.Has("gpu") || in.Has("sys") || in.Has("cluster")
	}
	return false
}

// waits notes whether the kernel's blocks may wait for other blocks, and refuses it if they may wait for all.
func (w *studying) waits(e *entryStudy) {
	for _, f := range e.reach {
		if f.waiting == nil {
			v := f.findWaits()
			f.waiting = &v
		}
		e.waits = e.waits || f.waiting.any
		if f.waiting.all != "" {
			e.refuse(GridSync, "%s", f.waiting.all)
		}
	}
}

// waiting is what a function may wait for.
type waiting struct {
	any bool   // other blocks
	all string // not empty: all of them, or what can't be told from that; says why
}

// findWaits looks at all loops of the function.
func (f *funcStudy) findWaits() waiting {
	var v waiting
	if !f.readsDeep && !f.fenceDeep {
		return v
	}
	if f.recursive && f.readsDeep {
		return waiting{true, fmt.Sprintf("%s calls itself and reads what other blocks may write", f.code.Func.Name)}
	}
	if !f.graph.Reducible {
		return waiting{true, fmt.Sprintf("%s has a loop with several entries and reads what other blocks may write", f.code.Func.Name)}
	}
	if len(f.graph.Loops) == 0 {
		return v
	}
	s := &spins{f: f, effects: f.graph.Effects(), calls: map[int][]callSite{}}
	for _, c := range f.calls {
		s.calls[c.instr] = append(s.calls[c.instr], c)
	}
	s.trace = f.graph.NewTrace(s.effects)
	within := s.loopsWithReads()
	for l := range f.graph.Loops {
		if within[l] && v.all == "" {
			s.loop(l, &v)
		}
	}
	return v
}

// spins looks at the loops of one function.
type spins struct {
	f       *funcStudy
	effects *flow.Effects
	trace   *flow.Trace
	origins *origins           // made when it is first needed
	calls   map[int][]callSite // by instruction
	work    int                // instructions looked at
}

// from returns the origins of the function's registers.
func (s *spins) from() *origins {
	if s.origins == nil {
		s.origins = newOrigins(s.f, s.effects)
	}
	return s.origins
}

// source reports whether an instruction reads what others may write. fenced says that the loop it is in has a fence.
func (s *spins) source(i int, fenced bool) bool {
	in := s.f.code.Instrs[i]
	switch {
	case mayWait(in), fenced && (in.Opcode == "ld" || in.Opcode == "ldu") && mayBeGlobal(in) && !in.Has("nc"):
		const far = fromParam | fromModule | fromMemory | fromPoll | fromAtomic | fromCaller
		from := s.from().operand(address(in)).from
		return in.Has("global") || from&fromNear == 0 || from&far != 0
	case in.Opcode == "call":
		for _, c := range s.calls[i] {
			if fenced || slices.ContainsFunc(c.callees, func(g *funcStudy) bool { return g.readsDeep }) {
				return true
			}
		}
	}
	return false
}

// loopsWithReads reports which loops have, in them or in loops within, something that may be a source.
func (s *spins) loopsWithReads() []bool {
	g := s.f.graph
	within := make([]bool, len(g.Loops))
	mark := func(i int) {
		for l := g.Blocks[g.BlockOf(i)].Loop; l != flow.None && !within[l]; l = g.Loops[l].Parent {
			within[l] = true
		}
	}
	for _, i := range s.f.reads {
		mark(i)
	}
	for _, c := range s.f.calls {
		if slices.ContainsFunc(c.callees, func(g *funcStudy) bool { return g.readsDeep || g.fenceDeep }) {
			mark(c.instr)
		}
	}
	if s.f.fences {
		for i, in := range s.f.code.Instrs {
			if fences(in) {
				mark(i)
			}
		}
	}
	return within
}

// loop judges one loop.
func (s *spins) loop(l int, v *waiting) {
	g := s.f.graph
	if s.exhausted() {
		*v = waiting{true, s.f.code.Func.Name + " has too many loops within loops to look through"}
		return
	}
	body := g.Body(l)
	leaving := g.Leaving(body)
	var sources []int
	fenced, exits := false, false
	for _, b := range body {
		for i := g.Blocks[b].First; i < g.Blocks[b].End; i++ {
			s.work++
			fenced = fenced || fences(s.f.code.Instrs[i])
			for _, c := range s.calls[i] {
				for _, callee := range c.callees {
					s.work++
					exits = exits || callee.exitsDeep
					fenced = fenced || callee.fenceDeep
				}
			}
		}
	}
	for _, b := range body {
		for i := g.Blocks[b].First; i < g.Blocks[b].End; i++ {
			if s.source(i, fenced) {
				sources = append(sources, i)
			}
		}
	}
	if len(sources) == 0 {
		return
	}
	depends := func() bool {
		return exits || slices.ContainsFunc(leaving, func(b int) bool { return s.trace.Instr(g.Blocks[b].End - 1) })
	}
	s.trace.Run(body, sources, always)
	if !depends() {
		return
	}
	v.any = true
	bounded := s.bounded(l, body, leaving)
	const most = 64 // sources to look at one by one
	if len(sources) > most || exits && !bounded {
		v.all = fmt.Sprintf("%s: a loop may wait for any of %d reads", s.f.code.Func.Name, len(sources))
		return
	}
	for _, i := range sources {
		s.trace.Run(body, []int{i}, always)
		if depends() {
			if why := s.judge(l, body, leaving, i, bounded); why != "" {
				v.all = fmt.Sprintf("%v %s", s.f.code.Instrs[i], why)
				return
			}
		}
	}
}

// judge says why a loop that waits for what instruction i reads may wait for all blocks; "" if it doesn't.
// bounded says that it also ends after a fixed number of rounds.
func (s *spins) judge(l int, body, leaving []int, i int, bounded bool) string {
	in := s.f.code.Instrs[i]
	if in.Opcode == "call" && bounded {
		return ""
	}
	if in.Opcode == "call" {
		return "may wait: what the function reads is not known here"
	}
	c := s.compared(body, leaving, i)
	switch {
	case c.nothing:
		return ""
	case c.from&fromGrid != 0:
		return "is compared with the grid's size"
	case s.retries(l, body, i), s.draws(in):
		return ""
	case c.from&^fromThread != 0:
		return "is compared with a value that may be a count of blocks"
	case s.locks(in, c):
		return ""
	case s.orders(c):
		return "is compared as a count"
	case bounded:
		return ""
	}
	switch at := s.from().operand(address(in)); {
	case at.from&(fromBlock|fromAtomic) == 0:
		return "polls one address for all blocks"
	case at.roots == 0:
		return "polls an address that is not known"
	case s.counts(at.roots):
		return "polls what the kernel counts up by atomic additions"
	}
	return ""
}

// address returns the address operand of an instruction.
func address(in *ptx.Instr) *ptx.Operand {
	for k := range in.Operands {
		if in.Operands[k].Kind == ptx.KindAddr {
			return &in.Operands[k]
		}
	}
	return &ptx.Operand{}
}

// exhausted reports whether more work was done than the function's size warrants. What is not known then is refused.
func (s *spins) exhausted() bool {
	return s.work+s.trace.Steps() > maxTraceSteps*(len(s.f.code.Instrs)+64)
}

// always lets every branch count.
func always(int) bool { return true }

// value returns the constant that an operand holds, where that is known: an immediate, or a register into which every
// instruction that writes it moves the same one.
func (s *spins) value(o *ptx.Operand) (int64, bool) {
	if o.Kind == ptx.KindImm && o.Imm == ptx.ImmInt {
		return o.Int(), true
	}
	if o.Kind != ptx.KindReg || o.Sym.Kind != ptx.SymReg {
		return 0, false
	}
	s.work += len(s.f.code.Instrs)
	v, found := s.f.constants([]int32{int32(o.Sym.Index)}, s.effects)[int32(o.Sym.Index)]
	return v, found
}

// counts reports whether the function adds atomically to memory that is found from one of the roots.
func (s *spins) counts(roots uint64) bool {
	s.work += len(s.f.code.Instrs)
	for _, in := range s.f.code.Instrs {
		if in.Opcode != "atom" && in.Opcode != "red" || !in.Has("add") && !in.Has("inc") && !in.Has("dec") || !mayBeGlobal(in) {
			continue
		}
		p := s.from().operand(address(in))
		if p.roots&roots != 0 || p.roots == 0 {
			return true
		}
	}
	return false
}
