package flow

import (
	"fmt"
	"slices"

	"vgpud/ptx"
)

const (
	// Exit represents the end of the function, to which ret, exit, trap and the end of the code
	// lead. It is no block.
	Exit = -1
	// None represents what does not exist: the dominator of the first block, the loop of a block
	// outside all loops.
	None = -2
)

// Block is a sequence of instructions that is entered only at its first and left only after its
// last.
type Block struct {
	First, End int   // its instructions: Code.Instrs[First:End], never empty
	Succs      []int // where control may go from its last instruction, including Exit; each once, the fall-through last
	Preds      []int // the blocks that lead here, including unreachable ones
	Idom       int   // immediate dominator; None for the first block and unreachable ones
	Ipdom      int   // immediate post-dominator, may be Exit; None for unreachable blocks
	Loop       int   // innermost loop in Graph.Loops; None outside loops
	Reachable  bool  // from the function's first instruction
}

// Graph is the control-flow graph of a function.
type Graph struct {
	Code   *ptx.Code
	Blocks []Block // in the order of the code; the first is where the function begins
	RPO    []int   // the reachable blocks in reverse postorder: each before its successors, except in loops
	Loops  []Loop  // natural loops, outer ones before those inside them
	// Reducible is false if a cycle has more than one entry. Such a cycle is in no Loop.
	Reducible bool

	blockOf []int32 // of each instruction
	// rpoIndex is each block's place in RPO; -1 for unreachable blocks.
	rpoIndex []int32
	// Depth of each block in the tree of dominators and of post-dominators; -1 for unreachable
	// blocks.
	domDepth, pdomDepth []int32
	// enters numbers blocks in the order in which a walk down the dominator tree enters them,
	// leaves is one more than the last number under each: a dominates b if b's number is within a's
	// range.
	enters, leaves []int32
	endless        []int // the blocks through which an endless cycle counts as reaching Exit
}

// Build builds the graph of c, whose names must be bound (ptx.Resolve). It fails for a branch to
// something that is not a label. A function without instructions has a graph without blocks.
func Build(c *ptx.Code) (*Graph, error) {
	g := &Graph{Code: c}
	if err := g.split(); err != nil {
		return nil, err
	}
	g.connect()
	g.order()
	g.dominators()
	g.findLoops()
	g.postDominators()
	return g, nil
}

// BlockOf returns the block that instruction i is in.
func (g *Graph) BlockOf(i int) int { return int(g.blockOf[i]) }

// Reconvergence returns the instruction at which lanes that diverge at the end of block b
// reconverge: the first of its immediate post-dominator, or len(Code.Instrs) if that is Exit.
func (g *Graph) Reconvergence(b int) int {
	if p := g.Blocks[b].Ipdom; p >= 0 {
		return g.Blocks[p].First
	}
	return len(g.Code.Instrs)
}

// Dominates reports whether every path from the start to block b passes through block a; a block
// dominates itself.
func (g *Graph) Dominates(a, b int) bool {
	if !g.Blocks[a].Reachable || !g.Blocks[b].Reachable {
		return false
	}
	return g.enters[a] <= g.enters[b] && g.enters[b] < g.leaves[a]
}

// Kind is how an instruction transfers control.
type Kind uint8

// The kinds of instructions by how they transfer control. With a guard each of them may also fall
// through.
const (
	Straight Kind = iota // to the next instruction, including calls
	Branch               // bra: to its label
	Switch               // brx.idx: to one of its targets
	Leave                // ret, exit, trap, a call that never returns: to Exit
)

// KindOf returns how an instruction transfers control.
func KindOf(i *ptx.Instr) Kind {
	switch i.Opcode {
	case "bra":
		return Branch
	case "brx":
		return Switch
	case "ret", "exit", "trap":
		return Leave
	case "call":
		if call, ok := i.Call(); ok && call.Target.Sym != nil && call.Target.Sym.Kind == ptx.SymFunc {
			if _, noReturn := call.Target.Sym.Func.Directive("noreturn"); noReturn {
				return Leave
			}
		}
		if call, ok := i.Call(); ok && call.Proto.Sym != nil && call.Proto.Sym.Kind == ptx.SymPrototype {
			for _, d := range call.Proto.Sym.Proto.Directives {
				if d.Name == "noreturn" {
					return Leave
				}
			}
		}
	}
	return Straight
}

// targets appends the instructions that i's branch may lead to; len(c.Instrs) stands for the end.
func targets(i *ptx.Instr, to []int) ([]int, error) {
	fail := func() ([]int, error) {
		return nil, fmt.Errorf("line %d: %s without a bound target: %v", i.Pos.Line, i.Opcode, i)
	}
	switch KindOf(i) {
	case Branch:
		if len(i.Operands) == 0 || i.Operands[0].Sym == nil || i.Operands[0].Sym.Kind != ptx.SymLabel {
			return fail()
		}
		to = append(to, i.Operands[0].Sym.Index)
	case Switch:
		if len(i.Operands) < 2 || i.Operands[1].Sym == nil || i.Operands[1].Sym.Kind != ptx.SymTargets {
			return fail()
		}
		for _, s := range i.Operands[1].Sym.Branch.Syms {
			if s == nil || s.Kind != ptx.SymLabel {
				return fail()
			}
			to = append(to, s.Index)
		}
	}
	return to, nil
}

// split finds the blocks.
func (g *Graph) split() error {
	instrs := g.Code.Instrs
	n := len(instrs)
	leader := make([]bool, n+1)
	leader[0], leader[n] = true, true
	var to []int
	for i, in := range instrs {
		kind := KindOf(in)
		if kind == Straight {
			continue
		}
		leader[i+1] = true
		var err error
		if to, err = targets(in, to[:0]); err != nil {
			return err
		}
		for _, t := range to {
			if t < 0 || t > n {
				return fmt.Errorf("line %d: branch to a label that stands nowhere: %v", in.Pos.Line, in)
			}
			leader[t] = true
		}
	}
	g.blockOf = make([]int32, n)
	for i := range n {
		if leader[i] {
			g.Blocks = append(g.Blocks, Block{First: i, Idom: None, Ipdom: None, Loop: None})
		}
		g.blockOf[i] = int32(len(g.Blocks) - 1)
		g.Blocks[len(g.Blocks)-1].End = i + 1
	}
	return nil
}

// connect finds each block's successors and predecessors. The lists of all blocks share an array.
func (g *Graph) connect() {
	n := len(g.Code.Instrs)
	seen := make([]int, len(g.Blocks)+1) // the last block that listed each successor, plus one; Exit is last
	preds := make([]int, len(g.Blocks))  // counts
	var succs, to []int
	starts := make([]int, len(g.Blocks)+1)
	for b := range g.Blocks {
		add := func(instr int) {
			s, slot := Exit, len(g.Blocks)
			if instr < n {
				s = g.BlockOf(instr)
				slot = s
			}
			if seen[slot] == b+1 {
				return
			}
			seen[slot] = b + 1
			succs = append(succs, s)
			if s != Exit {
				preds[s]++
			}
		}
		last := g.Code.Instrs[g.Blocks[b].End-1]
		kind := KindOf(last)
		to, _ = targets(last, to[:0]) // split has returned the error
		for _, t := range to {
			add(t)
		}
		if kind == Leave {
			add(n)
		}
		if kind == Straight || last.Guarded() {
			add(g.Blocks[b].End)
		}
		starts[b+1] = len(succs)
	}
	total := 0
	for _, k := range preds {
		total += k
	}
	pool := make([]int, total)
	for b := range g.Blocks {
		g.Blocks[b].Succs = slices.Clip(succs[starts[b]:starts[b+1]])
		g.Blocks[b].Preds, pool = pool[:0:preds[b]], pool[preds[b]:]
	}
	for b := range g.Blocks {
		for _, s := range g.Blocks[b].Succs {
			if s != Exit {
				g.Blocks[s].Preds = append(g.Blocks[s].Preds, b)
			}
		}
	}
}

// order finds the reachable blocks and their reverse postorder.
func (g *Graph) order() {
	n := len(g.Blocks)
	g.rpoIndex = make([]int32, n)
	for b := range g.rpoIndex {
		g.rpoIndex[b] = -1
	}
	if n == 0 {
		return
	}
	type visit struct{ block, next int }
	stack := []visit{{0, 0}}
	g.Blocks[0].Reachable = true
	for len(stack) > 0 {
		v := &stack[len(stack)-1]
		succs := g.Blocks[v.block].Succs
		if v.next == len(succs) {
			g.RPO = append(g.RPO, v.block)
			stack = stack[:len(stack)-1]
			continue
		}
		s := succs[v.next]
		v.next++
		if s != Exit && !g.Blocks[s].Reachable {
			g.Blocks[s].Reachable = true
			stack = append(stack, visit{s, 0})
		}
	}
	slices.Reverse(g.RPO)
	for i, b := range g.RPO {
		g.rpoIndex[b] = int32(i)
	}
}
