package preempt

import (
	"fmt"
	"slices"

	"vgpud/ptx"
	"vgpud/ptx/flow"
)

// Look-back.
//
// The blocks of a look-back have words of their own, in the order of an index: %ctaid.x, or a ticket, a number that each
// block draws from a counter once. A block writes from its own word on, and polls words that lie before it:
//
//	every write to the array is at base + C·index + w, C ≥ c, w ≥ W
//	every poll of it ends before base + c·index + W
//
// with one c > 0; parameters may be part of W. Then only a block with a smaller index can write what is polled: another's
// writes begin at base + c·index' + W or behind, which for index' ≥ index is not before the polls' end.
//
// In the persistent form that is sound. Tasks are fetched in the order of %ctaid.x, if the grid has one dimension, by
// blocks that finish what they have fetched; and who has drawn a ticket has begun, as have all that have drawn smaller
// ones. So of the blocks that have begun and not ended, the one with the smallest index waits, if at all, for blocks that
// have ended, whose writes are all there: it ends too, or would not have ended in the original either, had that run its
// blocks one after the other.
//
// What is not proven but taken for granted: that what is addressed from different parameters are different arrays, for
// ordinary writes (flags are not written that way, and atomic, volatile, relaxed or releasing writes to another array
// refuse the kernel); and that an index of 32 bits doesn't overflow.

// looksBack says why a kernel that polls by instructions polls is not proven to look back; "" if it is.
func (s *spins) looksBack(polls []int) string {
	l := s.linear()
	var index quantity // the same for all polls
	for _, i := range polls {
		in := s.f.code.Instrs[i]
		if in.Opcode != "ld" {
			return fmt.Sprintf("%v polls", in)
		}
		at := s.within(l.address(i), i)
		order := slices.IndexFunc(at.terms[:], func(t term) bool { return t.of == blockIndex || t.of < noQuantity })
		if at.known != exactly || at.base.sym == nil || order < 0 || at.terms[order].times <= 0 || at.hi >= endless {
			return fmt.Sprintf("%v polls at an address that is not known to be of an earlier block", in)
		}
		if draw, ok := l.draws[at.terms[order].of]; ok && l.address(draw).base.sym == nil {
			return fmt.Sprintf("%v draws from a counter that is not known", s.f.code.Instrs[draw])
		}
		if index == noQuantity {
			index = at.terms[order].of
		}
		if slices.ContainsFunc(at.terms[:], func(t term) bool { return t.of != index && (t.of == blockIndex || t.of < noQuantity) }) {
			return fmt.Sprintf("%v polls by another index", in)
		}
		at.hi += s.bytes(in)
		written := false
		for k := range s.f.code.Instrs {
			if s.work++; s.exhausted() {
				return s.f.code.Func.Name + " polls in too many places"
			}
			if why := s.spares(k, at, at.terms[order]); why != "" {
				return fmt.Sprintf("%v, polled by %v, %s", s.f.code.Instrs[k], in, why)
			}
			written = written || s.writes(k) && l.address(k).base == at.base
		}
		if !written { // but by another name, it seems
			return fmt.Sprintf("%v polls what the kernel does not write", in)
		}
	}
	return ""
}

// spares says why instruction k may write what a block with the index of order, or a larger one, polls below at.hi.
func (s *spins) spares(k int, at linear, order term) string {
	in, l := s.f.code.Instrs[k], s.linear()
	if !s.writes(k) {
		return ""
	}
	if in.Opcode == "call" {
		return "may write anywhere"
	}
	draw, ticket := l.draws[order.of]
	for _, to := range s.targets(k, at, order) {
		array := to.known == exactly && to.base.sym != nil
		switch {
		case !array && !s.elsewhere(in, at.base):
			return "may write anywhere"
		case ticket && k == draw && array && to.base != at.base: // each ticket is drawn once
		case ticket && array && to.base == l.address(draw).base:
			return "writes to the counter from which tickets are drawn"
		case !array || to.base != at.base:
			if in.Opcode != "st" || ordered(in) {
				return "may be a flag in another array"
			}
		case to.plus(linear{known: exactly, terms: at.terms}.scaled(-1)).least() < at.hi:
			return "may be what a later block writes"
		}
	}
	return ""
}

// targets lists the addresses that instruction k may write to, by the ways that control may have come: of each is known
// what holds where its address was computed.
func (s *spins) targets(k int, at linear, order term) []linear {
	in, l := s.f.code.Instrs[k], s.linear()
	o := address(in)
	if o.Kind != ptx.KindAddr || o.Sym == nil || o.Sym.Kind != ptx.SymReg || len(o.Elems) > 0 {
		return []linear{s.within(l.address(k), k)}
	}
	var list []linear
	for _, d := range l.reaching(k, int32(o.Sym.Index)) {
		to := s.within(l.of[d].plus(constant(o.Offset())), k)
		list = append(list, s.equal(to, at, order, slices.Concat(s.conditions(k), s.conditions(d))))
	}
	if len(list) == 0 || l.exhausted() {
		return []linear{unknown}
	}
	return list
}

// elsewhere reports whether an instruction's address is found from parameters and variables other than base.
func (s *spins) elsewhere(in *ptx.Instr, base root) bool {
	roots := s.from().operand(address(in)).roots
	return roots != 0 && roots&s.from().bit(base) == 0
}

// ordered reports whether an instruction is more than an ordinary access to memory.
func ordered(in *ptx.Instr) bool {
	return slices.ContainsFunc(in.Modifiers, func(m string) bool {
		switch m {
		case "volatile", "relaxed", "acquire", "release", "acq_rel", "mmio":
			return true
		}
		return false
	})
}

// bytes returns a bound of what a load reads.
func (s *spins) bytes(in *ptx.Instr) int64 {
	n := int64(8)
	for _, m := range in.Modifiers {
		switch m {
		case "v2", "v4", "v8", "b128":
			n = 32
		}
	}
	if bits, _ := integer(in.Modifiers[len(in.Modifiers)-1]); bits == 32 && n == 8 {
		n = 4
	}
	if in.Has("v2") && n == 32 {
		n = 16
		if bits, _ := integer(in.Modifiers[len(in.Modifiers)-1]); bits == 32 {
			n = 8
		}
	}
	return n
}

// condition is a comparison that holds wherever control has come by a branch.
type condition struct {
	value linear // compared with
	with  int64
	op    string // eq, ne, lt, le, gt or ge
}

// conditions lists what holds at instruction i, by the branches that lead to it alone.
func (s *spins) conditions(i int) []condition {
	g, code := s.f.graph, s.f.code
	at := g.BlockOf(i)
	list, ok := s.holds[at]
	if ok {
		s.work += len(list)
		return list
	}
	defer func() { s.holds[at] = list }()
	for b := at; g.Blocks[b].Idom >= 0; b = g.Blocks[b].Idom {
		s.work++
		d := g.Blocks[b].Idom
		last := code.Instrs[g.Blocks[d].End-1]
		if len(g.Blocks[b].Preds) != 1 || g.Blocks[b].Preds[0] != d || len(g.Blocks[d].Succs) != 2 ||
			!last.Guarded() || last.Pred.Sym.Kind != ptx.SymReg || flow.KindOf(last) == flow.Switch {
			continue
		}
		def := s.linear().reaching(g.Blocks[d].End-1, int32(last.Pred.Sym.Index))
		if len(def) != 1 || s.linear().exhausted() {
			continue
		}
		test := code.Instrs[def[0]]
		if test.Opcode != "setp" || test.Guarded() || len(test.Operands) != 3 || len(test.Modifiers) != 2 {
			continue
		}
		bits, _ := integer(test.Modifiers[1])
		value := s.linear().operand(&test.Operands[1], bits, def[0])
		with, ok := s.linear().operand(&test.Operands[2], bits, def[0]).fixed()
		op := test.Modifiers[0]
		if name := map[string]string{"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}[op]; name != "" {
			op = name
		}
		if taken := s.way(d, true) == b; taken == last.Pred.Not {
			op = map[string]string{"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}[op]
		}
		if bits > 0 && ok && value.known == exactly && value.lo == value.hi {
			list = append(list, condition{value, with, op})
		}
	}
	return list
}

// within puts bounds of the thread's index, as far as they are known at instruction i, in its place.
func (s *spins) within(v linear, i int) linear {
	lo, hi := int64(0), int64(maxThreads-1)
	for _, c := range s.conditions(i) {
		if c.value.terms != multiple(threadIndex).terms || c.value.base.sym != nil {
			continue
		}
		with := c.with - c.value.lo
		switch c.op {
		case "lt":
			hi = min(hi, with-1)
		case "le":
			hi = min(hi, with)
		case "gt":
			lo = max(lo, with+1)
		case "ge":
			lo = max(lo, with)
		case "eq":
			lo, hi = max(lo, with), min(hi, with)
		}
	}
	if lo > hi {
		return unknown
	}
	return v.withThread(lo, hi)
}

// equal returns address to as one by the index of order, where by list control comes there for one value of that index
// alone: the first block of a scan writes to the array's first word.
func (s *spins) equal(to, at linear, order term, list []condition) linear {
	if to.terms == at.terms {
		return to
	}
	for _, c := range list {
		if c.op != "eq" || c.value.base.sym != nil {
			continue
		}
		n := slices.IndexFunc(c.value.terms[:], func(t term) bool { return t.of == order.of })
		if n < 0 || c.value.terms[n].times != 1 {
			continue
		}
		zero := c.value.plus(constant(-c.with)).scaled(order.times)
		if with := to.plus(zero); with.terms == at.terms {
			return with
		}
	}
	return to
}
