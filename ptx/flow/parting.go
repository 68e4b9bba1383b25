package flow

// parting notes, in runs that have nothing to do with one another, which blocks branches have parted the threads at: those
// that are control dependent on one of them, by Ferrante, Ottenstein and Warren's definition of 1987. However many
// branches a block depends on, it is passed over once in a run: the blocks are a union-find forest over the tree of
// post-dominators.
type parting struct {
	g    *Graph
	run  int32
	mine []int32 // of each block: the newest run that has parted it
	skip []int32 // of each block parted in the run mine says: a post-dominator below which all are
}

func newParting(g *Graph) parting {
	return parting{g: g, mine: make([]int32, len(g.Blocks)), skip: make([]int32, len(g.Blocks))}
}

// begin starts a run, of which no block is parted yet. A parting needs one before its first branch.
func (p *parting) begin() { p.run++ }

// branch parts the blocks that are control dependent on the branch ending b, from each successor up the tree of
// post-dominators to that of b, and calls each with those that were not parted before.
func (p *parting) branch(b int, each func(block int)) {
	g := p.g
	stop := int32(0)
	if d := g.Blocks[b].Ipdom; d >= 0 {
		stop = g.pdomDepth[d]
	}
	for _, s := range g.Blocks[b].Succs {
		for s >= 0 {
			s = p.unparted(s)
			if s < 0 || g.pdomDepth[s] <= stop {
				break
			}
			p.mine[s], p.skip[s] = p.run, int32(g.Blocks[s].Ipdom)
			each(s)
		}
	}
}

// unparted returns the nearest post-dominator of b, b included, that is not parted; Exit if there is none.
func (p *parting) unparted(b int) int {
	for b >= 0 && p.next(b) != b {
		if n := p.next(b); n >= 0 {
			p.skip[b] = int32(p.next(n))
		}
		b = p.next(b)
	}
	return b
}

// next is where to go on from b in search of a block that is not parted: b itself if it is none.
func (p *parting) next(b int) int {
	if p.mine[b] != p.run {
		return b
	}
	return int(p.skip[b])
}
