package preempt

import (
	"slices"

	"vgpud/ptx"
	"vgpud/ptx/flow"
)

// findTickets finds the tickets: the result of an atomic operation that adds a positive constant to
// a counter, once, and what the threads of a block load if one of them handed such a number to
// them.
func (s *waitAnalysis) findTickets() {
	barriers := s.f.broadcasts()
	for i, in := range s.f.code.Instrs {
		draw := i
		if loadsShared(in) {
			barrier, behind := barriers[i]
			draw = s.handedOver(i, barrier, behind)
		}
		if draw >= 0 && s.outsideLoops(i) && s.outsideLoops(draw) && isDraw(s.f.code.Instrs[draw]) {
			s.draws[quantity(-1-i)] = draw
		}
	}
}

// outsideLoops reports whether instruction i is in no loop.
func (s *waitAnalysis) outsideLoops(i int) bool {
	return s.f.graph.Blocks[s.f.graph.BlockOf(i)].Loop == flow.None
}

// isDraw reports whether an instruction draws a number from a counter.
func isDraw(in *ptx.Instr) bool {
	if in.Opcode != "atom" || !in.Has("add") || !mayBeGlobal(in) || len(in.Operands) != 3 {
		return false
	}
	by := &in.Operands[2]
	bits := lastWidth(in)
	return bits > 0 && by.Kind == ptx.KindImm && by.Imm == ptx.ImmInt && by.Int() > 0 && by.Int() < 1<<(bits-1)
}

// sameForGrid reports whether all threads of the grid access the same address at instruction i.
func (s *waitAnalysis) sameForGrid(i int) bool {
	at := s.valueOf(address(s.f.code.Instrs[i]), 64, i)
	return at.state == precise && at.lo == at.hi && !slices.ContainsFunc(at.terms[:], func(t term) bool { return t.of != noQuantity && t.of < firstQuantity })
}

// handedOver returns the instruction whose result load reads from shared memory, since no other can
// have written there: no other instruction in the function does or, if load stands right behind a
// barrier of the whole block, all others come later. (If no thread has executed it, the loaded
// value is meaningless.) It returns flow.None if that is not known.
func (s *waitAnalysis) handedOver(load, barrier int, behind bool) int {
	code, g := s.f.code, s.f.graph
	from, write := address(code.Instrs[load]), flow.None
	if from.Base != ptx.KindSymbol || from.Sym.Kind != ptx.SymVar {
		return flow.None
	}
	own, at := s.bit(root{from.Sym, 0}), g.BlockOf(load)
	for _, d := range s.defs[s.effects.Space(ptx.SharedSpace)] {
		i := int(d)
		to, b := s.addressSources(i)>>firstRoot<<firstRoot, g.BlockOf(i)
		later := behind && s.outsideLoops(load) && g.Dominates(at, b) && (b != at || i > barrier)
		if s.work++; later || to != 0 && to&own == 0 { // or another variable
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
	if st.Opcode != "st" || !isWord(st) || !isWord(ld) || to.Base != ptx.KindSymbol || to.Sym != from.Sym || to.Offset() != from.Offset() {
		return flow.None
	}
	if x := register(&st.Operands[1]); x >= 0 && len(s.defs[x]) == 1 {
		return int(s.defs[x][0])
	}
	return flow.None
}

// isWord reports whether an instruction is an ordinary access to 32 bits.
func isWord(in *ptx.Instr) bool {
	if len(in.Operands) != 2 || len(in.Modifiers) != 2 {
		return false
	}
	bits := width(in.Modifiers[1])
	return bits == 32
}
