package cuda

import (
	"context"
	"sync"
	"time"

	"vgpud/guestagent/driver"
)

// exitWait bounds how long the end of a process waits for what kernels printed.
const exitWait = time.Second

// Callback is struct vgpu_callback of the C part.
type Callback struct {
	ID       uint64
	Function Pointer
	Data     Pointer
	Stream   uint64
	Status   uint32
	Kind     uint32
}

// Kinds of callbacks.
const (
	hostFunction   = 1
	streamCallback = 2
)

// hostCall is a function of the program's in a stream. The stream's later commands wait for it.
type hostCall struct {
	s        *stream
	callback Callback
	after    []point         // what it waits for
	done     chan struct{}   // closed when it has returned
	trigger  *driver.Trigger // what the device waits for meanwhile, or nil
	value    uint64
}

func (h *hostCall) returned() bool {
	select {
	case <-h.done:
		return true
	default:
		return false
	}
}

// callbacks are those that the callback thread is to make.
type callbacks struct {
	mu      sync.Mutex
	some    sync.Cond
	queue   []*hostCall
	calls   map[uint64]*hostCall // that were handed out
	id      uint64
	started bool
	closed  bool
}

func (q *callbacks) init() {
	q.some.L = &q.mu
	q.calls = map[uint64]*hostCall{}
}

func (q *callbacks) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.some.Broadcast()
}

// start starts the callback thread, once.
func (q *callbacks) start(h Hooks) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.started {
		return nil
	}
	if err := h.StartCallbacks(); err != nil {
		return err
	}
	q.started = true
	return nil
}

func (q *callbacks) add(h *hostCall) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.queue = append(q.queue, h)
	q.some.Signal()
}

// NextCallback ends the callback that the callback thread made, in c, and waits for the next. It
// returns false if there are no more.
func (d *Driver) NextCallback(c *Callback) bool {
	q := &d.work
	q.mu.Lock()
	defer q.mu.Unlock()
	if h := q.calls[c.ID]; h != nil {
		delete(q.calls, c.ID)
		close(h.done)
	}
	for len(q.queue) == 0 && !q.closed {
		q.some.Wait()
	}
	if q.closed {
		return false
	}
	h := q.queue[0]
	q.queue = q.queue[1:]
	q.id++
	*c = h.callback
	c.ID = q.id
	q.calls[c.ID] = h
	return true
}

// LaunchHostFunc is cuLaunchHostFunc.
func (c *Call) LaunchHostFunc(h Handle, function, data Pointer) Result {
	return c.hostCall(h, Callback{Function: function, Data: data, Kind: hostFunction})
}

// LaunchHostFuncV2 is cuLaunchHostFunc_v2.
func (c *Call) LaunchHostFuncV2(h Handle, function, data Pointer, syncMode uint32) Result {
	if syncMode > 1 {
		return ErrorInvalidValue
	}
	return c.LaunchHostFunc(h, function, data)
}

// StreamAddCallback is cuStreamAddCallback.
func (c *Call) StreamAddCallback(h Handle, function, data Pointer, flags uint32) Result {
	if flags != 0 {
		return ErrorInvalidValue
	}
	return c.hostCall(h, Callback{Function: function, Data: data, Stream: uint64(h), Kind: streamCallback})
}

func (c *Call) hostCall(h Handle, callback Callback) Result {
	s, r := c.stream(h)
	if r != Success {
		return r
	}
	if callback.Function == nil {
		return ErrorInvalidValue
	}
	if c.captures(s) {
		var make func() operation
		if callback.Kind == hostFunction {
			make = func() operation { return &hostNode{HostNodeParams{callback.Function, callback.Data}} }
		}
		if r, done := c.capture(s, make); done {
			return r
		}
	}
	return c.startHostCall(s, callback)
}

// startHostCall has a function of the program called when a stream's earlier operations have ended.
func (c *Call) startHostCall(s *stream, callback Callback) Result {
	if c.d.work.start(c.d.o.Hooks) != nil {
		return ErrorOperatingSystem
	}
	return c.addHostCall(s, callback)
}

func (c *Call) addHostCall(s *stream, callback Callback) Result {
	if entered, r := c.enter(s, func() Result { return c.addHostCall(s, callback) }); !entered {
		return r
	}
	defer s.x.mu.Unlock()
	call := &hostCall{s: s, callback: callback, after: []point{{ch: s.ch, sent: s.last}}, done: make(chan struct{})}
	if s.call != nil {
		call.after = append(call.after, point{call: s.call})
	}
	if s.x.triggers() {
		if r := c.orderCall(s, call); r != Success {
			return r
		}
	}
	s.call = call
	s.x.calling[s] = struct{}{}
	go c.d.makeCall(call)
	return Success
}

// makeCall hands a call to the callback thread when what it waits for has ended. After a fault a
// host function is not called; a stream callback is, and told.
func (d *Driver) makeCall(h *hostCall) {
	x := h.s.x
	ctx := context.Background()
	for _, p := range h.after {
		if p.call != nil {
			<-p.call.done
			continue
		}
		x.mu.Lock()
		last := p.pending()
		x.mu.Unlock()
		if last != nil {
			_ = last.Wait(ctx) // its error is found below
			x.mu.Lock()
			p.ch.collect()
			x.mu.Unlock()
		}
	}
	h.callback.Status = x.sticky.Load()
	if h.callback.Status != 0 && h.callback.Kind == hostFunction || x.gone.Load() && h.callback.Kind == hostFunction {
		close(h.done)
	} else {
		d.work.add(h)
		<-h.done
	}
	h.goOn()
}
