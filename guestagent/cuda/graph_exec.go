package cuda

import "slices"

// graphExec is a CUgraphExec: a copy of a graph that can be launched.
type graphExec struct {
	handle Handle
	g      *graph
	from   *graph          // that it was made of
	of     map[*node]*node // its nodes by those of the graph that it was made of, or updated from
	flags  uint64

	// Guarded by Context.mu of the context that it was launched in.
	last []point // the end of its last launch: launches follow one another
}

// Flags of an executable graph.
const (
	graphAutoFree     = 1
	graphUpload       = 2
	graphDeviceLaunch = 4
	graphUsePriority  = 8
)

// sort sets the order of a graph's nodes, and of the graphs in it. It returns a node of a circle, or
// nil if there is none.
func (g *graph) sort() *node {
	list, ok := g.order()
	if !ok {
		for _, n := range g.nodes {
			if !slices.Contains(list, n) {
				return n
			}
		}
	}
	g.sorted, g.lanes = list, setLanes(list)
	for _, n := range list {
		if child, ok := n.op.(*childNode); ok {
			if bad := child.g.sort(); bad != nil {
				return n
			}
		}
	}
	return nil
}

// instantiate makes a graph executable. It returns the node that keeps it from that, if one does.
func (c *Call) instantiate(out *Handle, h Handle, flags uint64) (bad *node, r Result) {
	c.d.graphs.mu.Lock()
	defer c.d.graphs.mu.Unlock()
	g := c.graph(h)
	switch {
	case g == nil, out == nil, flags&^(graphAutoFree|graphUpload|graphDeviceLaunch|graphUsePriority) != 0:
		return nil, ErrorInvalidValue
	case g.memory && g.exec != nil: // its memory has one address
		return nil, ErrorInvalidValue
	case flags&graphDeviceLaunch != 0:
		return nil, ErrorNotSupported
	}
	n, r := g.copy(c.d, false)
	if r != Success {
		return nil, r
	}
	if bad := n.g.sort(); bad != nil {
		n.g.forget(c.d)
		for o, m := range n.of {
			if m == bad {
				return o, ErrorInvalidValue
			}
		}
	}
	e := &graphExec{g: n.g, from: g, of: n.of, flags: flags}
	if e.handle = c.d.objects.add(e); e.handle == 0 {
		n.g.forget(c.d)
		return nil, ErrorOutOfMemory
	}
	if g.memory {
		g.exec = e
	}
	put(out, e.handle)
	return nil, Success
}

// GraphInstantiateWithFlags is cuGraphInstantiateWithFlags.
func (c *Call) GraphInstantiateWithFlags(out *Handle, h Handle, flags uint64) Result {
	_, r := c.instantiate(out, h, flags)
	return r
}

// GraphInstantiate is cuGraphInstantiate.
func (c *Call) GraphInstantiate(out *Handle, h Handle, errorNode *Handle, log *byte, size uint64) Result {
	bad, r := c.instantiate(out, h, 0)
	if errorNode != nil {
		put(errorNode, bad.handleOrNone())
	}
	if log != nil && size > 0 {
		put(log, 0)
		if bad != nil {
			text := append([]byte("nodes of the graph follow one another in a circle"), 0)
			b := hostBytes(Pointer(log), min(size, uint64(len(text))))
			copy(b, text)
			b[len(b)-1] = 0
		}
	}
	return r
}

// handleOrNone returns a node's handle, or 0 for none.
func (n *node) handleOrNone() Handle {
	if n == nil {
		return 0
	}
	return n.handle
}

// GraphInstantiateV2 is cuGraphInstantiate_v2.
func (c *Call) GraphInstantiateV2(out *Handle, h Handle, errorNode *Handle, log *byte, size uint64) Result {
	return c.GraphInstantiate(out, h, errorNode, log, size)
}

// InstantiateParams is CUDA_GRAPH_INSTANTIATE_PARAMS.
type InstantiateParams struct {
	Flags     uint64
	Stream    Handle
	ErrorNode Handle
	Result    uint32
	_         uint32
}

// GraphInstantiateWithParams is cuGraphInstantiateWithParams.
func (c *Call) GraphInstantiateWithParams(out *Handle, h Handle, p *InstantiateParams) Result {
	if p == nil {
		return ErrorInvalidValue
	}
	bad, r := c.instantiate(out, h, p.Flags)
	p.ErrorNode, p.Result = bad.handleOrNone(), GraphInstantiateSuccess
	switch {
	case bad != nil:
		p.Result = GraphInstantiateInvalidStructure
	case r != Success:
		p.Result = GraphInstantiateError
	}
	return r
}

func (c *Call) exec(h Handle) *graphExec { return get[graphExec](&c.d.objects, h) }

// GraphExecDestroy is cuGraphExecDestroy. Launches go on.
func (c *Call) GraphExecDestroy(h Handle) Result {
	c.d.graphs.mu.Lock()
	defer c.d.graphs.mu.Unlock()
	e := c.exec(h)
	if e == nil || !c.d.objects.remove(h) {
		return ErrorInvalidValue
	}
	if e.from.exec == e {
		e.from.exec = nil
	}
	e.g.forget(c.d)
	return Success
}

// GraphExecGetFlags is cuGraphExecGetFlags.
func (c *Call) GraphExecGetFlags(h Handle, out *uint64) Result {
	e := c.exec(h)
	if e == nil || out == nil {
		return ErrorInvalidValue
	}
	put(out, e.flags)
	return Success
}

// GraphUpload is cuGraphUpload. There is nothing to upload.
func (c *Call) GraphUpload(h, sh Handle) Result {
	if _, r := c.stream(sh); r != Success {
		return r
	}
	if c.exec(h) == nil {
		return ErrorInvalidValue
	}
	return Success
}

// GraphLaunch is cuGraphLaunch.
func (c *Call) GraphLaunch(h, sh Handle) Result {
	s, r := c.stream(sh)
	if r != Success {
		return r
	}
	e := c.exec(h)
	if e == nil {
		return ErrorInvalidValue
	}
	if c.captures(s) {
		child := func() operation { return e.child(c.d) }
		if e.g.memory {
			child = nil
		}
		if r, done := c.capture(s, child); done {
			return r
		}
	}
	if e.g.memory {
		if r := c.d.graphMemory.launch(e, s.x); r != Success {
			return r
		}
	}
	s.x.mu.Lock()
	for _, p := range e.last {
		if (p.call != nil || p.ch.x == s.x) && !p.reached() {
			s.waits = append(s.waits, p)
		}
	}
	s.x.mu.Unlock()
	return c.then(func() Result { return c.replay(e.g, s) }, func() Result { return e.launched(s) })
}

// launched notes the end of a launch.
func (e *graphExec) launched(s *stream) Result {
	s.x.mu.Lock()
	defer s.x.mu.Unlock()
	e.last = []point{{ch: s.ch, sent: s.last}}
	if s.call != nil {
		e.last = append(e.last, point{call: s.call})
	}
	return Success
}

// child returns a node that does what an executable graph does; the graphs' lock is held.
func (e *graphExec) child(d *Driver) operation {
	n, _ := e.g.copy(d, true)
	return &childNode{n.g}
}

// changeExec gives a node of an executable graph other parameters.
func (c *Call) changeExec(eh, nh Handle, op operation) Result {
	c.d.graphs.mu.Lock()
	defer c.d.graphs.mu.Unlock()
	e, n := c.exec(eh), c.node(nh)
	if e == nil || n == nil {
		return ErrorInvalidValue
	}
	m := e.of[n]
	if m == nil || otherContext(m.op, op) || !change(m.op, op) {
		return ErrorInvalidValue
	}
	return Success
}

// otherContext reports whether two kernels are of different contexts.
func otherContext(a, b operation) bool {
	k, ok := a.(*kernelNode)
	l, too := b.(*kernelNode)
	return ok && too && k.f.m.x != l.f.m.x
}

// GraphExecKernelNodeSetParamsV2 is cuGraphExecKernelNodeSetParams_v2.
func (c *Call) GraphExecKernelNodeSetParamsV2(e, n Handle, p *KernelNodeParams) Result {
	k, r := c.kernelOf(p)
	if r != Success {
		return r
	}
	return c.changeExec(e, n, k)
}

// GraphExecKernelNodeSetParams is cuGraphExecKernelNodeSetParams.
func (c *Call) GraphExecKernelNodeSetParams(e, n Handle, p *KernelNodeParamsV1) Result {
	return c.GraphExecKernelNodeSetParamsV2(e, n, p.widened())
}

// GraphExecMemcpyNodeSetParams is cuGraphExecMemcpyNodeSetParams.
func (c *Call) GraphExecMemcpyNodeSetParams(e, n Handle, p *Memcpy3D, _ Handle) Result {
	if p == nil {
		return ErrorInvalidValue
	}
	return c.changeExec(e, n, &copyNode{*p})
}

// GraphExecMemsetNodeSetParams is cuGraphExecMemsetNodeSetParams.
func (c *Call) GraphExecMemsetNodeSetParams(e, n Handle, p *MemsetNodeParams, _ Handle) Result {
	if !p.valid() {
		return ErrorInvalidValue
	}
	return c.changeExec(e, n, &setNode{*p})
}

// GraphExecHostNodeSetParams is cuGraphExecHostNodeSetParams.
func (c *Call) GraphExecHostNodeSetParams(e, n Handle, p *HostNodeParams) Result {
	if p == nil || p.Function == nil {
		return ErrorInvalidValue
	}
	return c.changeExec(e, n, &hostNode{*p})
}

// GraphExecEventRecordNodeSetEvent is cuGraphExecEventRecordNodeSetEvent.
func (c *Call) GraphExecEventRecordNodeSetEvent(e, n, event Handle) Result {
	ev := get[Event](&c.d.objects, event)
	if ev == nil {
		return ErrorInvalidHandle
	}
	return c.changeExec(e, n, &recordNode{ev})
}

// GraphExecEventWaitNodeSetEvent is cuGraphExecEventWaitNodeSetEvent.
func (c *Call) GraphExecEventWaitNodeSetEvent(e, n, event Handle) Result {
	ev := get[Event](&c.d.objects, event)
	if ev == nil {
		return ErrorInvalidHandle
	}
	return c.changeExec(e, n, &waitNode{ev})
}

// GraphExecNodeSetParams is cuGraphExecNodeSetParams.
func (c *Call) GraphExecNodeSetParams(e, n Handle, p *NodeParams) Result {
	op, r := c.operationOf(p)
	if r != Success {
		return r
	}
	return c.changeExec(e, n, op)
}

// GraphExecChildGraphNodeSetParams is cuGraphExecChildGraphNodeSetParams.
func (c *Call) GraphExecChildGraphNodeSetParams(eh, nh, child Handle) Result {
	c.d.graphs.mu.Lock()
	defer c.d.graphs.mu.Unlock()
	e, n, g := c.exec(eh), c.node(nh), c.graph(child)
	if e == nil || n == nil || g == nil || e.of[n] == nil {
		return ErrorInvalidValue
	}
	m, ok := e.of[n].op.(*childNode)
	if !ok {
		return ErrorInvalidValue
	}
	if u := compare(m.g, g); u.result != GraphExecUpdateSuccess {
		return ErrorInvalidValue
	}
	adopt(m.g, g, nil)
	return Success
}

// enabled returns the node of an executable graph, if it can be left out.
func (c *Call) enabled(eh, nh Handle) (*node, Result) {
	e, n := c.exec(eh), c.node(nh)
	if e == nil || n == nil || e.of[n] == nil {
		return nil, ErrorInvalidValue
	}
	switch n.op.kind() {
	case GraphNodeTypeKernel, GraphNodeTypeMemcpy, GraphNodeTypeMemset:
		return e.of[n], Success
	}
	return nil, ErrorNotSupported
}

// GraphNodeSetEnabled is cuGraphNodeSetEnabled.
func (c *Call) GraphNodeSetEnabled(e, n Handle, on uint32) Result {
	c.d.graphs.mu.Lock()
	defer c.d.graphs.mu.Unlock()
	m, r := c.enabled(e, n)
	if r == Success {
		m.off = on == 0
	}
	return r
}

// GraphNodeGetEnabled is cuGraphNodeGetEnabled.
func (c *Call) GraphNodeGetEnabled(e, n Handle, out *uint32) Result {
	c.d.graphs.mu.Lock()
	defer c.d.graphs.mu.Unlock()
	if out == nil {
		return ErrorInvalidValue
	}
	m, r := c.enabled(e, n)
	if r == Success {
		put(out, 0)
		if !m.off {
			put(out, 1)
		}
	}
	return r
}
