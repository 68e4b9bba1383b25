package cuda

import (
	"context"
	"errors"

	"vgpud/mediator/vgpu/abi"
)

// triggers reports whether the device can have channels wait for each other, whichever of them it
// reads first.
func (x *Context) triggers() bool {
	return x.gpu.Device().Info().Features&abi.FeatureTriggeredEvents != 0
}

// order has a stream's channel wait for a point of another, on the device: that channel raises a
// value when it is there, and this one waits for the value. It reports false if the device or the
// rings can't do that now. x.mu is held.
//
// The stream may wait for more than the point: for all that the other channel was sent by now. So one
// that is waited for often need not stop for each.
func (c *Call) order(s *stream, p point) (bool, Result) {
	x := s.x
	if p.ch == nil || p.ch.x != x || !x.triggers() {
		return false, Success
	}
	from := p.ch
	if raised, r := c.raise(p); !raised {
		return false, r
	}
	q, err := s.ch.ch.Await(c.slice(), from.trigger, from.raised)
	if err != nil {
		return false, x.unlessFull(err)
	}
	s.ch.append(q, true)
	if s.ch.awaited == nil {
		s.ch.awaited = map[*channel]uint64{}
	}
	s.ch.awaited[from] = from.raised
	return true, Success
}

// unlessFull returns the result for an error, Success if a ring was full.
func (x *Context) unlessFull(err error) Result {
	if errors.Is(err, errSlice) {
		return Success
	}
	return x.fail(err)
}

// raise has a point's channel raise a value when it is there, or after what it was sent since. It
// reports false if the rings have no room. It may be called ahead of order, so that what the channel
// is sent in between is not waited for. x.mu is held.
func (c *Call) raise(p point) (bool, Result) {
	x, from := p.ch.x, p.ch
	if from.trigger == nil {
		t, err := x.gpu.NewTrigger(context.Background())
		if err != nil {
			return false, x.fail(err)
		}
		from.trigger = t
	}
	if from.raised >= p.sent {
		return true, Success
	}
	value := from.sent
	q, err := from.ch.Trigger(c.slice(), from.trigger, value)
	if err != nil {
		return false, x.unlessFull(err)
	}
	from.append(q, true)
	from.raised = value
	return true, Success
}

// mayBeAwaited is raise for a point at which a stream may be waited for by others. x.mu is held.
func (c *Call) mayBeAwaited(p point) Result {
	// One channel is the legacy stream's. Without another stream nothing goes beside this one.
	if len(p.ch.x.channels) <= 2 || !p.ch.x.triggers() {
		return Success
	}
	_, r := c.raise(p)
	return r
}

// orderCall has a stream's later commands wait on the device for a function of the program's. x.mu
// is held.
func (c *Call) orderCall(s *stream, h *hostCall) Result {
	x := s.x
	if s.returned == nil {
		t, err := x.gpu.NewTrigger(context.Background())
		if err != nil {
			return x.fail(err)
		}
		s.returned = t
	}
	s.calls++
	q, err := s.ch.ch.Await(c.slice(), s.returned, s.calls)
	if err != nil {
		s.calls--
		return x.unlessFull(err)
	}
	s.ch.add(s, q, true)
	h.trigger, h.value = s.returned, s.calls
	return Success
}

// goOn has what waits on the device for a function of the program's go on.
func (h *hostCall) goOn() {
	if h.trigger == nil {
		return
	}
	// The context may have ended.
	_, _ = h.s.x.gpu.Own().Trigger(context.Background(), h.trigger, h.value)
}
