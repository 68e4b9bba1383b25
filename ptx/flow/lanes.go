package flow

import "slices"

// Together reports whether the threads of a block that enter the function either all execute
// instruction i or none does.
func (u *Uniformity) Together(i int) bool {
	b := u.g.BlockOf(i)
	if !u.g.Blocks[b].Reachable {
		return true
	}
	in := u.g.Code.Instrs[i]
	return u.Convergent(b) && (!in.Guarded() || u.Uniform(in.Pred.Sym))
}

// AfterReturn reports whether threads may execute one of the instructions at after others of their
// block have returned from the function. That is so if a branch may split the threads of a block
// such that some reach the function's end without meeting the others at one of barriers, the
// function's barriers of the whole block that all threads pass together, while others reach the
// instruction; or if the instruction has a guard that may do so.
func (u *Uniformity) AfterReturn(at, barriers []int) bool {
	at = slices.DeleteFunc(slices.Clone(at), u.Together)
	if len(at) == 0 {
		return false
	}
	blocks := u.g.Blocks
	meets := make([]bool, len(blocks))
	for _, i := range barriers {
		meets[u.g.BlockOf(i)] = true
	}
	// leaves: from the block's start, the function's end can be reached without such a barrier.
	leaves := make([]bool, len(blocks))
	var work []int
	mark := func(b int) {
		if !leaves[b] && !meets[b] && blocks[b].Reachable {
			leaves[b] = true
			work = append(work, b)
		}
	}
	for b := range blocks {
		if slices.Contains(blocks[b].Succs, Exit) {
			mark(b)
		}
	}
	for len(work) > 0 {
		b := work[len(work)-1]
		work = work[:len(work)-1]
		for _, p := range blocks[b].Preds {
			mark(p)
		}
	}
	// after: a thread may come here when another has returned.
	after := make([]bool, len(blocks))
	come := func(b int) {
		if b != Exit && !after[b] {
			after[b] = true
			work = append(work, b)
		}
	}
	for b := range blocks {
		if !blocks[b].Reachable || u.Branch(b) {
			continue
		}
		if slices.ContainsFunc(blocks[b].Succs, func(s int) bool { return s == Exit || leaves[s] }) {
			for _, s := range blocks[b].Succs {
				come(s)
			}
		}
	}
	for len(work) > 0 {
		b := work[len(work)-1]
		work = work[:len(work)-1]
		for _, s := range blocks[b].Succs {
			come(s)
		}
	}
	// skipped: lanes whose guard is false continue, maybe to the end, and the others wait for them.
	skipped := func(i int) bool {
		in, b := u.g.Code.Instrs[i], u.g.BlockOf(i)
		if !in.Guarded() || u.Uniform(in.Pred.Sym) {
			return false
		}
		return !slices.ContainsFunc(barriers, func(m int) bool {
			return m > i && u.g.BlockOf(m) == b
		}) && slices.ContainsFunc(blocks[b].Succs, func(s int) bool { return s == Exit || leaves[s] })
	}
	return slices.ContainsFunc(at, func(i int) bool { return after[u.g.BlockOf(i)] || skipped(i) })
}
