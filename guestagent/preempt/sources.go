package preempt

import (
	"slices"
	"strings"

	"vgpud/ptx"
	"vgpud/ptx/flow"
)

// sources is the set of what a value may be computed from: a bit for each parameter that may be an address and for each
// variable (see spins.bit), and the following. A value that goes through shared or local memory, or through a call, keeps
// its sources; what is loaded from global memory has none of them.
type sources uint64

const (
	fromBlock     sources = 1 << iota // %ctaid
	fromGrid                          // %nctaid
	fromAtomic                        // what an atomic operation returns
	fromElsewhere                     // what is loaded, a function's parameter, what a called function returns
	firstRoot     = iota
)

// everywhere is the arrays that an access may be to if nothing is known of its address.
const everywhere = ^sources(0)

// root is a parameter, at an offset, or a variable.
type root struct {
	sym    *ptx.Symbol
	offset int64
}

// number returns the number of a root, from 0 on.
func (s *spins) number(r root) int {
	n, ok := s.roots[r]
	if !ok {
		n = len(s.roots)
		s.roots[r] = n
	}
	return n
}

// bit returns the bit of a root; those that come too late share the last one.
func (s *spins) bit(r root) sources {
	const last = 63
	n := min(firstRoot+s.number(r), last)
	if r.sym.Kind == ptx.SymVar && n < last && (r.sym.Var.Space == ptx.SharedSpace || r.sym.Var.Space == ptx.LocalSpace) {
		s.near |= 1 << n
	}
	return 1 << n
}

// settle runs step for every instruction, and again for those that read what one writes whose step reports a change.
func (s *spins) settle(step func(i int) bool) {
	n := len(s.f.code.Instrs)
	queue, queued := make([]int32, n), make([]bool, n)
	for i := range n {
		queue[n-1-i], queued[i] = int32(i), true
	}
	for len(queue) > 0 {
		i := int(queue[len(queue)-1])
		queue = queue[:len(queue)-1]
		queued[i] = false
		if !step(i) {
			continue
		}
		for _, r := range s.effects.Writes(i) {
			for _, u := range s.uses[r] {
				if !queued[u] {
					queue, queued[u] = append(queue, u), true
				}
			}
		}
	}
}

// findSources finds what all registers, and the spaces of memory, may be computed from.
func (s *spins) findSources() {
	memory, global := s.effects.Space(ptx.SharedSpace), s.effects.Space(ptx.GlobalSpace)
	s.settle(func(i int) bool {
		stored := s.operands(s.f.code.Instrs[i].Operands)
		result := s.given(s.f.code.Instrs[i], stored)
		for _, r := range s.effects.Reads(i) {
			if r >= memory && r != global {
				result |= s.from[r]
			}
		}
		changed := false
		for _, r := range s.effects.Writes(i) {
			from := result
			if r >= memory {
				from = stored
			}
			if r != global && s.from[r]|from != s.from[r] {
				s.from[r] |= from
				changed = true
			}
		}
		return changed
	})
}

// given returns the sources of what an instruction gives, but for what it reads from memory. Those of its operands that are
// no addresses are from.
func (s *spins) given(in *ptx.Instr, from sources) sources {
	switch in.Opcode {
	case "atom", "multimem":
		return fromAtomic | fromElsewhere
	case "ld", "ldu":
		at, own := s.parameter(in)
		bits, _ := integer(in.Modifiers[len(in.Modifiers)-1])
		switch {
		case own && bits == 64:
			return s.loaded(in, at)
		case own:
			return 0
		case bits == 64 && ofParameters(in) && register(address(in)) >= 0:
			return s.byPointer(in, address(in))
		case bits == 64 && (in.Has("const") || in.Has("param")): // pointers, perhaps
			return fromElsewhere | s.sourcesOf(address(in))
		}
		return fromElsewhere
	case "tex", "tld4", "suld", "cp":
		return fromElsewhere
	}
	if in.Opcode == "call" || !flow.Known(in.Opcode) {
		return from | fromElsewhere
	}
	return from
}

// parameter returns the kernel's own parameter that an instruction loads, if it does.
func (s *spins) parameter(in *ptx.Instr) (root, bool) {
	if in.Opcode != "ld" || len(in.Operands) != 2 || !s.f.code.Func.Entry || !ofParameters(in) {
		return root{}, false
	}
	o := &in.Operands[1]
	if o.Sym == nil || o.Sym.Kind != ptx.SymParam {
		return root{}, false
	}
	return root{o.Sym, o.Offset()}, true
}

// loaded returns the sources of what an instruction loads of the parameter at, of each element of a vector.
func (s *spins) loaded(in *ptx.Instr, at root) sources {
	var from sources
	for end := at.offset + bytes(in); at.offset < end; at.offset += 8 {
		from |= s.bit(at)
	}
	return from
}

// byPointer returns the sources of what an instruction loads of a parameter by a register that points to it.
func (s *spins) byPointer(in *ptx.Instr, at *ptx.Operand) sources {
	if defs := s.defs[register(at)]; len(defs) == 1 {
		mov := s.f.code.Instrs[defs[0]]
		if o := &mov.Operands[len(mov.Operands)-1]; mov.Opcode == "mov" && o.Kind == ptx.KindSymbol && o.Sym.Kind == ptx.SymParam {
			return s.sourcesOf(o) | s.loaded(in, root{o.Sym, o.Offset() + at.Offset()})
		}
	}
	return everywhere // nobody knows which
}

// ofParameters reports whether an instruction accesses parameters.
func ofParameters(in *ptx.Instr) bool {
	return slices.ContainsFunc(in.Modifiers, func(m string) bool { return strings.HasPrefix(m, "param") })
}

// operands returns what operands that are no addresses may be computed from.
func (s *spins) operands(list []ptx.Operand) sources {
	var from sources
	for i := range list {
		if list[i].Kind != ptx.KindAddr {
			from |= s.sourcesOf(&list[i])
		}
	}
	return from
}

// sourcesOf returns what an operand may be computed from, or the address that it is.
func (s *spins) sourcesOf(o *ptx.Operand) sources {
	var from sources
	for i := range o.Elems {
		from |= s.sourcesOf(&o.Elems[i])
	}
	switch {
	case o.Sym == nil:
	case o.Sym.Kind == ptx.SymReg:
		from |= s.from[o.Sym.Index]
	case o.Sym.Kind == ptx.SymVar && o.Sym.Var.Space == ptx.ConstSpace && o.Sym.Var.Init != nil && hasName(o.Sym.Var.Init.Raw):
		from |= everywhere // it holds the address of another variable
	case o.Sym.Kind == ptx.SymVar:
		from |= s.bit(root{o.Sym, 0})
	case o.Sym.Kind == ptx.SymParam && s.f.code.Func.Entry:
		from |= fromElsewhere | s.bit(root{o.Sym, o.Offset()})
	case o.Sym.Name == "%ctaid":
		from |= fromBlock
	case o.Sym.Name == "%nctaid":
		from |= fromGrid
	}
	return from
}

// addressed returns what the address that instruction i accesses may be computed from.
func (s *spins) addressed(i int) sources { return s.sourcesOf(address(s.f.code.Instrs[i])) }

// array returns the parameters and variables by which the address that instruction i accesses in global memory is found;
// everywhere without any.
func (s *spins) array(i int) sources {
	at := s.addressed(i)
	if at = at &^ s.near &^ (1<<firstRoot - 1); at != 0 {
		return at
	}
	return everywhere
}

// far reports whether the address that instruction i accesses may be one of global memory.
func (s *spins) far(i int) bool {
	at := s.addressed(i)
	return s.f.code.Instrs[i].Has("global") || at&s.near == 0 || at&^s.near&^(fromBlock|fromGrid) != 0
}
