package preempt

import (
	"fmt"
	"slices"

	"vgpud/ptx"
	"vgpud/ptx/flow"
)

// Look-back.
//
// The blocks of a look-back have words of their own, ordered by an index: %ctaid.x, or a ticket,
// which is a number that each block draws from a counter once. A block writes at or behind its own
// word and polls words before it:
//
//	every write to the array is at base + C·index + w, C ≥ c, w ≥ W
//	every poll of it ends before base + c·index + W
//
// with one c > 0; parameters may be part of W. Then only a block with a smaller index can write
// what is polled: another block's writes begin at base + c·index' + W or behind, which for index' ≥
// index is not before the end of the polls.
//
// In the persistent form that is sound. Tasks are fetched in the order of %ctaid.x, if the grid has
// one dimension, by blocks that finish what they fetched; and a block that has drawn a ticket has
// begun, as have all that drew smaller ones. So of the blocks that have begun and not ended, the
// one with the smallest index waits, if at all, for blocks that have ended, whose writes are
// complete: it ends too, or would not have ended in the original either, had that run its blocks
// one after the other.
//
// Two things are assumed, not proven: that addresses from different parameters are in different
// arrays, for ordinary writes (flags are not written that way, and atomic, volatile, relaxed or
// releasing writes to another array refuse the kernel); and that a 32-bit index does not overflow.

// refuteLookBack returns why a kernel that polls with loads polls is not proven to look back, or ""
// if it is.
func (s *waitAnalysis) refuteLookBack(polls []int) string {
	var index quantity // the same for all polls
	for _, i := range polls {
		in, array := s.f.code.Instrs[i], s.array(i)
		at := boundThread(s.valueOf(address(in), 64, i), s.conditions(i))
		n := slices.IndexFunc(at.terms[:], term.ordersBlocks)
		if at.state != precise || n < 0 || at.terms[n].factor <= 0 || at.hi >= infinite || array == everywhere {
			return fmt.Sprintf("%v polls at an address that is not known to be of an earlier block", in)
		}
		order := at.terms[n]
		if index == noQuantity {
			index = order.of
		}
		if slices.ContainsFunc(at.terms[:], func(t term) bool { return t.ordersBlocks() && t.of != index }) {
			return fmt.Sprintf("%v polls by another index", in)
		}
		if draw, ticket := s.draws[index]; ticket && !s.sameForGrid(draw) {
			return fmt.Sprintf("%v draws from one of several counters", s.f.code.Instrs[draw])
		}
		at.hi += bytes(in)
		written := false
		for k := range s.f.code.Instrs {
			if s.work++; s.exhausted() {
				return s.f.code.Func.Name + " polls in too many places"
			}
			if !s.writes(k) {
				continue
			}
			if why := s.writeConflict(k, array, at, order); why != "" {
				return fmt.Sprintf("%v, polled by %v, %s", s.f.code.Instrs[k], in, why)
			}
			written = written || s.array(k)&array != 0
		}
		if !written { // it is probably written through another name
			return fmt.Sprintf("%v polls what the kernel does not write", in)
		}
	}
	return ""
}

// writeConflict returns why write k may be to what a block with the index of order, or a larger
// one, polls in array below at.hi, or "" if it can't be.
func (s *waitAnalysis) writeConflict(k int, array sources, at linear, order term) string {
	in, to := s.f.code.Instrs[k], s.array(k)
	draw, ticket := s.draws[order.of]
	switch {
	case to == everywhere:
		return "may write anywhere"
	case ticket && k == draw && to&array == 0: // each ticket is drawn once
		return ""
	case ticket && to&s.array(draw) != 0:
		return "may write to the counter from which tickets are drawn"
	case to&array == 0 && (in.Opcode != "st" || ordered(in)):
		return "may be a flag in another array"
	case to&array == 0:
		return ""
	}
	// Known values depend on the path by which control reached the write, and hold where the address
	// was computed.
	o := address(in)
	x := register(o)
	if x < 0 {
		return "may be what a later block writes"
	}
	for _, d := range s.reaching(x, k) {
		list := slices.Concat(s.conditions(k), s.conditions(int(d)))
		v := boundThread(s.results[d].plus(constant(o.Offset()), 1), list)
		if atIndex(v, at, order, list).plus(linear{state: precise, terms: at.terms}, -1).atLeast() < at.hi {
			return "may be what a later block writes"
		}
	}
	return ""
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

// bytes returns an upper bound of what a load reads.
func bytes(in *ptx.Instr) int64 {
	n := int64(16)
	if bits := lastWidth(in); bits > 0 {
		n = int64(bits / 8)
	}
	for m, times := range map[string]int64{"v2": 2, "v4": 4, "v8": 8} {
		if in.Has(m) {
			n *= times
		}
	}
	return n
}

// condition is a comparison that holds wherever control has taken a branch.
type condition struct {
	value linear // compared with
	bound int64
	op    string // eq, ne, lt, le, gt or ge
}

// conditions returns what holds at instruction i because of the branches that lead to it.
func (s *waitAnalysis) conditions(i int) []condition {
	blocks, code := s.f.graph.Blocks, s.f.code
	at := s.f.graph.BlockOf(i)
	list, known := s.holds[at]
	for b := at; !known && blocks[b].Idom >= 0 && !s.exhausted(); b = blocks[b].Idom {
		s.work++
		d := &blocks[blocks[b].Idom]
		last := code.Instrs[d.End-1]
		if len(blocks[b].Preds) != 1 || blocks[b].Preds[0] != blocks[b].Idom || len(d.Succs) != 2 ||
			!last.Guarded() || last.Pred.Sym.Kind != ptx.SymReg || flow.KindOf(last) == flow.Switch {
			continue
		}
		def := s.reaching(int32(last.Pred.Sym.Index), d.End-1)
		if len(def) != 1 {
			continue
		}
		test := code.Instrs[def[0]]
		op := comparison(test)
		if op == "" {
			continue
		}
		bits, signed := width(test.Modifiers[1]), hasSign(test.Modifiers[1])
		value := s.valueOf(&test.Operands[1], bits, int(def[0]))
		with, ok := s.valueOf(&test.Operands[2], bits, int(def[0])).constant()
		if taken := d.Succs[0] == b; taken == last.Pred.Not {
			op = negated[op]
		}
		if bits > 0 && ok && value.state == precise && value.lo == value.hi && (signed || op == "eq" || value.atLeast() >= 0 && with >= 0) {
			list = append(list, condition{value, with, op})
		}
	}
	s.holds[at] = list
	s.work += len(list)
	return list
}

// boundThread replaces the thread's index by bounds that the conditions give.
func boundThread(v linear, list []condition) linear {
	lo, hi := int64(0), int64(maxThreads-1)
	for _, c := range list {
		if c.value.terms != multiple(threadIndex).terms {
			continue
		}
		with := c.bound - c.value.lo
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

// atIndex returns address to as one by the index of order if, by list, control reaches it for a
// single value of that index only: the first block of a scan writes to the array's first word.
func atIndex(to, at linear, order term, list []condition) linear {
	for _, c := range list {
		n := slices.IndexFunc(c.value.terms[:], func(t term) bool { return t == term{order.of, 1} })
		if c.op != "eq" || n < 0 {
			continue
		}
		if with := to.plus(c.value.plus(constant(c.bound), -1), order.factor); with.terms == at.terms {
			return with
		}
	}
	return to
}
