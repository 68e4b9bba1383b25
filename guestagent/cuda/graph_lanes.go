package cuda

// A graph's branches are carried out in several streams, so that kernels of different branches
// execute side by side. The first is the stream that the graph was launched in; the others are the
// context's own, and other launches use them, too. A node waits for those that it follows in other
// streams, and whatever comes after the graph in its stream waits for all of them.

// mostLanes bounds the streams of one graph. More branches share them.
const mostLanes = 8

// setLanes chooses the nodes' streams, by number: where possible, a node continues the stream of
// one that it follows.
func setLanes(sorted []*node) (count int) {
	tails := make([]*node, 0, mostLanes) // the last node of each lane; nil if its end was waited for
	for _, n := range sorted {
		lane := -1
		for _, d := range n.deps {
			if tails[d.lane] == d && (lane < 0 || d.lane < lane) {
				lane = d.lane
			}
		}
		for i := 0; lane < 0 && i < len(tails); i++ {
			if tails[i] == nil {
				lane = i
			}
		}
		switch {
		case lane >= 0:
		case len(tails) < mostLanes:
			lane = len(tails)
			tails = append(tails, nil)
		default:
			lane = int(n.id) % mostLanes
		}
		for _, d := range n.deps {
			if tails[d.lane] == d {
				tails[d.lane] = nil
			}
		}
		n.lane, tails[lane] = lane, n
	}
	return len(tails)
}

// laneKey names the streams of a context that serve launches of graphs in streams of one kind.
type laneKey struct {
	nonBlocking bool
	priority    int32
}

// lanes returns count streams for a graph that is launched in s. There are fewer if the device
// can't have channels wait for each other.
func (c *Call) lanes(s *stream, count int) ([]*stream, Result) {
	x := s.x
	if count <= 1 || !x.triggers() {
		return []*stream{s}, Success
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.lanes == nil {
		x.lanes = map[laneKey][]*stream{}
	}
	// The legacy stream's branches must not wait for each other as blocking streams wait for it.
	k := laneKey{s.nonBlocking || s.legacy, s.priority}
	for len(x.lanes[k]) < count-1 {
		l := &stream{x: x, id: c.d.ids.Add(1), nonBlocking: k.nonBlocking, priority: k.priority}
		if r := x.assign(l); r != Success {
			return nil, r
		}
		x.lanes[k] = append(x.lanes[k], l)
	}
	return append([]*stream{s}, x.lanes[k][:count-1]...), Success
}

// replaying is a launch of a graph.
type replaying struct {
	g     *graph
	lanes []*stream
	begin []point           // where the graph begins
	ends  map[*node][]point // of nodes that others follow in other streams
}

// replay carries out a graph's nodes, from a stream.
func (c *Call) replay(g *graph, s *stream) Result {
	lanes, r := c.lanes(s, g.lanes)
	if r != Success {
		return r
	}
	p := &replaying{g: g, lanes: lanes}
	if len(lanes) > 1 {
		p.ends = map[*node][]point{}
		s.x.mu.Lock()
		p.begin = s.ends()
		r := c.mayBeAwaited(p.begin[0])
		s.x.mu.Unlock()
		if r != Success {
			return r
		}
	}
	return c.then(func() Result { return c.replayFrom(p, 0) }, func() Result { return c.join(p) })
}

// lane returns the stream of a node.
func (p *replaying) lane(n *node) *stream { return p.lanes[min(n.lane, len(p.lanes)-1)] }

func (c *Call) replayFrom(p *replaying, from int) Result {
	for i, n := range p.g.sorted[from:] {
		s := p.lane(n)
		p.follow(n, s)
		if !n.off {
			switch r := n.op.run(c, s); r {
			case Success:
			case again:
				f := c.resume
				return c.later(func() Result {
					return c.then(f, func() Result {
						if r := c.passed(p, n, s); r != Success {
							return r
						}
						return c.replayFrom(p, from+i+1)
					})
				})
			default:
				return r
			}
		}
		if r := c.passed(p, n, s); r != Success {
			return r
		}
	}
	return Success
}

// follow has a node's stream wait for the nodes that it follows in other streams, or for the
// graph's beginning if it follows none.
func (p *replaying) follow(n *node, s *stream) {
	if len(p.lanes) == 1 {
		return
	}
	s.x.mu.Lock()
	defer s.x.mu.Unlock()
	if len(n.deps) == 0 && s != p.lanes[0] {
		s.waits = append(s.waits, p.begin...)
	}
	for _, d := range n.deps {
		if p.lane(d) != s {
			s.waits = append(s.waits, p.ends[d]...)
		}
	}
}

// passed notes where a node ends, if one in another stream follows it.
func (c *Call) passed(p *replaying, n *node, s *stream) Result {
	for _, o := range n.next {
		if len(p.lanes) > 1 && p.lane(o) != s {
			s.x.mu.Lock()
			defer s.x.mu.Unlock()
			p.ends[n] = s.tail()
			return c.mayBeAwaited(p.ends[n][0])
		}
	}
	return Success
}

// tail returns the points at which the commands that a stream was given have ended; x.mu is held.
func (s *stream) tail() []point {
	points := append([]point{{ch: s.ch, sent: s.last}}, s.waits...)
	if p, waits := s.calling(); waits {
		points = append(points, p)
	}
	return points
}

// join has the stream of a graph's launch go on when all of the graph's streams have come so far.
func (c *Call) join(p *replaying) Result {
	s := p.lanes[0]
	if len(p.lanes) == 1 {
		return Success
	}
	s.x.mu.Lock()
	for _, l := range p.lanes[1:] {
		s.waits = append(s.waits, l.tail()...)
	}
	s.x.mu.Unlock()
	return c.arrive(s)
}

// arrive has a stream's channel come to all that the stream waits for, so that other streams that
// wait for this one's commands wait for that, too.
func (c *Call) arrive(s *stream) Result {
	if ok, r := c.enter(s, func() Result { return c.arrive(s) }); !ok {
		return r
	}
	defer s.x.mu.Unlock()
	// The commands that wait are the stream's.
	if s.last = s.ch.sent; !s.nonBlocking && !s.legacy {
		s.ch.blocking = s.ch.sent
	}
	return Success
}
