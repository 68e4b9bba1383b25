package cuda

import "slices"

// update is what keeps an executable graph from becoming another graph.
type update struct {
	result uint32
	n      *node // of the other graph
}

// compare compares an executable graph with another. They have to have the same nodes in the same
// order, as far as their kinds and dependencies go.
func compare(e, g *graph) update {
	if len(e.nodes) != len(g.nodes) {
		return update{GraphExecUpdateErrorTopologyChanged, nil}
	}
	place := func(g *graph) map[*node]int {
		at := make(map[*node]int, len(g.nodes))
		for i, n := range g.nodes {
			at[n] = i
		}
		return at
	}
	of, to := place(e), place(g)
	for i, n := range g.nodes {
		m := e.nodes[i]
		if m.op.kind() != n.op.kind() {
			return update{GraphExecUpdateErrorNodeTypeChanged, n}
		}
		before := func(n *node, at map[*node]int) (list []int) {
			for _, d := range n.deps {
				list = append(list, at[d])
			}
			slices.Sort(list)
			return list
		}
		if !slices.Equal(before(m, of), before(n, to)) {
			return update{GraphExecUpdateErrorTopologyChanged, n}
		}
		if otherMemory(m.op, n.op) {
			return update{GraphExecUpdateErrorNotSupported, n}
		}
		if otherContext(m.op, n.op) {
			return update{GraphExecUpdateErrorFunctionChanged, n}
		}
		if child, ok := m.op.(*childNode); ok {
			if u := compare(child.g, n.op.(*childNode).g); u.result != GraphExecUpdateSuccess {
				return u
			}
		}
	}
	return update{GraphExecUpdateSuccess, nil}
}

// adopt gives an executable graph's nodes the parameters of another's, which compare has found to be
// alike.
func adopt(e, g *graph, of map[*node]*node) {
	for i, n := range g.nodes {
		m := e.nodes[i]
		if child, ok := m.op.(*childNode); ok {
			adopt(child.g, n.op.(*childNode).g, nil)
		} else {
			change(m.op, n.op.clone())
			if k, ok := m.op.(*kernelNode); ok {
				for id, v := range n.op.(*kernelNode).attrs {
					k.set(id, v)
				}
			}
		}
		if of != nil {
			of[n] = m
		}
	}
}

// updateExec is cuGraphExecUpdate.
func (c *Call) updateExec(eh, gh Handle) (update, Result) {
	c.d.graphs.mu.Lock()
	defer c.d.graphs.mu.Unlock()
	e, g := c.exec(eh), c.graph(gh)
	if e == nil || g == nil {
		return update{result: GraphExecUpdateError}, ErrorInvalidValue
	}
	u := compare(e.g, g)
	if u.result != GraphExecUpdateSuccess {
		return u, ErrorGraphExecUpdateFailure
	}
	adopt(e.g, g, e.of)
	return u, Success
}

// GraphExecUpdate is cuGraphExecUpdate.
func (c *Call) GraphExecUpdate(e, g Handle, errorNode *Handle, result *uint32) Result {
	u, r := c.updateExec(e, g)
	if errorNode != nil {
		put(errorNode, u.n.handleOrNone())
	}
	if result != nil {
		put(result, u.result)
	}
	return r
}

// UpdateInfo is CUgraphExecUpdateResultInfo.
type UpdateInfo struct {
	Result   uint32
	_        uint32
	Node     Handle
	FromNode Handle
}

// GraphExecUpdateV2 is cuGraphExecUpdate_v2.
func (c *Call) GraphExecUpdateV2(e, g Handle, info *UpdateInfo) Result {
	u, r := c.updateExec(e, g)
	if info != nil {
		*info = UpdateInfo{Result: u.result, Node: u.n.handleOrNone()}
	}
	return r
}
