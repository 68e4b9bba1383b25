package cuda

// MemsetNodeParams is CUDA_MEMSET_NODE_PARAMS.
type MemsetNodeParams struct {
	Dst, Pitch         uint64
	Value, ElementSize uint32
	Width, Height      uint64
}

// HostNodeParams is CUDA_HOST_NODE_PARAMS.
type HostNodeParams struct{ Function, Data Pointer }

// NodeParams is CUgraphNodeParams.
type NodeParams struct {
	Type uint32
	_    [3]int32
	Of   [232]byte // of that type
	_    int64
}

// memcpyNodeParams is CUDA_MEMCPY_NODE_PARAMS.
type memcpyNodeParams struct {
	_    [2]int32
	_    Handle
	Copy Memcpy3D
}

// childParams is CUDA_CHILD_GRAPH_NODE_PARAMS.
type childParams struct {
	Graph     Handle
	Ownership uint32
	_         uint32
}

// copyNode copies memory.
type copyNode struct{ p Memcpy3D }

func (*copyNode) kind() uint32                    { return GraphNodeTypeMemcpy }
func (n *copyNode) clone() operation              { return &copyNode{n.p} }
func (n *copyNode) run(c *Call, s *stream) Result { return c.copyBox(s, &n.p, true) }

// setNode fills memory.
type setNode struct{ p MemsetNodeParams }

func (*setNode) kind() uint32       { return GraphNodeTypeMemset }
func (n *setNode) clone() operation { return &setNode{n.p} }

func (n *setNode) run(c *Call, s *stream) Result {
	p := &n.p
	return c.set(s, p.Dst, p.Pitch, p.Value, uint64(p.ElementSize), p.Width, p.Height, true)
}

func (p *MemsetNodeParams) valid() bool {
	return p != nil && (p.ElementSize == 1 || p.ElementSize == 2 || p.ElementSize == 4)
}

// hostNode calls a function of the program.
type hostNode struct{ p HostNodeParams }

func (*hostNode) kind() uint32       { return GraphNodeTypeHost }
func (n *hostNode) clone() operation { return &hostNode{n.p} }
func (n *hostNode) run(c *Call, s *stream) Result {
	return c.startHostCall(s, Callback{Function: n.p.Function, Data: n.p.Data, Kind: hostFunction})
}

// waitNode has what follows wait for an event.
type waitNode struct{ e *Event }

func (*waitNode) kind() uint32                    { return GraphNodeTypeWaitEvent }
func (n *waitNode) clone() operation              { return &waitNode{n.e} }
func (n *waitNode) run(c *Call, s *stream) Result { return c.wait(s, n.e) }

// recordNode records an event.
type recordNode struct{ e *Event }

func (*recordNode) kind() uint32                    { return GraphNodeTypeEventRecord }
func (n *recordNode) clone() operation              { return &recordNode{n.e} }
func (n *recordNode) run(c *Call, s *stream) Result { return c.record(s, n.e) }

// childNode carries a graph of its own out.
type childNode struct{ g *graph }

func (*childNode) kind() uint32                    { return GraphNodeTypeGraph }
func (n *childNode) clone() operation              { return &childNode{n.g} } // graph.copy copies the graph
func (n *childNode) run(c *Call, s *stream) Result { return c.replay(n.g, s) }

// addNode adds a node to a graph that a program named.
func (c *Call) addNode(out *Handle, h Handle, deps *Handle, count uint64, op operation) Result {
	c.d.graphs.mu.Lock()
	defer c.d.graphs.mu.Unlock()
	g := c.graph(h)
	if g == nil || out == nil {
		return ErrorInvalidValue
	}
	list, r := c.nodesOf(g, deps, count)
	if r != Success {
		return r
	}
	n, r := g.add(c.d, op, list)
	if r == Success {
		put(out, n.handle)
	}
	return r
}

// withOperation calls f with a node's operation if it is a T.
func withOperation[T operation](c *Call, h Handle, valid bool, f func(T) Result) Result {
	c.d.graphs.mu.Lock()
	defer c.d.graphs.mu.Unlock()
	n := c.node(h)
	if n == nil || !valid {
		return ErrorInvalidValue
	}
	op, ok := n.op.(T)
	if !ok {
		return ErrorInvalidValue
	}
	return f(op)
}

// GraphAddEmptyNode is cuGraphAddEmptyNode.
func (c *Call) GraphAddEmptyNode(out *Handle, g Handle, deps *Handle, count uint64) Result {
	return c.addNode(out, g, deps, count, emptyNode{})
}

// GraphAddMemcpyNode is cuGraphAddMemcpyNode. The context is the one in which the graph is launched.
func (c *Call) GraphAddMemcpyNode(out *Handle, g Handle, deps *Handle, count uint64, p *Memcpy3D, _ Handle) Result {
	if p == nil {
		return ErrorInvalidValue
	}
	return c.addNode(out, g, deps, count, &copyNode{*p})
}

// GraphMemcpyNodeGetParams is cuGraphMemcpyNodeGetParams.
func (c *Call) GraphMemcpyNodeGetParams(h Handle, out *Memcpy3D) Result {
	return withOperation(c, h, out != nil, func(n *copyNode) Result {
		*out = n.p
		return Success
	})
}

// GraphMemcpyNodeSetParams is cuGraphMemcpyNodeSetParams.
func (c *Call) GraphMemcpyNodeSetParams(h Handle, p *Memcpy3D) Result {
	return withOperation(c, h, p != nil, func(n *copyNode) Result {
		n.p = *p
		return Success
	})
}

// GraphAddMemsetNode is cuGraphAddMemsetNode. The context is the one in which the graph is launched.
func (c *Call) GraphAddMemsetNode(out *Handle, g Handle, deps *Handle, count uint64, p *MemsetNodeParams, _ Handle) Result {
	if !p.valid() {
		return ErrorInvalidValue
	}
	return c.addNode(out, g, deps, count, &setNode{*p})
}

// GraphMemsetNodeGetParams is cuGraphMemsetNodeGetParams.
func (c *Call) GraphMemsetNodeGetParams(h Handle, out *MemsetNodeParams) Result {
	return withOperation(c, h, out != nil, func(n *setNode) Result {
		*out = n.p
		return Success
	})
}

// GraphMemsetNodeSetParams is cuGraphMemsetNodeSetParams.
func (c *Call) GraphMemsetNodeSetParams(h Handle, p *MemsetNodeParams) Result {
	return withOperation(c, h, p.valid(), func(n *setNode) Result {
		n.p = *p
		return Success
	})
}

// GraphAddHostNode is cuGraphAddHostNode.
func (c *Call) GraphAddHostNode(out *Handle, g Handle, deps *Handle, count uint64, p *HostNodeParams) Result {
	if p == nil || p.Function == nil {
		return ErrorInvalidValue
	}
	return c.addNode(out, g, deps, count, &hostNode{*p})
}

// GraphHostNodeGetParams is cuGraphHostNodeGetParams.
func (c *Call) GraphHostNodeGetParams(h Handle, out *HostNodeParams) Result {
	return withOperation(c, h, out != nil, func(n *hostNode) Result {
		*out = n.p
		return Success
	})
}

// GraphHostNodeSetParams is cuGraphHostNodeSetParams.
func (c *Call) GraphHostNodeSetParams(h Handle, p *HostNodeParams) Result {
	return withOperation(c, h, p != nil && p.Function != nil, func(n *hostNode) Result {
		n.p = *p
		return Success
	})
}

// GraphAddChildGraphNode is cuGraphAddChildGraphNode. The node has a copy of the graph.
func (c *Call) GraphAddChildGraphNode(out *Handle, g Handle, deps *Handle, count uint64, child Handle) Result {
	n, r := c.child(child)
	if r != Success {
		return r
	}
	return c.addNode(out, g, deps, count, n)
}

// child returns a node with a copy of a graph.
func (c *Call) child(h Handle) (*childNode, Result) {
	c.d.graphs.mu.Lock()
	defer c.d.graphs.mu.Unlock()
	g := c.graph(h)
	if g == nil || g.memory {
		return nil, ErrorInvalidValue
	}
	sub, r := g.copy(c.d, true)
	return &childNode{sub.g}, r
}

// GraphChildGraphNodeGetGraph is cuGraphChildGraphNodeGetGraph.
func (c *Call) GraphChildGraphNodeGetGraph(h Handle, out *Handle) Result {
	return withOperation(c, h, out != nil, func(n *childNode) Result {
		put(out, n.g.handle)
		return Success
	})
}

// GraphAddEventRecordNode is cuGraphAddEventRecordNode.
func (c *Call) GraphAddEventRecordNode(out *Handle, g Handle, deps *Handle, count uint64, event Handle) Result {
	e := get[Event](&c.d.objects, event)
	if e == nil {
		return ErrorInvalidHandle
	}
	return c.addNode(out, g, deps, count, &recordNode{e})
}

// GraphAddEventWaitNode is cuGraphAddEventWaitNode.
func (c *Call) GraphAddEventWaitNode(out *Handle, g Handle, deps *Handle, count uint64, event Handle) Result {
	e := get[Event](&c.d.objects, event)
	if e == nil {
		return ErrorInvalidHandle
	}
	return c.addNode(out, g, deps, count, &waitNode{e})
}

// GraphEventRecordNodeGetEvent is cuGraphEventRecordNodeGetEvent.
func (c *Call) GraphEventRecordNodeGetEvent(h Handle, out *Handle) Result {
	return withOperation(c, h, out != nil, func(n *recordNode) Result {
		put(out, n.e.handle)
		return Success
	})
}

// GraphEventWaitNodeGetEvent is cuGraphEventWaitNodeGetEvent.
func (c *Call) GraphEventWaitNodeGetEvent(h Handle, out *Handle) Result {
	return withOperation(c, h, out != nil, func(n *waitNode) Result {
		put(out, n.e.handle)
		return Success
	})
}

// GraphEventRecordNodeSetEvent is cuGraphEventRecordNodeSetEvent.
func (c *Call) GraphEventRecordNodeSetEvent(h, event Handle) Result {
	e := get[Event](&c.d.objects, event)
	return withOperation(c, h, e != nil, func(n *recordNode) Result {
		n.e = e
		return Success
	})
}

// GraphEventWaitNodeSetEvent is cuGraphEventWaitNodeSetEvent.
func (c *Call) GraphEventWaitNodeSetEvent(h, event Handle) Result {
	e := get[Event](&c.d.objects, event)
	return withOperation(c, h, e != nil, func(n *waitNode) Result {
		n.e = e
		return Success
	})
}

// operationOf returns the operation that a program describes.
func (c *Call) operationOf(p *NodeParams) (operation, Result) {
	if p == nil {
		return nil, ErrorInvalidValue
	}
	of := startOf(p.Of[:])
	switch p.Type {
	case GraphNodeTypeKernel:
		return orNothing(c.kernelOf(value[KernelNodeParams](of)))
	case GraphNodeTypeMemcpy:
		return &copyNode{value[memcpyNodeParams](of).Copy}, Success
	case GraphNodeTypeMemset:
		if m := value[MemsetNodeParams](of); m.valid() {
			return &setNode{*m}, Success
		}
	case GraphNodeTypeHost:
		if h := value[HostNodeParams](of); h.Function != nil {
			return &hostNode{*h}, Success
		}
	case GraphNodeTypeGraph:
		if value[childParams](of).Ownership != 0 {
			return nil, ErrorNotSupported
		}
		return orNothing(c.child(value[childParams](of).Graph))
	case GraphNodeTypeEmpty:
		return emptyNode{}, Success
	case GraphNodeTypeMemFree:
		if b := c.d.graphMemory.find(*value[uint64](of)); b != nil {
			return &freeNode{b}, Success
		}
	case GraphNodeTypeWaitEvent:
		if e := get[Event](&c.d.objects, *value[Handle](of)); e != nil {
			return &waitNode{e}, Success
		}
	case GraphNodeTypeEventRecord:
		if e := get[Event](&c.d.objects, *value[Handle](of)); e != nil {
			return &recordNode{e}, Success
		}
	default:
		return nil, ErrorNotSupported
	}
	return nil, ErrorInvalidValue
}

// orNothing returns no operation if there is an error.
func orNothing[T operation](op T, r Result) (operation, Result) {
	if r != Success {
		return nil, r
	}
	return op, Success
}

// GraphAddNode is cuGraphAddNode.
func (c *Call) GraphAddNode(out *Handle, g Handle, deps *Handle, count uint64, p *NodeParams) Result {
	if p != nil && p.Type == GraphNodeTypeMemAlloc {
		return c.GraphAddMemAllocNode(out, g, deps, count, value[MemAllocNodeParams](startOf(p.Of[:])))
	}
	op, r := c.operationOf(p)
	if r != Success {
		return r
	}
	return c.addNode(out, g, deps, count, op)
}

// GraphAddNodeV2 is cuGraphAddNode_v2.
func (c *Call) GraphAddNodeV2(out *Handle, g Handle, deps *Handle, data Pointer, count uint64, p *NodeParams) Result {
	if !plain(data, count) {
		return ErrorNotSupported
	}
	return c.GraphAddNode(out, g, deps, count, p)
}

// GraphNodeSetParams is cuGraphNodeSetParams.
func (c *Call) GraphNodeSetParams(h Handle, p *NodeParams) Result {
	op, r := c.operationOf(p)
	if r != Success {
		return r
	}
	return withOperation(c, h, true, func(old operation) Result {
		if !change(old, op) {
			return ErrorInvalidValue
		}
		return Success
	})
}

// change gives an operation the parameters of another of its kind. It reports whether they are of
// one kind.
func change(old, to operation) bool {
	switch o := old.(type) {
	case *kernelNode:
		n, ok := to.(*kernelNode)
		if ok {
			o.replace(n)
		}
		return ok
	case *copyNode:
		return assign(o, to)
	case *setNode:
		return assign(o, to)
	case *hostNode:
		return assign(o, to)
	case *waitNode:
		return assign(o, to)
	case *recordNode:
		return assign(o, to)
	}
	return old.kind() == GraphNodeTypeEmpty && to.kind() == GraphNodeTypeEmpty
}

// assign is change for operations that are their parameters.
func assign[T any](o *T, to operation) bool {
	n, ok := any(to).(*T)
	if ok {
		*o = *n
	}
	return ok
}
