package flow

import "vgpud/ptx"

// Uniformity holds which registers have one value for the whole thread block, and which branches
// the whole block takes the same way. It is conservative: what it calls uniform is.
type Uniformity struct {
	g         *Graph
	divergent []bool // of each register in Code.Regs, and of the carry flag behind them
	diverged  []bool // of each block
}

// Uniform reports whether register s of the function's Code.Regs has one value for the whole thread
// block: all threads that read it at the same point of a common history read the same.
func (u *Uniformity) Uniform(s *ptx.Symbol) bool {
	switch s.Kind {
	case ptx.SymReg:
		return !u.divergent[s.Index]
	case ptx.SymSpecial:
		return uniformSpecials[s.Name]
	}
	return true // an address
}

// Convergent reports whether the threads of a thread block either all execute block b or none does:
// no branch at which they may diverge decides about it. In a device function "all" means those that
// called it.
func (u *Uniformity) Convergent(b int) bool { return !u.diverged[b] }

// Branch reports whether all threads that come to the branch that ends block b take it the same
// way. It is true for a block that ends in no branch, or in one with a single destination.
func (u *Uniformity) Branch(b int) bool {
	blk := &u.g.Blocks[b]
	if len(blk.Succs) < 2 {
		return true
	}
	last := u.g.Code.Instrs[blk.End-1]
	if last.Guarded() && !u.Uniform(last.Pred.Sym) {
		return false
	}
	if KindOf(last) == Switch {
		return u.operandUniform(&last.Operands[0])
	}
	return true
}

// Uniformity finds what is uniform over a thread block: kernel parameters, constants, the block's
// own index and sizes, and what is computed only from those where the whole block computes it. A
// register written where only some threads come (a block that is control dependent, by Ferrante,
// Ottenstein and Warren's definition of 1987, on a branch at which they may diverge) counts as
// divergent, since threads that meet again may differ in it.
func (g *Graph) Uniformity() *Uniformity { return g.UniformityWith(nil) }

// UniformityWith is Uniformity if agreed returns true for instructions that are known to give all
// threads the same from the same operands, although that does not show: loads of what no thread
// writes meanwhile. nil means none.
func (g *Graph) UniformityWith(agreed func(instr int) bool) *Uniformity {
	a := &analysis{
		Uniformity: Uniformity{
			g:         g,
			divergent: make([]bool, len(g.Code.Regs)+1),
			diverged:  make([]bool, len(g.Blocks)),
		},
		parting: newControlDeps(g),
	}
	a.parting.begin()
	a.effects = g.classify(false)
	a.index()
	for i, e := range a.effects {
		if e.source && (agreed == nil || !agreed(i)) {
			a.diverge(i)
		}
	}
	if !g.Code.Func.Entry {
		for _, s := range g.Code.Params {
			if s.Kind == ptx.SymReg { // its callers may pass anything
				a.divergeReg(s.Index)
			}
		}
	}
	a.run()
	return &a.Uniformity
}

// analysis computes a Uniformity. Registers and blocks only ever turn from uniform to divergent;
// each that turns is queued once, and its dependents are then examined.
type analysis struct {
	Uniformity
	effects []effect
	uses    []int32 // instructions by the registers they read: uses[useAt[r]:useAt[r+1]]
	useAt   []int32
	regs    []int // queue of registers that turned divergent
	blocks  []int // queue of branches, by their blocks, whose dependents turn divergent
	parting controlDeps
}

// run processes the queues.
func (a *analysis) run() {
	for len(a.regs)+len(a.blocks) > 0 {
		if n := len(a.regs); n > 0 {
			r := a.regs[n-1]
			a.regs = a.regs[:n-1]
			for _, i := range a.uses[a.useAt[r]:a.useAt[r+1]] {
				a.diverge(int(i))
			}
			continue
		}
		n := len(a.blocks)
		b := a.blocks[n-1]
		a.blocks = a.blocks[:n-1]
		a.parting.diverge(b, func(s int) {
			a.diverged[s] = true
			// Instructions that only some threads execute give only those threads results, and
			// their branches decide only for them.
			for i := a.g.Blocks[s].First; i < a.g.Blocks[s].End; i++ {
				a.diverge(i)
			}
		})
	}
}

// divergeReg marks a register as divergent.
func (a *analysis) divergeReg(r int) {
	if !a.divergent[r] {
		a.divergent[r] = true
		a.regs = append(a.regs, r)
	}
}

// diverge records that instruction i gives different threads different results: the registers that
// it writes and the direction of its branch diverge.
func (a *analysis) diverge(i int) {
	e := &a.effects[i]
	if e.diverged {
		return
	}
	e.diverged = true
	for _, r := range e.writes {
		a.divergeReg(int(r))
	}
	// Each instruction comes here once, so each branch is queued once.
	b := a.g.BlockOf(i)
	if blk := &a.g.Blocks[b]; i == blk.End-1 && blk.Reachable && len(blk.Succs) > 1 {
		a.blocks = append(a.blocks, b)
	}
}

// index lists, for each register, the instructions that read it.
func (a *analysis) index() {
	n := len(a.divergent)
	a.useAt = make([]int32, n+1)
	for i := range a.effects {
		for _, r := range a.effects[i].reads {
			a.useAt[r+1]++
		}
	}
	for r := range n {
		a.useAt[r+1] += a.useAt[r]
	}
	a.uses = make([]int32, a.useAt[n])
	at := append([]int32(nil), a.useAt...)
	for i := range a.effects {
		for _, r := range a.effects[i].reads {
			a.uses[at[r]] = int32(i)
			at[r]++
		}
	}
}

// operandUniform reports whether all registers in o are uniform.
func (u *Uniformity) operandUniform(o *ptx.Operand) bool {
	if o.Sym != nil && !u.Uniform(o.Sym) {
		return false
	}
	for i := range o.Elems {
		if !u.operandUniform(&o.Elems[i]) {
			return false
		}
	}
	return true
}
