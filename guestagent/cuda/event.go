package cuda

import (
	"context"
	"errors"
	"time"

	"vgpud/guestagent/driver"
	"vgpud/guestagent/tasks"
)

// Event is a CUevent. Recording it sends a command whose completion has the GPU's time.
type Event struct {
	x        *Context
	handle   Handle
	flags    uint32
	captured captureOf // its newest recording, if that was captured

	// Guarded by Context.mu.
	at point
	p  *driver.Pending // of the recording, or nil
}

// Flags of events.
const (
	eventBlockingSync  = 1
	eventDisableTiming = 2
	eventInterprocess  = 4
)

func (e *Event) place() point {
	e.x.mu.Lock()
	defer e.x.mu.Unlock()
	return e.at
}

// EventCreate is cuEventCreate.
func (c *Call) EventCreate(out *Handle, flags uint32) Result {
	x, r := c.context()
	if r != Success {
		return r
	}
	switch {
	case out == nil, flags&^(eventBlockingSync|eventDisableTiming|eventInterprocess) != 0:
		return ErrorInvalidValue
	case flags&eventInterprocess != 0:
		return ErrorNotSupported
	}
	e := &Event{x: x, flags: flags}
	if e.handle = c.d.objects.add(e); e.handle == 0 {
		return ErrorOutOfMemory
	}
	put(out, e.handle)
	return Success
}

// EventDestroyV2 is cuEventDestroy_v2.
func (c *Call) EventDestroyV2(h Handle) Result {
	if get[Event](&c.d.objects, h) == nil || !c.d.objects.remove(h) {
		return ErrorInvalidHandle
	}
	return Success
}

// event returns an event by its handle.
func (c *Call) event(h Handle) (*Event, Result) {
	e := get[Event](&c.d.objects, h)
	switch {
	case e == nil:
		return nil, ErrorInvalidHandle
	case e.captured.by.Load() != nil:
		return nil, ErrorCapturedEvent
	}
	return e, Result(e.x.sticky.Load())
}

// EventRecord is cuEventRecord.
func (c *Call) EventRecord(event, h Handle) Result { return c.EventRecordWithFlags(event, h, 0) }

// EventRecordWithFlags is cuEventRecordWithFlags.
func (c *Call) EventRecordWithFlags(event, h Handle, flags uint32) Result {
	s, r := c.stream(h)
	if r != Success {
		return r
	}
	e := get[Event](&c.d.objects, event)
	switch {
	case e == nil, e.x != s.x:
		return ErrorInvalidHandle
	case flags > external:
		return ErrorInvalidValue
	}
	if c.captures(s) {
		if r, done := c.captureRecord(s, e, flags); done {
			return r
		}
	}
	return c.record(s, e)
}

func (c *Call) record(s *stream, e *Event) Result {
	again := func() Result { return c.record(s, e) }
	if s.x.pending() {
		return c.recorded(s.x, func(*task) error {
			if e.flags&eventDisableTiming == 0 {
				return tasks.ErrBegin // its time is the GPU's
			}
			s.x.mu.Lock()
			defer s.x.mu.Unlock()
			e.at, e.p = point{}, nil // nothing is under way
			e.captured.by.Store(nil)
			return nil
		}, again)
	}
	if entered, r := c.enter(s, again); !entered {
		return r
	}
	defer s.x.mu.Unlock()
	ctx := context.Background()
	if s.ch.mark == nil {
		mark, err := s.x.gpu.NewEvent(ctx)
		if err != nil {
			return s.x.fail(err)
		}
		s.ch.mark = mark
	}
	p, err := s.ch.ch.Record(c.slice(), s.ch.mark)
	if errors.Is(err, errSlice) {
		return c.later(again)
	}
	if err != nil {
		return s.x.fail(err)
	}
	e.at, e.p = s.ch.add(s, p, true), p
	e.captured.by.Store(nil)
	return c.mayBeAwaited(e.at)
}

// EventQuery is cuEventQuery.
func (c *Call) EventQuery(h Handle) Result {
	e, r := c.event(h)
	if r != Success {
		return r
	}
	x := e.x
	x.mu.Lock()
	defer x.mu.Unlock()
	if !e.at.reached() {
		return ErrorNotReady
	}
	return x.takeError()
}

// EventSynchronize is cuEventSynchronize.
func (c *Call) EventSynchronize(h Handle) Result {
	e, r := c.event(h)
	if r != Success {
		return r
	}
	return c.waitFor([]point{e.place()}, func() Result { return e.x.settle(c) })
}

// EventElapsedTime is cuEventElapsedTime.
func (c *Call) EventElapsedTime(ms *float32, start, end Handle) Result {
	if ms == nil {
		return ErrorInvalidValue
	}
	from, r := c.event(start)
	if r != Success {
		return r
	}
	to, r := c.event(end)
	if r != Success {
		return r
	}
	t0, r := from.time()
	if r != Success {
		return r
	}
	t1, r := to.time()
	if r != Success {
		return r
	}
	put(ms, float32(float64(t1-t0)/float64(time.Millisecond)))
	return Success
}

// EventElapsedTimeV2 is cuEventElapsedTime_v2.
func (c *Call) EventElapsedTimeV2(ms *float32, start, end Handle) Result {
	return c.EventElapsedTime(ms, start, end)
}

// time returns when the event was reached, on the GPU's clock.
func (e *Event) time() (time.Duration, Result) {
	e.x.mu.Lock()
	defer e.x.mu.Unlock()
	switch {
	case e.p == nil || e.flags&eventDisableTiming != 0:
		return 0, ErrorInvalidHandle
	case !e.at.reached():
		return 0, ErrorNotReady
	}
	_, end := e.p.Times()
	return end, Success
}
