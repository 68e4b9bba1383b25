package cuda

import (
	"slices"
	"sync"
)

// Memory that nodes of graphs allocate and free. CUDA gives it one address for as long as there is
// the graph. Here the memory itself is there as long, too: a node that allocates it only says that it
// is in use, and one that frees it says when others may have it.

// graphBlock is memory that a node allocates.
type graphBlock struct {
	x          *Context
	base, size uint64

	// Guarded by graphMemory.mu.
	nodes int  // that allocate it: in a graph, and in what it was instantiated to; while one is added, one more
	live  bool // a launch has allocated it, and nothing has freed it

	ready []point // when it was last freed; guarded by Context.mu
}

// graphMemory is a process's memory of graphs. The lock comes after the graphs' and before
// Context.mu.
type graphMemory struct {
	mu       sync.Mutex
	blocks   map[uint64]*graphBlock // by address
	unused   bool                   // some may be of no graph, and not live
	used     usage                  // what is live
	reserved usage                  // all of it
}

// allocate allocates memory for a node. The caller releases it when the node is in a graph, or is not
// going to be: until then it stays.
func (m *graphMemory) allocate(x *Context, n uint64) (*graphBlock, Result) {
	if n == 0 || n > 1<<46 {
		return nil, ErrorInvalidValue
	}
	base, r := x.allocate(n)
	if r != Success {
		return nil, r
	}
	return m.add(x, base, n), Success
}

func (m *graphMemory) add(x *Context, base, n uint64) *graphBlock {
	b := &graphBlock{x: x, base: base, size: n, nodes: 1}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.blocks == nil {
		m.blocks = map[uint64]*graphBlock{}
	}
	m.blocks[base] = b
	m.reserved.add(n)
	return b
}

// find returns the memory at an address, or nil.
func (m *graphMemory) find(base uint64) *graphBlock {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.blocks[base]
}

// keep counts a node that allocates the memory.
func (m *graphMemory) keep(b *graphBlock) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b.nodes++
}

// release takes a node back.
func (m *graphMemory) release(d *Driver, b *graphBlock) {
	m.mu.Lock()
	b.nodes--
	last := b.nodes == 0
	m.unused = m.unused || last
	m.mu.Unlock()
	if last {
		m.trim(d)
	}
}

// trim gives back memory of graphs that are gone, as far as nobody uses it any more.
func (m *graphMemory) trim(d *Driver) {
	m.mu.Lock()
	var gone []*graphBlock
	if !m.unused {
		m.mu.Unlock()
		return
	}
	m.unused = false
	for base, b := range m.blocks {
		if b.nodes > 0 || b.live {
			continue
		}
		if !b.idle() {
			m.unused = true
			continue
		}
		gone = append(gone, b)
		delete(m.blocks, base)
		m.reserved.now -= b.size
	}
	m.mu.Unlock()
	for _, b := range gone {
		if _, ok := b.x.memory.remove(b.base); ok {
			_ = b.x.free(b.base) // or the context has ended
			d.reserved.release(b.base, b.size)
		}
	}
}

// idle reports whether what came before the memory was freed has been carried out.
func (b *graphBlock) idle() bool {
	b.x.mu.Lock()
	defer b.x.mu.Unlock()
	return !slices.ContainsFunc(b.ready, func(p point) bool { return !p.reached() })
}

// setLive marks memory as in use or not. The lock is held.
func (m *graphMemory) setLive(b *graphBlock, live bool) {
	switch {
	case live && !b.live:
		m.used.add(b.size)
	case !live && b.live:
		m.used.now -= b.size
	}
	b.live = live
}

// free says that memory is not in use any more, and reports whether it was. note notes when what came
// before is carried out: nobody may see the one without the other.
func (m *graphMemory) free(b *graphBlock, note func()) (was bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !b.live {
		return false
	}
	note()
	m.setLive(b, false)
	m.unused = true
	return true
}

// forget forgets a context's memory, which ends with it.
func (m *graphMemory) forget(x *Context) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for base, b := range m.blocks {
		if b.x == x {
			m.setLive(b, false)
			delete(m.blocks, base)
			m.reserved.now -= b.size
		}
	}
}

// launch says what a launch in a context allocates and frees, or returns an error and says nothing.
func (m *graphMemory) launch(e *graphExec, x *Context) Result {
	m.mu.Lock()
	defer m.mu.Unlock()
	live := map[*graphBlock]bool{}
	for _, n := range e.g.sorted {
		switch op := n.op.(type) {
		case *allocNode:
			if op.b.x != x || op.b.live && e.flags&graphAutoFree == 0 {
				return ErrorInvalidValue
			}
			live[op.b] = true
		case *freeNode:
			now, here := live[op.b]
			if op.b.x != x || m.blocks[op.b.base] != op.b || !now && (here || !op.b.live) {
				return ErrorInvalidValue
			}
			live[op.b] = false
		}
	}
	for b := range live { // all at once, as far as the most that was in use goes
		m.setLive(b, true)
	}
	for b, now := range live {
		m.setLive(b, now || b.nodes == 0) // what no graph keeps is there until the node has freed it
	}
	return Success
}

// allocNode allocates memory.
type allocNode struct{ b *graphBlock }

func (*allocNode) kind() uint32       { return GraphNodeTypeMemAlloc }
func (n *allocNode) clone() operation { return &allocNode{n.b} }

func (n *allocNode) run(_ *Call, s *stream) Result {
	s.x.mu.Lock()
	defer s.x.mu.Unlock()
	s.waits = append(s.waits, n.b.ready...)
	n.b.ready = nil
	return Success
}

// freeNode frees memory that a node of this graph or of another allocates.
type freeNode struct{ b *graphBlock }

func (*freeNode) kind() uint32       { return GraphNodeTypeMemFree }
func (n *freeNode) clone() operation { return &freeNode{n.b} }

func (n *freeNode) run(c *Call, s *stream) Result {
	if !c.d.graphMemory.free(n.b, func() { n.b.freedIn(s) }) { // mostly: see launch
		n.b.freedIn(s)
	}
	return Success
}

// freedIn notes that the memory is freed when a stream has carried out what was enqueued before.
func (b *graphBlock) freedIn(s *stream) {
	s.x.mu.Lock()
	defer s.x.mu.Unlock()
	b.ready = s.tail()
}

// freedBehind notes that the memory is freed when all points have been reached.
func (b *graphBlock) freedBehind(points []point) {
	b.x.mu.Lock()
	defer b.x.mu.Unlock()
	b.ready = points
}

// ofMemory reports whether an operation allocates or frees memory. A graph with such nodes can't be
// copied but for one executable graph, can't be part of another, and loses no node.
func ofMemory(op operation) bool {
	k := op.kind()
	return k == GraphNodeTypeMemAlloc || k == GraphNodeTypeMemFree
}

// otherMemory reports whether two nodes allocate or free different memory.
func otherMemory(a, b operation) bool {
	switch a := a.(type) {
	case *allocNode:
		o, ok := b.(*allocNode)
		return !ok || o.b != a.b
	case *freeNode:
		o, ok := b.(*freeNode)
		return !ok || o.b != a.b
	}
	return false
}

// freeGraphMemory frees memory of a graph in a stream's order. It reports whether the memory is a
// graph's.
func (c *Call) freeGraphMemory(base uint64, s *stream) (Result, bool) {
	m := &c.d.graphMemory
	b := m.find(base)
	if b == nil || b.x != s.x {
		return Success, false
	}
	if !m.free(b, func() { b.freedIn(s) }) {
		return ErrorInvalidValue, true
	}
	m.trim(c.d)
	return Success, true
}

// captureAlloc captures that a stream allocates memory.
func (c *Call) captureAlloc(out *uint64, n uint64, s *stream) (Result, bool) {
	m := &c.d.graphMemory
	b, r := m.allocate(s.x, n)
	if r != Success {
		return r, true
	}
	defer m.release(c.d, b)
	r, done := c.capture(s, func() operation { return &allocNode{b} })
	if done && r == Success {
		put(out, b.base)
	}
	return r, done
}

// captureFree captures that a stream frees memory, which has to be a graph's.
func (c *Call) captureFree(base uint64, s *stream) (Result, bool) {
	b := c.d.graphMemory.find(base)
	if b == nil {
		return c.capture(s, nil)
	}
	return c.capture(s, func() operation { return &freeNode{b} })
}

// MemAllocNodeParams is CUDA_MEM_ALLOC_NODE_PARAMS.
type MemAllocNodeParams struct {
	Props       MemPoolProps
	Access      *MemAccess
	AccessCount uint64
	Bytes       uint64
	Ptr         uint64
}

// check returns what is wrong with the description.
func (p *MemAllocNodeParams) check() Result {
	switch {
	case p == nil, p.Props.Type != pinned, p.AccessCount > 0 && p.Access == nil, p.AccessCount > 1<<16:
		return ErrorInvalidValue
	case !p.Props.Location.valid(), p.Props.HandleTypes != 0, p.Props.Usage != 0:
		return ErrorNotSupported
	}
	for i := range p.AccessCount {
		if a := &array(p.Access, p.AccessCount)[i]; !a.Location.valid() || a.Flags != readWrite {
			return ErrorInvalidValue
		}
	}
	return Success
}

// GraphAddMemAllocNode is cuGraphAddMemAllocNode. The context is the current one.
func (c *Call) GraphAddMemAllocNode(out *Handle, g Handle, deps *Handle, count uint64, p *MemAllocNodeParams) Result {
	x, r := c.context()
	if r == Success {
		r = p.check()
	}
	if r != Success {
		return r
	}
	b, r := c.d.graphMemory.allocate(x, p.Bytes)
	if r != Success {
		return r
	}
	defer c.d.graphMemory.release(c.d, b)
	if r := c.addNode(out, g, deps, count, &allocNode{b}); r != Success {
		return r
	}
	p.Ptr = b.base
	return Success
}

// GraphAddMemFreeNode is cuGraphAddMemFreeNode.
func (c *Call) GraphAddMemFreeNode(out *Handle, g Handle, deps *Handle, count, base uint64) Result {
	b := c.d.graphMemory.find(base)
	if b == nil {
		return ErrorInvalidValue
	}
	return c.addNode(out, g, deps, count, &freeNode{b})
}

// GraphMemAllocNodeGetParams is cuGraphMemAllocNodeGetParams.
func (c *Call) GraphMemAllocNodeGetParams(h Handle, out *MemAllocNodeParams) Result {
	return withOperation(c, h, out != nil, func(n *allocNode) Result {
		*out = n.params()
		return Success
	})
}

func (n *allocNode) params() MemAllocNodeParams {
	const device = 1
	return MemAllocNodeParams{Props: MemPoolProps{Type: pinned, Location: MemLocation{Type: device}}, Bytes: n.b.size, Ptr: n.b.base}
}

// GraphMemFreeNodeGetParams is cuGraphMemFreeNodeGetParams.
func (c *Call) GraphMemFreeNodeGetParams(h Handle, out *uint64) Result {
	return withOperation(c, h, out != nil, func(n *freeNode) Result {
		put(out, n.b.base)
		return Success
	})
}

// DeviceGetGraphMemAttribute is cuDeviceGetGraphMemAttribute.
func (c *Call) DeviceGetGraphMemAttribute(dev int32, attr uint32, out Pointer) Result {
	if dev != 0 {
		return ErrorInvalidDevice
	}
	m := &c.d.graphMemory
	m.mu.Lock()
	defer m.mu.Unlock()
	n, ok := map[uint32]uint64{
		GraphMemAttrUsedMemCurrent: m.used.now, GraphMemAttrUsedMemHigh: m.used.high,
		GraphMemAttrReservedMemCurrent: m.reserved.now, GraphMemAttrReservedMemHigh: m.reserved.high,
	}[attr]
	if !ok || out == nil {
		return ErrorInvalidValue
	}
	put(value[uint64](out), n)
	return Success
}

// DeviceSetGraphMemAttribute is cuDeviceSetGraphMemAttribute, which resets what was the most.
func (c *Call) DeviceSetGraphMemAttribute(dev int32, attr uint32, in Pointer) Result {
	if dev != 0 {
		return ErrorInvalidDevice
	}
	if in == nil || *value[uint64](in) != 0 {
		return ErrorInvalidValue
	}
	m := &c.d.graphMemory
	m.mu.Lock()
	defer m.mu.Unlock()
	switch attr {
	case GraphMemAttrUsedMemHigh:
		m.used.high = m.used.now
	case GraphMemAttrReservedMemHigh:
		m.reserved.high = m.reserved.now
	default:
		return ErrorInvalidValue
	}
	return Success
}

// DeviceGraphMemTrim is cuDeviceGraphMemTrim.
func (c *Call) DeviceGraphMemTrim(dev int32) Result {
	if dev != 0 {
		return ErrorInvalidDevice
	}
	c.d.graphMemory.trim(c.d)
	return Success
}
