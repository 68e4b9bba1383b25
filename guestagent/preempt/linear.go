package preempt

import (
	"slices"

	"vgpud/ptx"
)

// linear describes a value as the sum of its terms and of a number in [lo, hi]. The zero linear is
// that of a value which no instruction gives yet.
//
// Registers are assumed not to overflow, as indices don't. Grids are assumed to have one dimension:
// ctaid.y is zero. Values are not followed through memory, except for tickets.
type linear struct {
	state  lattice
	terms  [maxTerms]term // ordered by quantity
	lo, hi int64          // infinite if unknown
}

// lattice is the place of a linear in the lattice of knowledge.
type lattice uint8

const (
	bottom  lattice = iota // no instruction gives the value
	precise                // the terms and bounds hold
	top                    // it may be any value
)

// term is a multiple of a quantity that is constant in a thread while it runs one block of the
// grid.
type term struct {
	of     quantity // 0 for no term
	factor int64
}

// quantity is a value that is unknown before the launch. Root n, a parameter or the address of a
// variable, is firstQuantity + n; a ticket is -1-i for the instruction i that gives it: the atomic
// operation that draws it, or the load of what one thread has handed to its block.
type quantity int32

const (
	noQuantity quantity = iota
	blockIndex          // %ctaid.x
	threadIndex
	firstQuantity
)

// ordersBlocks reports whether a term is of a quantity by which blocks may look back.
func (t term) ordersBlocks() bool { return t.of == blockIndex || t.of < noQuantity }

const (
	maxTerms = 5
	// maxBound is more than any count or address. A bound beyond it counts as infinite, which stays
	// beyond it after any addition or multiplication here.
	maxBound = int64(1) << 40
	infinite = maxBound << 2
	// maxFactor bounds the factors of terms, so that no 32-bit index overflows in a grid whose
	// words fit in memory.
	maxFactor = int64(1) << 20
	// maxThreads bounds the threads of a block in each dimension.
	maxThreads = 1024
)

var unknown = linear{state: top}

func constant(v int64) linear     { return between(v, v) }
func between(lo, hi int64) linear { return linear{state: precise, lo: lo, hi: hi} }
func multiple(of quantity) linear { return linear{state: precise, terms: [maxTerms]term{{of, 1}}} }

func (v linear) number() bool            { return v.state == precise && v.terms[0].of == noQuantity }
func (v linear) constant() (int64, bool) { return v.lo, v.number() && v.lo == v.hi }

// plus returns v + by·w.
func (v linear) plus(w linear, by int64) linear {
	switch {
	case v.state == bottom || w.state == bottom:
		return linear{}
	case v.state == top || w.state == top || by > maxFactor || by < -maxFactor:
		return unknown
	}
	all := append(v.terms[:], w.terms[:]...)
	for i := range w.terms {
		all[maxTerms+i].factor *= by
	}
	slices.SortFunc(all, func(a, b term) int { return int(a.of) - int(b.of) })
	if by < 0 {
		w.lo, w.hi = w.hi, w.lo
	}
	sum, n := between(clampBound(v.lo+by*w.lo), clampBound(v.hi+by*w.hi)), 0
	for i, t := range all {
		if i+1 < len(all) && all[i+1].of == t.of {
			all[i+1].factor += t.factor
		} else if t.of != noQuantity && t.factor != 0 {
			if n == maxTerms || t.factor > maxFactor || t.factor < -maxFactor {
				return unknown
			}
			sum.terms[n] = t
			n++
		}
	}
	if sum.lo == infinite || sum.hi == -infinite {
		return unknown
	}
	return sum
}

// clampBound returns a bound, or infinity if it is beyond maxBound.
func clampBound(v int64) int64 {
	switch {
	case v > maxBound:
		return infinite
	case v < -maxBound:
		return -infinite
	}
	return v
}

// join returns what is known of a value that is v or w.
func (v linear) join(w linear) linear {
	switch {
	case v.state == bottom:
		return w
	case w.state == bottom:
		return v
	case v.state == top || w.state == top || v.terms != w.terms:
		return unknown
	}
	v.lo, v.hi = min(v.lo, w.lo), max(v.hi, w.hi)
	return v
}

// withThread replaces the thread's index by its bounds.
func (v linear) withThread(lo, hi int64) linear {
	for _, t := range v.terms {
		if t.of == threadIndex {
			return v.plus(multiple(threadIndex), -t.factor).plus(between(lo, hi), t.factor)
		}
	}
	return v
}

// atLeast returns a lower bound of v; quantities other than roots are not negative.
func (v linear) atLeast() int64 {
	if v.state != precise || slices.ContainsFunc(v.terms[:], func(t term) bool { return t.of >= firstQuantity || t.factor < 0 }) {
		return -infinite
	}
	return v.lo
}

// solve computes what is known of all results of instructions.
func (s *waitAnalysis) solve() {
	s.results, s.draws = make([]linear, len(s.f.code.Instrs)), map[quantity]int{}
	s.findTickets()
	changes := make([]uint8, len(s.results))
	const exact, most = 3, 12 // changes of a value before its bounds become infinite, and before it becomes unknown
	s.fixpoint(func(i int) bool {
		was := s.results[i]
		next := was.join(s.resultOf(i))
		if s.work++; next == was || s.exhausted() {
			return false
		}
		if changes[i]++; changes[i] > most {
			next = unknown
		} else if changes[i] > exact && was.state == precise && next.state == precise {
			if next.lo < was.lo {
				next.lo = -infinite
			}
			if next.hi > was.hi {
				next.hi = infinite
			}
		}
		s.results[i] = next
		return true
	})
}

// valueOf returns what is known of an operand of that many bits, or of the address that it is,
// before instruction at.
func (s *waitAnalysis) valueOf(o *ptx.Operand, bits, at int) linear {
	if s.results == nil {
		s.solve()
	}
	switch {
	case o.Kind == ptx.KindImm && o.Imm == ptx.ImmInt:
		if bits == 32 {
			return constant(int64(int32(o.Int())))
		}
		return constant(clampBound(o.Int()))
	case o.Sym == nil || o.Not || o.Neg || len(o.Elems) > 0:
		return unknown
	case o.Sym.Kind == ptx.SymReg && o.Sel == ptx.SelNone:
		var v linear
		for _, d := range s.reaching(int32(o.Sym.Index), at) {
			s.work++
			v = v.join(s.results[d])
		}
		if s.exhausted() {
			return unknown
		}
		return v.plus(constant(o.Offset()), 1)
	case o.Sym.Kind == ptx.SymVar:
		return multiple(firstQuantity+quantity(s.number(root{o.Sym, 0}))).plus(constant(o.Offset()), 1)
	case o.Sym.Kind == ptx.SymSpecial:
		return specialValue(o.Sym.Name, o.Sel)
	}
	return unknown
}

// use is a register at an instruction.
type use struct {
	reg int32
	at  int
}

// reaching returns the instructions that may have given register x its value before instruction at.
func (s *waitAnalysis) reaching(x int32, at int) []int32 {
	defs, blocks := s.defs[x], s.f.graph.Blocks
	list, known := s.reach[use{x, at}]
	switch {
	case len(defs) == 1:
		return defs
	case known:
		return list
	}
	type piece struct{ block, end int } // of a block, from its beginning
	seen := map[int]bool{}
	for work := []piece{{s.f.graph.BlockOf(at), at}}; len(work) > 0 && !s.exhausted(); s.work++ {
		p := work[len(work)-1]
		work = work[:len(work)-1]
		n, _ := slices.BinarySearch(defs, int32(p.end))
		done := false
		for n--; n >= 0 && int(defs[n]) >= blocks[p.block].First && !done; n-- {
			list, done = append(list, defs[n]), !s.f.code.Instrs[defs[n]].Guarded()
		}
		for _, q := range blocks[p.block].Preds {
			if !done && !seen[q] && blocks[q].Reachable {
				seen[q] = true
				work = append(work, piece{q, blocks[q].End})
			}
		}
	}
	s.work += len(list)
	s.reach[use{x, at}] = list
	return list
}

// specialValue returns what is known of a special register.
func specialValue(name string, sel ptx.Selector) linear {
	x := sel == ptx.SelX
	switch {
	case name == "%ctaid" && x:
		return multiple(blockIndex)
	case name == "%tid" && x:
		return multiple(threadIndex)
	case name == "%ctaid":
		return constant(0)
	case name == "%nctaid" && !x:
		return constant(1)
	case name == "%nctaid":
		return between(1, 1<<31-1)
	case name == "%tid":
		return between(0, maxThreads-1)
	case name == "%ntid":
		return between(1, maxThreads)
	}
	return unknown
}

// resultOf returns what instruction i gives the register that it writes.
func (s *waitAnalysis) resultOf(i int) linear {
	in := s.f.code.Instrs[i]
	ops := in.Operands
	if _, ticket := s.draws[quantity(-1-i)]; ticket {
		return multiple(quantity(-1 - i))
	}
	if len(ops) < 2 || register(&ops[0]) < 0 || len(in.Modifiers) == 0 || in.Has("sat") || in.Has("cc") {
		return unknown
	}
	bits, signed := lastWidth(in), hasSign(in.Modifiers[len(in.Modifiers)-1])
	if bits == 0 {
		return unknown
	}
	arg := func(k int) linear { return s.valueOf(&ops[k], bits, i) }
	two, three, four := len(ops) == 2, len(ops) == 3, len(ops) == 4
	switch op := in.Opcode; {
	case (op == "mov" || op == "cvta") && two:
		return arg(1)
	case op == "cvt" && two && len(in.Modifiers) == 2:
		return convert(arg(1), in.Modifiers[0], bits, signed)
	case op == "add" && three:
		return arg(1).plus(arg(2), 1)
	case op == "sub" && three:
		return arg(1).plus(arg(2), -1)
	case op == "not" && two:
		return constant(-1).plus(arg(1), -1)
	case op == "mul" && three && !in.Has("hi"):
		return product(arg(1), arg(2), in.Has("wide") && !signed)
	case op == "mad" && four && in.Has("lo"):
		return product(arg(1), arg(2), false).plus(arg(3), 1)
	case op == "mad" && four && in.Has("wide"):
		return product(arg(1), arg(2), !signed).plus(s.valueOf(&ops[3], 64, i), 1)
	case op == "shl" && three:
		if by, ok := arg(2).constant(); ok && by >= 0 && by < 20 {
			return product(arg(1), constant(1<<by), false)
		}
	case op == "ld":
		if at, ok := s.loadedParameter(in); ok {
			return multiple(firstQuantity + quantity(s.number(at)))
		}
	}
	return unknown
}

// convert converts an integer of that many bits to type to.
func convert(v linear, to string, bits int, signed bool) linear {
	wide := width(to)
	switch {
	case v.state == bottom:
		return v
	case wide == 0 || wide > bits && !signed && v.atLeast() < 0 || wide < bits && !v.number():
		return unknown
	}
	return v
}

// product returns v · w if one is a constant or both are non-negative numbers. unsigned says that
// negative values count as large ones.
func product(v, w linear, unsigned bool) linear {
	if _, ok := v.constant(); ok {
		v, w = w, v
	}
	const most = 1 << 31 // or it may overflow
	by, ok := w.constant()
	switch {
	case v.state == bottom || w.state == bottom:
		return linear{}
	case unsigned && (v.atLeast() < 0 || w.atLeast() < 0), ok && by > 1 && v.number() && v.hi > most:
		return unknown
	case ok:
		return constant(0).plus(v, by)
	case !v.number() || !w.number() || v.lo < 0 || w.lo < 0 || v.lo > maxFactor || w.lo > maxFactor:
		return unknown
	}
	return between(v.lo*w.lo, clampBound(min(v.hi, most)*min(w.hi, most)))
}

// width returns the size of an integer type in bits; 0 for other types.
func width(m string) int {
	switch m {
	case "u32", "b32", "s32":
		return 32
	case "u64", "b64", "s64":
		return 64
	}
	return 0
}

// hasSign reports whether an integer type of one of these sizes has a sign.
func hasSign(m string) bool { return m == "s32" || m == "s64" }

// lastWidth returns the width of the last type that an instruction names.
func lastWidth(in *ptx.Instr) int { return width(in.Modifiers[len(in.Modifiers)-1]) }
