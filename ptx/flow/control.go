package flow

// controlDeps marks, in independent runs, the blocks at which threads may have diverged: those that
// are control dependent on one of the run's branches, by Ferrante, Ottenstein and Warren's
// definition of 1987. However many branches a block depends on, a run passes over it once: the
// blocks are a union-find forest over the post-dominator tree.
type controlDeps struct {
	g     *Graph
	run   int32
	stamp []int32 // of each block: the latest run that marked it
	skip  []int32 // of each block marked in that run: a post-dominator below which all are marked
}

func newControlDeps(g *Graph) controlDeps {
	return controlDeps{g: g, stamp: make([]int32, len(g.Blocks)), skip: make([]int32, len(g.Blocks))}
}

// begin starts a run, in which no block is marked yet. It must be called before the first branch.
func (p *controlDeps) begin() { p.run++ }

// diverge marks the blocks that are control dependent on the branch ending b, from each successor
// up the post-dominator tree to that of b, and calls each with those that were not marked before.
func (p *controlDeps) diverge(b int, each func(block int)) {
	g := p.g
	stop := int32(0)
	if d := g.Blocks[b].Ipdom; d >= 0 {
		stop = g.pdomDepth[d]
	}
	for _, s := range g.Blocks[b].Succs {
		for s >= 0 {
			s = p.convergent(s)
			if s < 0 || g.pdomDepth[s] <= stop {
				break
			}
			p.stamp[s], p.skip[s] = p.run, int32(g.Blocks[s].Ipdom)
			each(s)
		}
	}
}

// convergent returns the nearest post-dominator of b, including b, that is not marked, or Exit.
func (p *controlDeps) convergent(b int) int {
	for b >= 0 && p.next(b) != b {
		if n := p.next(b); n >= 0 {
			p.skip[b] = int32(p.next(n))
		}
		b = p.next(b)
	}
	return b
}

// next returns the next candidate after b in search of an unmarked block: b itself if it is
// unmarked.
func (p *controlDeps) next(b int) int {
	if p.stamp[b] != p.run {
		return b
	}
	return int(p.skip[b])
}
