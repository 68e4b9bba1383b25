package warps

import (
	"cmp"
	"slices"

	"vgpud/gpu/soft/simt"
	"vgpud/ptx"
)

// Kernel is a kernel as the model executes it.
type Kernel struct {
	name      string
	registers int // of a thread
	threads   int // of a block
	shared    int // bytes of a block
	ops       []op
	blocks    [][]warpTrace
	span      uint64 // lines of memory between two copies of the grid
}

// Name returns the kernel's name.
func (k *Kernel) Name() string { return k.name }

// Registers returns the number of registers of a thread.
func (k *Kernel) Registers() int { return k.registers }

// Blocks returns the number of traced blocks.
func (k *Kernel) Blocks() int { return len(k.blocks) }

// warps returns the number of warps of a block.
func (k *Kernel) warps() int { return (k.threads + WarpThreads - 1) / WarpThreads }

// room returns the registers of a block: those of whole warps.
func (k *Kernel) room() int { return k.warps() * WarpThreads * k.registers }

// warpTrace is a warp's trace, with where each step's lines begin.
type warpTrace struct {
	steps  []simt.Step
	lines  []uint64
	lineAt []uint32
}

// regset is a set of registers of a warp.
type regset [4]uint64

func (s *regset) add(r simt.Register, numbers map[simt.Register]int) {
	n, ok := numbers[r]
	if !ok {
		// A kernel of more registers has some share a place: they only wait for one another.
		n = len(numbers) % (64 * len(s))
		numbers[r] = n
	}
	s[n/64] |= 1 << (n % 64)
}

func (s *regset) meets(o *regset) bool {
	return s[0]&o[0]|s[1]&o[1]|s[2]&o[2]|s[3]&o[3] != 0
}

func (s *regset) join(o *regset) {
	for i := range s {
		s[i] |= o[i]
	}
}

func (s *regset) remove(o *regset) {
	for i := range s {
		s[i] &^= o[i]
	}
}

// unit executes instructions.
type unit uint8

const (
	noUnit unit = iota // the schedulers' own: branches, barriers
	arithmeticUnit
	specialUnit
	memoryUnit
)

// op is an instruction of a kernel.
type op struct {
	class   simt.OpClass
	space   ptx.Space
	unit    unit
	latency uint64
	busy    uint64 // for how long it occupies its unit
	place   int    // in the program
	uses    regset // reads and writes
	writes  regset
}

// timing is a class's unit, latency and initiation interval.
type timing struct {
	unit          unit
	latency, busy uint64
}

// timings are GPGPU-Sim 3.2's for a GTX 480, from 4 to 330 cycles as §VI.B says.
var timings = map[simt.OpClass]timing{
	simt.OpInteger:    {arithmeticUnit, 4, 1},
	simt.OpIntegerMul: {arithmeticUnit, 5, 1},
	simt.OpIntegerDiv: {specialUnit, 145, 8},
	simt.OpFloat:      {arithmeticUnit, 4, 1},
	simt.OpFloatMul:   {arithmeticUnit, 5, 1},
	simt.OpSpecial:    {specialUnit, 39, 4},
	simt.OpDouble:     {arithmeticUnit, 8, 8},
	simt.OpDoubleDiv:  {specialUnit, 330, 130},
	simt.OpExchange:   {arithmeticUnit, 5, 1},
	simt.OpMatrix:     {specialUnit, 39, 8},
	simt.OpBranch:     {arithmeticUnit, 4, 1},
	simt.OpBarrier:    {noUnit, 1, 1},
	simt.OpArrive:     {noUnit, 1, 1},
	simt.OpFence:      {noUnit, 1, 1},
	simt.OpExit:       {noUnit, 1, 1},
	simt.OpLoad:       {memoryUnit, 0, 1},
	simt.OpStore:      {memoryUnit, 0, 1},
	simt.OpAtomic:     {memoryUnit, 0, 1},
}

// NewKernel returns the kernel of a trace, with what a thread and a block of it need.
func NewKernel(name string, t *simt.Trace, registers, threads, shared int) *Kernel {
	k := &Kernel{name: name, registers: registers, threads: threads, shared: shared}
	numbers := make(map[simt.Register]int)
	order := make([]int, len(t.Ops))
	for i := range t.Ops {
		order[i] = i
		from := &t.Ops[i]
		at := timings[from.Class]
		o := op{class: from.Class, space: from.Space, unit: at.unit, latency: at.latency, busy: at.busy}
		if from.Class == simt.OpLoad && from.Space == ptx.ParamSpace {
			o.unit, o.latency = arithmeticUnit, 4 // from the constant cache
		}
		for _, r := range from.Reads {
			o.uses.add(r, numbers)
		}
		for _, r := range from.Writes {
			o.writes.add(r, numbers)
		}
		o.uses.join(&o.writes)
		k.ops = append(k.ops, o)
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(t.Ops[a].Line, t.Ops[b].Line) })
	for place, i := range order {
		k.ops[i].place = place
	}
	low, high := ^uint64(0), uint64(0)
	for i := range t.Blocks {
		var warps []warpTrace
		for j := range t.Blocks[i].Warps {
			from := &t.Blocks[i].Warps[j]
			w := warpTrace{steps: from.Steps, lines: from.Lines, lineAt: make([]uint32, len(from.Steps))}
			at := uint32(0)
			for s := range from.Steps {
				w.lineAt[s] = at
				at += uint32(from.Steps[s].Lines)
			}
			for _, l := range from.Lines {
				low, high = min(low, l), max(high, l)
			}
			warps = append(warps, w)
		}
		k.blocks = append(k.blocks, warps)
	}
	if low <= high {
		k.span = high - low + 1
	}
	return k
}

// Grid is a launch: blocks of a kernel. If it has more than were traced, the traces are repeated at
// other addresses.
type Grid struct {
	Kernel *Kernel
	Blocks int
}

// trace returns the warps of a block, and how far from where it was traced its memory is.
func (g *Grid) trace(n int) (warps []warpTrace, shift uint64) {
	k := g.Kernel
	return k.blocks[n%len(k.blocks)], uint64(n/len(k.blocks)) * k.span
}

// Capacity returns how many of a kernel's blocks the GPU holds at a time.
func (c *Config) Capacity(k *Kernel) int {
	n := min(c.Blocks, c.Threads/(k.warps()*WarpThreads), c.Registers/k.room())
	if k.shared > 0 {
		n = min(n, c.SharedBytes/k.shared)
	}
	return n * c.Cores
}
