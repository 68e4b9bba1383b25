package flow

import "slices"

// dominatorTree computes immediate dominators by the algorithm of Lengauer and Tarjan (1979) with
// path compression, which takes O(m log n) steps on any graph; simpler ones take n² on adversarial
// graphs. Nodes are 0 … n-1; idom[root] and the idom of nodes that root does not reach are -1.
func dominatorTree(n, root int, succs, preds func(int) []int) []int {
	t := lengauerTarjan{
		idom: fill(n), number: fill(n), parent: fill(n), semi: make([]int, n),
		ancestor: fill(n), label: make([]int, n),
	}
	t.search(root, succs)
	buckets, next := fill(n), fill(n) // lists of nodes by their semidominator
	for i := len(t.nodes) - 1; i > 0; i-- {
		w := t.nodes[i]
		for _, v := range preds(w) {
			if t.number[v] >= 0 {
				t.semi[w] = min(t.semi[w], t.semi[t.eval(v)])
			}
		}
		s := t.nodes[t.semi[w]]
		next[w], buckets[s] = buckets[s], w
		p := t.parent[w]
		t.ancestor[w] = p
		for v := buckets[p]; v >= 0; v = next[v] {
			if u := t.eval(v); t.semi[u] < t.semi[v] {
				t.idom[v] = u
			} else {
				t.idom[v] = p
			}
		}
		buckets[p] = -1
	}
	for _, w := range t.nodes[1:] {
		if t.idom[w] != t.nodes[t.semi[w]] {
			t.idom[w] = t.idom[t.idom[w]]
		}
	}
	return t.idom
}

// lengauerTarjan is the state of one computation. semi and number are numbers of the depth-first
// search; the other fields are nodes.
type lengauerTarjan struct {
	nodes    []int // in the order of the search
	number   []int // of each node in that order, -1 if not reached
	parent   []int // in the search's tree
	semi     []int
	idom     []int
	ancestor []int // in the forest of nodes already processed, -1 for a root
	label    []int // the node of least semi on the compressed path
	path     []int
}

func fill(n int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = -1
	}
	return s
}

// search numbers the nodes in depth-first preorder.
func (t *lengauerTarjan) search(root int, succs func(int) []int) {
	type visit struct {
		succs []int
		from  int
	}
	enter := func(v, parent int) visit {
		t.number[v], t.parent[v] = len(t.nodes), parent
		t.semi[v], t.label[v] = len(t.nodes), v
		t.nodes = append(t.nodes, v)
		return visit{succs(v), v}
	}
	stack := []visit{enter(root, -1)}
	for len(stack) > 0 {
		v := &stack[len(stack)-1]
		if len(v.succs) == 0 {
			stack = stack[:len(stack)-1]
			continue
		}
		s := v.succs[0]
		v.succs = v.succs[1:]
		if t.number[s] < 0 {
			stack = append(stack, enter(s, v.from))
		}
	}
}

// eval returns the node of least semidominator on v's path in the forest, and compresses that path.
func (t *lengauerTarjan) eval(v int) int {
	if t.ancestor[v] < 0 {
		return v
	}
	t.path = t.path[:0]
	for u := v; t.ancestor[t.ancestor[u]] >= 0; u = t.ancestor[u] {
		t.path = append(t.path, u)
	}
	for i := len(t.path) - 1; i >= 0; i-- {
		u := t.path[i]
		a := t.ancestor[u]
		if t.semi[t.label[a]] < t.semi[t.label[u]] {
			t.label[u] = t.label[a]
		}
		t.ancestor[u] = t.ancestor[a]
	}
	return t.label[v]
}

// without returns list less the nodes that drop names, and list itself if there are none.
func without(list []int, drop func(int) bool) []int {
	if !slices.ContainsFunc(list, drop) {
		return list
	}
	return slices.DeleteFunc(slices.Clone(list), drop)
}

// dominators computes Idom and what Dominates needs.
func (g *Graph) dominators() {
	n := len(g.Blocks)
	g.domDepth = make([]int32, n)
	g.enters, g.leaves = make([]int32, n), make([]int32, n)
	for b := range n {
		g.domDepth[b] = -1
	}
	if n == 0 {
		return
	}
	idom := dominatorTree(n, 0,
		func(b int) []int { return without(g.Blocks[b].Succs, func(s int) bool { return s == Exit }) },
		func(b int) []int { return g.Blocks[b].Preds })
	sizes := make([]int32, n)
	for _, b := range g.RPO { // parents come before children
		if idom[b] >= 0 {
			g.Blocks[b].Idom = idom[b]
			g.domDepth[b] = g.domDepth[idom[b]] + 1
		} else {
			g.domDepth[b] = 0
		}
	}
	for i := len(g.RPO) - 1; i >= 0; i-- {
		b := g.RPO[i]
		sizes[b]++
		if idom[b] >= 0 {
			sizes[idom[b]] += sizes[b]
		}
	}
	taken := make([]int32, n) // numbers given to children so far
	for _, b := range g.RPO {
		if d := idom[b]; d >= 0 {
			g.enters[b] = g.enters[d] + 1 + taken[d]
			taken[d] += sizes[b]
		}
		g.leaves[b] = g.enters[b] + sizes[b]
	}
}

// postDominators computes Ipdom. A block that never reaches Exit has no post-dominator by
// definition; so that every reachable block has one, each endless cycle counts as leaving for Exit
// from one of its blocks: the one with which every iteration ends, so that lanes meet there, or, if
// a loop has several such blocks, its header, so that no lane waits at one of them for lanes that
// always take another.
func (g *Graph) postDominators() {
	n := len(g.Blocks)
	g.pdomDepth = make([]int32, n)
	for b := range n {
		g.pdomDepth[b] = -1
	}
	if n == 0 {
		return
	}
	ending := make([]bool, n)
	var exits []int // predecessors of Exit
	mark := func(from int) {
		if ending[from] {
			return
		}
		ending[from] = true
		for stack := []int{from}; len(stack) > 0; {
			b := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			for _, p := range g.Blocks[b].Preds {
				if g.Blocks[p].Reachable && !ending[p] {
					ending[p] = true
					stack = append(stack, p)
				}
			}
		}
	}
	for _, b := range g.RPO {
		for _, s := range g.Blocks[b].Succs {
			if s == Exit {
				exits = append(exits, b)
				mark(b)
			}
		}
	}
	for i := len(g.RPO) - 1; i >= 0; i-- {
		if b := g.RPO[i]; !ending[b] {
			if l := g.outermostLoop(b); l != None && len(g.Loops[l].Latches) > 1 {
				b = g.Loops[l].Header
			}
			g.endless = append(g.endless, b)
			exits = append(exits, b)
			mark(b)
		}
	}
	endless := make([]bool, n)
	for _, b := range g.endless {
		endless[b] = true
	}
	// The tree of the reversed graph, whose root n is Exit.
	idom := dominatorTree(n+1, n, func(b int) []int {
		if b == n {
			return exits
		}
		return without(g.Blocks[b].Preds, func(p int) bool { return !g.Blocks[p].Reachable })
	}, func(b int) []int {
		succs := g.Blocks[b].Succs
		out := make([]int, 0, len(succs)+1)
		for _, s := range succs {
			if s == Exit {
				s = n
			}
			out = append(out, s)
		}
		if endless[b] {
			out = append(out, n)
		}
		return out
	})
	for _, b := range g.RPO {
		if d := idom[b]; d == n {
			g.Blocks[b].Ipdom = Exit
		} else {
			g.Blocks[b].Ipdom = d
		}
	}
	var path []int
	for _, b := range g.RPO {
		path = path[:0]
		u := b
		for u >= 0 && g.pdomDepth[u] < 0 {
			path = append(path, u)
			u = g.Blocks[u].Ipdom
		}
		depth := int32(0) // of Exit
		if u >= 0 {
			depth = g.pdomDepth[u]
		}
		for i := len(path) - 1; i >= 0; i-- {
			depth++
			g.pdomDepth[path[i]] = depth
		}
	}
}
