package flow

import "slices"

// Trace follows what comes of the results of some instructions: what is computed from them and, if asked for, what is
// executed or not because of them. It may be run many times, and a run costs no more than the blocks that it looks at.
type Trace struct {
	// Blind is a register or space through which nothing is followed; -1, as NewTrace sets it, is none.
	Blind int32

	g       *Graph
	effects *Effects

	run  int32   // the current run's number: what is not stamped with it is left over from an earlier run
	in   []int32 // of each block: a run that looks at it
	regs []int32 // of each register and space: the run that has reached it
	hit  []int32 // of each instruction: likewise
	head []int32 // of each register and space: the first of its uses, plus one
	used []int32 // of each register and space: the run that head is of
	uses []use

	parting parting
	queue   []int32
	blocks  []int
	steps   int
}

// use is an instruction that reads a register, in a list of those.
type use struct{ instr, next int32 }

// NewTrace prepares to follow results through g, whose effects are e.
func (g *Graph) NewTrace(e *Effects) *Trace {
	n, k := e.Numbers(), len(g.Blocks)
	return &Trace{
		Blind: -1, g: g, effects: e,
		in: make([]int32, k), parting: newParting(g),
		regs: make([]int32, n), head: make([]int32, n), used: make([]int32, n),
		hit: make([]int32, len(g.Code.Instrs)),
	}
}

// Run follows the results of the instructions sources through the blocks of within and no others. What is executed or
// not because of a result is reached too, where it is so by a branch that ends a block for which control returns true;
// nil is never.
func (t *Trace) Run(within, sources []int, control func(block int) bool) {
	t.run++
	t.parting.begin()
	t.uses, t.queue, t.blocks = t.uses[:0], t.queue[:0], t.blocks[:0]
	for _, b := range within {
		t.in[b] = t.run
		for i := t.g.Blocks[b].First; i < t.g.Blocks[b].End; i++ {
			for _, r := range t.effects.Reads(i) {
				if t.used[r] != t.run {
					t.used[r], t.head[r] = t.run, 0
				}
				t.uses = append(t.uses, use{int32(i), t.head[r]})
				t.head[r] = int32(len(t.uses))
			}
		}
	}
	for _, i := range sources {
		t.reach(i, control)
	}
	for len(t.queue)+len(t.blocks) > 0 {
		if n := len(t.queue); n > 0 {
			r := t.queue[n-1]
			t.queue = t.queue[:n-1]
			if t.used[r] != t.run {
				continue
			}
			for u := t.head[r]; u > 0; u = t.uses[u-1].next {
				t.reach(int(t.uses[u-1].instr), control)
			}
			continue
		}
		n := len(t.blocks)
		b := t.blocks[n-1]
		t.blocks = t.blocks[:n-1]
		t.parting.branch(b, func(s int) {
			t.steps++
			if t.in[s] != t.run {
				return
			}
			for i := t.g.Blocks[s].First; i < t.g.Blocks[s].End; i++ {
				t.reach(i, control)
			}
		})
	}
	t.steps += len(t.uses)
}

// Instr reports whether the newest run has reached instruction i: it is a source, or something that it reads comes of
// one, or it is executed because of one.
func (t *Trace) Instr(i int) bool { return t.hit[i] == t.run }

// Register reports whether the newest run has reached register or space r, as [Effects] numbers them.
func (t *Trace) Register(r int32) bool { return t.regs[r] == t.run }

// Steps is how much work all runs together were: the registers read in the blocks looked at.
func (t *Trace) Steps() int { return t.steps }

// reach notes that instruction i depends on a source, and with it what it writes.
func (t *Trace) reach(i int, control func(int) bool) {
	if t.hit[i] == t.run {
		return
	}
	t.hit[i] = t.run
	for _, r := range t.effects.Writes(i) {
		if t.regs[r] != t.run && r != t.Blind {
			t.regs[r] = t.run
			t.queue = append(t.queue, r)
		}
	}
	b := t.g.BlockOf(i)
	if blk := &t.g.Blocks[b]; control != nil && i == blk.End-1 && blk.Reachable && len(blk.Succs) > 1 && control(b) {
		t.blocks = append(t.blocks, b)
	}
}

// Dependents returns the blocks that are control dependent on the branch that ends block b: whether they are executed,
// or how often, is for it to say.
func (g *Graph) Dependents(b int) []int {
	var out []int
	seen := map[int]bool{}
	stop := g.Blocks[b].Ipdom
	for _, s := range g.Blocks[b].Succs {
		for ; s >= 0 && s != stop && !seen[s]; s = g.Blocks[s].Ipdom {
			seen[s] = true
			out = append(out, s)
		}
	}
	return out
}

// Body returns the blocks of loop l, those of the loops within it included, in ascending order. With latches, some of the
// loop's, it returns the part of the loop that these make.
func (g *Graph) Body(l int, latches ...int) []int {
	loop := &g.Loops[l]
	seen := map[int]bool{loop.Header: true}
	work := slices.Clone(latches)
	if len(latches) == 0 {
		work = slices.Clone(loop.Latches)
	}
	body := []int{loop.Header}
	for len(work) > 0 {
		b := work[len(work)-1]
		work = work[:len(work)-1]
		if seen[b] {
			continue
		}
		seen[b] = true
		body = append(body, b)
		for _, p := range g.Blocks[b].Preds {
			if g.Blocks[p].Reachable {
				work = append(work, p)
			}
		}
	}
	slices.Sort(body)
	return body
}

// Leaving returns those of the blocks in body, in ascending order, from which control may go to a block outside it, or
// to the function's end: of a loop's body, the blocks whose branches decide when the loop is over.
func (g *Graph) Leaving(body []int) []int {
	var out []int
	for _, b := range body {
		if slices.ContainsFunc(g.Blocks[b].Succs, func(s int) bool {
			_, inside := slices.BinarySearch(body, s)
			return !inside
		}) {
			out = append(out, b)
		}
	}
	return out
}
