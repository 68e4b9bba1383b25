package flow

import "slices"

// Trace follows the results of some instructions: what is computed from them and, if asked for,
// what is executed or not because of them. It may be run many times, and a run costs no more than
// the blocks that it examines.
type Trace struct {
	// Ignore is a register or space through which nothing is followed; -1, the default of NewTrace,
	// means none.
	Ignore int32
	// Unrelated, if not nil, reports whether no result of instruction i depends on register r, which
	// it reads.
	Unrelated func(i int, r int32) bool

	g       *Graph
	effects *Effects

	run     int32   // the current run's number; entries with another number are from earlier runs
	in      []int32 // of each block: a run that examines it
	regs    []int32 // of each register and space: the run that has reached it
	reached []int32 // of each instruction: likewise
	head    []int32 // of each register and space: the first of its uses, plus one
	used    []int32 // of each register and space: the run that head belongs to
	uses    []use

	parting controlDeps
	queue   []int32
	blocks  []int
	steps   int
}

// use is an instruction that reads a register, in a linked list.
type use struct{ instr, next int32 }

// NewTrace prepares to follow results through g, whose effects are e.
func (g *Graph) NewTrace(e *Effects) *Trace {
	n, k := e.Numbers(), len(g.Blocks)
	return &Trace{
		Ignore: -1, g: g, effects: e,
		in: make([]int32, k), parting: newControlDeps(g),
		regs: make([]int32, n), head: make([]int32, n), used: make([]int32, n),
		reached: make([]int32, len(g.Code.Instrs)),
	}
}

// Run follows the results of the instructions sources through the blocks in within. It also reaches
// what is executed or not because of a result, if that is decided by a branch at the end of a block
// for which control returns true; a nil control means none.
func (t *Trace) Run(within, sources []int, control func(block int) bool) {
	t.run++
	t.parting.begin()
	t.uses, t.queue, t.blocks = t.uses[:0], t.queue[:0], t.blocks[:0]
	for _, b := range within {
		t.in[b] = t.run
		for i := t.g.Blocks[b].First; i < t.g.Blocks[b].End; i++ {
			for _, r := range t.effects.Reads(i) {
				if t.Unrelated != nil && t.Unrelated(i, r) {
					continue
				}
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
		t.parting.diverge(b, func(s int) {
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

// Instr reports whether the latest run has reached instruction i: it is a source, or reads
// something computed from one, or is executed because of one.
func (t *Trace) Instr(i int) bool { return t.reached[i] == t.run }

// Register reports whether the latest run has reached register or space r, as [Effects] numbers
// them.
func (t *Trace) Register(r int32) bool { return t.regs[r] == t.run }

// Steps returns the work of all runs together: the number of registers read in the blocks examined.
func (t *Trace) Steps() int { return t.steps }

// reach records that instruction i depends on a source, and with it what it writes.
func (t *Trace) reach(i int, control func(int) bool) {
	if t.reached[i] == t.run {
		return
	}
	t.reached[i] = t.run
	for _, r := range t.effects.Writes(i) {
		if t.regs[r] != t.run && r != t.Ignore {
			t.regs[r] = t.run
			t.queue = append(t.queue, r)
		}
	}
	b := t.g.BlockOf(i)
	if blk := &t.g.Blocks[b]; control != nil && i == blk.End-1 && blk.Reachable && len(blk.Succs) > 1 && control(b) {
		t.blocks = append(t.blocks, b)
	}
}

// Body returns the blocks of loop l, including those of nested loops, in ascending order. Given
// latches of the loop, it returns the part of the loop that these make.
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

// Leaving returns the blocks in body, in ascending order, from which control may go to a block
// outside it, or to the function's end: of a loop's body, the blocks whose branches decide when the
// loop ends.
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
