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
// A loop waits for other blocks if it might not end were all other blocks to stand still. A block that waits for one that
// does not come is a deadlock, and who may not come differs by the form:
//
//   - A block that has started a task finishes it, in every form: no form looks at the evict word within a task.
//   - In the early-exit forms any block may be skipped, also one with a lower index than one that has started: blocks look
//     at different times, and a relaunch runs only what was skipped.
//   - In the persistent form tasks are fetched in the order of their indices, and what was fetched is finished. So all
//     tasks before one that has started have started; later ones may have to wait until it ends.
//
// So a kernel whose blocks wait for earlier blocks alone, a look-back, may have the persistent form, and a kernel whose
// blocks wait for others none. Neither what a loop waits for nor whether it waits can be told in general, so whatever polls
// counts as a wait: a loop whose end depends, by data or by control, on what an instruction in it reads from global memory
// or from a surface, by whatever load, asynchronous copy or atomic operation. Of these, only the following do not count.
// Each ends the loop, or at least does not keep it going, though all other blocks stand still:
//
//   - What is never read twice: an access whose address moves on by at least one in every round (see moves).
//   - What nobody writes: an ordinary load from an array that the kernel writes nothing to. Another kernel may, but then
//     the original waits for that as well.
//   - A bound: an ordinary load with which a counter is compared that every round moves on, as the loop's end.
//   - A list: an ordinary load at an address that each round takes from the next word of a list, in a loop that is over
//     after a number of rounds.
//   - A retry: a compare-and-swap repeated with the value that it found (see retries). When nobody else writes, the second
//     succeeds.
//   - A draw: an addition of a positive constant to a counter, whose results are used as indices, until they reach a bound
//     (see draws). A thread that is alone gets there by itself.
//
// Locks do count: that one is given back by whoever has it can't be seen where it is awaited. What counts is either proven
// to look back (lookback.go), or the kernel is refused. The list is short on purpose; what is not on it may be sound too.

// maxTraceSteps bounds the work of looking for waits in one function, per instruction.
const maxTraceSteps = 256

// mayWait reports whether an instruction reads memory that other blocks may be writing meanwhile, on purpose: volatile,
// relaxed, acquire or atomic, from global memory or what may be global.
func mayWait(in *ptx.Instr) bool {
	switch in.Opcode {
	case "ld":
		// .cv asks for the memory's own content each time, as volatile does; .cg passes by the one cache that is not
		// coherent, which is what barriers made by hand use it for.
		if !ordered(in) && !in.Has("cv") && !in.Has("cg") {
			return false
		}
	case "atom", "multimem", "suld":
	default:
		return false
	}
	return mayBeGlobal(in)
}

// mayPoll reports whether an instruction reads what may be global memory or a surface in any way. Textures and constant
// memory are read only, and so not coherent with what other blocks write.
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

// mayWrite reports whether an instruction other than a call may write global memory.
func mayWrite(in *ptx.Instr) bool {
	switch in.Opcode {
	case "st", "red", "atom", "multimem":
		return mayBeGlobal(in)
	case "wmma":
		return in.Has("store") && mayBeGlobal(in)
	case "cp":
		to := slices.IndexFunc(in.Modifiers, func(m string) bool { return m == "global" || strings.HasPrefix(m, "shared") })
		return to >= 0 && in.Modifiers[to] == "global"
	case "call", "bar", "barrier", "sust", "sured":
		return false
	}
	return !flow.Known(in.Opcode)
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

// waits notes whether the kernel's blocks may wait for other blocks, and refuses it unless they are proven to look back.
func (w *studying) waits(e *entryStudy) {
	var polls []int
	for _, f := range e.reach {
		if f.waiting == nil {
			v := f.findWaits()
			f.waiting = &v
		}
		v := f.waiting
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
	if why := e.self.waiting.spins.looksBack(polls); why != "" {
		e.refuse(GridSync, "%s", why)
	}
}

// waiting is what a function may wait for.
type waiting struct {
	polls []int  // the loads by which it waits
	why   string // not empty: it may wait in other ways, or nobody knows
	spins *spins
}

// findWaits looks at all loops of the function.
func (f *funcStudy) findWaits() waiting {
	if !f.pollsDeep || len(f.graph.Loops) == 0 && f.graph.Reducible && !f.recursive {
		return waiting{}
	}
	s := newSpins(f)
	v := waiting{spins: s}
	within := s.loopsWithReads()
	switch {
	case f.recursive:
		v.why = fmt.Sprintf("%s calls itself and reads what other blocks may write", f.code.Func.Name)
		return v
	case !f.graph.Reducible && (slices.ContainsFunc(f.polls, s.source) || slices.ContainsFunc(f.calls, func(c callSite) bool { return s.source(c.instr) })):
		v.why = fmt.Sprintf("%s has a loop with several entries and reads what other blocks may write", f.code.Func.Name)
		return v
	}
	for l := range f.graph.Loops {
		if !within[l] {
			continue
		}
		latches := f.graph.Loops[l].Latches
		s.loop(l, latches, &v)
		// Loops that begin with the same block count as one, and one of them may wait within the others.
		for k := range latches {
			if len(latches) > 1 {
				s.loop(l, latches[k:k+1], &v)
			}
		}
	}
	return v
}

// spins looks at the loops of one function.
type spins struct {
	f       *funcStudy
	effects *flow.Effects
	trace   *flow.Trace
	origins *origins            // made when it is first needed
	linears *linears            // likewise
	calls   map[int][]callSite  // by instruction
	holds   map[int][]condition // by block
	work    int                 // instructions looked at

	written  uint64 // the parameters and variables that the function's writes to global memory are found by
	anywhere bool   // it, or what it calls, may write to memory that is found otherwise
}

func newSpins(f *funcStudy) *spins {
	s := &spins{f: f, effects: f.graph.Effects(), calls: map[int][]callSite{}, holds: map[int][]condition{}, anywhere: !f.code.Func.Entry}
	for _, c := range f.calls {
		s.calls[c.instr] = append(s.calls[c.instr], c)
	}
	s.trace = f.graph.NewTrace(s.effects)
	s.trace.Blind = s.effects.Space(ptx.GlobalSpace) // what is read back from there is a source itself
	for i, in := range f.code.Instrs {
		if !s.writes(i) {
			continue
		}
		roots := s.from().operand(address(in)).roots
		s.written |= roots
		s.anywhere = s.anywhere || roots == 0
	}
	return s
}

// from returns the origins of the function's registers.
func (s *spins) from() *origins {
	if s.origins == nil {
		s.origins = newOrigins(s.f, s.effects)
	}
	return s.origins
}

// linear returns what is known of the values of the function's registers.
func (s *spins) linear() *linears {
	if s.linears == nil {
		s.linears = newLinears(s.f, s.effects)
	}
	return s.linears
}

// far reports whether an instruction's address may be one of global memory.
func (s *spins) far(in *ptx.Instr) bool {
	const far = fromParam | fromModule | fromMemory | fromAtomic | fromCaller
	from := s.from().operand(address(in)).from
	return in.Has("global") || from&fromNear == 0 || from&far != 0
}

// writes reports whether an instruction may write global memory.
func (s *spins) writes(i int) bool {
	in := s.f.code.Instrs[i]
	if in.Opcode != "call" {
		return mayWrite(in) && (in.Opcode == "multimem" || !flow.Known(in.Opcode) || s.far(in))
	}
	return slices.ContainsFunc(s.calls[i], func(c callSite) bool {
		return slices.ContainsFunc(c.callees, func(g *funcStudy) bool { return g.writesDeep })
	})
}

// source reports whether an instruction reads what other blocks may write.
func (s *spins) source(i int) bool {
	in := s.f.code.Instrs[i]
	switch {
	case in.Opcode == "call":
		return slices.ContainsFunc(s.calls[i], func(c callSite) bool {
			return slices.ContainsFunc(c.callees, func(g *funcStudy) bool { return g.readsDeep || g.pollsDeep && s.anywhere })
		})
	case !mayPoll(in) || !s.far(in):
		return false
	case mayWait(in) || in.Opcode == "cp":
		return true
	}
	roots := s.from().operand(address(in)).roots
	return s.anywhere || s.written&roots != 0 || roots == 0 && s.written != 0
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
	for _, i := range s.f.polls {
		mark(i)
	}
	for _, c := range s.f.calls {
		if slices.ContainsFunc(c.callees, func(g *funcStudy) bool { return g.pollsDeep }) {
			mark(c.instr)
		}
	}
	return within
}

// loop judges loop l, as far as some of its latches make it, unless something was found already.
func (s *spins) loop(l int, latches []int, v *waiting) {
	g := s.f.graph
	switch {
	case v.why != "":
		return
	case s.exhausted():
		v.why = s.f.code.Func.Name + " has too many loops within loops to look through"
		return
	}
	r := s.round(l, latches)
	var sources []int
	exits := false
	for _, b := range r.body {
		for i := g.Blocks[b].First; i < g.Blocks[b].End; i++ {
			s.work++
			for _, c := range s.calls[i] {
				exits = exits || slices.ContainsFunc(c.callees, func(g *funcStudy) bool { return g.exitsDeep })
			}
			if s.source(i) && !r.moves(address(s.f.code.Instrs[i])) {
				sources = append(sources, i)
			}
		}
	}
	depends := func(of []int) bool {
		s.trace.Run(r.body, of, always)
		return exits || slices.ContainsFunc(r.leaving, func(b int) bool { return s.trace.Instr(g.Blocks[b].End - 1) })
	}
	if len(sources) == 0 || !depends(sources) {
		return
	}
	for _, i := range sources {
		if s.exhausted() {
			v.why = s.f.code.Func.Name + " has too many loops within loops to look through"
			return
		}
		in := s.f.code.Instrs[i]
		switch {
		case !depends([]int{i}):
		case !exits && !mayWait(in) && in.Opcode == "ld" && (r.bounds(i) || r.gathers(i)), !exits && (r.retries(i) || r.draws(i)):
		case in.Opcode == "ld":
			if !slices.Contains(v.polls, i) {
				v.polls = append(v.polls, i)
			}
		default:
			v.why = fmt.Sprintf("%v polls", in)
			return
		}
	}
}

// address returns the address operand of an instruction, of a copy the one that it reads.
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

// exhausted reports whether more work was done than the function's size warrants. What is not known then is refused.
func (s *spins) exhausted() bool {
	return s.work+s.trace.Steps() > maxTraceSteps*(len(s.f.code.Instrs)+64)
}

// always lets every branch count.
func always(int) bool { return true }
