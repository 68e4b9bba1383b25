package simt

import (
	"vgpud/ptx"
)

// A Trace is what each warp of a grid executed, for models of a processor's timing. Set
// [Launch.Trace] to one, for a kernel loaded with [Options.Traces], and it is filled in as the
// grid's blocks are stepped. Other grids pay for it with one comparison per turn of a warp.
type Trace struct {
	// Ops are the instructions that steps refer to.
	Ops []Op
	// Blocks are the grid's blocks in order of index.
	Blocks []BlockTrace
	// Limit is the number of steps at which recording ends; 0 means 16 million.
	Limit int
	// Truncated is set if more was executed than was recorded.
	Truncated bool

	steps int
	index map[*Op]uint32
}

// maxTracedSteps is the default of [Trace.Limit], and the most blocks that are traced.
const maxTracedSteps = 16 << 20

// BlockTrace is the part of a trace that is about one block.
type BlockTrace struct {
	Warps []WarpTrace
}

// WarpTrace is what one warp executed, in that order. Lanes that have diverged execute in turns, so
// an instruction is there once for each path that came to it.
type WarpTrace struct {
	Steps []Step
	// Lines are the lines of global memory that the steps accessed, one after the other.
	Lines []uint64
}

// Step is an instruction that a warp executed.
type Step struct {
	Op   uint32 // index in Trace.Ops
	Mask uint32 // the lanes that executed it; those whose predicate was false are among them
	// Lines is the number of lines of [LineBytes] of global memory that the lanes' accesses
	// coalesce into. They are in WarpTrace.Lines.
	Lines uint16
	// Barrier is the barrier's number and Expect the number of warps that it waits for, 0 for all
	// of the block. Arrives reports whether the warp arrives at it with this step, rather than some of
	// its lanes while others are still on their way.
	Barrier, Expect uint8
	Arrives         bool
	// Diverges reports whether the lanes went different ways.
	Diverges bool
}

// LineBytes is the size of a line of memory in a trace: that of NVIDIA's caches.
const LineBytes = 128

// Op is an instruction of the program as a trace describes it.
type Op struct {
	Class OpClass
	Space ptx.Space // that a load, store or atomic names; NoSpace for a generic address
	Line  uint32    // of the PTX source
	// Reads and Writes are registers of a warp. Values that are never alive at the same time share
	// one, as with an assembler.
	Reads, Writes []Register
}

// Register names a register of a warp: its bank and its index there.
type Register uint16

// OpClass says which unit executes an instruction, and how long it takes there.
type OpClass uint8

// The classes.
const (
	OpInteger OpClass = iota // also logic, moves, comparisons and conversions
	OpIntegerMul
	OpIntegerDiv
	OpFloat // single and half precision
	OpFloatMul
	OpSpecial // single-precision division, roots and transcendental functions
	OpDouble
	OpDoubleDiv
	OpExchange // between the lanes of a warp
	OpMatrix
	OpLoad
	OpStore
	OpAtomic
	OpBarrier // waits for other warps of the block
	OpArrive  // arrives at a barrier and goes on
	OpFence
	OpBranch // also calls and returns
	OpExit
)

// ofOpcode holds the classes of opcodes whose operands' type does not matter.
var ofOpcode = map[string]OpClass{
	"ld": OpLoad, "ldu": OpLoad, "tex": OpLoad, "tld4": OpLoad, "suld": OpLoad, "ldmatrix": OpLoad, "cp": OpLoad,
	"st": OpStore, "sust": OpStore, "stmatrix": OpStore,
	"atom": OpAtomic, "red": OpAtomic, "sured": OpAtomic, "mbarrier": OpAtomic,
	"membar": OpFence, "fence": OpFence,
	"bra": OpBranch, "brx": OpBranch, "call": OpBranch, "nanosleep": OpBranch,
	"exit": OpExit, "trap": OpExit,
	"shfl": OpExchange, "vote": OpExchange, "match": OpExchange, "redux": OpExchange, "elect": OpExchange,
	"wmma": OpMatrix, "mma": OpMatrix, "movmatrix": OpMatrix,
	"rcp": OpSpecial, "sqrt": OpSpecial, "rsqrt": OpSpecial, "sin": OpSpecial, "cos": OpSpecial, "lg2": OpSpecial, "ex2": OpSpecial, "tanh": OpSpecial,
}

// classOfInstr returns an instruction's class.
func classOfInstr(in *ptx.Instr, kernel bool) OpClass {
	t := ptx.NoType
	for _, m := range in.Modifiers {
		if named, ok := ptx.ParseType(m); ok {
			t = named
		}
	}
	float, double := t.Class() == ptx.Float, t.Class() == ptx.Float && t.Bits() == 64
	class, known := ofOpcode[in.Opcode]
	switch {
	case in.Opcode == "bar" || in.Opcode == "barrier":
		switch {
		case in.Has("warp"):
			return OpExchange
		case in.Has("arrive"):
			return OpArrive
		}
		return OpBarrier
	case in.Opcode == "ret" && kernel:
		return OpExit
	case in.Opcode == "ret":
		return OpBranch
	case known && class == OpSpecial && double:
		return OpDoubleDiv
	case known:
		return class
	}
	switch in.Opcode {
	case "div", "rem":
		switch {
		case double:
			return OpDoubleDiv
		case float:
			return OpSpecial
		}
		return OpIntegerDiv
	case "mul", "mad", "fma", "mul24", "mad24", "madc", "dp4a", "dp2a":
		switch {
		case double:
			return OpDouble
		case float:
			return OpFloatMul
		}
		return OpIntegerMul
	}
	switch {
	case double:
		return OpDouble
	case float:
		return OpFloat
	}
	return OpInteger
}

// The banks in a Register's upper bits.
const (
	bank64   Register = 1 << 14
	bankPred Register = 2 << 14
)

// register returns a PTX register's name in a trace.
func (o operand) register() Register {
	switch o.class {
	case predReg:
		return bankPred | Register(o.index)
	case reg64:
		return bank64 | Register(o.index)
	}
	return Register(o.index)
}

// describe attaches an instruction's description to one of the operations from start on that it was
// compiled to: the one that accesses global memory, if there is one.
func (c *compiler) describe(start int, in *ptx.Instr) {
	if start == len(c.code) {
		return
	}
	op := &Op{Class: classOfInstr(in, c.cur.decl.Entry), Line: uint32(in.Pos.Line)}
	best := start
	for k := len(c.code) - 1; k >= start; k-- {
		if m := c.code[k].x.mem; m != nil && (c.code[best].x.mem == nil || m.space != ptx.SharedSpace) {
			best = k
		}
	}
	if m := c.code[best].x.mem; m != nil {
		op.Space = m.space
	} else if op.Class == OpLoad {
		op.Space = ptx.ParamSpace // a parameter, which a register holds
	}
	eachReg(in, func(reg int, use registerUse) {
		o := c.cur.regs[reg]
		if o.class == noReg {
			return
		}
		switch use {
		case readsReg:
			op.Reads = appendNew(op.Reads, o.register())
		case writesReg:
			op.Writes = appendNew(op.Writes, o.register())
		case mayWrite:
			op.Reads = appendNew(op.Reads, o.register())
			op.Writes = appendNew(op.Writes, o.register())
		}
	})
	c.code[best].x.note = op
}

func appendNew(list []Register, r Register) []Register {
	for _, have := range list {
		if have == r {
			return list
		}
	}
	return append(list, r)
}
