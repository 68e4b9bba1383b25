package preempt

import (
	"slices"

	"vgpud/ptx"
	"vgpud/ptx/flow"
)

// round is a loop in which something is read, and what is known of each round of it.
type round struct {
	*spins
	loop    int             // of the graph
	latches []int           // those of its blocks that lead back to the first one, of which it is the loop here
	body    []int           // its blocks
	leaving []int           // those of them whose branches may leave it
	defs    map[int32][]int // the instructions in it that write each register
	stayed  map[int32]bool  // whether each register is the same in every round, as far as was asked
	trends  map[int32]int   // and whether it becomes larger or smaller
}

// round returns loop l, as far as some of its latches make it.
func (s *spins) round(l int, latches []int) *round {
	g := s.f.graph
	header := g.Loops[l].Header
	body, seen := []int{header}, map[int]bool{header: true}
	for work := slices.Clone(latches); len(work) > 0; {
		b := work[len(work)-1]
		work = work[:len(work)-1]
		if seen[b] || !g.Blocks[b].Reachable {
			continue
		}
		seen[b] = true
		body = append(body, b)
		work = append(work, g.Blocks[b].Preds...)
	}
	slices.Sort(body)
	s.work += len(body)
	return &round{spins: s, loop: l, latches: latches, body: body, leaving: g.Leaving(body), defs: s.definitions(body), stayed: map[int32]bool{}, trends: map[int32]int{}}
}

// test returns the comparison by which the branch that ends block b goes, if every round makes it; else nil.
func (r *round) test(b int) *ptx.Instr {
	last := r.f.code.Instrs[r.f.graph.Blocks[b].End-1]
	if !last.Guarded() || last.Pred.Sym.Kind != ptx.SymReg || flow.KindOf(last) == flow.Switch || !r.everyRound(b) {
		return nil
	}
	def := r.defs[int32(last.Pred.Sym.Index)]
	if len(def) != 1 || !r.everyRound(r.f.graph.BlockOf(def[0])) {
		return nil
	}
	test := r.f.code.Instrs[def[0]]
	if test.Opcode != "setp" || test.Guarded() || len(test.Operands) != 3 || len(test.Modifiers) != 2 {
		return nil
	}
	return test
}

// gathers reports whether ordinary load i reads at an address that each round takes from the next word of a list, in a loop
// that is over after a number of rounds.
func (r *round) gathers(i int) bool {
	if !slices.ContainsFunc(r.leaving, func(b int) bool {
		test, counter := r.counts(b)
		return test != nil && r.finite(&test.Operands[3-counter])
	}) {
		return false
	}
	at := address(r.f.code.Instrs[i])
	if at.Kind != ptx.KindAddr || at.Sym == nil || at.Sym.Kind != ptx.SymReg || len(at.Elems) > 0 {
		return false
	}
	const deep = 12
	x := int32(at.Sym.Index)
	for range deep {
		in := r.only(x)
		switch {
		case in == nil || len(in.Operands) < 2:
			return false
		case in.Opcode == "ld":
			return !mayWait(in) && r.moves(address(in))
		case !slices.Contains([]string{"mov", "cvt", "cvta", "add", "mul", "mad", "shl"}, in.Opcode):
			return false
		}
		x = -1
		for k := 1; k < len(in.Operands); k++ {
			switch o := &in.Operands[k]; {
			case r.still(o):
			case x >= 0:
				return false
			default:
				x = register(o)
			}
		}
		if x < 0 {
			return false
		}
	}
	return false
}

// finite reports whether an operand is the same in every round, or what ordinary loads give at one address: were all other
// blocks to stand still, it would not grow for ever.
func (r *round) finite(o *ptx.Operand) bool {
	if r.still(o) {
		return true
	}
	x := register(o)
	return x >= 0 && !slices.ContainsFunc(r.defs[x], func(d int) bool {
		in := r.f.code.Instrs[d]
		return in.Opcode != "ld" || mayWait(in) || !r.still(address(in))
	})
}

// first is the loop's first instruction.
func (r *round) first() int { return r.f.graph.Blocks[r.f.graph.Loops[r.loop].Header].First }

// counts returns the comparison by which block b leaves the loop after a number of rounds that is fixed if the other
// operand is, and which operand it is that every round moves on; nil if it doesn't.
func (r *round) counts(b int) (test *ptx.Instr, operand int) {
	if !slices.Contains(r.leaving, b) {
		return nil, 0
	}
	if test = r.test(b); test == nil {
		return nil, 0
	}
	for k := 1; k <= 2; k++ {
		switch test.Modifiers[0] {
		case "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs":
			if r.steps(register(&test.Operands[k])) != 0 {
				return test, k
			}
		}
	}
	return nil, 0
}

// steps returns 1 or -1 if each round of the loop adds at least 1 to register x or takes as much away, 0 if that is not
// known.
func (r *round) steps(x int32) int {
	const most = 8 // moves between registers
	step := 0
	for at, n := x, 0; at >= 0 && n < most; n++ {
		in := r.only(at)
		if in == nil {
			return 0
		}
		switch {
		case in.Opcode == "mov" && len(in.Operands) == 2:
			at = register(&in.Operands[1])
		case (in.Opcode == "add" || in.Opcode == "sub") && len(in.Operands) == 3 && step == 0:
			if step = r.sign(&in.Operands[2]); in.Opcode == "sub" {
				step = -step
			}
			at = register(&in.Operands[1])
			if in.Opcode == "add" && step == 0 { // a constant may stand first
				step, at = r.sign(&in.Operands[1]), register(&in.Operands[2])
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

// sign returns 1 or -1 if an operand is the same in every round and surely positive or negative, else 0.
func (r *round) sign(o *ptx.Operand) int {
	if !r.still(o) {
		return 0
	}
	const most = 1 << 28 // or else what it is added to may come back to where it was
	switch v := r.linear().operand(o, 32, r.first()); {
	case v.number() && v.lo >= 1 && v.lo < most:
		return 1
	case v.number() && v.hi <= -1 && v.hi > -most:
		return -1
	}
	return 0
}

// moves reports whether an address is another one in every round, larger each time or smaller each time.
func (r *round) moves(at *ptx.Operand) bool {
	if at.Kind != ptx.KindAddr || at.Sym == nil || at.Sym.Kind != ptx.SymReg || len(at.Elems) > 0 {
		return false
	}
	return r.trend(int32(at.Sym.Index)) != 0
}

// trend returns 1 or -1 if register x is larger or smaller in every round than in the one before, 0 if that is not known.
func (r *round) trend(x int32) int {
	if x < 0 {
		return 0
	}
	t, known := r.trends[x]
	if !known {
		r.trends[x] = 0 // what comes of itself, but by steps
		r.work++
		if t = r.steps(x); t == 0 {
			t = r.computed(x)
		}
		r.trends[x] = t
	}
	return t
}

// computed is trend of a register that is computed from another.
func (r *round) computed(x int32) int {
	in := r.only(x)
	if in == nil || in.Has("sat") || in.Has("hi") {
		return 0
	}
	ops := in.Operands
	of := func(k int) int { return r.trend(register(&ops[k])) }
	// sum is the trend of the sum of two operands.
	sum := func(a, b int) int {
		switch {
		case r.still(&ops[a]):
			return of(b)
		case r.still(&ops[b]):
			return of(a)
		}
		if t := of(a); t == of(b) {
			return t
		}
		return 0
	}
	factor := func(k int) bool {
		by, ok := r.linear().operand(&ops[k], 32, r.first()).fixed()
		return ok && r.still(&ops[k]) && by >= 1 && by <= mostFactor(in.Opcode)
	}
	switch op := in.Opcode; {
	case (op == "mov" || op == "cvt" && widens(in) || op == "cvta") && len(ops) == 2:
		return of(1)
	case op == "add" && len(ops) == 3:
		return sum(1, 2)
	case op == "sub" && len(ops) == 3 && r.still(&ops[2]):
		return of(1)
	case op == "shl" && len(ops) == 3 && ops[2].Kind == ptx.KindImm && ops[2].Int() >= 0 && ops[2].Int() <= mostFactor(op):
		return of(1)
	case op == "mul" && len(ops) == 3 && factor(2):
		return of(1)
	case op == "mad" && len(ops) == 4 && r.still(&ops[1]) && r.still(&ops[2]):
		return of(3)
	case op == "mad" && len(ops) == 4 && factor(2) && r.still(&ops[3]):
		return of(1)
	}
	return 0
}

// mostFactor is by how much an index is multiplied, or shifted, at most: it doesn't overflow then.
func mostFactor(opcode string) int64 {
	if opcode == "shl" {
		return 16
	}
	return 1 << 16
}

// widens reports whether a conversion is one of integers of 32 or 64 bits to others that are not shorter.
func widens(in *ptx.Instr) bool {
	if len(in.Modifiers) != 2 {
		return false
	}
	to, _ := integer(in.Modifiers[0])
	from, _ := integer(in.Modifiers[1])
	return from > 0 && to >= from
}

// only returns the one instruction in the loop that writes register x, if every round executes it.
func (r *round) only(x int32) *ptx.Instr {
	d := r.defs[x]
	if len(d) != 1 || !r.everyRound(r.f.graph.BlockOf(d[0])) || r.f.code.Instrs[d[0]].Guarded() {
		return nil
	}
	return r.f.code.Instrs[d[0]]
}

// still reports whether an operand is the same in every round.
func (r *round) still(o *ptx.Operand) bool {
	if o.Kind == ptx.KindImm {
		return true
	}
	for i := range o.Elems {
		if !r.still(&o.Elems[i]) {
			return false
		}
	}
	switch {
	case o.Sym == nil:
		return len(o.Elems) > 0
	case o.Sym.Kind == ptx.SymReg:
		return r.stays(int32(o.Sym.Index))
	case o.Sym.Kind == ptx.SymSpecial:
		return slices.Contains([]string{"%tid", "%ntid", "%ctaid", "%nctaid", "%laneid"}, o.Sym.Name)
	}
	return true
}

// stays reports whether register x is the same in every round: it is not written, or computed anew from what is the same.
func (r *round) stays(x int32) bool {
	if len(r.defs[x]) == 0 {
		return true
	}
	stays, known := r.stayed[x]
	if known {
		return stays
	}
	r.stayed[x] = false // what comes of itself
	if in := r.only(x); in != nil && len(in.Operands) > 0 {
		parameter := in.Opcode == "ld" && len(in.Operands) == 2 && in.Operands[1].Sym != nil && in.Operands[1].Sym.Kind == ptx.SymParam && r.f.code.Func.Entry
		r.work += len(in.Operands)
		r.stayed[x] = parameter || flow.Pure(in.Opcode) && !slices.ContainsFunc(in.Operands[1:], func(o ptx.Operand) bool { return !r.still(&o) })
	}
	return r.stayed[x]
}

// everyRound reports whether every round of the loop passes through block b once: it is in no loop within.
func (r *round) everyRound(b int) bool {
	g := r.f.graph
	return g.Blocks[b].Loop == r.loop && !slices.ContainsFunc(r.latches, func(latch int) bool { return !g.Dominates(b, latch) })
}

// copies reports whether register x gets in every round what register from holds, by moves, and nothing else.
func (r *round) copies(x, from int32) bool {
	const most = 8
	for range most {
		if x == from {
			return true
		}
		in := r.only(x)
		if in == nil || in.Opcode != "mov" || len(in.Operands) != 2 {
			return false
		}
		if x = register(&in.Operands[1]); x < 0 {
			return false
		}
	}
	return false
}

// way returns the block to which the branch that ends block b leads if it is taken, or not taken; flow.Exit at the end.
func (s *spins) way(b int, taken bool) int {
	g := s.f.graph
	blk := &g.Blocks[b]
	last := s.f.code.Instrs[blk.End-1]
	to := blk.End
	if taken {
		if flow.KindOf(last) == flow.Leave {
			return flow.Exit
		}
		to = last.Operands[0].Sym.Index
	}
	if to >= len(s.f.code.Instrs) {
		return flow.Exit
	}
	return g.BlockOf(to)
}

// definitions lists the instructions within body that write each register.
func (s *spins) definitions(body []int) map[int32][]int {
	defs := map[int32][]int{}
	for _, b := range body {
		for k := s.f.graph.Blocks[b].First; k < s.f.graph.Blocks[b].End; k++ {
			s.work++
			for _, r := range s.effects.Writes(k) {
				defs[r] = append(defs[r], k)
			}
		}
	}
	return defs
}

// register returns the number of the register that an operand is, as a whole; -1 for anything else.
func register(o *ptx.Operand) int32 {
	if o.Kind == ptx.KindReg && o.Sym != nil && o.Sym.Kind == ptx.SymReg && o.Sel == ptx.SelNone && !o.Not && !o.Neg && o.Offset() == 0 {
		return int32(o.Sym.Index)
	}
	return -1
}
