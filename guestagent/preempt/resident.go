package preempt

import (
	"slices"

	"vgpud/ptx"
	"vgpud/ptx/flow"
)

// Kernels that are persistent already.
//
// Some kernels come as persistent threads: as many blocks as the GPU holds, each of which takes task after task in an
// outermost loop, by a stride that is the grid's size or by a number drawn from a counter. EffiSha's compiler recognises
// them by that loop (§5) and makes no second one around it. What remains to be done there, a look at the evict word in
// the loop, is not done here: what such a block carries from one task to the next (sums in registers and in shared memory,
// written when the loop is over, as in a reduction) would be lost with it, and that it carries nothing is rarely to be
// proven. Such a kernel has the forms that any kernel has, sound as they are, which serve where it is launched with more
// blocks than the GPU holds; launched with no more it leaves as its blocks end, and the agent doesn't launch it in a form.

// takesTasks reports whether the kernel's own code is of that kind: it has an outermost loop that is over by a value that
// comes of the block's index and the grid's size, or of a counter that an atomic operation in the loop moves on. It is a
// matter of information, not of soundness, and errs on both sides.
func (f *funcStudy) takesTasks() bool {
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
			from := f.analysis().from[in.Pred.Sym.Index]
			if from&fromGrid != 0 && from&fromBlock != 0 || draws && from&fromAtomic != 0 {
				return true
			}
		}
	}
	return false
}

// readsGrid reports whether the function itself reads the grid's size.
func (f *funcStudy) readsGrid() bool {
	for _, in := range f.code.Instrs {
		for i := range in.Operands {
			if s := in.Operands[i].Sym; s != nil && s.Kind == ptx.SymSpecial && s.Name == "%nctaid" {
				return true
			}
		}
	}
	return false
}
