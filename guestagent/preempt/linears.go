package preempt

import (
	"slices"
	"strings"

	"vgpud/ptx"
	"vgpud/ptx/flow"
)

// linears are what is known of the values that a function's instructions give to registers.
type linears struct {
	f       *funcStudy
	effects *flow.Effects
	of      []linear           // what each instruction gives, if it gives one register something
	defs    [][]int32          // the instructions that write each register, in order
	reach   map[[2]int32][]int // those that reach a block's beginning, by block and register
	work    int                // beyond what exhausted allows, nothing is known
	params  map[root]quantity
	handed  map[int]*ptx.Operand // loads of what one thread has handed to its block, and what that was
	writes  map[int]int          // the instructions that wrote it
	draws   map[quantity]int     // the atomic operation that draws a ticket
}

// newLinears finds what is known of all values that f computes.
func newLinears(f *funcStudy, e *flow.Effects) *linears {
	l := &linears{
		f: f, effects: e, of: make([]linear, len(f.code.Instrs)), defs: make([][]int32, e.Numbers()), reach: map[[2]int32][]int{},
		params: map[root]quantity{}, handed: map[int]*ptx.Operand{}, writes: map[int]int{}, draws: map[quantity]int{},
	}
	for i := range f.code.Instrs {
		for _, r := range e.Writes(i) {
			l.defs[r] = append(l.defs[r], int32(i))
		}
	}
	l.tickets()
	l.solve()
	if l.soleWrites() {
		clear(l.of)
		l.solve()
	}
	return l
}

// solve finds the values, from nothing upward.
func (l *linears) solve() {
	code := l.f.code
	n := len(code.Instrs)
	uses := make([][]int32, l.effects.Numbers())
	queue, queued := make([]int32, n), make([]bool, n)
	for i := range code.Instrs {
		for _, r := range l.effects.Reads(i) {
			uses[r] = append(uses[r], int32(i))
		}
		if o := l.handed[i]; o != nil {
			uses[o.Sym.Index] = append(uses[o.Sym.Index], int32(i))
		}
		queue[n-1-i], queued[i] = int32(i), true
	}
	changes := make([]uint8, n)
	const exact, most = 3, 12 // changes of a value before its bounds are given up, and all
	for len(queue) > 0 && !l.exhausted() {
		i := int(queue[len(queue)-1])
		queue = queue[:len(queue)-1]
		queued[i] = false
		was := l.of[i]
		next := was.or(l.result(i).fits(code.Instrs[i]))
		if next == was {
			continue
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
		l.of[i] = next
		for _, r := range l.effects.Writes(i) {
			for _, u := range uses[r] {
				if !queued[u] {
					queue, queued[u] = append(queue, u), true
				}
			}
		}
	}
}

// reaching lists the instructions that may have given register r what it holds before instruction at.
func (l *linears) reaching(at int, r int32) []int {
	if len(l.defs[r]) == 1 {
		return []int{int(l.defs[r][0])}
	}
	b := l.f.graph.BlockOf(at)
	list, done := l.last(nil, r, l.f.graph.Blocks[b].First, at)
	if done {
		return list
	}
	return append(list, l.entering(b, r)...)
}

// last appends to list the writes of r in [first, end) that may be the latest, and reports whether one of them must be.
func (l *linears) last(list []int, r int32, first, end int) ([]int, bool) {
	defs := l.defs[r]
	n, _ := slices.BinarySearch(defs, int32(end))
	for n--; n >= 0 && int(defs[n]) >= first; n-- {
		list = append(list, int(defs[n]))
		if !l.f.code.Instrs[defs[n]].Guarded() {
			return list, true
		}
	}
	return list, false
}

// entering lists those that reach the beginning of block b.
func (l *linears) entering(b int, r int32) []int {
	key := [2]int32{int32(b), r}
	if list, ok := l.reach[key]; ok {
		return list
	}
	var list []int
	seen, work := map[int]bool{}, []int{b}
	for len(work) > 0 {
		at := work[len(work)-1]
		work = work[:len(work)-1]
		for _, p := range l.f.graph.Blocks[at].Preds {
			if seen[p] || !l.f.graph.Blocks[p].Reachable {
				continue
			}
			seen[p] = true
			if l.work++; l.exhausted() {
				return nil
			}
			var done bool
			if list, done = l.last(list, r, l.f.graph.Blocks[p].First, l.f.graph.Blocks[p].End); !done {
				work = append(work, p)
			}
		}
	}
	l.work += len(list)
	l.reach[key] = list
	return list
}

// exhausted reports whether more work was done than the function's size warrants.
func (l *linears) exhausted() bool { return l.work > maxLinearSteps*(len(l.f.code.Instrs)+64) }

// maxLinearSteps bounds the work of finding values, per instruction of the function.
const maxLinearSteps = 48

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

// result returns what instruction i gives the register that it writes.
func (l *linears) result(i int) linear {
	in := l.f.code.Instrs[i]
	ops := in.Operands
	if o := l.handed[i]; o != nil {
		v := l.operand(o, 32, l.writes[i])
		if of := v.terms[0].of; of < noQuantity && v == multiple(of) {
			l.draws[quantity(-1-i)] = int(-1 - of)
			return multiple(quantity(-1 - i))
		}
		return unknown.strict(v)
	}
	if len(ops) < 2 || register(&ops[0]) < 0 || len(in.Modifiers) == 0 || in.Has("sat") || in.Has("cc") {
		return unknown
	}
	bits, signed := integer(in.Modifiers[len(in.Modifiers)-1])
	if bits == 0 {
		return unknown
	}
	arg := func(k int) linear { return l.operand(&ops[k], bits, i) }
	three, four := len(ops) == 3, len(ops) == 4
	switch op := in.Opcode; {
	case op == "mov" && len(ops) == 2 || op == "cvta" && len(ops) == 2:
		return arg(1)
	case op == "cvt" && len(ops) == 2 && len(in.Modifiers) == 2:
		return convert(arg(1), in.Modifiers[0], bits, signed)
	case op == "add" && three:
		return arg(1).plus(arg(2))
	case op == "sub" && three:
		return arg(1).plus(arg(2).scaled(-1))
	case op == "neg" && len(ops) == 2:
		return arg(1).scaled(-1)
	case op == "not" && len(ops) == 2:
		return arg(1).scaled(-1).plus(constant(-1))
	case op == "mul" && three && !in.Has("hi"):
		return product(arg(1), arg(2), in.Has("wide") && !signed)
	case op == "mad" && four && in.Has("lo"):
		return product(arg(1), arg(2), false).plus(arg(3))
	case op == "mad" && four && in.Has("wide"):
		return product(arg(1), arg(2), !signed).plus(l.operand(&ops[3], 64, i))
	case op == "shl" && three:
		if by, ok := arg(2).fixed(); ok && by >= 0 && by < 20 {
			return arg(1).scaled(1 << by)
		}
	case op == "selp" && four:
		return arg(1).or(arg(2)).strict(arg(1), arg(2))
	case three && (op == "and" || op == "or" || op == "shr" || op == "div" || op == "rem"):
		return bitwise(op, arg(1), arg(2)).strict(arg(1), arg(2))
	case op == "ld" && len(ops) == 2:
		return l.parameter(in, bits)
	case op == "atom" && in.Has("add") && mayBeGlobal(in) && l.f.graph.Blocks[l.f.graph.BlockOf(i)].Loop == flow.None:
		if by, ok := l.operand(&ops[2], bits, i).fixed(); ok && by > 0 && three {
			l.draws[quantity(-1-i)] = i
			return multiple(quantity(-1 - i))
		}
	}
	return unknown
}

// convert returns an integer of so many bits as one of type to.
func convert(v linear, to string, bits int, signed bool) linear {
	wide, _ := integer(to)
	switch {
	case wide == 0 || v.known != exactly:
		return unknown.strict(v)
	case wide > bits && !signed && v.negative(), wide < bits && v.base.sym != nil:
		return unknown
	}
	return v
}

// product returns v · w, of which one is a constant or both are numbers from zero on. unsigned says that what has a
// sign is taken for something large.
func product(v, w linear, unsigned bool) linear {
	if unsigned && (v.negative() || w.negative()) {
		return unknown.strict(v, w)
	}
	if _, ok := v.fixed(); ok {
		v, w = w, v
	}
	if by, ok := w.fixed(); ok {
		if by > 1 && v.number() && v.hi > 1<<31 {
			return unknown // it may overflow
		}
		return v.scaled(by).strict(v)
	}
	if v.number() && w.number() && v.lo >= 0 && w.lo >= 0 && v.lo < 1<<20 && w.lo < 1<<20 {
		if v.hi < 1<<20 && w.hi < 1<<20 {
			return between(v.lo*w.lo, v.hi*w.hi).bound()
		}
		return between(v.lo*w.lo, endless)
	}
	return unknown.strict(v, w)
}

// bitwise returns what is known of v op w.
func bitwise(op string, v, w linear) linear {
	n := v.withThread(0, maxThreads-1)
	by, fixed := w.fixed()
	plain := n.number() && n.lo >= 0
	switch {
	case op == "and" && fixed && by >= 0 && plain:
		return between(0, min(by, n.hi))
	case op == "and" && fixed && by >= 0:
		return between(0, by)
	case op == "and" && fixed && plain:
		return between(0, n.hi)
	case op == "or" && !v.negative() && w.number() && w.lo >= 0: // at most the sum
		return v.plus(between(0, w.hi))
	case op == "shr" && fixed && by >= 0 && by < 32 && plain && n.hi < farAway:
		return between(n.lo>>by, n.hi>>by)
	case op == "div" && fixed && by > 0 && plain && n.hi < farAway:
		return between(n.lo/by, n.hi/by)
	case op == "rem" && fixed && by > 0 && plain:
		return between(0, min(by-1, n.hi))
	}
	return unknown
}

// parameter returns what a load of one of the kernel's own parameters gives.
func (l *linears) parameter(in *ptx.Instr, bits int) linear {
	o := &in.Operands[1]
	if o.Sym == nil || o.Sym.Kind != ptx.SymParam || !l.f.code.Func.Entry || !slices.ContainsFunc(in.Modifiers, func(m string) bool { return strings.HasPrefix(m, "param") }) {
		return unknown
	}
	at := root{o.Sym, o.Offset()}
	if bits == 64 {
		return linear{known: exactly, base: at}
	}
	if l.params[at] == 0 {
		l.params[at] = firstParam + quantity(len(l.params))
	}
	return multiple(l.params[at])
}

// operand returns what is known of an operand of so many bits, or of the address that it is, before instruction at.
func (l *linears) operand(o *ptx.Operand, bits, at int) linear {
	switch {
	case o.Kind == ptx.KindImm && o.Imm == ptx.ImmInt:
		if bits == 32 {
			return constant(int64(int32(o.Int())))
		}
		return constant(o.Int())
	case o.Sym == nil || o.Not || o.Neg || len(o.Elems) > 0:
		return unknown
	case o.Sym.Kind == ptx.SymReg && o.Sel == ptx.SelNone:
		var v linear
		for _, d := range l.reaching(at, int32(o.Sym.Index)) {
			l.work++
			v = v.or(l.of[d])
		}
		if l.exhausted() {
			return unknown
		}
		return v.plus(constant(o.Offset()))
	case o.Sym.Kind == ptx.SymVar:
		return linear{known: exactly, base: root{o.Sym, 0}, lo: o.Offset(), hi: o.Offset()}
	case o.Sym.Kind == ptx.SymSpecial:
		return special(o.Sym.Name, o.Sel)
	}
	return unknown
}

// special returns what is known of a special register.
func special(name string, s ptx.Selector) linear {
	const blocks = 1<<31 - 1
	switch name {
	case "%ctaid", "%nctaid":
		switch {
		case s != ptx.SelX && name == "%ctaid":
			return constant(0)
		case s != ptx.SelX:
			return constant(1)
		case name == "%nctaid":
			return between(1, blocks)
		}
		return multiple(blockIndex)
	case "%tid":
		if s == ptx.SelX {
			return multiple(threadIndex)
		}
		return between(0, maxThreads-1)
	case "%ntid":
		return between(1, maxThreads)
	case "%laneid":
		return between(0, 31)
	}
	return unknown
}

// address returns what is known of the address that instruction i accesses.
func (l *linears) address(i int) linear { return l.operand(address(l.f.code.Instrs[i]), 64, i) }
