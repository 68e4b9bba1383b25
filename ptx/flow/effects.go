package flow

import (
	"strings"

	"vgpud/ptx"
)

// Effects holds which registers the instructions of a function read and write. Registers are numbers
// in Code.Regs; the carry flag is one more, followed by the state spaces of memory, each as if it were
// one register (see [Effects.Space]). Unknown effects of an instruction are overestimated.
type Effects struct {
	list []effect
	regs int32
}

// Effects returns what the function's instructions read and write. Unreachable ones do neither.
func (g *Graph) Effects() *Effects {
	return &Effects{g.classify(true), int32(len(g.Code.Regs))}
}

// Reads returns the registers that instruction i reads, its guard included. A register may be
// listed twice.
func (e *Effects) Reads(i int) []int32 { return e.list[i].reads }

// Writes returns the registers that instruction i writes, always or only if its guard holds.
func (e *Effects) Writes(i int) []int32 { return e.list[i].writes }

// Space returns the number of a state space's memory: shared, local, param (what is passed to and from
// functions) or global, which includes textures and surfaces. A generic address may be in any except
// param. Memory that never changes during a function, its own parameters and constants, is not listed.
func (e *Effects) Space(s ptx.Space) int32 { return e.regs + 1 + spaceNumber(s) }

// Numbers returns how many numbers registers and spaces have.
func (e *Effects) Numbers() int { return int(e.regs) + 1 + spaces }

// Known reports whether the effects of instructions with this opcode on registers are known.
// Unknown ones are assumed to write every register that they name.
func Known(opcode string) bool {
	switch opcode {
	case "ld", "cp", "bar", "barrier", "call":
		return true
	}
	return pure[opcode] || divergentOpcodes[opcode] || noResult[opcode]
}

// Pure reports whether instructions with this opcode only compute a register from their operands.
func Pure(opcode string) bool { return pure[opcode] }

// effect is what an instruction reads and writes, as far as uniformity depends on it. Registers are
// numbers in Code.Regs; the carry flag is one more.
type effect struct {
	reads, writes []int32
	diverged      bool // threads were found to get different results
	source        bool // threads may get different results from the same inputs
}

// uniformSpecials holds the special registers that are the same for all threads of a block. (%smid
// is too, at any moment, but a block that moves between two reads of it would see it change.)
var uniformSpecials = set(`%ctaid %nctaid %ntid %gridid %nwarpid %nsmid %clusterid %nclusterid %cluster_ctaid
	%cluster_nctaid %cluster_ctarank %cluster_nctarank %is_explicit_cluster %total_smem_size %aggr_smem_size
	%dynamic_smem_size %current_graph_exec %reserved_smem_offset_begin %reserved_smem_offset_end
	%reserved_smem_offset_cap %reserved_smem_offset_0 %reserved_smem_offset_1`)

// pure holds the opcodes whose results depend on their operands alone.
var pure = set(`abs add addc and bfe bfi bfind bmsk brev clz cnot copysign cos cvt cvta div dp2a dp4a ex2 fma fns
	getctarank isspacep lg2 lop3 mad mad24 madc mapa max min mov mul mul24 neg not or popc prmt rcp rem rsqrt sad selp
	set setp shf shl shr sin slct sqrt sub subc szext tanh testp vabsdiff vabsdiff2 vabsdiff4 vadd vadd2 vadd4 vavrg2
	vavrg4 vmad vmax vmax2 vmax4 vmin vmin2 vmin4 vset vset2 vset4 vshl vshr vsub vsub2 vsub4 xor`)

// divergentOpcodes holds the opcodes whose result, the first operand, may differ between threads
// whatever the others are.
var divergentOpcodes = set(`activemask alloca atom createpolicy elect istypep ld ldmatrix ldu match mma movmatrix redux shfl
	stacksave suld suq tex tld4 txq vote wmma`)

// noResult holds the opcodes that write no register.
var noResult = set(`applypriority bra brkpt brx discard exit fence griddepcontrol membar nanosleep pmevent prefetch
	prefetchu red ret setmaxnreg st stackrestore stmatrix sured sust trap`)

func set(names string) map[string]bool {
	m := map[string]bool{}
	for _, n := range strings.Fields(names) {
		m[n] = true
	}
	return m
}

// classify determines the effects of all instructions. Their lists share arrays. Without all, it
// leaves out memory and what each thread contributes to a reduction by the whole block, whose
// result is the same for all threads regardless.
func (g *Graph) classify(all bool) []effect {
	c := g.Code
	carry := int32(len(c.Regs))
	effects := make([]effect, len(c.Instrs))
	var pool []int32
	for i, in := range c.Instrs {
		if !g.Blocks[g.BlockOf(i)].Reachable {
			continue
		}
		e := &effects[i]
		how, dests := g.resultKindOf(in)
		e.source = how == mixed
		inputs := len(in.Operands)
		if how == agreed && !all {
			inputs-- // each thread's contribution; only the barrier's number must be the same
		}
		start := len(pool)
		for j := range inputs {
			if j >= dests {
				pool = registers(&in.Operands[j], true, e, pool)
			} else {
				pool = addresses(&in.Operands[j], e, pool)
			}
		}
		if in.Guarded() {
			if in.Pred.Sym.Kind == ptx.SymReg {
				pool = append(pool, int32(in.Pred.Sym.Index))
			} else {
				e.source = e.source || !uniformSpecials[in.Pred.Sym.Name]
			}
		}
		if in.Opcode == "addc" || in.Opcode == "subc" || in.Opcode == "madc" {
			pool = append(pool, carry)
		}
		if all {
			pool = g.spaces(in, false, pool)
		}
		e.reads = pool[start:len(pool):len(pool)]
		start = len(pool)
		for j := range min(dests, len(in.Operands)) {
			pool = registers(&in.Operands[j], false, e, pool)
		}
		if in.Has("cc") {
			pool = append(pool, carry)
		}
		if all {
			pool = g.spaces(in, true, pool)
		}
		e.writes = pool[start:len(pool):len(pool)]
	}
	return effects
}

// resultKind is how an instruction's results depend on threads.
type resultKind uint8

const (
	computed resultKind = iota // from its operands alone
	mixed                      // from something that threads may differ in
	agreed                     // by the whole block together
)

// resultKindOf returns how an instruction's results depend on threads, and how many of its first
// operands may be results.
func (g *Graph) resultKindOf(in *ptx.Instr) (resultKind, int) {
	first := ptx.KindNone
	if len(in.Operands) > 0 {
		first = in.Operands[0].Kind
	}
	switch op := in.Opcode; {
	case pure[op]:
		return computed, 1
	case noResult[op], op == "cp" && first == ptx.KindAddr:
		return computed, 0
	case op == "ld" && g.invariantLoad(in):
		return computed, 1
	case op == "bar" || op == "barrier":
		// A reduction over the whole block gives all threads the same: bar.red.or.pred p, a, q.
		// With a thread count before the last operand it covers part of the block.
		switch {
		case !in.Has("red"):
			return computed, 0
		case len(in.Operands) == 3:
			return agreed, 1
		}
		return mixed, 1
	case op == "call" && first != ptx.KindList:
		return mixed, 0
	case op == "call" || divergentOpcodes[op]:
		return mixed, 1
	}
	return mixed, len(in.Operands) // unknown, so anything it names may be a result
}

// invariantLoad reports whether a load reads what never changes while the kernel runs and is the
// same for all threads: a kernel's parameters, or constant memory.
func (g *Graph) invariantLoad(in *ptx.Instr) bool {
	if in.Has("const") {
		return true
	}
	for _, m := range in.Modifiers {
		if m != "param" && m != "param::entry" {
			continue
		}
		if len(in.Operands) == 2 {
			s := in.Operands[1].Sym
			return g.Code.Func.Entry && s != nil && s.Kind == ptx.SymParam
		}
	}
	return false
}

// registers appends the registers in o to list. If they are read, a special register that differs
// between threads makes the instruction a source.
func registers(o *ptx.Operand, read bool, e *effect, list []int32) []int32 {
	if o.Kind == ptx.KindAddr && !read {
		return list // an address is read wherever it stands
	}
	if s := o.Sym; s != nil {
		switch s.Kind {
		case ptx.SymReg:
			list = append(list, int32(s.Index))
		case ptx.SymSpecial:
			e.source = e.source || read && !uniformSpecials[s.Name]
		}
	}
	for i := range o.Elems {
		list = registers(&o.Elems[i], read, e, list)
	}
	return list
}

// addresses appends the registers in the addresses among o's parts.
func addresses(o *ptx.Operand, e *effect, list []int32) []int32 {
	if o.Kind == ptx.KindAddr {
		return registers(o, true, e, list)
	}
	for i := range o.Elems {
		list = addresses(&o.Elems[i], e, list)
	}
	return list
}
