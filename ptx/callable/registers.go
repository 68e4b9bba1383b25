package callable

import (
	"math/bits"

	"vgpud/ptx"
	"vgpud/ptx/flow"
)

// maxLiveness limits the work of counting registers: registers times blocks.
const maxLiveness = 1 << 25

// alive returns how many 32-bit registers a function's values occupy at most at a time, by the usual
// backward data flow over its blocks: what an assembler can't do without. Predicates have registers
// of their own. It returns -1 if that is too much work.
func alive(g *flow.Graph, e *flow.Effects) int {
	n := len(g.Code.Regs)
	words := (n + 63) / 64
	if n*len(g.Blocks) > maxLiveness {
		return -1
	}
	size := make([]int, n)
	for i, s := range g.Code.Regs {
		size[i] = max(s.Vector, 1) * width(s.Type)
	}
	in := make([]uint64, words*len(g.Blocks))
	row := func(b int) []uint64 { return in[b*words : (b+1)*words] }
	live := make([]uint64, words)
	most, now := 0, 0
	set := func(r int32, on bool) {
		if int(r) >= n {
			return // the carry flag, or memory
		}
		k, bit := r/64, uint64(1)<<(r%64)
		switch {
		case on && live[k]&bit == 0:
			live[k], now = live[k]|bit, now+size[r]
		case !on && live[k]&bit != 0:
			live[k], now = live[k]&^bit, now-size[r]
		}
	}
	// pass goes through a block backwards from what is alive behind it.
	pass := func(b int) (changed bool) {
		clear(live)
		for _, s := range g.Blocks[b].Succs {
			if s != flow.Exit {
				for k, v := range row(s) {
					live[k] |= v
				}
			}
		}
		now = sum(live, size)
		for i := g.Blocks[b].End - 1; i >= g.Blocks[b].First; i-- {
			if !g.Code.Instrs[i].Guarded() {
				for _, r := range e.Writes(i) {
					set(r, false)
				}
			}
			for _, r := range e.Reads(i) {
				set(r, true)
			}
			most = max(most, now)
		}
		for k, v := range row(b) {
			changed = changed || v != live[k]
		}
		copy(row(b), live)
		return changed
	}
	for changed, passes := true, 0; changed; passes++ {
		if passes == maxPasses {
			return -1
		}
		changed = false
		for i := len(g.RPO) - 1; i >= 0; i-- {
			changed = pass(g.RPO[i]) || changed
		}
	}
	return most // of passes that saw too little alive, too, which is never more
}

// maxPasses limits the passes of data flow. Compilers' code needs as many as the depth of its
// loops, plus two.
const maxPasses = 100

// width returns how many 32-bit registers a value of a type takes.
func width(t ptx.Type) int {
	if t == ptx.Pred1 {
		return 0
	}
	return max(1, t.Size()/4)
}

func sum(live []uint64, size []int) (words int) {
	for k, v := range live {
		for ; v != 0; v &= v - 1 {
			words += size[64*k+bits.TrailingZeros64(v)]
		}
	}
	return words
}
