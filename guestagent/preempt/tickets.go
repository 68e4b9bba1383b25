package preempt

import (
	"slices"

	"vgpud/ptx"
	"vgpud/ptx/flow"
)

// tickets finds the tickets: what an atomic operation gives that adds a positive constant to a counter, once, and what a
// block's threads load where one of them has handed such a number to them.
func (s *spins) tickets() {
	barriers := s.f.broadcasts()
	for i, in := range s.f.code.Instrs {
		draw := i
		if loadsShared(in) {
			barrier, behind := barriers[i]
			draw = s.handed(i, barrier, behind)
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

// common reports whether all threads of the grid find the same at the address that instruction i accesses.
func (s *spins) common(i int) bool {
	at := s.operand(address(s.f.code.Instrs[i]), 64, i)
	return at.known == exactly && at.lo == at.hi && !slices.ContainsFunc(at.terms[:], func(t term) bool { return t.of != noQuantity && t.of < firstQuantity })
}

// handed returns the instruction whose result load gets from shared memory, since no other can have written there: none
// else does so in the function or, where load stands right behind a barrier of the whole block, all others come later.
// (Where no thread has come by that one, what is loaded means nothing.) It returns flow.None if that is not known.
func (s *spins) handed(load, barrier int, behind bool) int {
	code, g := s.f.code, s.f.graph
	from, write := address(code.Instrs[load]), flow.None
	if from.Base != ptx.KindSymbol || from.Sym.Kind != ptx.SymVar {
		return flow.None
	}
	own, at := s.bit(root{from.Sym, 0}), g.BlockOf(load)
	for _, d := range s.defs[s.effects.Space(ptx.SharedSpace)] {
		i := int(d)
		to, b := s.addressed(i)>>firstRoot<<firstRoot, g.BlockOf(i)
		later := behind && s.once(load) && g.Dominates(at, b) && (b != at || i > barrier)
		if s.work++; later || to != 0 && to&own == 0 { // or to another variable
			continue
		}
		if write != flow.None || s.exhausted() {
			return flow.None
		}
		write = i
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
