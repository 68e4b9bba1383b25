package preempt

import (
	"slices"
	"strings"

	"vgpud/ptx"
	"vgpud/ptx/flow"
)

// loop is a loop with what is known of its iterations.
type loop struct {
	*waitAnalysis
	index      int             // of the graph
	first      int             // its first instruction
	body       []int           // its blocks
	leaving    []int           // those of them whose branches may leave it
	exits      []exit          // comparisons that end it
	invariants map[int32]bool  // whether each register examined is the same in every iteration
	trends     map[int32]int64 // see trend
}

// exit is a comparison that every iteration makes. If it holds, the loop ends.
type exit struct {
	op    string // eq, ne, lt, le, gt or ge
	a, b  *ptx.Operand
	block int  // that branches by it; flow.None for several
	part  bool // those leave the loop in other cases as well, or are several
	// signed means that the integers have a sign: one without never comes below zero.
	signed bool
}

// newLoop returns loop l. Loops with the same header are one loop of the graph, and one of them may
// spin within the others: a branch that leaves one of them counts as leaving the loop.
func (s *waitAnalysis) newLoop(l int, body []int) *loop {
	g := s.f.graph
	r := &loop{waitAnalysis: s, index: l, first: g.Blocks[g.Loops[l].Header].First, body: body, invariants: map[int32]bool{}, trends: map[int32]int64{}}
	for _, latch := range g.Loops[l].Latches {
		if s.exhausted() {
			return r
		}
		part := g.Body(l, latch)
		s.work += len(part)
		r.leaving = append(r.leaving, g.Leaving(part)...)
	}
	for _, b := range r.leaving {
		last := s.f.code.Instrs[g.Blocks[b].End-1]
		if !r.everyIteration(b) || !last.Guarded() || last.Pred.Sym.Kind != ptx.SymReg || flow.KindOf(last) == flow.Switch || len(g.Blocks[b].Succs) != 2 {
			continue
		}
		taken, not := r.contains(g.Blocks[b].Succs[0]), r.contains(g.Blocks[b].Succs[1])
		if taken != not {
			r.addExits(int32(last.Pred.Sym.Index), taken == last.Pred.Not, b, maxMoves)
		}
	}
	if p, ends := r.latchesEnd(); p >= 0 {
		r.addExits(p, ends, flow.None, maxMoves)
	}
	return r
}

// latchesEnd returns the predicate with which all latches of the loop leave it if it is equal to
// ends; -1 if there is none. Compilers end a loop by one predicate in several places.
func (r *loop) latchesEnd() (p int32, ends bool) {
	g := r.f.graph
	p = -1
	for n, latch := range g.Loops[r.index].Latches {
		b := &g.Blocks[latch]
		last := r.f.code.Instrs[b.End-1]
		if !last.Guarded() || last.Pred.Sym.Kind != ptx.SymReg || flow.KindOf(last) == flow.Switch || len(b.Succs) != 2 {
			return -1, false
		}
		q, not := int32(last.Pred.Sym.Index), last.Pred.Not
		if r.contains(b.Succs[0]) == r.contains(b.Succs[1]) {
			return -1, false
		}
		if e := r.contains(b.Succs[0]) == not; n == 0 {
			p, ends = q, e
		} else if q != p || e != ends {
			return -1, false
		}
	}
	return p, ends
}

// addExits adds the comparisons that end the loop because block b leaves it if predicate p is equal
// to ends: one, or several of which each is enough.
func (r *loop) addExits(p int32, ends bool, b, steps int) {
	def := r.soleWriter(p)
	if def == nil || steps == 0 {
		return
	}
	if op := comparison(def); op != "" {
		if !ends {
			op = negated[op]
		}
		r.exits = append(r.exits, exit{op, &def.Operands[1], &def.Operands[2], b, b == flow.None || steps < maxMoves, strings.HasPrefix(def.Modifiers[1], "s")})
		return
	}
	any := map[string]bool{"or": true, "and": false}
	if enough, ok := any[def.Opcode]; !ok || enough != ends || !def.Has("pred") || len(def.Operands) != 3 {
		return
	}
	for k := 1; k <= 2; k++ {
		if q := register(&def.Operands[k]); q >= 0 {
			r.addExits(q, ends, b, steps-1)
		}
	}
}

var (
	negated = map[string]string{"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}
	signed  = map[string]string{"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
)

// comparison returns how an instruction compares two integers: eq, ne, lt, le, gt or ge, or "" if it
// does anything else.
func comparison(in *ptx.Instr) string {
	if in == nil || in.Opcode != "setp" || in.Guarded() || len(in.Operands) != 3 || len(in.Modifiers) != 2 {
		return ""
	}
	if bits := width(in.Modifiers[1]); bits == 0 { // what is not a number does not equal itself
		return ""
	}
	op := in.Modifiers[0]
	if name := signed[op]; name != "" {
		op = name
	}
	if negated[op] == "" {
		return ""
	}
	return op
}

// contains reports whether block b is in the loop.
func (r *loop) contains(b int) bool {
	_, ok := slices.BinarySearch(r.body, b)
	return ok
}

// instrs returns the instructions of a loop's body.
func (s *waitAnalysis) instrs(body []int) []int {
	var list []int
	for _, b := range body {
		for i := s.f.graph.Blocks[b].First; i < s.f.graph.Blocks[b].End; i++ {
			list = append(list, i)
		}
	}
	s.work += len(list)
	return list
}

// everyIteration reports whether every iteration of the loop passes through block b once.
func (r *loop) everyIteration(b int) bool {
	g := r.f.graph
	return g.Blocks[b].Loop == r.index && !slices.ContainsFunc(g.Loops[r.index].Latches, func(latch int) bool { return !g.Dominates(b, latch) })
}

// writers returns the instructions in the loop that write register or space x.
func (r *loop) writers(x int32) []int {
	if x < 0 {
		return nil
	}
	var list []int
	r.work += len(r.defs[x])
	for _, d := range r.defs[x] {
		if r.contains(r.f.graph.BlockOf(int(d))) {
			list = append(list, int(d))
		}
	}
	return list
}

// soleWriter returns the only instruction in the loop that writes register x, if every iteration
// executes it.
func (r *loop) soleWriter(x int32) *ptx.Instr {
	d := r.writers(x)
	if len(d) != 1 || !r.everyIteration(r.f.graph.BlockOf(d[0])) || r.f.code.Instrs[d[0]].Guarded() {
		return nil
	}
	return r.f.code.Instrs[d[0]]
}

// invariant reports whether an operand is the same in every iteration.
func (r *loop) invariant(o *ptx.Operand) bool {
	switch {
	case slices.ContainsFunc(o.Elems, func(e ptx.Operand) bool { return !r.invariant(&e) }):
		return false
	case o.Sym == nil:
		return o.Kind == ptx.KindImm || len(o.Elems) > 0
	case o.Sym.Kind == ptx.SymReg:
		return r.invariantReg(int32(o.Sym.Index))
	case o.Sym.Kind == ptx.SymSpecial:
		return slices.Contains([]string{"%tid", "%ntid", "%ctaid", "%nctaid", "%laneid"}, o.Sym.Name)
	}
	return true
}

// invariantReg reports whether register x is the same in every iteration: it is not written, or
// recomputed from invariants.
func (r *loop) invariantReg(x int32) bool {
	stays, known := r.invariants[x]
	if known {
		return stays
	}
	r.invariants[x] = false // if it depends on itself
	if len(r.writers(x)) == 0 {
		r.invariants[x] = true
	} else if in := r.soleWriter(x); in != nil && len(in.Operands) > 0 {
		_, loaded := r.loadedParameter(in)
		r.invariants[x] = loaded || flow.Pure(in.Opcode) && !slices.ContainsFunc(in.Operands[1:], func(o ptx.Operand) bool { return !r.invariant(&o) })
	}
	return r.invariants[x]
}

// copies reports whether every iteration moves the value of register from to register x, and
// nothing else does.
func (r *loop) copies(x, from int32) bool {
	for range maxMoves {
		if x == from {
			return x >= 0
		}
		in := r.soleWriter(x)
		if in == nil || in.Opcode != "mov" || len(in.Operands) != 2 {
			return false
		}
		x = register(&in.Operands[1])
	}
	return false
}

// maxMoves bounds the moves from register to register that are followed.
const maxMoves = 8

// soleAccess reports whether no other instruction in the loop may write the array that instruction
// i accesses. An atomic operation other than draw may write it by another name, if it is always at
// the same address.
func (r *loop) soleAccess(i, draw int) bool {
	return !slices.ContainsFunc(r.instrs(r.body), func(k int) bool {
		in := r.f.code.Instrs[k]
		return k != i && r.writes(k) && (r.array(k)&r.array(i) != 0 || k != draw && (in.Opcode != "st" || ordered(in)) && r.invariant(address(in)))
	})
}

// endless reports whether the loop, unless it ends in its first iteration, continues until an
// ordinary load gives another value: the kernel must then write what it loads under another name.
func (r *loop) endless() bool {
	return !slices.ContainsFunc(r.leaving, func(b int) bool {
		last := r.f.code.Instrs[r.f.graph.Blocks[b].End-1]
		return !last.Guarded() || last.Pred.Sym.Kind != ptx.SymReg || flow.KindOf(last) == flow.Switch || !r.repeats(int32(last.Pred.Sym.Index), maxMoves)
	})
}

// repeats reports whether register x has the same value in every iteration if ordinary loads give
// the same values, as far as that shows within a number of steps.
func (r *loop) repeats(x int32, steps int) bool {
	if r.invariantReg(x) {
		return true
	}
	d := r.writers(x)
	if len(d) != 1 || steps == 0 {
		return false
	}
	in := r.f.code.Instrs[d[0]]
	inputs := func(of *ptx.Instr, first int) bool {
		return !slices.ContainsFunc(of.Operands[min(first, len(of.Operands)):], func(o ptx.Operand) bool {
			y := register(&o)
			return !r.invariant(&o) && (y < 0 || !r.repeats(y, steps-1))
		})
	}
	switch {
	case loadsShared(in):
		return inputs(in, 1) && !slices.ContainsFunc(r.writers(r.effects.Space(ptx.SharedSpace)), func(k int) bool {
			st := r.f.code.Instrs[k]
			return st.Opcode != "st" || !inputs(st, 0)
		})
	case in.Opcode == "ld" && !mayWait(in), flow.Pure(in.Opcode), in.Opcode == "bar", in.Opcode == "vote", in.Opcode == "shfl":
		return inputs(in, 1)
	}
	return false
}

// counted reports whether the loop ends after a number of iterations: a counter that every
// iteration advances is compared with a value that does not grow for ever.
func (r *loop) counted() bool {
	return slices.ContainsFunc(r.exits, func(x exit) bool {
		return x.op != "eq" && x.op != "ne" && (r.steps(register(x.a)) != 0 && r.bounded(x.b, flow.None) || r.steps(register(x.b)) != 0 && r.bounded(x.a, flow.None))
	})
}

// bounded reports whether an operand is invariant, or the result of ordinary loads from one
// address: if all other blocks stood still, it would not grow for ever. An instruction that draws
// from a counter in another array does not change it.
func (r *loop) bounded(o *ptx.Operand, draw int) bool {
	x := register(o)
	return r.invariant(o) || x >= 0 && !slices.ContainsFunc(r.writers(x), func(d int) bool {
		in := r.f.code.Instrs[d]
		return in.Opcode != "ld" || mayWait(in) || !r.invariant(address(in)) || !r.soleAccess(d, draw)
	})
}

// fromList is the trend of a value that is computed from a list's next word. Other trends are a
// lower bound of how much the value grows in every iteration, or an upper bound below zero of how
// much it shrinks, as far as known; 0 if neither is sure.
const fromList = infinite

// maxTrend bounds trends in 32 bits. With a larger one the value may return to where it was:
// factors and steps may each be small but together reach 2³².
const maxTrend = 1 << 28

// monotonic reports whether the address that instruction i accesses grows in every iteration, or
// shrinks in every iteration.
func (r *loop) monotonic(i int) bool {
	t := r.trend(register(address(r.f.code.Instrs[i])))
	return t != 0 && t != fromList
}

// gathers reports whether instruction i is an ordinary load from an address that each iteration
// takes from the next word of a list, in a loop that ends after a number of iterations.
func (r *loop) gathers(i int) bool {
	in := r.f.code.Instrs[i]
	return in.Opcode == "ld" && !mayWait(in) && r.trend(register(address(in))) == fromList && r.counted()
}

// trend returns the trend of register x, or 0 if none is known.
func (r *loop) trend(x int32) int64 {
	t, known := r.trends[x]
	in := r.soleWriter(x)
	if known || in == nil {
		return t
	}
	r.trends[x] = 0 // if it depends on itself other than by steps
	if t = r.steps(x); t == 0 {
		if k, by := r.grows(in); k > 0 {
			t = scale(in, r.trend(register(&in.Operands[k])), by)
		} else if in.Opcode == "ld" && !mayWait(in) && !slices.Contains([]int64{0, fromList}, r.trend(register(address(in)))) {
			t = fromList
		}
	}
	r.trends[x] = t
	return t
}

// scale returns trend t multiplied by a factor in the width of instruction in, or 0 if the product
// is too large.
func scale(in *ptx.Instr, t, by int64) int64 {
	bits := lastWidth(in)
	switch wide := bits == 64 || in.Has("wide"); {
	case t == fromList:
		return t
	case wide && (t > maxBound/by || t < -maxBound/by): // it may wrap around even in 64 bits
		return 0
	case wide:
		return t * by
	case t*by > maxTrend || t*by < -maxTrend:
		return 0
	}
	return t * by
}

// steps returns, as a trend, what each iteration adds to register x or subtracts from it.
func (r *loop) steps(x int32) int64 {
	step := int64(0)
	for at, n := x, 0; n < maxMoves; n++ {
		in := r.soleWriter(at)
		switch {
		case in == nil || !integral(in):
			return 0
		case in.Opcode == "mov" && len(in.Operands) == 2:
			at = register(&in.Operands[1])
		case (in.Opcode == "add" || in.Opcode == "sub") && len(in.Operands) == 3 && step == 0:
			if step, at = r.step(&in.Operands[2]), register(&in.Operands[1]); in.Opcode == "sub" {
				step = -step
			}
			if step == 0 {
				return 0
			}
		default:
			return 0
		}
		if at == x {
			return step
		}
	}
	return 0
}

// step returns an operand as a trend if it is invariant and surely positive or negative, and 0
// otherwise.
func (r *loop) step(o *ptx.Operand) int64 {
	v, sign := r.valueOf(o, 32, r.first), int64(1)
	if v.hi < 0 {
		v, sign = constant(0).plus(v, -1), -1
	}
	// A factor of the grid's size counts as that of a large grid: with it, other factors reach 2⁴ at
	// most.
	const large = 1 << 24
	if !v.number() || !r.invariant(o) || v.lo < 1 || v.lo >= maxTrend || r.sourcesOf(o)&fromPlane != 0 {
		return 0
	}
	return sign * min(v.hi, v.lo*large, maxTrend)
}

// grows returns the operand with which an instruction's result grows, and by which factor, if its
// other operands are invariant; 0 if there is none.
func (r *loop) grows(in *ptx.Instr) (operand int, by int64) {
	ops := in.Operands
	if !integral(in) {
		return 0, 0
	}
	still := func(k int) bool { return r.invariant(&ops[k]) }
	factor := func(k int) bool { // a constant
		if by = ops[k].Int(); in.Opcode == "shl" && by >= 0 && by <= 16 {
			by = 1 << by
		} else if in.Opcode == "shl" {
			by = 0
		}
		return ops[k].Kind == ptx.KindImm && by >= 1 && by <= 1<<16
	}
	switch op := in.Opcode; {
	case (op == "mov" || op == "cvt" && widens(in) || op == "cvta") && len(ops) == 2,
		(op == "add" || op == "sub") && len(ops) == 3 && still(2):
		return 1, 1
	case (op == "shl" || op == "mul") && len(ops) == 3 && factor(2),
		op == "mad" && len(ops) == 4 && factor(2) && still(3):
		return 1, by
	case op == "add" && len(ops) == 3 && still(1):
		return 2, 1
	}
	return 0, 0
}

// integral reports whether an instruction computes 32- or 64-bit integers and keeps the low bits of
// its result: shorter integers wrap around soon, and saturated ones stop changing.
func integral(in *ptx.Instr) bool {
	if len(in.Modifiers) == 0 || in.Has("sat") || in.Has("hi") {
		return false
	}
	bits := lastWidth(in)
	return bits > 0
}

// widens reports whether a conversion is one between 32- or 64-bit integers to a type that is not
// shorter.
func widens(in *ptx.Instr) bool {
	if len(in.Modifiers) != 2 {
		return false
	}
	to := width(in.Modifiers[0])
	from := width(in.Modifiers[1])
	return from > 0 && to >= from
}

// register returns the number of the register that an operand is, as a whole, or with an offset the
// base of an address; -1 for anything else.
func register(o *ptx.Operand) int32 {
	if (o.Kind == ptx.KindReg && o.Offset() == 0 || o.Kind == ptx.KindAddr) && o.Sym != nil && o.Sym.Kind == ptx.SymReg &&
		o.Sel == ptx.SelNone && !o.Not && !o.Neg && len(o.Elems) == 0 {
		return int32(o.Sym.Index)
	}
	return -1
}
