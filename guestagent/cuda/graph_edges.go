package cuda

// changeEdges calls change for count edges of a graph, or returns an error before any.
func (c *Call) changeEdges(h Handle, from, to *Handle, count uint64, change func(from, to *node) bool) Result {
	c.d.graphs.mu.Lock()
	defer c.d.graphs.mu.Unlock()
	g := c.graph(h)
	if g == nil {
		return ErrorInvalidValue
	}
	f, r := c.nodesOf(g, from, count)
	if r != Success {
		return r
	}
	t, r := c.nodesOf(g, to, count)
	if r != Success {
		return r
	}
	for i := range f {
		if f[i] == t[i] || !change(f[i], t[i]) {
			return ErrorInvalidValue
		}
	}
	return Success
}

// GraphAddDependencies is cuGraphAddDependencies.
func (c *Call) GraphAddDependencies(h Handle, from, to *Handle, count uint64) Result {
	return c.changeEdges(h, from, to, count, func(f, t *node) bool { return t.follow(f) })
}

// GraphRemoveDependencies is cuGraphRemoveDependencies.
func (c *Call) GraphRemoveDependencies(h Handle, from, to *Handle, count uint64) Result {
	return c.changeEdges(h, from, to, count, func(f, t *node) bool { return !t.g.memory && t.unfollow(f) })
}

// plain reports whether n edges are ordinary ones: others are of programmatic launches, which no
// kernel here has.
func plain(data Pointer, n uint64) bool {
	if data == nil || n == 0 {
		return true
	}
	if n > mostNodes {
		return false
	}
	const edge = 8 // bytes of CUgraphEdgeData
	for _, b := range hostBytes(data, n*edge) {
		if b != 0 {
			return false
		}
	}
	return true
}

// GraphAddDependenciesV2 is cuGraphAddDependencies_v2.
func (c *Call) GraphAddDependenciesV2(h Handle, from, to *Handle, data Pointer, count uint64) Result {
	if !plain(data, count) {
		return ErrorNotSupported
	}
	return c.GraphAddDependencies(h, from, to, count)
}

// GraphRemoveDependenciesV2 is cuGraphRemoveDependencies_v2.
func (c *Call) GraphRemoveDependenciesV2(h Handle, from, to *Handle, data Pointer, count uint64) Result {
	if !plain(data, count) {
		return ErrorNotSupported
	}
	return c.GraphRemoveDependencies(h, from, to, count)
}

// give stores nodes where a program wants them: as many as count says there is room for, the rest
// zero. Without out it only counts.
func give(out *Handle, count *uint64, list []*node) Result {
	if count == nil {
		return ErrorInvalidValue
	}
	if out == nil {
		put(count, uint64(len(list)))
		return Success
	}
	room := min(*count, mostNodes)
	for i := range array(out, room) {
		h := Handle(0)
		if i < len(list) {
			h = list[i].handle
		}
		array(out, room)[i] = h
	}
	put(count, min(room, uint64(len(list))))
	return Success
}

// GraphGetNodes is cuGraphGetNodes.
func (c *Call) GraphGetNodes(h Handle, out *Handle, count *uint64) Result {
	return c.select_(h, out, count, func(*node) bool { return true })
}

// GraphGetRootNodes is cuGraphGetRootNodes.
func (c *Call) GraphGetRootNodes(h Handle, out *Handle, count *uint64) Result {
	return c.select_(h, out, count, func(n *node) bool { return len(n.deps) == 0 })
}

func (c *Call) select_(h Handle, out *Handle, count *uint64, want func(*node) bool) Result {
	c.d.graphs.mu.Lock()
	defer c.d.graphs.mu.Unlock()
	g := c.graph(h)
	if g == nil {
		return ErrorInvalidValue
	}
	var list []*node
	for _, n := range g.nodes {
		if want(n) {
			list = append(list, n)
		}
	}
	return give(out, count, list)
}

// GraphGetEdges is cuGraphGetEdges.
func (c *Call) GraphGetEdges(h Handle, from, to *Handle, count *uint64) Result {
	c.d.graphs.mu.Lock()
	defer c.d.graphs.mu.Unlock()
	g := c.graph(h)
	if g == nil || count == nil || (from == nil) != (to == nil) {
		return ErrorInvalidValue
	}
	var f, t []*node
	for _, n := range g.nodes {
		for _, d := range n.deps {
			f, t = append(f, d), append(t, n)
		}
	}
	room := *count
	if r := give(from, count, f); r != Success || from == nil {
		return r
	}
	put(count, room)
	return give(to, count, t)
}

// clearEdges stores that n edges are ordinary ones.
func clearEdges(data Pointer, n *uint64, asked bool) {
	if data != nil && n != nil && asked {
		clear(hostBytes(data, min(*n, mostNodes)*8))
	}
}

// GraphGetEdgesV2 is cuGraphGetEdges_v2.
func (c *Call) GraphGetEdgesV2(h Handle, from, to *Handle, data Pointer, count *uint64) Result {
	r := c.GraphGetEdges(h, from, to, count)
	clearEdges(data, count, r == Success && from != nil)
	return r
}

// neighbours gives the nodes that a node has edges from or to, as of says.
func (c *Call) neighbours(h Handle, out *Handle, count *uint64, of func(*node) []*node) Result {
	c.d.graphs.mu.Lock()
	defer c.d.graphs.mu.Unlock()
	n := c.node(h)
	if n == nil {
		return ErrorInvalidValue
	}
	return give(out, count, of(n))
}

// GraphNodeGetDependencies is cuGraphNodeGetDependencies.
func (c *Call) GraphNodeGetDependencies(h Handle, out *Handle, count *uint64) Result {
	return c.neighbours(h, out, count, func(n *node) []*node { return n.deps })
}

// GraphNodeGetDependentNodes is cuGraphNodeGetDependentNodes.
func (c *Call) GraphNodeGetDependentNodes(h Handle, out *Handle, count *uint64) Result {
	return c.neighbours(h, out, count, func(n *node) []*node { return n.next })
}

// GraphNodeGetDependenciesV2 is cuGraphNodeGetDependencies_v2.
func (c *Call) GraphNodeGetDependenciesV2(h Handle, out *Handle, data Pointer, count *uint64) Result {
	r := c.GraphNodeGetDependencies(h, out, count)
	clearEdges(data, count, r == Success && out != nil)
	return r
}

// GraphNodeGetDependentNodesV2 is cuGraphNodeGetDependentNodes_v2.
func (c *Call) GraphNodeGetDependentNodesV2(h Handle, out *Handle, data Pointer, count *uint64) Result {
	r := c.GraphNodeGetDependentNodes(h, out, count)
	clearEdges(data, count, r == Success && out != nil)
	return r
}

// GraphNodeGetType is cuGraphNodeGetType.
func (c *Call) GraphNodeGetType(h Handle, out *uint32) Result {
	return ask(c, h, out, func(n *node) uint32 { return n.op.kind() })
}

// GraphNodeGetLocalId is cuGraphNodeGetLocalId.
func (c *Call) GraphNodeGetLocalId(h Handle, out *uint32) Result { //nolint:revive // CUDA's name
	return ask(c, h, out, func(n *node) uint32 { return n.id })
}

// GraphNodeGetContainingGraph is cuGraphNodeGetContainingGraph.
func (c *Call) GraphNodeGetContainingGraph(h Handle, out *Handle) Result {
	return ask(c, h, out, func(n *node) Handle { return n.g.handle })
}

// ask stores what of returns of a node.
func ask[T any](c *Call, h Handle, out *T, of func(*node) T) Result {
	c.d.graphs.mu.Lock()
	defer c.d.graphs.mu.Unlock()
	n := c.node(h)
	if n == nil || out == nil {
		return ErrorInvalidValue
	}
	put(out, of(n))
	return Success
}
