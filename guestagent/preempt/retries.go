package preempt

import (
	"slices"

	"vgpud/ptx"
	"vgpud/ptx/flow"
)

// retries reports whether instruction i is a compare-and-swap that the loop repeats with the value
// it found until it succeeds, whatever else ends the loop: each iteration swaps the value that the
// previous one found, or that it has just loaded, at the same address, and the loop ends if it found
// what it expected. If no other block writes, the second iteration finds what the first one did.
func (r *loop) retries(i int) bool {
	in := r.f.code.Instrs[i]
	if in.Opcode != "atom" || !in.Has("cas") || len(in.Operands) != 4 || in.Guarded() || !r.invariant(address(in)) || !r.soleAccess(i, flow.None) {
		return false
	}
	found, expected := register(&in.Operands[0]), register(&in.Operands[2])
	if found < 0 || len(r.writers(found)) != 1 || !r.copies(expected, found) && r.reread(expected, in) == flow.None {
		return false
	}
	return slices.ContainsFunc(r.exits, func(x exit) bool {
		a, b := register(x.a), register(x.b)
		return x.op == "eq" && (a == found && b == expected || a == expected && b == found)
	})
}

// reread returns the instruction that loads register x, by a move or not, in every iteration from
// the word that swap accesses; flow.None if there is none.
func (r *loop) reread(x int32, swap *ptx.Instr) int {
	for range maxMoves {
		in, d := r.soleWriter(x), r.writers(x)
		switch {
		case in == nil:
			return flow.None
		case in.Opcode == "mov" && len(in.Operands) == 2:
			x = register(&in.Operands[1])
			continue
		}
		from, to := address(in), address(swap)
		if in.Opcode == "ld" && mayBeGlobal(in) && len(in.Operands) == 2 && bytes(in) == bytes(swap) &&
			register(from) >= 0 && register(from) == register(to) && from.Offset() == to.Offset() {
			return d[0]
		}
		return flow.None
	}
	return flow.None
}

// rereads reports whether instruction i loads what a compare-and-swap that the loop retries expects.
func (r *loop) rereads(i int) bool {
	return r.f.code.Instrs[i].Opcode == "ld" && slices.ContainsFunc(r.instrs(r.body), func(k int) bool {
		in := r.f.code.Instrs[k]
		return in.Opcode == "atom" && len(in.Operands) == 4 && r.reread(register(&in.Operands[2]), in) == i && r.retries(k)
	})
}

// draws reports whether instruction i draws numbers from a counter until they reach a bound: it
// adds a positive constant, the results are used as indices in the loop, and the loop ends when a
// value that grows with them is not less than one that does not grow for ever.
func (r *loop) draws(i int) bool {
	in := r.f.code.Instrs[i]
	if in.Opcode != "atom" || !in.Has("add") || len(in.Operands) != 3 || !r.invariant(address(in)) || !r.soleAccess(i, flow.None) {
		return false
	}
	bits := lastWidth(in)
	by := r.valueOf(&in.Operands[2], bits, i)
	if bits == 0 || !by.number() || by.lo < 1 || by.hi > maxBound || r.sourcesOf(&in.Operands[2])&fromPlane != 0 {
		return false
	}
	r.trace.Run(r.body, []int{i}, nil)
	var ends []int
	for _, x := range r.exits {
		grows, bound := x.a, x.b
		if x.op == "le" || x.op == "lt" {
			grows, bound = bound, grows
		}
		if x.op != "eq" && x.op != "ne" && !x.part && r.attainable(bound, by.lo, i) && r.growsWith(register(grows), i, by.lo) {
			ends = append(ends, x.block)
		}
	}
	indexes := slices.ContainsFunc(r.instrs(r.body), func(k int) bool {
		x := register(address(r.f.code.Instrs[k]))
		return k != i && x >= 0 && r.trace.Register(x)
	})
	// A block does not learn from other branches what number it drew. So if what is compared is not
	// the number, but what another lane has or another word of shared memory, no other block ends
	// the loop.
	r.trace.Run(r.body, []int{i}, func(int) bool { return true })
	return indexes && len(ends) > 0 && !slices.ContainsFunc(r.leaving, func(b int) bool {
		return r.trace.Instr(r.f.graph.Blocks[b].End-1) && !slices.Contains(ends, b)
	})
}

// attainable reports whether an operand is bounded and no constant that takes too many draws of
// step each: a block that draws until a number has its highest bit set waits for another block to
// set it.
func (r *loop) attainable(o *ptx.Operand, step int64, draw int) bool {
	const maxDraws = 1 << 24
	v := r.valueOf(o, 64, r.first)
	return r.bounded(o, draw) && !(v.number() && (v.lo/step > maxDraws || v.hi < 0))
}

// growsWith reports whether register x grows with the result of instruction i, whose trend is t and
// from which the latest trace started: all that comes from it comes on one path, perhaps through
// shared memory or from another lane.
func (r *loop) growsWith(x int32, i int, t int64) bool {
	var from *ptx.Instr // loads x if that is shared memory
	for range maxMoves {
		ways := slices.DeleteFunc(r.writers(x), func(k int) bool {
			return !r.trace.Instr(k) || from != nil && otherWord(from, r.f.code.Instrs[k])
		})
		from = nil
		if len(ways) != 1 {
			return false
		}
		in := r.f.code.Instrs[ways[0]]
		k, by := r.grows(in)
		if k > 0 {
			t = scale(in, t, by)
		}
		switch {
		case ways[0] == i:
			return t != 0
		case loadsShared(in):
			x, from = r.effects.Space(ptx.SharedSpace), in
		case k > 0 || in.Opcode == "shfl" || in.Opcode == "st":
			x = register(&in.Operands[max(k, 1)])
		default:
			return false
		}
	}
	return false
}

// otherWord reports whether two instructions access different words of named variables.
func otherWord(a, b *ptx.Instr) bool {
	x, y := address(a), address(b)
	if x.Base != ptx.KindSymbol || y.Base != ptx.KindSymbol {
		return false
	}
	return x.Sym != y.Sym || x.Offset() >= y.Offset()+bytes(b) || y.Offset() >= x.Offset()+bytes(a)
}
