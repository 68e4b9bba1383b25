package cuda

import "slices"

// graph is a CUgraph: operations with dependencies. Its branches are carried out in several streams:
// see graph_lanes.go.
type graph struct {
	handle Handle // 0 of a graph that belongs to a node or to an executable graph
	owner  *node  // the node whose child graph it is, or nil
	nodes  []*node
	lastID uint32
	number uint32     // of all graphs of the process; 0: it was not asked for
	memory bool       // it has nodes that allocate or free memory
	exec   *graphExec // the executable graph made of it, if it has such nodes
	sorted []*node    // of an executable graph: see order
	lanes  int        // how many streams it is carried out in: see setLanes
	// objects are the user objects that it keeps, with the number of its references to each.
	objects map[*userObject]uint32
}

// node is a CUgraphNode.
type node struct {
	g      *graph // nil once it was destroyed
	handle Handle
	id     uint32
	op     operation
	deps   []*node // it follows these
	next   []*node // these follow it
	off    bool    // in an executable graph: it is left out
	lane   int     // in an executable graph: the stream that carries it out
}

// operation is what a node does.
type operation interface {
	kind() uint32
	// run has a stream carry the operation out. It may return [again].
	run(c *Call, s *stream) Result
	// clone returns an operation that can be changed independently.
	clone() operation
}

// emptyNode does nothing; others depend on it.
type emptyNode struct{}

func (emptyNode) kind() uint32              { return GraphNodeTypeEmpty }
func (emptyNode) run(*Call, *stream) Result { return Success }
func (emptyNode) clone() operation          { return emptyNode{} }

// graph returns a graph by its handle.
func (c *Call) graph(h Handle) *graph { return get[graph](&c.d.objects, h) }

// node returns a node by its handle, or nil.
func (c *Call) node(h Handle) *node {
	n := get[node](&c.d.objects, h)
	if n == nil || n.g == nil {
		return nil
	}
	return n
}

// nodesOf returns count nodes of a graph by their handles, which are at from.
func (c *Call) nodesOf(g *graph, from *Handle, count uint64) ([]*node, Result) {
	if count == 0 {
		return nil, Success
	}
	if from == nil || count > mostNodes {
		return nil, ErrorInvalidValue
	}
	list := make([]*node, count)
	for i, h := range array(from, count) {
		if list[i] = c.node(h); list[i] == nil || list[i].g != g {
			return nil, ErrorInvalidValue
		}
	}
	return list, Success
}

// mostNodes bounds the nodes of a graph.
const mostNodes = 1 << 20

// add adds a node that follows deps, each of which counts once. The graphs' lock is held.
func (g *graph) add(d *Driver, op operation, deps []*node) (*node, Result) {
	if len(g.nodes) >= mostNodes {
		return nil, ErrorOutOfMemory
	}
	if ofMemory(op) && (g.owner != nil || g.frees(op)) {
		return nil, ErrorInvalidValue
	}
	n := &node{g: g, op: op}
	if n.handle = d.objects.add(n); n.handle == 0 {
		return nil, ErrorOutOfMemory
	}
	g.lastID++
	n.id = g.lastID
	g.memory = g.memory || ofMemory(op)
	if child, ok := op.(*childNode); ok {
		child.g.owner = n
	}
	if a, ok := op.(*allocNode); ok {
		d.graphMemory.keep(a.b)
	}
	g.nodes = append(g.nodes, n)
	for _, d := range deps {
		n.follow(d)
	}
	return n, Success
}

// frees reports whether op frees memory that a node of the graph frees already.
func (g *graph) frees(op operation) bool {
	f, ok := op.(*freeNode)
	return ok && slices.ContainsFunc(g.nodes, func(n *node) bool {
		o, ok := n.op.(*freeNode)
		return ok && o.b == f.b
	})
}

// follow adds a dependency, unless it is there.
func (n *node) follow(d *node) bool {
	if slices.Contains(n.deps, d) {
		return false
	}
	n.deps, d.next = append(n.deps, d), append(d.next, n)
	return true
}

// unfollow removes a dependency and reports whether it was there.
func (n *node) unfollow(d *node) bool {
	i, k := slices.Index(n.deps, d), slices.Index(d.next, n)
	if i < 0 || k < 0 {
		return false
	}
	n.deps, d.next = slices.Delete(n.deps, i, i+1), slices.Delete(d.next, k, k+1)
	return true
}

// destroy removes a node from its graph. The graphs' lock is held.
func (n *node) destroy(d *Driver) {
	for _, d := range slices.Clone(n.deps) {
		n.unfollow(d)
	}
	for _, d := range slices.Clone(n.next) {
		d.unfollow(n)
	}
	n.g.nodes = slices.DeleteFunc(n.g.nodes, func(o *node) bool { return o == n })
	n.forget(d)
}

// forget makes a node's handle, and those of its child graph, invalid.
func (n *node) forget(d *Driver) {
	d.objects.remove(n.handle)
	switch op := n.op.(type) {
	case *childNode:
		op.g.forget(d)
	case *allocNode:
		d.graphMemory.release(d, op.b)
	}
	n.g = nil
}

// forget makes the handles of a graph and of its nodes invalid, and gives up its user objects.
func (g *graph) forget(d *Driver) {
	d.objects.remove(g.handle)
	for _, n := range g.nodes {
		n.forget(d)
	}
	for o, count := range g.objects {
		d.release(o, count)
	}
	g.objects = nil
}

// order returns the nodes so that each comes after those that it follows, or false if they follow
// one another in a circle. Of nodes that may be next, the one added first comes first.
func (g *graph) order() ([]*node, bool) {
	waits := make(map[*node]int, len(g.nodes))
	list := make([]*node, 0, len(g.nodes))
	for _, n := range g.nodes {
		if waits[n] = len(n.deps); len(n.deps) == 0 {
			list = append(list, n)
		}
	}
	for i := 0; i < len(list); i++ {
		for _, n := range list[i].next {
			if waits[n]--; waits[n] == 0 {
				list = append(list, n)
			}
		}
	}
	return list, len(list) == len(g.nodes)
}

// copied is a copy of a graph, with its nodes by those that they are copies of.
type copied struct {
	g  *graph
	of map[*node]*node
}

// copy copies a graph, and takes a reference to each of its user objects. If named is set, the copy
// and its nodes have handles. The graphs' lock is held.
func (g *graph) copy(d *Driver, named bool) (copied, Result) {
	c := copied{&graph{lastID: g.lastID, memory: g.memory}, make(map[*node]*node, len(g.nodes))}
	if named {
		if c.g.handle = d.objects.add(c.g); c.g.handle == 0 {
			return copied{}, ErrorOutOfMemory
		}
	}
	for o := range g.objects {
		o.refs++
		c.g.keep(o, 1)
	}
	for _, n := range g.nodes {
		m := &node{g: c.g, id: n.id, op: n.op.clone(), off: n.off}
		c.g.nodes = append(c.g.nodes, m)
		c.of[n] = m
		if a, ok := m.op.(*allocNode); ok {
			d.graphMemory.keep(a.b)
		}
		if child, ok := m.op.(*childNode); ok {
			sub, r := child.g.copy(d, named)
			if r != Success {
				child.g = &graph{}
				c.g.forget(d)
				return copied{}, r
			}
			child.g = sub.g
			child.g.owner = m
		}
		if !named {
			continue
		}
		if m.handle = d.objects.add(m); m.handle == 0 {
			c.g.forget(d)
			return copied{}, ErrorOutOfMemory
		}
	}
	for _, n := range g.nodes {
		for _, d := range n.deps {
			c.of[n].follow(c.of[d])
		}
	}
	return c, Success
}

// GraphCreate is cuGraphCreate.
func (c *Call) GraphCreate(out *Handle, flags uint32) Result {
	if out == nil || flags != 0 {
		return ErrorInvalidValue
	}
	g := &graph{}
	if g.handle = c.d.objects.add(g); g.handle == 0 {
		return ErrorOutOfMemory
	}
	put(out, g.handle)
	return Success
}

// GraphDestroy is cuGraphDestroy.
func (c *Call) GraphDestroy(h Handle) Result {
	c.d.graphs.mu.Lock()
	defer c.d.graphs.mu.Unlock()
	g := c.graph(h)
	if g == nil || g.owner != nil {
		return ErrorInvalidValue
	}
	g.forget(c.d)
	return Success
}

// GraphClone is cuGraphClone.
func (c *Call) GraphClone(out *Handle, h Handle) Result {
	c.d.graphs.mu.Lock()
	defer c.d.graphs.mu.Unlock()
	g := c.graph(h)
	if out == nil || g == nil || g.memory {
		return ErrorInvalidValue
	}
	n, r := g.copy(c.d, true)
	if r == Success {
		put(out, n.g.handle)
	}
	return r
}

// GraphNodeFindInClone is cuGraphNodeFindInClone. A copy's nodes have the numbers of those that
// they are copies of.
func (c *Call) GraphNodeFindInClone(out *Handle, original, clone Handle) Result {
	c.d.graphs.mu.Lock()
	defer c.d.graphs.mu.Unlock()
	n, g := c.node(original), c.graph(clone)
	if out == nil || n == nil || g == nil {
		return ErrorInvalidValue
	}
	i := slices.IndexFunc(g.nodes, func(m *node) bool { return m.id == n.id })
	if i < 0 {
		return ErrorInvalidValue
	}
	put(out, g.nodes[i].handle)
	return Success
}

// GraphDestroyNode is cuGraphDestroyNode.
func (c *Call) GraphDestroyNode(h Handle) Result {
	c.d.graphs.mu.Lock()
	defer c.d.graphs.mu.Unlock()
	n := c.node(h)
	if n == nil || n.g.memory {
		return ErrorInvalidValue
	}
	n.destroy(c.d)
	return Success
}
