package preempt

import (
	"slices"

	"vgpud/ptx"
)

// linear is what is known of a value: the sum of times·of and of a number in [lo, hi]. The zero linear is a value that
// nothing gives yet.
//
// Registers are taken as integers that don't overflow, as indices don't. Grids are taken to have one dimension: ctaid.y is
// zero. Values are not followed through memory, but for tickets.
type linear struct {
	known  knowledge
	terms  [maxTerms]term // in order of their quantities
	lo, hi int64          // endless where it is not known
}

type knowledge uint8

const (
	nothing  knowledge = iota // no instruction gives the value
	exactly                   // it is as the rest says
	anything                  // it may be any
)

// term is a multiple of a quantity that stays the same in a thread while it runs one block of the grid.
type term struct {
	of    quantity // 0: there is no such term
	times int64
}

// quantity is what is not known before the launch. Root n, a parameter or the address of a variable, is firstQuantity + n;
// a ticket is the negative number, less one, of the instruction that gives it: the atomic operation that draws it, or the
// load of what one thread has handed to its block.
type quantity int32

const (
	noQuantity quantity = iota
	blockIndex          // %ctaid.x
	threadIndex
	firstQuantity
)

// orders reports whether a term is of what blocks may look back by.
func (t term) orders() bool { return t.of == blockIndex || t.of < noQuantity }

const (
	maxTerms = 5
	// farAway is more than anything that is counted or addressed by. A bound beyond it counts as none, and is endless, which
	// stays beyond it whatever is added or it is multiplied with.
	farAway = int64(1) << 40
	endless = farAway << 2
	// mostTimes bounds the factors of terms, so that an index of 32 bits overflows in no grid that has room for its words.
	mostTimes = int64(1) << 20
	// maxThreads bounds the threads of a block in each dimension.
	maxThreads = 1024
)

var unknown = linear{known: anything}

func constant(v int64) linear     { return between(v, v) }
func between(lo, hi int64) linear { return linear{known: exactly, lo: lo, hi: hi} }
func multiple(of quantity) linear { return linear{known: exactly, terms: [maxTerms]term{{of, 1}}} }

func (v linear) number() bool         { return v.known == exactly && v.terms[0].of == noQuantity }
func (v linear) fixed() (int64, bool) { return v.lo, v.number() && v.lo == v.hi }

// plus returns v + by·w.
func (v linear) plus(w linear, by int64) linear {
	switch {
	case v.known == nothing || w.known == nothing:
		return linear{}
	case v.known == anything || w.known == anything || by > mostTimes || by < -mostTimes:
		return unknown
	}
	all := append(v.terms[:], w.terms[:]...)
	for i := range w.terms {
		all[maxTerms+i].times *= by
	}
	slices.SortFunc(all, func(a, b term) int { return int(a.of) - int(b.of) })
	if by < 0 {
		w.lo, w.hi = w.hi, w.lo
	}
	sum, n := between(bounded(v.lo+by*w.lo), bounded(v.hi+by*w.hi)), 0
	for i, t := range all {
		if i+1 < len(all) && all[i+1].of == t.of {
			all[i+1].times += t.times
		} else if t.of != noQuantity && t.times != 0 {
			if n == maxTerms || t.times > mostTimes || t.times < -mostTimes {
				return unknown
			}
			sum.terms[n] = t
			n++
		}
	}
	if sum.lo == endless || sum.hi == -endless {
		return unknown
	}
	return sum
}

// bounded returns a bound as it is, or endless if it is far away.
func bounded(v int64) int64 {
	switch {
	case v > farAway:
		return endless
	case v < -farAway:
		return -endless
	}
	return v
}

// or returns what is known of a value that is v or w.
func (v linear) or(w linear) linear {
	switch {
	case v.known == nothing:
		return w
	case w.known == nothing:
		return v
	case v.known == anything || w.known == anything || v.terms != w.terms:
		return unknown
	}
	v.lo, v.hi = min(v.lo, w.lo), max(v.hi, w.hi)
	return v
}

// withThread puts bounds of the thread's index in its place.
func (v linear) withThread(lo, hi int64) linear {
	for _, t := range v.terms {
		if t.of == threadIndex {
			return v.plus(multiple(threadIndex), -t.times).plus(between(lo, hi), t.times)
		}
	}
	return v
}

// least returns what v is at least: quantities but roots are not below zero.
func (v linear) least() int64 {
	if v.known != exactly || slices.ContainsFunc(v.terms[:], func(t term) bool { return t.of >= firstQuantity || t.times < 0 }) {
		return -endless
	}
	return v.lo
}

// solve finds what is known of all that instructions give.
func (s *spins) solve() {
	s.results, s.draws = make([]linear, len(s.f.code.Instrs)), map[quantity]int{}
	s.tickets()
	changes := make([]uint8, len(s.results))
	const exact, most = 3, 12 // changes of a value before its bounds are given up, and all
	s.settle(func(i int) bool {
		was := s.results[i]
		next := was.or(s.result(i))
		if s.work++; next == was || s.exhausted() {
			return false
		}
		if changes[i]++; changes[i] > most {
			next = unknown
		} else if changes[i] > exact && was.known == exactly && next.known == exactly {
			if next.lo < was.lo {
				next.lo = -endless
			}
			if next.hi > was.hi {
				next.hi = endless
			}
		}
		s.results[i] = next
		return true
	})
}

// operand returns what is known of an operand of so many bits, or of the address that it is, before instruction at.
func (s *spins) operand(o *ptx.Operand, bits, at int) linear {
	if s.results == nil {
		s.solve()
	}
	switch {
	case o.Kind == ptx.KindImm && o.Imm == ptx.ImmInt:
		if bits == 32 {
			return constant(int64(int32(o.Int())))
		}
		return constant(bounded(o.Int()))
	case o.Sym == nil || o.Not || o.Neg || len(o.Elems) > 0:
		return unknown
	case o.Sym.Kind == ptx.SymReg && o.Sel == ptx.SelNone:
		var v linear
		for _, d := range s.reaching(int32(o.Sym.Index), at) {
			s.work++
			v = v.or(s.results[d])
		}
		if s.exhausted() {
			return unknown
		}
		return v.plus(constant(o.Offset()), 1)
	case o.Sym.Kind == ptx.SymVar:
		return multiple(firstQuantity+quantity(s.number(root{o.Sym, 0}))).plus(constant(o.Offset()), 1)
	case o.Sym.Kind == ptx.SymSpecial:
		return special(o.Sym.Name, o.Sel)
	}
	return unknown
}

// use is a register at an instruction.
type use struct {
	reg int32
	at  int
}

// reaching lists the instructions that may have given register x what it holds before instruction at.
func (s *spins) reaching(x int32, at int) []int32 {
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

// special returns what is known of a special register.
func special(name string, sel ptx.Selector) linear {
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

// result returns what instruction i gives the register that it writes.
func (s *spins) result(i int) linear {
	in := s.f.code.Instrs[i]
	ops := in.Operands
	if _, ticket := s.draws[quantity(-1-i)]; ticket {
		return multiple(quantity(-1 - i))
	}
	if len(ops) < 2 || register(&ops[0]) < 0 || len(in.Modifiers) == 0 || in.Has("sat") || in.Has("cc") {
		return unknown
	}
	bits, signed := integer(in.Modifiers[len(in.Modifiers)-1])
	if bits == 0 {
		return unknown
	}
	arg := func(k int) linear { return s.operand(&ops[k], bits, i) }
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
		return product(arg(1), arg(2), !signed).plus(s.operand(&ops[3], 64, i), 1)
	case op == "shl" && three:
		if by, ok := arg(2).fixed(); ok && by >= 0 && by < 20 {
			return product(arg(1), constant(1<<by), false)
		}
	case op == "ld":
		if at, ok := s.parameter(in); ok {
			return multiple(firstQuantity + quantity(s.number(at)))
		}
	}
	return unknown
}

// convert returns an integer of so many bits as one of type to.
func convert(v linear, to string, bits int, signed bool) linear {
	wide, _ := integer(to)
	switch {
	case v.known == nothing:
		return v
	case wide == 0 || wide > bits && !signed && v.least() < 0 || wide < bits && !v.number():
		return unknown
	}
	return v
}

// product returns v · w, of which one is a constant or both are numbers from zero on. unsigned says that what has a sign is
// taken for something large.
func product(v, w linear, unsigned bool) linear {
	if _, ok := v.fixed(); ok {
		v, w = w, v
	}
	const most = 1 << 31 // or it may overflow
	by, ok := w.fixed()
	switch {
	case v.known == nothing || w.known == nothing:
		return linear{}
	case unsigned && (v.least() < 0 || w.least() < 0), ok && by > 1 && v.number() && v.hi > most:
		return unknown
	case ok:
		return constant(0).plus(v, by)
	case !v.number() || !w.number() || v.lo < 0 || w.lo < 0 || v.lo > mostTimes || w.lo > mostTimes:
		return unknown
	}
	return between(v.lo*w.lo, bounded(min(v.hi, most)*min(w.hi, most)))
}

// integer returns how many bits an integer type has, and whether it has a sign; 0 for other types.
func integer(m string) (bits int, signed bool) {
	switch m {
	case "u32", "b32":
		return 32, false
	case "s32":
		return 32, true
	case "u64", "b64":
		return 64, false
	case "s64":
		return 64, true
	}
	return 0, false
}
