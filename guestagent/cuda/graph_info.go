package cuda

// id returns a graph's number, of all graphs of the process. The graphs' lock is held.
func (g *graph) id(d *Driver) uint32 {
	if g.number == 0 {
		g.number = uint32(d.ids.Add(1))
	}
	return g.number
}

// GraphGetId is cuGraphGetId.
func (c *Call) GraphGetId(h Handle, out *uint32) Result { //nolint:revive // CUDA's name
	c.d.graphs.mu.Lock()
	defer c.d.graphs.mu.Unlock()
	g := c.graph(h)
	if g == nil || out == nil {
		return ErrorInvalidValue
	}
	put(out, g.id(c.d))
	return Success
}

// GraphExecGetId is cuGraphExecGetId.
func (c *Call) GraphExecGetId(h Handle, out *uint32) Result { //nolint:revive // CUDA's name
	c.d.graphs.mu.Lock()
	defer c.d.graphs.mu.Unlock()
	e := c.exec(h)
	if e == nil || out == nil {
		return ErrorInvalidValue
	}
	put(out, e.g.id(c.d))
	return Success
}

// GraphNodeGetToolsId is cuGraphNodeGetToolsId: the graph's number and the node's in it.
func (c *Call) GraphNodeGetToolsId(h Handle, out *uint64) Result { //nolint:revive // CUDA's name
	return ask(c, h, out, func(n *node) uint64 { return uint64(n.g.id(c.d))<<32 | uint64(n.id) })
}

// GraphNodeGetParams is cuGraphNodeGetParams.
func (c *Call) GraphNodeGetParams(h Handle, out *NodeParams) Result {
	if out == nil {
		return ErrorInvalidValue
	}
	return withOperation(c, h, true, func(op operation) Result {
		*out = NodeParams{Type: op.kind()}
		of := startOf(out.Of[:])
		switch n := op.(type) {
		case *kernelNode:
			put(value[KernelNodeParams](of), n.description())
		case *copyNode:
			value[memcpyNodeParams](of).Copy = n.p
		case *setNode:
			put(value[MemsetNodeParams](of), n.p)
		case *hostNode:
			put(value[HostNodeParams](of), n.p)
		case *childNode:
			value[childParams](of).Graph = n.g.handle
		case *waitNode:
			put(value[Handle](of), n.e.handle)
		case *recordNode:
			put(value[Handle](of), n.e.handle)
		case *allocNode:
			put(value[MemAllocNodeParams](of), n.params())
		case *freeNode:
			put(value[uint64](of), n.b.base)
		}
		return Success
	})
}
