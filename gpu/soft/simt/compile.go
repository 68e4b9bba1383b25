package simt

import (
	"errors"
	"fmt"
	"slices"

	"vgpud/gpu"
	"vgpud/ptx"
)

// compiler compiles one kernel and the functions that it can call.
type compiler struct {
	loader  *loader
	kernel  *ptx.Func
	prog    *program
	shared  *layout // layout of the kernel's shared memory
	uniform map[uniform]uint32
	special map[specialKey]operand
	funcs   map[*ptx.Func]*function
	queue   []*function

	cur      *function
	code     []inst
	at       *ptx.Instr
	position int                 // index of at in the function
	params   map[*ptx.Var]uint64 // offsets of the kernel's parameters
	named    map[*ptx.Var]bool   // shared variables that its functions name
	attr     *gpu.FunctionAttributes
}

// function is a kernel or device function being compiled.
type function struct {
	decl     *ptx.Func
	code     *ptx.Code
	flow     *branches
	entry    int32
	regs     []operand // by PTX register number
	pcs      []int32   // program counter of each instruction
	frame    layout
	params   []formal
	returns  []formal
	calls    []*function
	unknown  bool // makes calls through pointers
	group    int  // equal for functions that can call one another
	pressure int  // maximum of 32-bit registers alive at a time
}

// formal is a device function's parameter or result.
type formal struct {
	reg  operand // in a register if its class is set
	at   uint32  // in the frame
	size uint32
}

// regClass is the kind of register an operand is in.
type regClass uint8

const (
	noReg regClass = iota
	predReg
	reg8  // the low byte of a 32-bit register
	reg16 // its low half
	reg32
	reg64
)

// operand is a register of a warp.
type operand struct {
	index uint32
	class regClass
	not   bool // of a predicate: its complement
}

func classOf(t ptx.Type) regClass {
	switch t.Bits() {
	case 1:
		return predReg
	case 8:
		return reg8
	case 16:
		return reg16
	case 32:
		return reg32
	case 64:
		return reg64
	}
	return noReg
}

// errf returns an error about the current instruction.
func (c *compiler) errf(kind error, format string, args ...any) error {
	msg := fmt.Sprintf(format, args...)
	if c.at == nil {
		return fmt.Errorf("kernel %s: %s: %w", c.kernel.Name, msg, kind)
	}
	what := fmt.Sprintf("PTX line %d: %s: %s", c.at.Pos.Line, shortened(c.at.Form()), shortened(msg))
	return &instructionError{kernel: c.kernel.Name, what: what, kind: kind}
}

func (c *compiler) unsupported(format string, args ...any) error {
	return c.errf(gpu.ErrUnsupported, format, args...)
}

func (c *compiler) invalid(format string, args ...any) error {
	return c.errf(gpu.ErrInvalidModule, format, args...)
}

// newReg allocates a register that corresponds to no PTX register.
func (c *compiler) newReg(class regClass) operand {
	var i int
	switch class {
	case predReg:
		i = c.prog.np
		c.prog.np++
	case reg64:
		i = c.prog.n64
		c.prog.n64++
	default:
		i = c.prog.n32
		c.prog.n32++
	}
	return operand{index: uint32(i), class: class}
}

// constant returns a register that holds v in all lanes.
func (c *compiler) constant(class regClass, v uint64) operand {
	switch class {
	case reg8:
		v &= 0xff
	case reg16:
		v &= 0xffff
	case reg32:
		v &= 0xffffffff
	}
	o := c.uniformReg(uniform{wide: class == reg64, bits: v})
	o.class = class
	return o
}

// uniformReg returns the register of a value that is known at launch.
func (c *compiler) uniformReg(u uniform) operand {
	class := reg32
	if u.wide {
		class = reg64
	}
	i, ok := c.uniform[u]
	if !ok {
		i = c.newReg(class).index
		c.uniform[u] = i
		u.reg = i
		c.prog.uniforms = append(c.prog.uniforms, u)
	}
	return operand{index: i, class: class}
}

// emit adds an instruction.
func (c *compiler) emit(in inst, cost uint32) *inst {
	in.cost = uint64(cost)
	if in.x == nil {
		in.x = &extra{}
	}
	in.x.line = c.at.Pos.Line
	c.code = append(c.code, in)
	return &c.code[len(c.code)-1]
}

// op adds an operation with up to three sources that does not change the path.
func (c *compiler) op(f opFunc, cost uint32, d operand, src ...operand) {
	in := inst{op: f, d: d.index, run: 1}
	for i, s := range src {
		switch i {
		case 0:
			in.a = s.index
		case 1:
			in.b = s.index
		case 2:
			in.c = s.index
		}
	}
	c.emit(in, cost)
}

// function compiles one function's body.
func (c *compiler) function(f *function) error {
	c.cur = f
	c.at = nil
	f.entry = int32(len(c.code))
	f.pcs = make([]int32, len(f.code.Instrs)+1)
	for i, in := range f.code.Instrs {
		c.at, c.position = in, i
		f.pcs[i] = int32(len(c.code))
		if f.flow.joins[i] {
			c.emit(inst{op: arrive}, 0)
		}
		if err := c.charge(1); err != nil {
			return err
		}
		if err := c.instruction(i, in); err != nil {
			return err
		}
	}
	// All returns branch to the end of the function.
	f.pcs[len(f.code.Instrs)] = int32(len(c.code))
	if len(f.code.Instrs) == 0 {
		c.at = &ptx.Instr{Opcode: "ret", Pos: f.decl.Pos}
	}
	if f.decl.Entry {
		c.emit(inst{op: exit}, c.costs().Control)
		if c.loader.opts.Traces {
			c.describe(len(c.code)-1, &ptx.Instr{Opcode: "exit", Pos: c.at.Pos})
		}
	} else {
		if f.flow.joins[len(f.code.Instrs)] {
			c.emit(inst{op: arrive}, 0)
		}
		c.emit(inst{op: ret, x: &extra{fn: f}}, c.costs().Control)
	}
	return c.resolveTargets(f)
}

// checkEvery is the number of instructions between two checks whether the load is cancelled, about
// a millisecond.
const checkEvery = 512

// errTooLarge says that a module's kernels are too large together.
var errTooLarge = errors.New("the module is too large")

// charge counts against the limit on a module's size. It prevents a small source from expanding to
// a large program.
func (c *compiler) charge(n int) error {
	l := c.loader
	l.compiled += n
	if l.compiled > l.opts.MaxInstructions {
		return fmt.Errorf("kernel %s: %w: more than %d instructions: %w", c.kernel.Name, errTooLarge, l.opts.MaxInstructions, gpu.ErrUnsupported)
	}
	if l.compiled-l.checked >= checkEvery {
		return l.cancelled()
	}
	return nil
}

func (c *compiler) costs() *CostModel { return &c.loader.costs }

// instruction compiles one instruction with its guard.
func (c *compiler) instruction(index int, in *ptx.Instr) error {
	compile, ok := opcodes[in.Opcode]
	if !ok {
		return c.unsupported("unknown to this GPU")
	}
	if len(in.Modifiers) > 64 {
		return c.invalid("too many modifiers")
	}
	start := len(c.code)
	m := &mods{list: in.Modifiers}
	if err := compile(c, in, m); err != nil {
		if errors.Is(err, gpu.ErrUnsupported) || errors.Is(err, gpu.ErrInvalidModule) {
			return err
		}
		return c.invalid("%v", err)
	}
	if s, left := m.unknown(); left {
		return c.unsupported("modifier .%s", s)
	}
	for k := start; k < len(c.code); k++ {
		c.code[k].x.index = index
	}
	if c.loader.opts.Traces {
		c.describe(start, in)
	}
	if in.Guarded() {
		return c.guardFrom(start, index, in)
	}
	return nil
}

// guardFrom puts the instructions compiled since start under the instruction's guard. It adds a
// branch around an instruction that may change the path and does not handle guards itself.
func (c *compiler) guardFrom(start, index int, in *ptx.Instr) error {
	p, err := c.guard(in)
	if err != nil {
		return err
	}
	control := false
	for k := start; k < len(c.code); k++ {
		x := c.code[k].x
		x.guard = p.index
		if p.not {
			x.unless = full
		}
		control = control || c.code[k].run == 0
	}
	switch in.Opcode {
	case "bra", "brx", "ret", "exit":
		return nil
	}
	if !control {
		for k := start; k < len(c.code); k++ {
			c.code[k].x.guarded = c.code[k].op
			c.code[k].op = guard
		}
		return nil
	}
	skip := c.code[start].x.guard
	around := &extra{line: in.Pos.Line, index: index, guard: skip, unless: ^c.code[start].x.unless, guarded: bra, local: true}
	after := int32(len(c.code) + 1)
	around.target, around.rpc = after, after
	c.code = slices.Insert(c.code, start, inst{op: braIf, x: around, cost: uint64(c.costs().Simple)})
	c.emit(inst{op: arrive}, 0)
	return nil
}

func (c *compiler) guard(in *ptx.Instr) (operand, error) {
	if in.Pred.Sym == nil || in.Pred.Sym.Kind != ptx.SymReg || in.Pred.Sym.Type != ptx.Pred1 {
		return operand{}, c.invalid("guard %s is not a predicate register", in.Pred.Name)
	}
	p := c.cur.regs[in.Pred.Sym.Index]
	p.not = in.Pred.Not
	return p, nil
}
