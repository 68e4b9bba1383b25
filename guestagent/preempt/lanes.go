package preempt

import "slices"

// exchanges holds the opcodes by which lanes of a warp exchange values, or which a warp executes as
// a whole.
var exchanges = words("elect ldmatrix match mma movmatrix redux shfl stmatrix vote wgmma wmma")

// warpRisk finds out whether lanes of a warp may exchange values, or wait for one another at a
// barrier with a thread count, after others have returned.
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
	var meets []int
	for _, b := range f.barriers {
		if b.kind != "arrive" && !b.partial && f.convergent(b.instr) {
			meets = append(meets, b.instr)
		}
	}
	f.warpRisk = f.uniform.AfterReturn(at, meets)
}
