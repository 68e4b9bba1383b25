package preempt

import (
	"slices"

	"vgpud/ptx"
	"vgpud/ptx/flow"
)

// Kernels that are already persistent.
//
// Some kernels come as persistent threads: as many blocks as the GPU holds, each of which takes
// task after task in an outermost loop, by a stride of the grid's size or by a number drawn from a
// counter. EffiSha's compiler recognizes them by that loop (§5) and adds no second loop around it.
// It would remain to check the evict word in the loop, which is not done here: what such a block
// carries from one task to the next (sums in registers and shared memory, written after the loop,
// as in a reduction) would be lost, and it can rarely be proven that it carries nothing. Such a
// kernel has the same forms as any other, all sound, which help if it is launched with more blocks
// than the GPU holds. Launched with no more, it leaves as its blocks end, and the agent launches
// the original.

// takesTasks reports whether the kernel's own code is of that kind: it has an outermost loop that
// ends by a value computed from the block's index and the grid's size, or from a counter that an
// atomic operation in the loop increments. This is informational, not needed for soundness, and
// errs in both directions.
func (f *funcInfo) takesTasks() bool {
	if f.graph == nil || !f.graph.Reducible || len(f.graph.Loops) == 0 || len(f.reads) == 0 && !f.readsGrid() {
		return false
	}
	for l := range f.graph.Loops {
		if f.graph.Loops[l].Parent != flow.None {
			continue
		}
		body := f.graph.Body(l)
		draws := slices.ContainsFunc(f.reads, func(i int) bool {
			in := f.code.Instrs[i]
			return in.Opcode == "atom" && (in.Has("add") || in.Has("inc")) && slices.Contains(body, f.graph.BlockOf(i))
		})
		for _, b := range f.graph.Leaving(body) {
			in := f.code.Instrs[f.graph.Blocks[b].End-1]
			if !in.Guarded() || in.Pred.Sym == nil {
				continue
			}
			from := f.waitAnalysis().from[in.Pred.Sym.Index]
			if from&fromGrid != 0 && from&fromBlock != 0 || draws && from&fromAtomic != 0 {
				return true
			}
		}
	}
	return false
}

// readsGrid reports whether the function itself reads the grid's size.
func (f *funcInfo) readsGrid() bool {
	for _, in := range f.code.Instrs {
		for i := range in.Operands {
			if s := in.Operands[i].Sym; s != nil && s.Kind == ptx.SymSpecial && s.Name == "%nctaid" {
				return true
			}
		}
	}
	return false
}
