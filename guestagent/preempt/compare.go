package preempt

import (
	"slices"

	"vgpud/ptx"
)

// comparison is what becomes of a value on its way to the branches of a loop.
type comparison struct {
	nothing bool   // it comes to none of them, unless by global memory that can't be the same
	from    origin // of all else that goes into the instructions between
	instrs  []int  // those
}

// compared finds what the value read by instruction i is compared with on its way to the branches that leave the loop.
func (s *spins) compared(body, leaving []int, i int) comparison {
	g, code, o := s.f.graph, s.f.code, s.from()
	// What comes of the value by computing, and by branches within a round.
	within := func(b int) bool { return !slices.Contains(leaving, b) }
	s.trace.Blind = s.effects.Space(ptx.GlobalSpace)
	s.trace.Run(body, []int{i}, within)
	s.trace.Blind = -1
	if s.readBack(body, i) {
		s.trace.Run(body, []int{i}, within)
	}
	writers, deciders := map[int32][]int{}, map[int][]int{}
	for _, b := range body {
		for k := g.Blocks[b].First; k < g.Blocks[b].End; k++ {
			for _, r := range s.effects.Writes(k) {
				if s.trace.Register(r) {
					writers[r] = append(writers[r], k)
				}
			}
		}
		if last := g.Blocks[b].End - 1; s.trace.Instr(last) && len(g.Blocks[b].Succs) > 1 && within(b) {
			dependents := g.Dependents(b)
			if s.work += len(dependents); s.exhausted() {
				return comparison{from: fromGrid} // nobody knows
			}
			for _, d := range dependents {
				deciders[d] = append(deciders[d], last)
			}
		}
	}
	// Back from the branches that leave, through what the value reaches, to the read itself.
	var c comparison
	taken, needed := map[int]bool{i: true}, map[int32]bool{}
	look := func(k int) {
		if !taken[k] {
			taken[k] = true
			c.instrs = append(c.instrs, k)
		}
	}
	for _, b := range leaving {
		if last := g.Blocks[b].End - 1; s.trace.Instr(last) {
			look(last)
		}
	}
	c.nothing = len(c.instrs) == 0
	for n := 0; n < len(c.instrs); n++ {
		k := c.instrs[n]
		s.work++
		in := code.Instrs[k]
		c.from |= o.birth(in).from
		for _, d := range deciders[g.BlockOf(k)] {
			look(d)
		}
		for _, r := range s.effects.Reads(k) {
			switch {
			case r < s.effects.Space(ptx.SharedSpace) && onlyAddress(in, int(r)):
				// where something is read or written is not what is compared
			case !s.trace.Register(r):
				c.from |= o.of[r].from
			case !needed[r]:
				needed[r] = true
				for _, u := range writers[r] {
					// What the value doesn't reach gives r another value, which counts too; another read that may
					// wait is looked at by itself.
					if !mayWait(code.Instrs[u]) {
						look(u)
					}
				}
			}
		}
	}
	return c
}

// readBack reports whether what the newest trace has reached may be stored to global memory and read again in the loop:
// by the same parameters and variables at module scope, or by addresses that come from elsewhere. What source does by
// itself doesn't count.
func (s *spins) readBack(body []int, source int) bool {
	global := s.effects.Space(ptx.GlobalSpace)
	var stored, loaded uint64
	stores, loads, anywhere := false, false, false
	for _, b := range body {
		for k := s.f.graph.Blocks[b].First; k < s.f.graph.Blocks[b].End; k++ {
			in := s.f.code.Instrs[k]
			writes := slices.Contains(s.effects.Writes(k), global) && s.trace.Instr(k)
			reads := slices.Contains(s.effects.Reads(k), global)
			if !writes && !reads || k == source {
				continue
			}
			roots := s.from().operand(address(in)).roots
			anywhere = anywhere || roots == 0
			if writes {
				stores, stored = true, stored|roots
			}
			if reads {
				loads, loaded = true, loaded|roots
			}
		}
	}
	return stores && loads && (anywhere || stored&loaded != 0)
}

// onlyAddress reports whether an instruction reads register r only to make an address of it.
func onlyAddress(in *ptx.Instr, r int) bool {
	is := func(s *ptx.Symbol) bool { return s != nil && s.Kind == ptx.SymReg && s.Index == r }
	var within func([]ptx.Operand) bool
	within = func(list []ptx.Operand) bool {
		return slices.ContainsFunc(list, func(o ptx.Operand) bool {
			return o.Kind != ptx.KindAddr && (is(o.Sym) || within(o.Elems))
		})
	}
	return slices.ContainsFunc(in.Operands, func(o ptx.Operand) bool { return o.Kind == ptx.KindAddr }) &&
		!(in.Guarded() && is(in.Pred.Sym)) && !within(in.Operands)
}

// orders reports whether a comparison is one by size with something that no flag or sign is tested by.
func (s *spins) orders(c comparison) bool {
	return slices.ContainsFunc(c.instrs, func(k int) bool {
		in := s.f.code.Instrs[k]
		if in.Opcode != "setp" && in.Opcode != "set" && in.Opcode != "slct" || len(in.Modifiers) == 0 {
			return false
		}
		switch in.Modifiers[0] {
		case "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs":
		default:
			return false
		}
		for k := 1; k < len(in.Operands); k++ {
			if o := &in.Operands[k]; o.Kind == ptx.KindImm {
				return o.Imm != ptx.ImmInt || o.Int() < -1 || o.Int() > 1
			}
		}
		return true
	})
}
