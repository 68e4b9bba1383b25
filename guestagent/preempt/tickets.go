package preempt

import (
	"vgpud/ptx"
	"vgpud/ptx/flow"
)

// tickets finds the tickets: what an atomic operation gives that adds a positive constant to a counter, once, and what a
// block's threads load where one of them has handed such a number to them.
func (s *spins) tickets() {
	barriers := s.f.broadcasts()
	for i := range s.f.code.Instrs {
		draw := i
		if barrier, behind := barriers[i]; behind {
			draw = s.handed(i, barrier)
		} else if loadsShared(s.f.code.Instrs[i]) {
			draw = s.handed(i, flow.None)
		}
		if draw >= 0 && s.once(i) && s.once(draw) && drawn(s.f.code.Instrs[draw]) {
			s.draws[quantity(-1-i)] = draw
		}
	}
}

// once reports whether instruction i is in no loop.
func (s *spins) once(i int) bool { return s.f.graph.Blocks[s.f.graph.BlockOf(i)].Loop == flow.None }

// drawn reports whether an instruction draws a number from a counter.
func drawn(in *ptx.Instr) bool {
	if in.Opcode != "atom" || !in.Has("add") || !mayBeGlobal(in) || len(in.Operands) != 3 {
		return false
	}
	by := &in.Operands[2]
	bits, _ := integer(in.Modifiers[len(in.Modifiers)-1])
	return bits > 0 && by.Kind == ptx.KindImm && by.Imm == ptx.ImmInt && by.Int() > 0 && by.Int() < 1<<(bits-1)
}

// handed returns the instruction whose result load gets from shared memory, since no other can have written there: none
// else does so in the function or, where load stands right behind a barrier of the whole block, none else may come before
// that. (Where no thread has come by that one, what is loaded means nothing.) It returns flow.None if that is not known.
func (s *spins) handed(load, barrier int) int {
	code, g := s.f.code, s.f.graph
	from := address(code.Instrs[load])
	if from.Base != ptx.KindSymbol || from.Sym.Kind != ptx.SymVar {
		return flow.None
	}
	own, before, write := s.bit(root{from.Sym, 0}), map[int]bool{}, flow.None
	if barrier != flow.None {
		before = s.before(g.BlockOf(barrier))
	}
	for _, d := range s.defs[s.effects.Space(ptx.SharedSpace)] {
		b := g.BlockOf(int(d))
		if s.work++; barrier != flow.None && (!before[b] || b == g.BlockOf(barrier) && int(d) > barrier) {
			continue
		}
		if to := s.addressed(int(d)) >> firstRoot << firstRoot; to != 0 && to&own == 0 {
			continue // to another variable
		}
		if write != flow.None || s.exhausted() {
			return flow.None
		}
		write = int(d)
	}
	if write == flow.None {
		return flow.None
	}
	st, ld := code.Instrs[write], code.Instrs[load]
	to := address(st)
	if st.Opcode != "st" || !word(st) || !word(ld) || to.Base != ptx.KindSymbol || to.Sym != from.Sym || to.Offset() != from.Offset() {
		return flow.None
	}
	if x := register(&st.Operands[1]); x >= 0 && len(s.defs[x]) == 1 {
		return int(s.defs[x][0])
	}
	return flow.None
}

// word reports whether an instruction is an ordinary access to 32 bits.
func word(in *ptx.Instr) bool {
	if len(in.Operands) != 2 || len(in.Modifiers) != 2 {
		return false
	}
	bits, _ := integer(in.Modifiers[1])
	return bits == 32
}

// before returns the blocks from which control may come to block b, b included.
func (s *spins) before(b int) map[int]bool {
	seen, list := map[int]bool{b: true}, []int{b}
	for n := 0; n < len(list); n++ {
		s.work++
		for _, p := range s.f.graph.Blocks[list[n]].Preds {
			if !seen[p] && s.f.graph.Blocks[p].Reachable {
				seen[p] = true
				list = append(list, p)
			}
		}
	}
	return seen
}
