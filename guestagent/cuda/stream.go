package cuda

import (
	"context"

	"vgpud/guestagent/driver"
)

// stream is a CUstream. Streams of a context share its channels.
type stream struct {
	x           *Context
	ch          *channel
	handle      Handle // 0 of a default stream
	id          uint64
	legacy      bool // the legacy default stream, which all but non-blocking streams wait for
	nonBlocking bool
	priority    int32
	flags       uint32
	captured    captureOf
	shown       []Handle // that StreamGetCaptureInfoV2 returned; guarded by graphs.mu

	// Guarded by Context.mu.
	last       uint64  // the stream's last command in its channel
	waits      []point // of other channels, for the stream's next command
	attributes map[uint32]LaunchAttributeValue
	returned   *driver.Trigger // raised as functions of the program's return, or nil
	calls      uint64          // of such functions
	call       *hostCall       // the last function of the program's, or nil
}

// Numbers that are streams without having been created.
const (
	legacyStream    Handle = 1
	perThreadStream Handle = 2
)

// stream returns the stream that a program named, in the current context.
func (c *Call) stream(h Handle) (*stream, Result) {
	x, r := c.context()
	if r != Success {
		return nil, r
	}
	return c.streamIn(x, h)
}

func (c *Call) streamIn(x *Context, h Handle) (*stream, Result) {
	switch {
	case h == perThreadStream, h == 0 && c.perThread:
		return c.ownStream(x)
	case h == 0, h == legacyStream:
		return x.legacy, Success
	}
	s := get[stream](&c.d.objects, h)
	if s == nil {
		return nil, ErrorInvalidHandle
	}
	if s.x != x {
		if r := Result(s.x.sticky.Load()); r != Success {
			return nil, r
		}
	}
	return s, Success
}

// defaultStream returns the stream of a function that has no stream among its parameters.
func (c *Call) defaultStream() (*stream, Result) { return c.stream(0) }

// ownStream returns the thread's default stream in a context.
func (c *Call) ownStream(x *Context) (*stream, Result) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if s := x.own[c.t.ID]; s != nil {
		return s, Success
	}
	s := &stream{x: x, id: c.d.ids.Add(1)}
	if r := x.assign(s); r != Success {
		return nil, r
	}
	x.own[c.t.ID] = s
	return s, Success
}

// assign gives a new stream a channel: one of its own while there are any, or else the next in turn.
// The first is the legacy stream's. x.mu is held.
func (x *Context) assign(s *stream) Result {
	if x.gpu == nil { // it has channels when its task has begun
		return Success
	}
	if len(x.channels) < mostChannels {
		ch, err := x.newChannel(context.Background())
		if err == nil {
			s.ch = ch
			return Success
		}
		if r, sticky := resultOf(err); sticky {
			return r
		}
	}
	if len(x.channels) == 1 {
		s.ch = x.channels[0]
		return Success
	}
	if x.next >= len(x.channels) {
		x.next = 1
	}
	s.ch = x.channels[x.next]
	x.next++
	return Success
}

// blocker returns a point that a stream's next command must not come before and that has not been
// reached; x.mu is held.
func (x *Context) blocker(s *stream) (point, bool) {
	for len(s.waits) > 0 {
		p := s.waits[len(s.waits)-1]
		if s.behind(p) {
			return p, true
		}
		s.waits = s.waits[:len(s.waits)-1]
	}
	if p, waits := s.calling(); waits {
		return p, true
	}
	switch {
	case s.nonBlocking:
	case s.legacy:
		for _, ch := range x.channels {
			if p := (point{ch: ch, sent: ch.blocking}); s.behind(p) {
				return p, true
			}
		}
		for other := range x.calling {
			if p, waits := other.calling(); waits && !other.nonBlocking {
				return p, true
			}
		}
	default:
		if p := (point{ch: x.legacy.ch, sent: x.legacy.last}); s.behind(p) {
			return p, true
		}
		return x.legacy.calling()
	}
	return point{}, false
}

// behind reports whether a stream has yet to wait for a point of a channel; x.mu is held.
func (s *stream) behind(p point) bool {
	return p.ch != s.ch && (p.ch == nil || s.ch.awaited[p.ch] < p.sent) && !p.reached()
}

// calling returns the function of the program's that a stream is at, if any, and if the device does
// not wait for it; x.mu is held.
func (s *stream) calling() (point, bool) {
	if s.call == nil {
		return point{}, false
	}
	p := point{call: s.call}
	if s.call.trigger != nil { // the device waits
		return point{}, false
	}
	if p.reached() {
		s.call = nil
		delete(s.x.calling, s)
		return point{}, false
	}
	return p, true
}

// ends returns the points at which all of a stream's work so far has ended; x.mu is held.
func (s *stream) ends() []point {
	goals := append([]point{{ch: s.ch, sent: s.last}}, s.waits...)
	if p, waits := s.calling(); waits {
		goals = append(goals, p)
	}
	if s.legacy {
		for _, ch := range s.x.channels {
			goals = append(goals, point{ch: ch, sent: ch.blocking})
		}
		for other := range s.x.calling {
			if p, waits := other.calling(); waits && !other.nonBlocking {
				goals = append(goals, p)
			}
		}
	}
	return goals
}

// enter locks the context so that a stream's next command can be enqueued, and reports whether it
// did. If the command has to wait for other channels first, then is what the call does after that,
// and the result is the call's.
func (c *Call) enter(s *stream, then func() Result) (bool, Result) {
	x := s.x
	x.mu.Lock()
	for {
		p, waits := x.blocker(s)
		if !waits {
			return true, Success
		}
		if done, r := c.order(s, p); !done {
			x.mu.Unlock()
			if r != Success {
				return false, r
			}
			return false, c.waitFor([]point{p}, then)
		}
	}
}

// StreamCreate is cuStreamCreate.
func (c *Call) StreamCreate(out *Handle, flags uint32) Result {
	return c.StreamCreateWithPriority(out, flags, 0)
}

// Priorities of streams, from the least to the most urgent.
const (
	leastPriority    = 0
	greatestPriority = -5
)

// StreamCreateWithPriority is cuStreamCreateWithPriority.
func (c *Call) StreamCreateWithPriority(out *Handle, flags uint32, priority int32) Result {
	x, r := c.context()
	if r != Success {
		return r
	}
	if out == nil || flags&^streamNonBlocking != 0 {
		return ErrorInvalidValue
	}
	s := &stream{x: x, id: c.d.ids.Add(1), flags: flags, nonBlocking: flags&streamNonBlocking != 0}
	s.priority = max(min(priority, leastPriority), greatestPriority)
	x.mu.Lock()
	defer x.mu.Unlock()
	if r := x.assign(s); r != Success {
		return r
	}
	if s.handle = c.d.objects.add(s); s.handle == 0 {
		return ErrorOutOfMemory
	}
	x.streams[s] = struct{}{}
	put(out, s.handle)
	return Success
}

// streamNonBlocking is CU_STREAM_NON_BLOCKING.
const streamNonBlocking = 1

// StreamDestroyV2 is cuStreamDestroy_v2. Commands that were enqueued are still carried out.
func (c *Call) StreamDestroyV2(h Handle) Result {
	s := get[stream](&c.d.objects, h)
	if s == nil || !c.d.objects.remove(h) {
		return ErrorInvalidHandle
	}
	c.captureLost(s)
	s.x.mu.Lock()
	delete(s.x.streams, s)
	s.x.mu.Unlock()
	return Success
}

// StreamSynchronize is cuStreamSynchronize.
func (c *Call) StreamSynchronize(h Handle) Result {
	s, r := c.stream(h)
	if r != Success {
		return r
	}
	return c.synchronizeStream(s)
}

func (c *Call) synchronizeStream(s *stream) Result {
	if c.captures(s) {
		if r, done := c.capture(s, nil); done {
			return r
		}
	}
	x := s.x
	x.mu.Lock()
	goals := s.ends()
	x.mu.Unlock()
	return c.waitFor(goals, func() Result { return x.settle(c) })
}

// StreamQuery is cuStreamQuery.
func (c *Call) StreamQuery(h Handle) Result {
	s, r := c.stream(h)
	if r != Success {
		return r
	}
	if c.captures(s) {
		if r, done := c.capture(s, nil); done {
			return r
		}
	}
	x := s.x
	x.mu.Lock()
	defer x.mu.Unlock()
	done := true
	for _, p := range s.ends() {
		done = done && p.reached()
	}
	if r := x.takeError(); r != Success {
		return r
	}
	if !done {
		return ErrorNotReady
	}
	return Success
}

// StreamWaitEvent is cuStreamWaitEvent.
func (c *Call) StreamWaitEvent(h, event Handle, flags uint32) Result {
	s, r := c.stream(h)
	if r != Success {
		return r
	}
	e := get[Event](&c.d.objects, event)
	if e == nil {
		return ErrorInvalidHandle
	}
	if flags > external {
		return ErrorInvalidValue
	}
	if c.captures(s) || e.captured.by.Load() != nil {
		if r, done := c.captureWait(s, e, flags); done {
			return r
		}
	}
	return c.wait(s, e)
}

// wait has a stream wait for an event.
func (c *Call) wait(s *stream, e *Event) Result {
	// Of another context's event the library waits itself.
	if e.x != s.x {
		p := e.place()
		return c.waitFor([]point{p}, func() Result { return Success })
	}
	s.x.mu.Lock()
	defer s.x.mu.Unlock()
	if e.at.ch != nil && e.at.ch != s.ch && !e.at.reached() {
		s.waits = append(s.waits, e.at)
	}
	return Success
}

// StreamGetFlags is cuStreamGetFlags.
func (c *Call) StreamGetFlags(h Handle, flags *uint32) Result {
	s, r := c.stream(h)
	if r != Success {
		return r
	}
	if flags == nil {
		return ErrorInvalidValue
	}
	put(flags, s.flags)
	return Success
}

// StreamGetPriority is cuStreamGetPriority.
func (c *Call) StreamGetPriority(h Handle, priority *int32) Result {
	s, r := c.stream(h)
	if r != Success {
		return r
	}
	if priority == nil {
		return ErrorInvalidValue
	}
	put(priority, s.priority)
	return Success
}

// StreamGetId is cuStreamGetId.
func (c *Call) StreamGetId(h Handle, id *uint64) Result { //nolint:revive // CUDA's name
	s, r := c.stream(h)
	if r != Success {
		return r
	}
	if id == nil {
		return ErrorInvalidValue
	}
	put(id, s.id)
	return Success
}

// StreamGetCtx is cuStreamGetCtx.
func (c *Call) StreamGetCtx(h Handle, out *Handle) Result {
	s, r := c.stream(h)
	if r != Success {
		return r
	}
	if out == nil {
		return ErrorInvalidValue
	}
	put(out, s.x.handle)
	return Success
}

// StreamGetDevice is cuStreamGetDevice.
func (c *Call) StreamGetDevice(h Handle, dev *int32) Result {
	if _, r := c.stream(h); r != Success {
		return r
	}
	if dev == nil {
		return ErrorInvalidValue
	}
	put(dev, 0)
	return Success
}
