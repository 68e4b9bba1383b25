package preempt

import (
	"slices"

	"vgpud/ptx"
	"vgpud/ptx/flow"
)

// round is a loop, and what is known of each round of it.
type round struct {
	*spins
	loop    int             // of the graph
	first   int             // its first instruction
	body    []int           // its blocks
	leaving []int           // those of them whose branches may leave it
	exits   []exit          // the comparisons by which it is left
	stayed  map[int32]bool  // whether each register is the same in every round, as far as was asked
	trends  map[int32]int64 // see trend
}

// exit is a comparison that every round makes. If it holds, the loop is over.
type exit struct {
	op   string // eq, ne, lt, le, gt or ge
	a, b *ptx.Operand
}

// round returns loop l. Loops that begin with the same block are one loop of the graph, and one of them may spin within the
// others: a branch that leaves one of them counts as leaving the loop.
func (s *spins) round(l int, body []int) *round {
	g := s.f.graph
	r := &round{spins: s, loop: l, first: g.Blocks[g.Loops[l].Header].First, body: body, stayed: map[int32]bool{}, trends: map[int32]int64{}}
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
		if !r.everyRound(b) || !last.Guarded() || last.Pred.Sym.Kind != ptx.SymReg || flow.KindOf(last) == flow.Switch || len(g.Blocks[b].Succs) != 2 {
			continue
		}
		def := r.only(int32(last.Pred.Sym.Index))
		taken, not := r.within(g.Blocks[b].Succs[0]), r.within(g.Blocks[b].Succs[1])
		if op := comparison(def); op != "" && taken != not {
			if taken != last.Pred.Not {
				op = negated[op]
			}
			r.exits = append(r.exits, exit{op, &def.Operands[1], &def.Operands[2]})
		}
	}
	return r
}

var (
	negated = map[string]string{"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}
	signed  = map[string]string{"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
)

// comparison returns how an instruction compares two values, eq, ne, lt, le, gt or ge; "" if it does anything else.
func comparison(in *ptx.Instr) string {
	if in == nil || in.Opcode != "setp" || in.Guarded() || len(in.Operands) != 3 || len(in.Modifiers) != 2 {
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

// within reports whether block b is in the loop.
func (r *round) within(b int) bool {
	_, ok := slices.BinarySearch(r.body, b)
	return ok
}

// instrs lists the instructions of a loop's body.
func (s *spins) instrs(body []int) []int {
	var list []int
	for _, b := range body {
		for i := s.f.graph.Blocks[b].First; i < s.f.graph.Blocks[b].End; i++ {
			list = append(list, i)
		}
	}
	s.work += len(list)
	return list
}

// everyRound reports whether every round of the loop passes through block b once.
func (r *round) everyRound(b int) bool {
	g := r.f.graph
	return g.Blocks[b].Loop == r.loop && !slices.ContainsFunc(g.Loops[r.loop].Latches, func(latch int) bool { return !g.Dominates(b, latch) })
}

// writers lists the instructions in the loop that write register or space x.
func (r *round) writers(x int32) []int {
	if x < 0 {
		return nil
	}
	var list []int
	r.work += len(r.defs[x])
	for _, d := range r.defs[x] {
		if r.within(r.f.graph.BlockOf(int(d))) {
			list = append(list, int(d))
		}
	}
	return list
}

// only returns the one instruction in the loop that writes register x, if every round executes it.
func (r *round) only(x int32) *ptx.Instr {
	d := r.writers(x)
	if len(d) != 1 || !r.everyRound(r.f.graph.BlockOf(d[0])) || r.f.code.Instrs[d[0]].Guarded() {
		return nil
	}
	return r.f.code.Instrs[d[0]]
}

// still reports whether an operand is the same in every round.
func (r *round) still(o *ptx.Operand) bool {
	switch {
	case slices.ContainsFunc(o.Elems, func(e ptx.Operand) bool { return !r.still(&e) }):
		return false
	case o.Sym == nil:
		return o.Kind == ptx.KindImm || len(o.Elems) > 0
	case o.Sym.Kind == ptx.SymReg:
		return r.stays(int32(o.Sym.Index))
	case o.Sym.Kind == ptx.SymSpecial:
		return slices.Contains([]string{"%tid", "%ntid", "%ctaid", "%nctaid", "%laneid"}, o.Sym.Name)
	}
	return true
}

// stays reports whether register x is the same in every round: it is not written, or computed anew from what is the same.
func (r *round) stays(x int32) bool {
	stays, known := r.stayed[x]
	if known {
		return stays
	}
	r.stayed[x] = false // what comes of itself
	if len(r.writers(x)) == 0 {
		r.stayed[x] = true
	} else if in := r.only(x); in != nil && len(in.Operands) > 0 {
		_, loaded := r.parameter(in)
		r.stayed[x] = loaded || flow.Pure(in.Opcode) && !slices.ContainsFunc(in.Operands[1:], func(o ptx.Operand) bool { return !r.still(&o) })
	}
	return r.stayed[x]
}

// copies reports whether register x gets in every round what register from holds, by moves, and nothing else.
func (r *round) copies(x, from int32) bool {
	for range mostMoves {
		if x == from {
			return x >= 0
		}
		in := r.only(x)
		if in == nil || in.Opcode != "mov" || len(in.Operands) != 2 {
			return false
		}
		x = register(&in.Operands[1])
	}
	return false
}

// mostMoves bounds the moves from register to register that are followed.
const mostMoves = 8

// alone reports whether no other instruction in the loop may write the array that instruction i accesses.
func (r *round) alone(i int) bool {
	return !slices.ContainsFunc(r.instrs(r.body), func(k int) bool { return k != i && r.writes(k) && r.array(k)&r.array(i) != 0 })
}

// endless reports whether the loop, unless it ends in its first round, does not end before an ordinary load gives something
// else: by some other name the kernel must write to what it loads.
func (r *round) endless() bool {
	return !slices.ContainsFunc(r.leaving, func(b int) bool {
		last := r.f.code.Instrs[r.f.graph.Blocks[b].End-1]
		return !last.Guarded() || last.Pred.Sym.Kind != ptx.SymReg || flow.KindOf(last) == flow.Switch || !r.repeats(int32(last.Pred.Sym.Index), mostMoves)
	})
}

// repeats reports whether register x holds the same in every round if ordinary loads give the same, as far as that is seen
// in so many steps.
func (r *round) repeats(x int32, steps int) bool {
	if r.stays(x) {
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
			return !r.still(&o) && (y < 0 || !r.repeats(y, steps-1))
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

// counted reports whether the loop is over after a number of rounds: a counter that every round moves on is compared with
// what does not grow for ever.
func (r *round) counted() bool {
	return slices.ContainsFunc(r.exits, func(x exit) bool {
		return x.op != "eq" && x.op != "ne" && (r.steps(register(x.a)) != 0 && r.finite(x.b) || r.steps(register(x.b)) != 0 && r.finite(x.a))
	})
}

// finite reports whether an operand is the same in every round, or what ordinary loads give at one address: were all other
// blocks to stand still, it would not grow for ever.
func (r *round) finite(o *ptx.Operand) bool {
	x := register(o)
	return r.still(o) || x >= 0 && !slices.ContainsFunc(r.writers(x), func(d int) bool {
		in := r.f.code.Instrs[d]
		return in.Opcode != "ld" || mayWait(in) || !r.still(address(in)) || !r.alone(d)
	})
}

// listed is the trend of what is computed from a list's next word. Other trends are by how much the value is larger in
// every round than in the one before, or smaller if they are negative, as far as that is known; 0 if it may be neither.
const listed = endless

// longest bounds trends in 32 bits, or else the value may come back to where it was: factors and steps may each be small,
// and 2³² together.
const longest = 1 << 28

// moves reports whether the address that instruction i accesses is larger in every round, or smaller in every round.
func (r *round) moves(i int) bool {
	t := r.trend(register(address(r.f.code.Instrs[i])))
	return t != 0 && t != listed
}

// gathers reports whether instruction i is an ordinary load at an address that each round takes from the next word of a
// list, in a loop that is over after a number of rounds.
func (r *round) gathers(i int) bool {
	in := r.f.code.Instrs[i]
	return in.Opcode == "ld" && !mayWait(in) && r.trend(register(address(in))) == listed && r.counted()
}

// trend returns the trend of register x, 0 if none is known.
func (r *round) trend(x int32) int64 {
	t, known := r.trends[x]
	in := r.only(x)
	if known || in == nil {
		return t
	}
	r.trends[x] = 0 // what comes of itself, but by steps
	if t = r.steps(x); t == 0 {
		if k, by := r.grows(in); k > 0 {
			t = times(in, r.trend(register(&in.Operands[k])), by)
		} else if in.Opcode == "ld" && !mayWait(in) && !slices.Contains([]int64{0, listed}, r.trend(register(address(in)))) {
			t = listed
		}
	}
	r.trends[x] = t
	return t
}

// times returns trend t times a factor, as instruction in gives it: 0 if that is too long.
func times(in *ptx.Instr, t, by int64) int64 {
	bits, _ := integer(in.Modifiers[len(in.Modifiers)-1])
	switch wide := bits == 64 || in.Has("wide"); {
	case t == listed:
		return t
	case wide && (t > farAway/by || t < -farAway/by): // it may come back even in 64 bits
		return 0
	case wide:
		return t * by
	case t*by > longest || t*by < -longest:
		return 0
	}
	return t * by
}

// steps returns what each round adds to register x, or takes away, as a trend.
func (r *round) steps(x int32) int64 {
	step := int64(0)
	for at, n := x, 0; n < mostMoves; n++ {
		in := r.only(at)
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

// step returns what an operand is as a trend, if it is the same in every round and surely positive or negative, else 0.
func (r *round) step(o *ptx.Operand) int64 {
	v, sign := r.operand(o, 32, r.first), int64(1)
	if v.hi < 0 {
		v, sign = constant(0).plus(v, -1), -1
	}
	// What the grid's size is part of counts as that of a large grid: with it, factors come to 2¹⁴ at most, and with all
	// threads that a GPU holds at once not to 2³².
	const large = 1 << 14
	if !v.number() || !r.still(o) || v.lo < 1 || v.lo >= longest {
		return 0
	}
	return sign * min(v.hi, v.lo*large, longest)
}

// grows returns the operand by which an instruction's result becomes larger as that does, so many times as much, since the
// others are the same in every round; 0 if there is none.
func (r *round) grows(in *ptx.Instr) (operand int, by int64) {
	ops := in.Operands
	if !integral(in) {
		return 0, 0
	}
	still := func(k int) bool { return r.still(&ops[k]) }
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

// integral reports whether an instruction is one of integers of 32 or 64 bits and gives all of its result that has room:
// shorter ones come round soon, and what saturates stays as it is.
func integral(in *ptx.Instr) bool {
	if len(in.Modifiers) == 0 || in.Has("sat") || in.Has("hi") {
		return false
	}
	bits, _ := integer(in.Modifiers[len(in.Modifiers)-1])
	return bits > 0
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

// retries reports whether instruction i is a compare-and-swap that the loop repeats with the value it found until it
// succeeds, whatever else ends the loop: each round swaps the value that the round before found, at the same address, and
// the loop is left where it found what it expected. If nobody else writes, the second round finds what the first one did.
func (r *round) retries(i int) bool {
	in := r.f.code.Instrs[i]
	if in.Opcode != "atom" || !in.Has("cas") || len(in.Operands) != 4 || in.Guarded() || !r.still(address(in)) || !r.alone(i) {
		return false
	}
	found, expected := register(&in.Operands[0]), register(&in.Operands[2])
	if found < 0 || len(r.writers(found)) != 1 || !r.copies(expected, found) {
		return false
	}
	return slices.ContainsFunc(r.exits, func(x exit) bool {
		a, b := register(x.a), register(x.b)
		return x.op == "eq" && (a == found && b == expected || a == expected && b == found)
	})
}

// draws reports whether instruction i draws numbers from a counter until they reach a bound: it adds a positive constant,
// the results are used as indices in the loop, and the loop is left where what grows with them is not less than what does
// not grow for ever.
func (r *round) draws(i int) bool {
	in := r.f.code.Instrs[i]
	if in.Opcode != "atom" || !in.Has("add") || len(in.Operands) != 3 || !r.still(address(in)) || !r.alone(i) {
		return false
	}
	bits, _ := integer(in.Modifiers[len(in.Modifiers)-1])
	by := r.operand(&in.Operands[2], bits, i)
	if bits == 0 || !by.number() || by.lo < 1 || by.hi > farAway {
		return false
	}
	r.trace.Run(r.body, []int{i}, nil)
	return slices.ContainsFunc(r.exits, func(x exit) bool {
		switch x.op {
		case "ge", "gt":
			return r.near(x.b, by.lo) && r.growsWith(register(x.a), i, by.lo)
		case "le", "lt":
			return r.near(x.a, by.lo) && r.growsWith(register(x.b), i, by.lo)
		}
		return false
	}) && slices.ContainsFunc(r.instrs(r.body), func(k int) bool {
		x := register(address(r.f.code.Instrs[k]))
		return k != i && x >= 0 && r.trace.Register(x)
	})
}

// near reports whether an operand is finite and no constant that takes too many draws of step each: a block that draws until
// a number has its highest bit waits for another to set it.
func (r *round) near(o *ptx.Operand, step int64) bool {
	const mostDraws = 1 << 24
	v := r.operand(o, 64, r.first)
	return r.finite(o) && !(v.number() && (v.lo/step > mostDraws || v.hi < 0))
}

// growsWith reports whether register x grows with what instruction i gives, of which the newest trace is, and whose trend
// is t: all that comes from there comes by one way, perhaps through shared memory or from another lane.
func (r *round) growsWith(x int32, i int, t int64) bool {
	for range mostMoves {
		ways := slices.DeleteFunc(r.writers(x), func(k int) bool { return !r.trace.Instr(k) })
		if len(ways) != 1 {
			return false
		}
		in := r.f.code.Instrs[ways[0]]
		k, by := r.grows(in)
		if k > 0 {
			t = times(in, t, by)
		}
		switch {
		case ways[0] == i:
			return t != 0
		case loadsShared(in):
			x = r.effects.Space(ptx.SharedSpace)
		case k > 0 || in.Opcode == "shfl" || in.Opcode == "st":
			x = register(&in.Operands[max(k, 1)])
		default:
			return false
		}
	}
	return false
}

// register returns the number of the register that an operand is, as a whole, or with an offset the base of an address; -1
// for anything else.
func register(o *ptx.Operand) int32 {
	if (o.Kind == ptx.KindReg && o.Offset() == 0 || o.Kind == ptx.KindAddr) && o.Sym != nil && o.Sym.Kind == ptx.SymReg &&
		o.Sel == ptx.SelNone && !o.Not && !o.Neg && len(o.Elems) == 0 {
		return int32(o.Sym.Index)
	}
	return -1
}
