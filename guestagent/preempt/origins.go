package preempt

import (
	"slices"
	"strings"

	"vgpud/ptx"
	"vgpud/ptx/flow"
)

// origin is where a value may come from: a set.
type origin uint16

// The origins. The empty set is constants.
const (
	fromParam  origin = 1 << iota // a kernel's parameter
	fromModule                    // the address of a variable at module scope, or what constant memory holds
	fromBlock                     // %ctaid
	fromGrid                      // %nctaid
	fromThread                    // %tid, lanes, the block's size, clocks, other special registers
	fromMemory                    // a load
	fromAtomic                    // what an atomic operation returns
	fromCaller                    // a function's parameter, or what a called function returns
	fromNear                      // the address of a variable in shared or local memory
)

// provenance is where a value may come from, and which parameters and variables at module scope it may be computed
// from: a bit for each, see origins.bits.
type provenance struct {
	from  origin
	roots uint64
}

func (p provenance) with(q provenance) provenance {
	return provenance{p.from | q.from, p.roots | q.roots}
}

// root is a parameter, at an offset, or a variable at module scope.
type root struct {
	sym    *ptx.Symbol
	offset int64
}

// origins says where the values of a function's registers may come from. A value that goes through shared or local
// memory, or through the parameters of a call, keeps its provenance; what is loaded from global memory is fromMemory.
type origins struct {
	f       *funcStudy
	effects *flow.Effects
	of      []provenance // of each register and space, as flow.Effects numbers them
	bits    map[root]uint64
}

// newOrigins finds the origins of all of f's registers.
func newOrigins(f *funcStudy, e *flow.Effects) *origins {
	n := len(f.code.Instrs)
	o := &origins{f: f, effects: e, of: make([]provenance, e.Numbers()), bits: map[root]uint64{}}
	memory, global := e.Space(ptx.SharedSpace), e.Space(ptx.GlobalSpace)
	uses := make([][]int32, e.Numbers())
	births := make([]provenance, n)
	queue, queued := make([]int32, n), make([]bool, n)
	for i, in := range f.code.Instrs {
		births[i] = o.birth(in)
		for _, r := range e.Reads(i) {
			uses[r] = append(uses[r], int32(i))
		}
		queue[n-1-i], queued[i] = int32(i), true
	}
	for len(queue) > 0 {
		i := int(queue[len(queue)-1])
		queue = queue[:len(queue)-1]
		queued[i] = false
		// What a load returns comes of what was stored, not of the address.
		loads := births[i].from&(fromMemory|fromAtomic) != 0 || isLoad(f.code.Instrs[i])
		result, stored := births[i], births[i]
		for _, r := range e.Reads(i) {
			if r == global {
				continue
			}
			if !onlyAddress(f.code.Instrs[i], int(r)) {
				stored = stored.with(o.of[r])
			}
			if r >= memory || !loads {
				result = result.with(o.of[r])
			}
		}
		for _, r := range e.Writes(i) {
			give := result
			if r >= memory {
				give = stored
			}
			if next := o.of[r].with(give); r != global && next != o.of[r] {
				o.of[r] = next
				for _, u := range uses[r] {
					if !queued[u] {
						queue, queued[u] = append(queue, u), true
					}
				}
			}
		}
	}
	return o
}

func isLoad(in *ptx.Instr) bool { return in.Opcode == "ld" || in.Opcode == "ldu" }

// bit returns the bit of a root; those that come too late share the last one.
func (o *origins) bit(r root) uint64 {
	b, ok := o.bits[r]
	if !ok {
		b = 1 << min(len(o.bits), 63)
		o.bits[r] = b
	}
	return b
}

// operand returns where the value of an operand may come from, or the address that it is.
func (o *origins) operand(op *ptx.Operand) provenance {
	var p provenance
	if s := op.Sym; s != nil {
		switch s.Kind {
		case ptx.SymReg:
			p = o.of[s.Index]
		default:
			p = o.symbol(s, op.Offset())
		}
	}
	for i := range op.Elems {
		p = p.with(o.operand(&op.Elems[i]))
	}
	return p
}

// symbol returns the provenance of what is no register of the function.
func (o *origins) symbol(s *ptx.Symbol, offset int64) provenance {
	switch s.Kind {
	case ptx.SymSpecial:
		switch s.Name {
		case "%ctaid":
			return provenance{from: fromBlock}
		case "%nctaid":
			return provenance{from: fromGrid}
		}
		return provenance{from: fromThread}
	case ptx.SymParam:
		if !o.f.code.Func.Entry {
			return provenance{from: fromCaller}
		}
		return provenance{fromParam, o.bit(root{s, offset})}
	case ptx.SymVar:
		switch s.Var.Space {
		case ptx.GlobalSpace, ptx.ConstSpace:
			return provenance{fromModule, o.bit(root{s, 0})}
		case ptx.SharedSpace, ptx.LocalSpace:
			return provenance{from: fromNear}
		}
	}
	return provenance{}
}

// birth returns the provenance that an instruction's result has by itself and not by the registers that it reads.
func (o *origins) birth(in *ptx.Instr) provenance {
	switch in.Opcode {
	case "call":
		return provenance{from: fromCaller}
	case "atom", "multimem":
		return provenance{from: fromAtomic}
	case "ld", "ldu":
		for _, m := range in.Modifiers {
			if strings.HasPrefix(m, "param") || m == "const" {
				p := o.named(in.Operands)
				if m == "const" {
					p.from |= fromModule
				} else if address(in).Base == ptx.KindReg {
					p = p.with(provenance{fromParam | fromCaller, 1 << 63})
				}
				return p
			}
			if strings.HasPrefix(m, "shared") || m == "local" {
				return provenance{}
			}
		}
		return provenance{from: fromMemory}
	case "tex", "tld4", "suld", "cp":
		return provenance{from: fromMemory}
	case "cvta":
		if !in.Has("to") && (in.Has("shared") || in.Has("shared::cta") || in.Has("local")) {
			return o.named(in.Operands).with(provenance{from: fromNear})
		}
	}
	if !flow.Known(in.Opcode) {
		return provenance{from: fromCaller}
	}
	return o.named(in.Operands)
}

// named returns the provenance of all operands that are no registers of the function.
func (o *origins) named(list []ptx.Operand) provenance {
	var p provenance
	for i := range list {
		if s := list[i].Sym; s != nil && s.Kind != ptx.SymReg {
			p = p.with(o.symbol(s, list[i].Offset()))
		}
		p = p.with(o.named(list[i].Elems))
	}
	return p
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
