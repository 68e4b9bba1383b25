package cuda

import (
	"slices"
	"sync"
	"sync/atomic"
)

// Modes of a capture, and of a thread: which calls it forbids that can't be captured.
const (
	captureGlobal = iota
	captureThreadLocal
	captureRelaxed
)

// captured is a stream capture: what is enqueued in its streams becomes nodes of a graph.
type captured struct {
	id      uint64
	g       *graph
	given   bool // the graph was there before
	mode    uint32
	thread  uint32
	origin  *stream
	streams []*stream
	invalid bool
}

// graphs is what a process's graphs and captures share. The mutex guards the structure of all
// graphs, and the captures with the captured parts of streams and events. Programs must not change a
// graph from two threads at a time; in one that does, nothing breaks but the graph.
type graphs struct {
	mu       sync.Mutex
	captures map[*captured]struct{}
	active   atomic.Int32 // captures
}

// captureOf is the captured part of a stream or an event.
type captureOf struct {
	by atomic.Pointer[captured]
	at []*node // what follows in the stream follows these
}

// captures reports whether a stream's next operation may have to be captured.
func (c *Call) captures(s *stream) bool {
	return s.captured.by.Load() != nil || s.legacy && c.d.graphs.active.Load() > 0
}

// capture captures an operation of a stream; without make, it is one that can't be captured. It
// reports whether the stream is captured, or the operation is not allowed.
func (c *Call) capture(s *stream, make func() operation) (Result, bool) {
	c.d.graphs.mu.Lock()
	defer c.d.graphs.mu.Unlock()
	p := s.captured.by.Load()
	switch {
	case p == nil && s.legacy:
		// It would wait for the captured streams.
		found := c.d.graphs.invalidate(func(p *captured) bool {
			return slices.ContainsFunc(p.streams, func(o *stream) bool { return o.x == s.x && !o.nonBlocking })
		})
		return ErrorStreamCaptureImplicit, found
	case p == nil:
		return Success, false
	case p.invalid:
		return ErrorStreamCaptureInvalidated, true
	case make == nil:
		p.invalid = true
		return ErrorStreamCaptureUnsupported, true
	}
	// The program may have destroyed some of them.
	s.captured.at = slices.DeleteFunc(s.captured.at, func(n *node) bool { return n.g != p.g })
	n, r := p.g.add(c.d, make(), s.captured.at)
	if r == Success {
		s.captured.at = []*node{n}
	}
	return r, true
}

// invalidate invalidates the captures for which is returns true, and reports whether there are any.
func (g *graphs) invalidate(is func(*captured) bool) (found bool) {
	for p := range g.captures {
		if is(p) {
			p.invalid, found = true, true
		}
	}
	return found
}

// unsafe returns the result of a call that the thread's or another's capture forbids, or Success.
func (c *Call) unsafe() Result {
	if c.d.graphs.active.Load() == 0 || c.captureMode == captureRelaxed {
		return Success
	}
	c.d.graphs.mu.Lock()
	defer c.d.graphs.mu.Unlock()
	if c.d.graphs.invalidate(func(p *captured) bool {
		own := p.thread == c.t.ID && p.mode != captureRelaxed
		return own || c.captureMode == captureGlobal && p.mode == captureGlobal
	}) {
		return ErrorStreamCaptureUnsupported
	}
	return Success
}

// unsafeIn is unsafe for a call that waits for all of a context.
func (c *Call) unsafeIn(x *Context) Result {
	if c.d.graphs.active.Load() == 0 {
		return Success
	}
	c.d.graphs.mu.Lock()
	defer c.d.graphs.mu.Unlock()
	if c.d.graphs.invalidate(func(p *captured) bool { return p.origin.x == x }) {
		return ErrorStreamCaptureUnsupported
	}
	return Success
}

// begin begins a capture into a graph.
func (c *Call) begin(s *stream, g *graph, given bool, mode uint32, at []*node) Result {
	switch {
	case mode > captureRelaxed:
		return ErrorInvalidValue
	case s.legacy:
		return ErrorStreamCaptureUnsupported
	case s.captured.by.Load() != nil:
		return ErrorIllegalState
	}
	p := &captured{id: c.d.ids.Add(1), g: g, given: given, mode: mode, thread: c.t.ID, origin: s}
	if c.d.graphs.captures == nil {
		c.d.graphs.captures = map[*captured]struct{}{}
	}
	c.d.graphs.captures[p] = struct{}{}
	c.d.graphs.active.Add(1)
	p.join(s, at)
	return Success
}

// join makes a stream part of a capture.
func (p *captured) join(s *stream, at []*node) {
	p.streams = append(p.streams, s)
	s.captured.at = slices.Clone(at)
	s.captured.by.Store(p)
}

// end ends a capture.
func (g *graphs) end(p *captured) {
	for _, s := range p.streams {
		s.captured.by.Store(nil)
		s.captured.at = nil
	}
	delete(g.captures, p)
	g.active.Add(-1)
}

// StreamBeginCaptureV2 is cuStreamBeginCapture_v2.
func (c *Call) StreamBeginCaptureV2(h Handle, mode uint32) Result {
	s, r := c.stream(h)
	if r != Success {
		return r
	}
	c.d.graphs.mu.Lock()
	defer c.d.graphs.mu.Unlock()
	g := &graph{}
	if r := c.begin(s, g, false, mode, nil); r != Success {
		return r
	}
	if g.handle = c.d.objects.add(g); g.handle == 0 {
		c.d.graphs.end(s.captured.by.Load())
		return ErrorOutOfMemory
	}
	return Success
}

// StreamBeginCapture is cuStreamBeginCapture.
func (c *Call) StreamBeginCapture(h Handle) Result { return c.StreamBeginCaptureV2(h, captureGlobal) }

// StreamBeginCaptureToGraph is cuStreamBeginCaptureToGraph.
func (c *Call) StreamBeginCaptureToGraph(h, gh Handle, deps *Handle, data Pointer, count uint64, mode uint32) Result {
	s, r := c.stream(h)
	if r != Success {
		return r
	}
	if !plain(data, count) {
		return ErrorNotSupported
	}
	c.d.graphs.mu.Lock()
	defer c.d.graphs.mu.Unlock()
	g := c.graph(gh)
	if g == nil {
		return ErrorInvalidValue
	}
	at, r := c.nodesOf(g, deps, count)
	if r != Success {
		return r
	}
	return c.begin(s, g, true, mode, at)
}

// StreamEndCapture is cuStreamEndCapture.
func (c *Call) StreamEndCapture(h Handle, out *Handle) Result {
	s, r := c.stream(h)
	if r != Success {
		return r
	}
	c.d.graphs.mu.Lock()
	defer c.d.graphs.mu.Unlock()
	p := s.captured.by.Load()
	switch {
	case out == nil:
		return ErrorInvalidValue
	case p == nil:
		return ErrorIllegalState
	case p.origin != s:
		return ErrorStreamCaptureUnmatched
	case p.mode != captureRelaxed && p.thread != c.t.ID:
		return ErrorStreamCaptureWrongThread
	}
	put(out, 0)
	joined := p.joined()
	c.d.graphs.end(p)
	switch {
	case p.invalid:
		r = ErrorStreamCaptureInvalidated
	case !joined:
		r = ErrorStreamCaptureUnjoined
	default:
		put(out, p.g.handle)
		return Success
	}
	if !p.given {
		p.g.forget(c.d)
	}
	return r
}

// joined reports whether the end of the stream in which the capture began follows all that was
// captured in other streams.
func (p *captured) joined() bool {
	seen := map[*node]bool{}
	for work := slices.Clone(p.origin.captured.at); len(work) > 0; {
		n := work[len(work)-1]
		if work = work[:len(work)-1]; !seen[n] {
			seen[n] = true
			work = append(work, n.deps...)
		}
	}
	for _, s := range p.streams {
		if slices.ContainsFunc(s.captured.at, func(n *node) bool { return !seen[n] }) {
			return false
		}
	}
	return true
}

// Values of CUstreamCaptureStatus.
const (
	captureNone = iota
	captureActive
	captureInvalidated
)

func (p *captured) status() uint32 {
	switch {
	case p == nil:
		return captureNone
	case p.invalid:
		return captureInvalidated
	}
	return captureActive
}

// StreamIsCapturing is cuStreamIsCapturing.
func (c *Call) StreamIsCapturing(h Handle, out *uint32) Result {
	return c.captureInfo(h, out, nil, func(*stream, *captured) {})
}

// captureInfo stores what is known of a stream's capture. more is called if there is one.
func (c *Call) captureInfo(h Handle, status *uint32, id *uint64, more func(*stream, *captured)) Result {
	s, r := c.stream(h)
	if r != Success {
		return r
	}
	if status == nil {
		return ErrorInvalidValue
	}
	c.d.graphs.mu.Lock()
	defer c.d.graphs.mu.Unlock()
	p := s.captured.by.Load()
	if s.legacy {
		for o := range c.d.graphs.captures {
			if o.origin.x == s.x && !o.origin.nonBlocking {
				return ErrorStreamCaptureImplicit
			}
		}
	}
	put(status, p.status())
	if p.status() == captureActive {
		if id != nil {
			put(id, p.id)
		}
		more(s, p)
	}
	return Success
}

// StreamGetCaptureInfo is cuStreamGetCaptureInfo.
func (c *Call) StreamGetCaptureInfo(h Handle, status *uint32, id *uint64) Result {
	return c.captureInfo(h, status, id, func(*stream, *captured) {})
}

// StreamGetCaptureInfoV2 is cuStreamGetCaptureInfo_v2. The list of dependencies is valid until the
// stream's next call of this function.
func (c *Call) StreamGetCaptureInfoV2(h Handle, status *uint32, id *uint64, g *Handle, deps *Pointer, count *uint64) Result {
	return c.captureInfo(h, status, id, func(s *stream, p *captured) {
		s.shown = s.shown[:0]
		for _, n := range s.captured.at {
			s.shown = append(s.shown, n.handle)
		}
		if g != nil {
			put(g, p.g.handle)
		}
		if deps != nil {
			put(deps, handles(s.shown))
		}
		if count != nil {
			put(count, uint64(len(s.shown)))
		}
	})
}

// StreamGetCaptureInfoV3 is cuStreamGetCaptureInfo_v3. All edges are ordinary ones, which a null
// pointer says.
func (c *Call) StreamGetCaptureInfoV3(h Handle, status *uint32, id *uint64, g *Handle, deps, data *Pointer, count *uint64) Result {
	r := c.StreamGetCaptureInfoV2(h, status, id, g, deps, count)
	if r == Success && data != nil {
		put(data, nil)
	}
	return r
}

// Flags of StreamUpdateCaptureDependencies.
const setDependencies = 1

// StreamUpdateCaptureDependencies is cuStreamUpdateCaptureDependencies.
func (c *Call) StreamUpdateCaptureDependencies(h Handle, deps *Handle, count uint64, flags uint32) Result {
	s, r := c.stream(h)
	if r != Success {
		return r
	}
	c.d.graphs.mu.Lock()
	defer c.d.graphs.mu.Unlock()
	p := s.captured.by.Load()
	switch {
	case flags > setDependencies:
		return ErrorInvalidValue
	case p == nil:
		return ErrorIllegalState
	case p.invalid:
		return ErrorStreamCaptureInvalidated
	}
	list, r := c.nodesOf(p.g, deps, count)
	if r != Success {
		return r
	}
	if flags&setDependencies != 0 {
		s.captured.at = nil
	}
	s.captured.merge(list)
	return Success
}

// merge has what follows in the stream follow more nodes.
func (o *captureOf) merge(list []*node) {
	for _, n := range list {
		if !slices.Contains(o.at, n) {
			o.at = append(o.at, n)
		}
	}
}

// StreamUpdateCaptureDependenciesV2 is cuStreamUpdateCaptureDependencies_v2.
func (c *Call) StreamUpdateCaptureDependenciesV2(h Handle, deps *Handle, data Pointer, count uint64, flags uint32) Result {
	if !plain(data, count) {
		return ErrorNotSupported
	}
	return c.StreamUpdateCaptureDependencies(h, deps, count, flags)
}

// ThreadExchangeStreamCaptureMode is cuThreadExchangeStreamCaptureMode.
func (c *Call) ThreadExchangeStreamCaptureMode(mode *uint32) Result {
	if mode == nil || *mode > captureRelaxed {
		return ErrorInvalidValue
	}
	old := c.captureMode
	c.captureMode = *mode
	put(mode, old)
	return Success
}

// external is the flag of records and waits that become nodes of a captured graph.
const external = 1

// captureRecord captures the recording of an event, after which streams that wait for it are part of
// the capture.
func (c *Call) captureRecord(s *stream, e *Event, flags uint32) (Result, bool) {
	if flags&external != 0 || s.captured.by.Load() == nil {
		return c.capture(s, func() operation { return &recordNode{e} })
	}
	c.d.graphs.mu.Lock()
	defer c.d.graphs.mu.Unlock()
	p := s.captured.by.Load()
	if p == nil {
		return Success, false
	}
	if p.invalid {
		return ErrorStreamCaptureInvalidated, true
	}
	e.captured.by.Store(p)
	e.captured.at = slices.Clone(s.captured.at)
	return Success, true
}

// captureWait captures that a stream waits for an event, or makes the stream part of the capture
// that has recorded it.
func (c *Call) captureWait(s *stream, e *Event, flags uint32) (Result, bool) {
	if flags&external != 0 {
		return c.capture(s, func() operation { return &waitNode{e} })
	}
	c.d.graphs.mu.Lock()
	defer c.d.graphs.mu.Unlock()
	p, from := s.captured.by.Load(), e.captured.by.Load()
	if _, active := c.d.graphs.captures[from]; from != nil && !active {
		return ErrorInvalidValue, true // its capture has ended
	}
	switch {
	case p == nil && from == nil:
		return Success, false
	case from == nil:
		p.invalid = true
		return ErrorStreamCaptureIsolation, true
	case from.invalid || p != nil && p.invalid:
		return ErrorStreamCaptureInvalidated, true
	case p == nil && s.legacy:
		from.invalid = true
		return ErrorStreamCaptureImplicit, true
	case p == nil:
		from.join(s, e.captured.at)
	case p != from:
		p.invalid, from.invalid = true, true
		return ErrorStreamCaptureMerge, true
	default:
		s.captured.merge(e.captured.at)
	}
	return Success, true
}

// captureLost ends the capture that began in a stream, which is destroyed. A stream that joined a capture
// may go: its nodes stay, and have to be joined by the capture's end.
func (c *Call) captureLost(s *stream) {
	if s.captured.by.Load() == nil {
		return
	}
	c.d.graphs.mu.Lock()
	defer c.d.graphs.mu.Unlock()
	if p := s.captured.by.Load(); p != nil && p.origin == s {
		c.d.graphs.end(p)
		if !p.given {
			p.g.forget(c.d)
		}
	}
}

// captureCopy captures a copy of n bytes between memory of two types. Without async the copy can't
// be captured.
func (c *Call) captureCopy(s *stream, dst, src, n uint64, from, to uint32, async bool) (Result, bool) {
	if !c.captures(s) {
		return Success, false
	}
	if !async {
		return c.capture(s, nil)
	}
	return c.capture(s, func() operation {
		p := Memcpy3D{SrcMemoryType: from, DstMemoryType: to, Width: n, Height: 1, Depth: 1}
		if from == placeHost {
			p.SrcHost = pointerTo(src)
		} else {
			p.SrcDevice = src
		}
		if to == placeHost {
			p.DstHost = pointerTo(dst)
		} else {
			p.DstDevice = dst
		}
		return &copyNode{p}
	})
}
