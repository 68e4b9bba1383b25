package preempt

import (
	"slices"

	"vgpud/ptx/flow"
)

// exchanges holds the opcodes by which lanes of a warp exchange values, or which a warp executes as
// a whole.
var exchanges = words("elect ldmatrix match mma movmatrix redux shfl stmatrix vote wgmma wmma")

// warpRisk finds out whether lanes of a warp may exchange values, or wait for one another at a
// barrier with a thread count, after others have returned. That is so if a branch may split the
// threads of a block such that some reach the function's end without meeting the others at a
// barrier of the whole block, while others reach the exchange; or if the exchange has a guard that
// may do so.
func (w *analyzer) warpRisk(f *funcInfo) {
	if f.graph == nil || !f.warpDeep {
		return
	}
	at := slices.Clone(f.warp)
	for _, c := range f.calls {
		if slices.ContainsFunc(c.callees, func(g *funcInfo) bool { return g.warpDeep }) {
			at = append(at, c.instr)
		}
	}
	at = slices.DeleteFunc(at, func(i int) bool {
		return f.convergent(i)
	})
	if len(at) == 0 {
		return
	}
	blocks := f.graph.Blocks
	meets := make([]bool, len(blocks))
	for _, b := range f.barriers {
		if b.kind != "arrive" && !b.partial && f.convergent(b.instr) {
			meets[f.graph.BlockOf(b.instr)] = true
		}
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
		if slices.Contains(blocks[b].Succs, flow.Exit) {
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
		if b != flow.Exit && !after[b] {
			after[b] = true
			work = append(work, b)
		}
	}
	for b := range blocks {
		if !blocks[b].Reachable || f.uniform.Branch(b) {
			continue
		}
		if slices.ContainsFunc(blocks[b].Succs, func(s int) bool { return s == flow.Exit || leaves[s] }) {
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
		in, b := f.code.Instrs[i], f.graph.BlockOf(i)
		if !in.Guarded() || f.uniform.Uniform(in.Pred.Sym) {
			return false
		}
		return !slices.ContainsFunc(f.barriers, func(m barrier) bool {
			return m.instr > i && f.graph.BlockOf(m.instr) == b && m.kind != "arrive" && !m.partial && f.convergent(m.instr)
		}) && slices.ContainsFunc(blocks[b].Succs, func(s int) bool { return s == flow.Exit || leaves[s] })
	}
	f.warpRisk = slices.ContainsFunc(at, func(i int) bool { return after[f.graph.BlockOf(i)] || skipped(i) })
}
