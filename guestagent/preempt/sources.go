package preempt

import (
	"math/bits"
	"slices"
	"strings"

	"vgpud/ptx"
	"vgpud/ptx/flow"
)

// sources is the set of what a value may be computed from: a bit for each parameter that may be an
// address and for each variable (see waitAnalysis.bit), and the following. A value that passes
// through shared or local memory, or through a call, keeps its sources; a value loaded from global
// memory has none of them.
type sources uint64

const (
	fromBlock     sources = 1 << iota // %ctaid
	fromGrid                          // %nctaid
	fromPlane                         // one of these in a dimension other than the first
	fromAtomic                        // the result of an atomic operation
	fromElsewhere                     // a loaded value, a function's parameter, the result of a called function
	fromPointer                       // such a value that may be an address itself, not only an index
	firstRoot     = iota
)

// everywhere is the set of arrays that an access may touch if nothing is known of its address.
const everywhere = ^sources(0)

// root is a parameter, at an offset, or a variable.
type root struct {
	sym    *ptx.Symbol
	offset int64
}

// number returns the number of a root, from 0 on.
func (s *waitAnalysis) number(r root) int {
	n, ok := s.roots[r]
	if !ok {
		n = len(s.roots)
		s.roots[r] = n
	}
	return n
}

// bit returns the bit of a root. Roots beyond the number of bits share the last one.
func (s *waitAnalysis) bit(r root) sources {
	const last = 63
	n := min(firstRoot+s.number(r), last)
	if r.sym.Kind == ptx.SymVar && n < last && (r.sym.Var.Space == ptx.SharedSpace || r.sym.Var.Space == ptx.LocalSpace) {
		s.nearVars |= 1 << n
	}
	return 1 << n
}

// fixpoint calls step for every instruction, and again for those that read what an instruction
// writes if its step returned true for a change.
func (s *waitAnalysis) fixpoint(step func(i int) bool) {
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

// transfer is how an instruction passes sources on.
type transfer struct {
	stored sources // what it stores that is not in a register
	keeps  sources // which of the sources of what it stores its result has
	adds   sources // what its result has besides
	regs   []int32 // the registers that it stores
	loads  []int32 // the spaces of memory that its result has the sources of
}

// transfers returns the transfers of all instructions. No register may have sources yet.
func (s *waitAnalysis) transfers() []transfer {
	memory, global := s.effects.Space(ptx.SharedSpace), s.effects.Space(ptx.GlobalSpace)
	list := make([]transfer, len(s.f.code.Instrs))
	var pool []int32 // which the lists share
	for i, in := range s.f.code.Instrs {
		t := &list[i]
		t.stored = s.operands(in.Operands)
		// A result has some sources of what is stored, whatever those are, and some of its own.
		t.keeps, t.adds = s.resultSources(in, everywhere), s.resultSources(in, 0)
		start := len(pool)
		for k := range in.Operands {
			if in.Operands[k].Kind != ptx.KindAddr {
				pool = appendRegisters(pool, &in.Operands[k])
			}
		}
		t.regs = pool[start:len(pool):len(pool)]
		start = len(pool)
		for _, r := range s.effects.Reads(i) {
			if r >= memory && r != global {
				pool = append(pool, r)
			}
		}
		t.loads = pool[start:len(pool):len(pool)]
	}
	return list
}

// appendRegisters appends the registers of an operand.
func appendRegisters(list []int32, o *ptx.Operand) []int32 {
	for i := range o.Elems {
		list = appendRegisters(list, &o.Elems[i])
	}
	if o.Sym != nil && o.Sym.Kind == ptx.SymReg {
		list = append(list, int32(o.Sym.Index))
	}
	return list
}

// findSources finds what all registers, and the spaces of memory, may be computed from. It goes
// through the instructions in order, again and again, and each time looks only at those that read
// what has changed: so what one time finds reaches everything behind it that time, and in a
// function of any size few times are enough.
func (s *waitAnalysis) findSources() {
	memory, global := s.effects.Space(ptx.SharedSpace), s.effects.Space(ptx.GlobalSpace)
	list := s.transfers()
	due := make([]uint64, (len(list)+63)/64) // a bit for each instruction
	for i := range list {
		due[i/64] |= 1 << (i % 64)
	}
	for again := true; again; {
		again = false
		for w := range due {
			for due[w] != 0 {
				i := w*64 + bits.TrailingZeros64(due[w])
				due[w] &= due[w] - 1
				t := &list[i]
				stored := t.stored
				for _, r := range t.regs {
					stored |= s.from[r]
				}
				result := stored&t.keeps | t.adds
				for _, r := range t.loads {
					result |= s.from[r]
				}
				for _, r := range s.effects.Writes(i) {
					from := result
					if r >= memory {
						from = stored
					}
					if r == global || s.from[r]|from == s.from[r] {
						continue
					}
					s.from[r] |= from
					for _, u := range s.uses[r] {
						due[u/64] |= 1 << (u % 64)
						again = again || int(u/64) < w
					}
				}
			}
		}
	}
}

// resultSources returns the sources of an instruction's result, except for what it reads from
// memory. from are the sources of its operands that are not addresses.
func (s *waitAnalysis) resultSources(in *ptx.Instr, from sources) sources {
	bits, any := 0, fromElsewhere
	if len(in.Modifiers) > 0 {
		bits = lastWidth(in)
	}
	if bits == 64 {
		any |= fromPointer
	}
	switch in.Opcode {
	case "atom", "multimem":
		return any | fromAtomic
	case "ld", "ldu":
		at, own := s.loadedParameter(in)
		switch {
		case own && (bits == 64 || in.Has("f64")):
			return s.loaded(in, at)
		case own:
			return 0
		case bits == 64 && ofParameters(in) && register(address(in)) >= 0:
			return s.byPointer(in, address(in))
		}
		return any
	case "tex", "tld4", "suld", "cp":
		return fromElsewhere
	case "shl":
		// An index is multiplied by a size; what is shifted by half an address is half of one.
		by := &in.Operands[len(in.Operands)-1]
		if bits == 64 && !(by.Kind == ptx.KindImm && by.Int() < 32) {
			return from | fromPointer
		}
		return from &^ fromPointer
	case "shr", "mul":
		return from &^ fromPointer
	case "mov":
		if bits == 64 && slices.ContainsFunc(in.Operands[1:], func(o ptx.Operand) bool { return len(o.Elems) > 0 }) { // two halves
			return from | fromPointer
		}
	}
	if in.Opcode == "call" || !flow.Known(in.Opcode) {
		return from | fromElsewhere | fromPointer
	}
	return from
}

// loadedParameter returns the kernel's own parameter that an instruction loads, if it does.
func (s *waitAnalysis) loadedParameter(in *ptx.Instr) (root, bool) {
	if in.Opcode != "ld" || len(in.Operands) != 2 || !s.f.code.Func.Entry || !ofParameters(in) {
		return root{}, false
	}
	o := &in.Operands[1]
	if o.Sym == nil || o.Sym.Kind != ptx.SymParam {
		return root{}, false
	}
	return root{o.Sym, o.Offset()}, true
}

// loaded returns the sources of what an instruction loads from the parameter at: those of each
// element of a vector.
func (s *waitAnalysis) loaded(in *ptx.Instr, at root) sources {
	var from sources
	for end := at.offset + bytes(in); at.offset < end; at.offset += 8 {
		from |= s.bit(at)
	}
	return from
}

// byPointer returns the sources of what an instruction loads from a parameter through a register
// that points to it.
func (s *waitAnalysis) byPointer(in *ptx.Instr, at *ptx.Operand) sources {
	if defs := s.defs[register(at)]; len(defs) == 1 {
		mov := s.f.code.Instrs[defs[0]]
		if o := &mov.Operands[len(mov.Operands)-1]; mov.Opcode == "mov" && o.Kind == ptx.KindSymbol && o.Sym.Kind == ptx.SymParam {
			return s.sourcesOf(o) | s.loaded(in, root{o.Sym, o.Offset() + at.Offset()})
		}
	}
	return everywhere // it is unknown which one
}

// ofParameters reports whether an instruction accesses parameters.
func ofParameters(in *ptx.Instr) bool {
	return slices.ContainsFunc(in.Modifiers, func(m string) bool { return strings.HasPrefix(m, "param") })
}

// operands returns the sources of operands that are not addresses.
func (s *waitAnalysis) operands(list []ptx.Operand) sources {
	var from sources
	for i := range list {
		if list[i].Kind != ptx.KindAddr {
			from |= s.sourcesOf(&list[i])
		}
	}
	return from
}

// sourcesOf returns the sources of an operand, or of the address that it is.
func (s *waitAnalysis) sourcesOf(o *ptx.Operand) sources {
	var from sources
	for i := range o.Elems {
		from |= s.sourcesOf(&o.Elems[i])
	}
	switch {
	case o.Sym == nil:
	case o.Sym.Kind == ptx.SymReg:
		from |= s.from[o.Sym.Index]
	case o.Sym.Kind == ptx.SymVar:
		from |= s.bit(root{o.Sym, 0})
	case o.Sym.Kind == ptx.SymParam && s.f.code.Func.Entry:
		from |= fromElsewhere | s.bit(root{o.Sym, o.Offset()})
	case o.Sym.Name == "%ctaid":
		from |= fromBlock
	case o.Sym.Name == "%nctaid":
		from |= fromGrid
	}
	if o.Sym != nil && (o.Sym.Name == "%ctaid" || o.Sym.Name == "%nctaid") && o.Sel != ptx.SelX {
		from |= fromPlane
	}
	return from
}

// addressSources returns the sources of the address that instruction i accesses.
func (s *waitAnalysis) addressSources(i int) sources { return s.sourcesOf(address(s.f.code.Instrs[i])) }

// array returns the parameters and variables that instruction i's address in global memory is
// computed from, or everywhere if there are none or it may be another address.
func (s *waitAnalysis) array(i int) sources {
	at := s.addressSources(i)
	if to := at &^ s.nearVars &^ (1<<firstRoot - 1); to != 0 && at&fromPointer == 0 {
		return to
	}
	return everywhere
}

// mayBeGlobal reports whether instruction i may access global memory.
func (s *waitAnalysis) mayBeGlobal(i int) bool {
	at := s.addressSources(i)
	return s.f.code.Instrs[i].Has("global") || at&s.nearVars == 0 || at&^s.nearVars&^(fromBlock|fromGrid|fromPlane) != 0
}
