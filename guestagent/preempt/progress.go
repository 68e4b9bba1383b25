package preempt

import (
	"slices"

	"vgpud/ptx"
	"vgpud/ptx/flow"
)

// retries reports whether instruction i is a compare-and-swap that its loop repeats with the value it found until it
// succeeds, whatever else ends the loop: in each round it swaps the value that the round before found there, and the
// loop is left where it found what it expected.
func (s *spins) retries(l int, body []int, i int) bool {
	in := s.f.code.Instrs[i]
	if in.Opcode != "atom" || !in.Has("cas") || len(in.Operands) < 4 || in.Guarded() {
		return false
	}
	found, expected, put := register(&in.Operands[0]), register(&in.Operands[2]), register(&in.Operands[3])
	if found < 0 || expected < 0 || put == expected {
		return false
	}
	defs := s.definitions(body)
	if d := defs[found]; len(d) != 1 || !s.copies(defs, expected, found) {
		return false
	}
	// The loop is left when found equals expected.
	return slices.ContainsFunc(body, func(b int) bool {
		blk := &s.f.graph.Blocks[b]
		last := s.f.code.Instrs[blk.End-1]
		if !last.Guarded() || flow.KindOf(last) == flow.Switch || !s.always(l, b) {
			return false
		}
		test := s.definition(defs, int32(last.Pred.Sym.Index))
		if test == nil || last.Pred.Sym.Kind != ptx.SymReg || test.Opcode != "setp" || len(test.Operands) != 3 || test.Guarded() || !(test.Has("eq") || test.Has("ne")) {
			return false
		}
		x, y := register(&test.Operands[1]), register(&test.Operands[2])
		if !(x == found && y == expected || x == expected && y == found) {
			return false
		}
		taken := test.Has("eq") != last.Pred.Not // the branch is taken when they are equal
		return !slices.Contains(body, s.way(b, taken))
	})
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

// draws reports whether an atomic operation counts, so that each round finds another value: a ticket.
func (s *spins) draws(in *ptx.Instr) bool {
	if in.Opcode != "atom" || !in.Has("add") && !in.Has("inc") && !in.Has("dec") || len(in.Operands) < 3 {
		return false
	}
	a := &in.Operands[2]
	if v, ok := s.value(a); ok {
		return v != 0
	}
	from := s.from().operand(a).from
	return from != 0 && from&^fromThread == 0
}

// locks reports whether an atomic operation takes a lock, which is zero while it is free: it replaces zero by another
// constant, or whatever there is by a constant, and is compared with these two alone.
func (s *spins) locks(in *ptx.Instr, c comparison) bool {
	if in.Opcode != "atom" || len(in.Operands) < 3 {
		return false
	}
	put := &in.Operands[2]
	switch {
	case in.Has("cas") && len(in.Operands) > 3:
		if v, ok := s.value(&in.Operands[2]); !ok || v != 0 {
			return false
		}
		put = &in.Operands[3]
	case !in.Has("exch"):
		return false
	}
	taken, ok := s.value(put)
	if !ok || taken == 0 {
		return false
	}
	return !slices.ContainsFunc(c.instrs, func(k int) bool {
		test := s.f.code.Instrs[k]
		if test.Opcode != "setp" && test.Opcode != "set" && test.Opcode != "selp" && test.Opcode != "slct" {
			return false
		}
		for k := 1; k < len(test.Operands); k++ {
			if o := &test.Operands[k]; o.Kind == ptx.KindImm && o.Int() != 0 && o.Int() != taken {
				return true
			}
		}
		return false
	})
}

// bounded reports whether the loop ends after a number of rounds that is fixed when it begins: in every round a
// register is moved on by a constant, and compared with something that the loop doesn't change.
func (s *spins) bounded(l int, body, leaving []int) bool {
	defs := s.definitions(body)
	for _, b := range leaving {
		last := s.f.code.Instrs[s.f.graph.Blocks[b].End-1]
		if !last.Guarded() || last.Pred.Sym.Kind != ptx.SymReg || !s.always(l, b) {
			continue
		}
		test := s.definition(defs, int32(last.Pred.Sym.Index))
		if test == nil || test.Opcode != "setp" || test.Guarded() || len(test.Operands) != 3 || len(test.Modifiers) != 2 {
			continue
		}
		for k := 1; k <= 2; k++ {
			other := register(&test.Operands[3-k])
			if other >= 0 && len(defs[other]) > 0 || other < 0 && test.Operands[3-k].Kind != ptx.KindImm {
				continue
			}
			step := s.step(l, defs, register(&test.Operands[k]))
			switch test.Modifiers[0] {
			case "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs":
				if step != 0 {
					return true
				}
			case "eq", "ne":
				if step == 1 || step == -1 {
					return true
				}
			}
		}
	}
	return false
}

// step returns the constant by which each round of the loop moves register r on; 0 if there is none.
func (s *spins) step(l int, defs map[int32][]int, r int32) int64 {
	const most = 8 // moves between registers
	var step int64
	for at, n := r, 0; at >= 0 && n < most; n++ {
		if len(defs[at]) != 1 {
			return 0
		}
		k := defs[at][0]
		in := s.f.code.Instrs[k]
		if in.Guarded() || !s.always(l, s.f.graph.BlockOf(k)) {
			return 0
		}
		switch {
		case in.Opcode == "mov" && len(in.Operands) == 2:
			at = register(&in.Operands[1])
		case (in.Opcode == "add" || in.Opcode == "sub") && len(in.Operands) == 3 && in.Operands[2].Kind == ptx.KindImm && in.Operands[2].Imm == ptx.ImmInt && step == 0:
			step = in.Operands[2].Int()
			if in.Opcode == "sub" {
				step = -step
			}
			at = register(&in.Operands[1])
		default:
			return 0
		}
		if at == r {
			return step
		}
	}
	return 0
}

// always reports whether every round of the loop passes through block b.
func (s *spins) always(l int, b int) bool {
	return !slices.ContainsFunc(s.f.graph.Loops[l].Latches, func(latch int) bool { return !s.f.graph.Dominates(b, latch) })
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

// definition returns the one instruction that writes register r; nil if there are none or several.
func (s *spins) definition(defs map[int32][]int, r int32) *ptx.Instr {
	if d := defs[r]; len(d) == 1 {
		return s.f.code.Instrs[d[0]]
	}
	return nil
}

// copies reports whether register r only ever gets, in the loop, what register from holds, by moves.
func (s *spins) copies(defs map[int32][]int, r, from int32) bool {
	const most = 8
	for range most {
		if r == from {
			return true
		}
		in := s.definition(defs, r)
		if in == nil || in.Opcode != "mov" || len(in.Operands) != 2 {
			return false
		}
		if r = register(&in.Operands[1]); r < 0 {
			return false
		}
	}
	return false
}

// register returns the number of the register that an operand is, as a whole; -1 for anything else.
func register(o *ptx.Operand) int32 {
	if o.Kind == ptx.KindReg && o.Sym != nil && o.Sym.Kind == ptx.SymReg && o.Sel == ptx.SelNone && !o.Not && !o.Neg {
		return int32(o.Sym.Index)
	}
	return -1
}
