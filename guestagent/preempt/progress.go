package preempt

import (
	"slices"

	"vgpud/ptx"
	"vgpud/ptx/flow"
)

// retries reports whether instruction i is a compare-and-swap that the loop repeats with the value it found until it
// succeeds, whatever else ends the loop: each round swaps the value that the round before found, at the same address, and
// the loop is left where it found what it expected. If nobody else writes, the second round finds what the first one did.
func (r *round) retries(i int) bool {
	in := r.f.code.Instrs[i]
	if in.Opcode != "atom" || !in.Has("cas") || len(in.Operands) != 4 || in.Guarded() || !r.still(address(in)) {
		return false
	}
	found, expected := register(&in.Operands[0]), register(&in.Operands[2])
	if found < 0 || expected < 0 || len(r.defs[found]) != 1 || !r.copies(expected, found) {
		return false
	}
	return slices.ContainsFunc(r.leaving, func(b int) bool {
		test := r.test(b)
		if test == nil || !(test.Has("eq") || test.Has("ne")) {
			return false
		}
		x, y := register(&test.Operands[1]), register(&test.Operands[2])
		if !(x == found && y == expected || x == expected && y == found) {
			return false
		}
		last := r.f.code.Instrs[r.f.graph.Blocks[b].End-1]
		return !slices.Contains(r.body, r.way(b, test.Has("eq") != last.Pred.Not)) // left when they are equal
	})
}

// bounds reports whether what ordinary load i reads is the loop's bound and nothing else: it comes to no branch but as what
// a counter is compared with, in a comparison that every round makes and that ends the loop.
func (r *round) bounds(i int) bool {
	between, ok := r.between(i)
	if !ok {
		return false
	}
	for _, k := range between {
		in := r.f.code.Instrs[k]
		b := r.f.graph.BlockOf(k)
		switch test, counter := r.counts(b); {
		case test != nil && k == r.f.graph.Blocks[b].End-1:
			// What is compared with the counter must come of the load alone.
			if other := register(&test.Operands[3-counter]); other < 0 || !r.trace.Register(other) || r.trace.Register(register(&test.Operands[counter])) {
				return false
			}
		case in.Opcode == "setp": // of the branch above
		case !flow.Pure(in.Opcode) || in.Guarded() || in.Opcode == "selp":
			return false
		default:
			for k := 1; k < len(in.Operands); k++ {
				if from := register(&in.Operands[k]); from >= 0 && !r.trace.Register(from) && len(r.defs[from]) > 0 {
					return false // it may move on with the counter
				}
			}
		}
	}
	return true
}

// draws reports whether instruction i draws numbers from a counter until they reach a bound: it adds a positive constant,
// what it gives is used as an index in the loop, and comes to no branch but those that leave the loop when it is not less
// than what the loop does not change, having become larger on the way or stayed what it is. By itself a thread gets there.
func (r *round) draws(i int) bool {
	in := r.f.code.Instrs[i]
	if in.Opcode != "atom" || !in.Has("add") || len(in.Operands) != 3 || !r.still(address(in)) {
		return false
	}
	bits, _ := integer(in.Modifiers[len(in.Modifiers)-1])
	if by := r.linear().operand(&in.Operands[2], bits, i); bits == 0 || !by.number() || by.lo < 1 || by.hi > farAway {
		return false
	}
	between, ok := r.between(i)
	if !ok {
		return false
	}
	drawn := func(o *ptx.Operand) bool { x := register(o); return x >= 0 && r.trace.Register(x) }
	for _, k := range between {
		in := r.f.code.Instrs[k]
		b := r.f.graph.BlockOf(k)
		fixed := func(o *ptx.Operand) bool { return !drawn(o) && r.finite(o) }
		switch ops := in.Operands; in.Opcode {
		case "setp":
			continue // looked at where it decides
		case "bra", "ret", "exit":
			test, inside := r.decides(b)
			if test == nil {
				return false
			}
			left := drawn(&test.Operands[1])
			if left && !fixed(&test.Operands[2]) || !left && !(drawn(&test.Operands[2]) && fixed(&test.Operands[1])) {
				return false
			}
			on := []string{"gt", "ge", "hi", "hs"}
			if left == inside { // the loop goes on where the number is less
				on = []string{"lt", "le", "lo", "ls"}
			}
			if !slices.Contains(on, test.Modifiers[0]) {
				return false
			}
		case "mov", "ld", "st", "shfl":
		case "cvt":
			if !widens(in) {
				return false
			}
		case "add":
			if len(ops) != 3 || !(r.still(&ops[1]) || r.still(&ops[2])) {
				return false
			}
		case "mul", "mad", "shl":
			if len(ops) < 3 || len(ops) > 3 && !r.still(&ops[3]) {
				return false
			}
			least := int64(1)
			if in.Opcode == "shl" {
				least = 0
			}
			if by, ok := r.linear().operand(&ops[2], 32, k).fixed(); !ok || by < least || by > mostFactor(in.Opcode) || in.Has("hi") {
				return false
			}
		default:
			return false
		}
		if in.Opcode == "ld" && mayPoll(in) {
			return false
		}
	}
	return r.indexes(i)
}

// decides returns the comparison by which block b leaves the loop or stays, every round, and whether the loop goes on
// where the comparison holds.
func (r *round) decides(b int) (test *ptx.Instr, inside bool) {
	if !slices.Contains(r.leaving, b) {
		return nil, false
	}
	if test = r.test(b); test == nil {
		return nil, false
	}
	last := r.f.code.Instrs[r.f.graph.Blocks[b].End-1]
	return test, slices.Contains(r.body, r.way(b, !last.Pred.Not))
}

// indexes reports whether what instruction i gives is part of the address of another access in the loop.
func (r *round) indexes(i int) bool {
	r.trace.Run(r.body, []int{i}, nil)
	return slices.ContainsFunc(r.body, func(b int) bool {
		for k := r.f.graph.Blocks[b].First; k < r.f.graph.Blocks[b].End; k++ {
			at := address(r.f.code.Instrs[k])
			if k != i && at.Kind == ptx.KindAddr && at.Sym != nil && at.Sym.Kind == ptx.SymReg && r.trace.Register(int32(at.Sym.Index)) {
				return true
			}
		}
		return false
	})
}

// between lists the instructions through which what instruction i reads comes to the branches that leave the loop, these
// included and i not. It reports false if it decides branches within a round, or nobody knows. The newest trace is one of
// what is computed from i.
func (r *round) between(i int) ([]int, bool) {
	r.trace.Run(r.body, []int{i}, nil)
	writers := map[int32][]int{}
	var list []int
	for _, b := range r.body {
		for k := r.f.graph.Blocks[b].First; k < r.f.graph.Blocks[b].End; k++ {
			if r.work++; !r.trace.Instr(k) {
				continue
			}
			for _, w := range r.effects.Writes(k) {
				writers[w] = append(writers[w], k)
			}
		}
		last := r.f.graph.Blocks[b].End - 1
		switch leaves := slices.Contains(r.leaving, b); {
		case r.trace.Instr(last) && leaves:
			list = append(list, last)
		case r.trace.Instr(last) && len(r.f.graph.Blocks[b].Succs) > 1:
			return nil, false
		}
	}
	seen := map[int]bool{i: true}
	for n := 0; n < len(list); n++ {
		for _, x := range r.effects.Reads(list[n]) {
			if !r.trace.Register(x) {
				continue
			}
			for _, k := range writers[x] {
				if r.work++; !seen[k] {
					seen[k] = true
					list = append(list, k)
				}
			}
		}
	}
	return list, len(list) > 0
}
