package simt

import (
	"math"

	"vgpud/gpu"
	"vgpud/ptx"
	"vgpud/ptx/flow"
)

// branches holds what a function's control-flow graph implies for its instructions.
type branches struct {
	meet  []int  // where lanes that diverge at the instruction reconverge: len(Instrs) for the end, -1 for nowhere
	joins []bool // whether lanes reconverge at the instruction; one longer than Instrs
	waits []int  // number of instructions before the index that may wait for another thread
}

// noTarget marks a branch without a target.
const noTarget = math.MinInt32

func newBranches(code *ptx.Code, g *flow.Graph) *branches {
	n := len(code.Instrs)
	b := &branches{meet: make([]int, n), joins: make([]bool, n+1), waits: make([]int, n+1)}
	for i, in := range code.Instrs {
		b.meet[i] = -1
		b.waits[i+1] = b.waits[i]
		if mayWait(in) {
			b.waits[i+1]++
		}
		if in.Opcode == "call" {
			b.joins[i+1] = b.joins[i+1] || indirect(in)
		}
	}
	for i := range g.Blocks {
		blk := &g.Blocks[i]
		if len(blk.Succs) < 2 || !blk.Reachable {
			continue
		}
		at := g.Reconvergence(i)
		if at == n && code.Func.Entry {
			continue // threads that exit don't reconverge
		}
		b.meet[blk.End-1] = at
		b.joins[at] = true
	}
	return b
}

// mayWait reports whether an instruction reads memory that another thread may change, so that a
// loop around it may be waiting for that thread.
func mayWait(in *ptx.Instr) bool {
	switch in.Opcode {
	case "atom", "nanosleep", "mbarrier", "call":
		return true
	case "ld":
		return in.Has("volatile") || in.Has("relaxed") || in.Has("acquire") || in.Has("mmio")
	}
	return false
}

func indirect(in *ptx.Instr) bool {
	call, ok := in.Call()
	return ok && call.Target.Kind == ptx.KindReg
}

// weight returns how much an iteration of the loop that branches from i back to instruction to
// counts towards yielding.
func (b *branches) weight(i, to int) int32 {
	switch {
	case to > i:
		return 0
	case b.waits[i+1] > b.waits[to]:
		return spinWeight
	}
	return 1
}

// control adds an instruction that may change the path.
func (c *compiler) control(f opFunc, x *extra) {
	c.emit(inst{op: f, x: x}, c.costs().Control)
}

func compileBra(c *compiler, in *ptx.Instr, m *mods) error {
	m.skip("uni")
	if err := c.arity(in, 1, 1); err != nil {
		return err
	}
	s := in.Operands[0].Sym
	if s == nil || s.Kind != ptx.SymLabel {
		return c.invalid("the target is not a label")
	}
	if c.cur.decl.Entry && in.Guarded() && c.endsThere(s.Index) {
		c.control(exitIf, &extra{})
		return nil
	}
	x := &extra{target: int32(s.Index), rpc: int32(c.cur.flow.meet[c.position]), weight: c.cur.flow.weight(c.position, s.Index)}
	f := bra
	switch {
	case in.Guarded():
		f = braIf
	case x.weight > 0:
		f = braBack
	}
	c.emit(inst{op: f, x: x}, c.costs().Simple)
	return nil
}

// endsThere reports whether only the end of the kernel is at instruction i.
func (c *compiler) endsThere(i int) bool {
	list := c.cur.code.Instrs
	if i == len(list) {
		return true
	}
	in := list[i]
	return (in.Opcode == "ret" || in.Opcode == "exit") && !in.Guarded()
}

func compileBrx(c *compiler, in *ptx.Instr, m *mods) error {
	m.skip("uni", "idx")
	if err := c.arity(in, 2, 2); err != nil {
		return err
	}
	a, err := c.src(&in.Operands[0], ptx.U32)
	if err != nil {
		return err
	}
	list := in.Operands[1].Sym
	if list == nil || list.Kind != ptx.SymTargets {
		return c.invalid("no list of targets")
	}
	x := &extra{target: noTarget, rpc: int32(c.cur.flow.meet[c.position]), weight: spinWeight}
	for _, s := range list.Branch.Syms {
		x.targets = append(x.targets, int32(s.Index))
	}
	f := brx
	if in.Guarded() {
		f = brxIf
	}
	c.emit(inst{op: f, a: a.index, x: x}, c.costs().Control)
	return nil
}

// compileRet compiles ret and exit, which are the same in a kernel.
func compileRet(c *compiler, in *ptx.Instr, m *mods) error {
	m.skip("uni")
	switch {
	case (c.cur.decl.Entry || in.Opcode == "exit") && in.Guarded():
		c.control(exitIf, &extra{})
	case c.cur.decl.Entry || in.Opcode == "exit":
		c.control(exit, &extra{})
	case in.Guarded():
		c.control(braIf, &extra{target: int32(len(c.cur.code.Instrs)), rpc: int32(c.cur.flow.meet[c.position])})
	default:
		c.control(bra, &extra{target: int32(len(c.cur.code.Instrs))})
	}
	return nil
}

func compileTrap(c *compiler, in *ptx.Instr, m *mods) error {
	c.control(trap, &extra{})
	return nil
}

// resolveTargets converts the numbers of PTX instructions in a function's branches to program
// counters.
func (c *compiler) resolveTargets(f *function) error {
	place := func(i int32) int32 {
		if i < 0 {
			return i
		}
		return f.pcs[i]
	}
	for k := int(f.entry); k < len(c.code); k++ {
		x := c.code[k].x
		if c.code[k].run != 0 || x.local {
			continue
		}
		if x.target != noTarget {
			x.target = place(x.target)
		}
		for i := range x.targets {
			x.targets[i] = place(x.targets[i])
		}
		x.rpc = place(x.rpc)
	}
	return nil
}

// bra branches.
func bra(w *warp, in *inst) { w.pc = in.x.target }

// braBack branches backwards, closing a loop.
func braBack(w *warp, in *inst) {
	w.pc = in.x.target
	w.back(in.x.weight)
}

// braIf branches with the lanes whose guard is true.
func braIf(w *warp, in *inst) {
	x := in.x
	taken := w.mask & (w.pred[x.guard] ^ x.unless)
	switch taken {
	case 0:
		w.pc++
		return
	case w.mask:
		w.pc = x.target
	default:
		w.part(taken, x.target, w.pc+1, x.rpc)
	}
	if x.weight > 0 {
		w.back(x.weight)
	}
}

func brx(w *warp, in *inst) { w.choose(in, w.mask) }

func brxIf(w *warp, in *inst) {
	x := in.x
	taken := w.mask & (w.pred[x.guard] ^ x.unless)
	if taken == 0 {
		w.pc++
		return
	}
	w.choose(in, taken)
}

// choose sends each lane of taken to its own target, and the path's other lanes on.
func (w *warp) choose(in *inst, taken uint32) {
	x := in.x
	a := &w.r32[in.a]
	next := w.pc + 1
	for taken != 0 {
		n := a[first(taken)]
		var same uint32
		for m := taken; m != 0; m &= m - 1 {
			if i := first(m); a[i] == n {
				same |= 1 << i
			}
		}
		if int(n) >= len(x.targets) {
			w.raise(gpu.FaultInstruction, in, first(taken))
			return
		}
		taken &^= same
		if same == w.mask {
			w.pc = x.targets[n]
			w.back(x.weight)
			return
		}
		w.part(same, x.targets[n], next, x.rpc)
		if w.pc != next { // the others have reached the join already
			w.back(x.weight)
			return
		}
	}
	w.pc = next
}

// exit ends the path's threads.
func exit(w *warp, in *inst) {
	w.leave(w.mask)
	w.next()
}

// exitIf ends the threads whose guard is true.
func exitIf(w *warp, in *inst) {
	gone := w.mask & (w.pred[in.x.guard] ^ in.x.unless)
	w.pc++
	if gone == 0 {
		return
	}
	w.leave(gone)
	if w.mask == 0 {
		w.next()
	}
}

func trap(w *warp, in *inst) { w.raise(gpu.FaultTrap, in, first(w.mask)) }
