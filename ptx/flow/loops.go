package flow

// Loop is a natural loop: a block that dominates the source of an edge back to it, and all blocks
// that reach that source without passing through it. Loops with the same header count as one.
type Loop struct {
	Header  int   // the block through which the loop is entered
	Latches []int // the blocks that lead back to the header
	Parent  int   // the loop around this one; None for an outermost loop
	Depth   int   // 1 for an outermost loop
}

// findLoops finds the natural loops. It processes the headers from the innermost outward and walks
// backwards from their latches, crossing each loop already found in one step, so that each block is
// visited once.
func (g *Graph) findLoops() {
	g.Reducible = true
	var n nest
	for i := len(g.RPO) - 1; i >= 0; i-- {
		h := g.RPO[i]
		var latches []int
		for _, p := range g.Blocks[h].Preds {
			if !g.Blocks[p].Reachable || g.rpoIndex[p] < g.rpoIndex[h] {
				continue
			}
			if g.Dominates(h, p) {
				latches = append(latches, p)
			} else {
				g.Reducible = false // an edge back into a cycle that has another entry
			}
		}
		if latches != nil {
			n.loops = append(n.loops, Loop{Header: h, Latches: latches, Parent: None})
			n.around = append(n.around, len(n.loops)-1)
			g.claim(&n, len(n.loops)-1)
		}
	}
	// Outer loops come first: reverse the order.
	flip := func(l int) int {
		if l == None {
			return None
		}
		return len(n.loops) - 1 - l
	}
	g.Loops = make([]Loop, len(n.loops))
	for l, loop := range n.loops {
		loop.Parent = flip(loop.Parent)
		g.Loops[flip(l)] = loop
	}
	for l := range g.Loops {
		g.Loops[l].Depth = 1
		if p := g.Loops[l].Parent; p != None {
			g.Loops[l].Depth = g.Loops[p].Depth + 1
		}
	}
	for b := range g.Blocks {
		g.Blocks[b].Loop = flip(g.Blocks[b].Loop)
	}
}

// outermostLoop returns the outermost loop that b is in, or None.
func (g *Graph) outermostLoop(b int) int {
	l := g.Blocks[b].Loop
	for l != None && g.Loops[l].Parent != None {
		l = g.Loops[l].Parent
	}
	return l
}

// nest holds the loops found so far, inner ones first.
type nest struct {
	loops  []Loop
	around []int // of each: itself, or a loop around it on the way to the outermost; walks halve paths
}

// outermost returns the outermost loop around loop l, or None for None.
func (n *nest) outermost(l int) int {
	if l == None {
		return None
	}
	for n.around[l] != l {
		n.around[l] = n.around[n.around[l]]
		l = n.around[l]
	}
	return l
}

// claim assigns loop l the blocks and loops within it that no loop has yet.
func (g *Graph) claim(n *nest, l int) {
	header := n.loops[l].Header
	g.Blocks[header].Loop = l
	work := append([]int(nil), n.loops[l].Latches...)
	for len(work) > 0 {
		b := work[len(work)-1]
		work = work[:len(work)-1]
		in := n.outermost(g.Blocks[b].Loop)
		if in == l {
			continue
		}
		if in == None {
			g.Blocks[b].Loop = l
		} else {
			n.loops[in].Parent, n.around[in] = l, l
			b = n.loops[in].Header // the blocks that lead into the inner loop lead to its header
		}
		for _, p := range g.Blocks[b].Preds {
			if g.Blocks[p].Reachable {
				work = append(work, p)
			}
		}
	}
}
