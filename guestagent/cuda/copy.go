package cuda

import (
	"context"
	"errors"

	"vgpud/guestagent/driver"
)

// stageBytes is the size of the shared memory into which a channel's copies to ordinary memory
// begin, so that the thread can have its signals while it waits for the first part.
const stageBytes = 256 << 10

// brief is the size up to which a copy from ordinary memory waits for no earlier command.
const brief = 4 << 20

// checkCopy checks the GPU memory and the program's memory of a copy.
func (x *Context) checkCopy(device uint64, host Pointer, n uint64) Result {
	if r := x.deviceRange(device, n); r != Success {
		return r
	}
	if host == nil || n > 1<<46 || access(host, n) != nil {
		return ErrorInvalidValue
	}
	return Success
}

// copyIn copies the program's memory to GPU memory. Without async it returns when the program may
// use the source again.
func (c *Call) copyIn(s *stream, dst uint64, src Pointer, n uint64, async bool) Result {
	if n == 0 {
		return Success
	}
	x := s.x
	if r := x.checkCopy(dst, src, n); r != Success {
		return r
	}
	if r, done := c.captureCopy(s, dst, addressOf(src), n, placeHost, placeDevice, async); done {
		return r
	}
	if x.pending() {
		return c.recorded(x, func(t *task) error { return t.record.Write(dst, hostBytes(src, n)) },
			func() Result { return c.copyIn(s, dst, src, n, async) })
	}
	m, at := c.d.host.window(addressOf(src), n)
	if m == nil && n > brief {
		// The copy waits for its own pieces, so for what is before them.
		return c.drained(s, func() Result { return c.sendIn(s, dst, src, n, nil, 0, true) })
	}
	return c.sendIn(s, dst, src, n, m, at, async)
}

// drained calls f when the stream's earlier commands have ended.
func (c *Call) drained(s *stream, f func() Result) Result {
	s.x.mu.Lock()
	goals := s.ends()
	if s.ch != nil { // else nothing was sent
		goals = append(goals, point{ch: s.ch, sent: s.ch.sent})
	}
	s.x.mu.Unlock()
	return c.waitFor(goals, f)
}

func (c *Call) sendIn(s *stream, dst uint64, src Pointer, n uint64, m *driver.HostMemory, at int, async bool) Result {
	x := s.x
	again := func() Result { return c.sendIn(s, dst, src, n, m, at, async) }
	if entered, r := c.enter(s, again); !entered {
		return r
	}
	var p *driver.Pending
	var err error
	if m != nil {
		p, err = s.ch.ch.CopyInHost(c.slice(), driver.Ptr(dst), m, at, int(n))
	} else {
		p, err = s.ch.ch.CopyIn(context.Background(), driver.Ptr(dst), hostBytes(src, n))
	}
	if err != nil {
		x.mu.Unlock()
		if errors.Is(err, errSlice) {
			return c.later(again)
		}
		return x.fail(err)
	}
	end := s.ch.add(s, p, true)
	x.mu.Unlock()
	if !async && (m != nil || x.d.host.reached(dst)) {
		return c.waitFor([]point{end}, func() Result { return c.ended(x, p) })
	}
	return Success
}

// ended returns the result of a command that has ended and that the call waited for. Output of kernels
// before it is written out.
func (c *Call) ended(x *Context, p *driver.Pending) Result {
	x.print(context.Background())
	if err := p.Wait(context.Background()); err != nil {
		r := x.fail(err)
		x.mu.Lock()
		if x.failed == r { // it is returned now
			x.failed = Success
		}
		x.mu.Unlock()
		return r
	}
	return Result(x.sticky.Load())
}

// copyOut copies GPU memory to the program's memory. It returns when that is complete, or, with
// async and page-locked memory, at once.
func (c *Call) copyOut(s *stream, dst Pointer, src, n uint64, async bool) Result {
	if n == 0 {
		return Success
	}
	x := s.x
	if r := x.checkCopy(src, dst, n); r != Success {
		return r
	}
	if r, done := c.captureCopy(s, addressOf(dst), src, n, placeDevice, placeHost, async); done {
		return r
	}
	if x.pending() {
		return c.recorded(x, func(t *task) error { return t.record.Read(hostBytes(dst, n), src) },
			func() Result { return c.copyOut(s, dst, src, n, async) })
	}
	m, at := c.d.host.window(addressOf(dst), n)
	return c.sendOut(s, dst, src, n, m, at, async)
}

func (c *Call) sendOut(s *stream, dst Pointer, src, n uint64, m *driver.HostMemory, at int, async bool) Result {
	x := s.x
	again := func() Result { return c.sendOut(s, dst, src, n, m, at, async) }
	if entered, r := c.enter(s, again); !entered {
		return r
	}
	first, to := n, m
	if m == nil {
		first, at = min(n, stageBytes), 0
		if to = s.ch.takeStage(); to == nil {
			x.mu.Unlock()
			return c.drained(s, func() Result { return c.rest(s, dst, src, n) })
		}
	}
	p, err := s.ch.ch.CopyOutHost(c.slice(), to, at, driver.Ptr(src), int(first))
	if err != nil {
		if m == nil {
			s.ch.stage = to
		}
		x.mu.Unlock()
		if errors.Is(err, errSlice) {
			return c.later(again)
		}
		return x.fail(err)
	}
	end := s.ch.add(s, p, true)
	x.mu.Unlock()
	if m != nil && async {
		return Success
	}
	return c.waitFor([]point{end}, func() Result {
		r := c.ended(x, p)
		if m != nil {
			return r
		}
		if r == Success && to.Use(func(b []byte) { copy(hostBytes(dst, first), b) }) != nil {
			r = ErrorDeviceUnavailable
		}
		x.mu.Lock()
		if s.ch.stage == nil {
			s.ch.stage = to
		} else {
			to.Free()
		}
		x.mu.Unlock()
		if r == Success && n > first {
			r = c.rest(s, offset(dst, first), src+first, n-first)
		}
		return r
	})
}

// rest copies GPU memory to ordinary memory when the stream's earlier commands have ended.
func (c *Call) rest(s *stream, dst Pointer, src, n uint64) Result {
	if err := s.ch.ch.CopyOut(context.Background(), hostBytes(dst, n), driver.Ptr(src)); err != nil {
		return s.x.fail(err)
	}
	return Success
}

// takeStage returns shared memory for a copy's first part, which the caller gives back, or nil if
// there is none. x.mu is held.
func (ch *channel) takeStage() *driver.HostMemory {
	if m := ch.stage; m != nil {
		ch.stage = nil
		return m
	}
	ctx, cancel := context.WithTimeout(context.Background(), hostWait)
	defer cancel()
	m, err := ch.x.gpu.Device().AllocHost(ctx, stageBytes)
	if err != nil {
		return nil
	}
	return m
}

// send sends one command of a stream, which f enqueues.
func (c *Call) send(s *stream, f func(ctx context.Context, ch *driver.Channel) (*driver.Pending, error)) Result {
	again := func() Result { return c.send(s, f) }
	if entered, r := c.enter(s, again); !entered {
		return r
	}
	defer s.x.mu.Unlock()
	p, err := f(c.slice(), s.ch.ch)
	if errors.Is(err, errSlice) {
		return c.later(again)
	}
	if err != nil {
		return s.x.fail(err)
	}
	s.ch.add(s, p, true)
	return Success
}

// sendNow sends one command of a stream, which f enqueues, and returns when it has ended.
func (c *Call) sendNow(s *stream, f func(ctx context.Context, ch *driver.Channel) (*driver.Pending, error)) Result {
	again := func() Result { return c.sendNow(s, f) }
	if entered, r := c.enter(s, again); !entered {
		return r
	}
	p, err := f(c.slice(), s.ch.ch)
	if err != nil {
		s.x.mu.Unlock()
		if errors.Is(err, errSlice) {
			return c.later(again)
		}
		return s.x.fail(err)
	}
	end := s.ch.add(s, p, true)
	s.x.mu.Unlock()
	return c.waitFor([]point{end}, func() Result { return c.ended(s.x, p) })
}

// write sends a command that writes GPU memory. Without async it returns when that has ended, if the
// program can read the memory itself.
func (c *Call) write(s *stream, dst uint64, async bool, f func(ctx context.Context, ch *driver.Channel) (*driver.Pending, error)) Result {
	if !async && s.x.d.host.reached(dst) {
		return c.sendNow(s, f)
	}
	return c.send(s, f)
}

// copyAcross copies within a context's GPU memory.
func (c *Call) copyAcross(s *stream, dst, src, n uint64, async bool) Result {
	if n == 0 {
		return Success
	}
	if r, done := c.captureCopy(s, dst, src, n, placeDevice, placeDevice, true); done {
		return r
	}
	for _, p := range []uint64{dst, src} {
		if r := s.x.deviceRange(p, n); r != Success {
			return r
		}
	}
	if s.x.pending() {
		return c.recorded(s.x, func(t *task) error { return t.record.Copy(dst, src, n) },
			func() Result { return c.copyAcross(s, dst, src, n, async) })
	}
	return c.write(s, dst, async, func(ctx context.Context, ch *driver.Channel) (*driver.Pending, error) {
		return ch.Copy(ctx, driver.Ptr(dst), driver.Ptr(src), n)
	})
}

// copyHost copies within the program's memory, in a stream's order.
func (c *Call) copyHost(s *stream, dst, src Pointer, n uint64) Result {
	if n == 0 {
		return Success
	}
	if dst == nil || src == nil || access(dst, n) != nil || access(src, n) != nil {
		return ErrorInvalidValue
	}
	if r, done := c.captureCopy(s, addressOf(dst), addressOf(src), n, placeHost, placeHost, true); done {
		return r
	}
	return c.drained(s, func() Result {
		copy(hostBytes(dst, n), hostBytes(src, n))
		return Success
	})
}

// copyAny copies between any two addresses.
func (c *Call) copyAny(s *stream, dst, src, n uint64, async bool) Result {
	to, from := s.x.isDevice(dst), s.x.isDevice(src)
	switch {
	case to && from:
		return c.copyAcross(s, dst, src, n, async)
	case to:
		return c.copyIn(s, dst, pointerTo(src), n, async)
	case from:
		return c.copyOut(s, pointerTo(dst), src, n, async)
	}
	return c.copyHost(s, pointerTo(dst), pointerTo(src), n)
}

// MemcpyHtoDV2 is cuMemcpyHtoD_v2.
func (c *Call) MemcpyHtoDV2(dst uint64, src Pointer, n uint64) Result {
	s, r := c.defaultStream()
	if r != Success {
		return r
	}
	return c.copyIn(s, dst, src, n, false)
}

// MemcpyHtoDAsyncV2 is cuMemcpyHtoDAsync_v2.
func (c *Call) MemcpyHtoDAsyncV2(dst uint64, src Pointer, n uint64, h Handle) Result {
	s, r := c.stream(h)
	if r != Success {
		return r
	}
	return c.copyIn(s, dst, src, n, true)
}

// MemcpyDtoHV2 is cuMemcpyDtoH_v2.
func (c *Call) MemcpyDtoHV2(dst Pointer, src, n uint64) Result {
	s, r := c.defaultStream()
	if r != Success {
		return r
	}
	return c.copyOut(s, dst, src, n, false)
}

// MemcpyDtoHAsyncV2 is cuMemcpyDtoHAsync_v2. A copy to memory that is not page-locked returns when
// it is complete.
func (c *Call) MemcpyDtoHAsyncV2(dst Pointer, src, n uint64, h Handle) Result {
	s, r := c.stream(h)
	if r != Success {
		return r
	}
	return c.copyOut(s, dst, src, n, true)
}

// MemcpyDtoDV2 is cuMemcpyDtoD_v2.
func (c *Call) MemcpyDtoDV2(dst, src, n uint64) Result {
	s, r := c.defaultStream()
	if r != Success {
		return r
	}
	return c.copyAcross(s, dst, src, n, false)
}

// MemcpyDtoDAsyncV2 is cuMemcpyDtoDAsync_v2.
func (c *Call) MemcpyDtoDAsyncV2(dst, src, n uint64, h Handle) Result {
	s, r := c.stream(h)
	if r != Success {
		return r
	}
	return c.copyAcross(s, dst, src, n, true)
}

// Memcpy is cuMemcpy.
func (c *Call) Memcpy(dst, src, n uint64) Result {
	s, r := c.defaultStream()
	if r != Success {
		return r
	}
	return c.copyAny(s, dst, src, n, false)
}

// MemcpyAsync is cuMemcpyAsync.
func (c *Call) MemcpyAsync(dst, src, n uint64, h Handle) Result {
	s, r := c.stream(h)
	if r != Success {
		return r
	}
	return c.copyAny(s, dst, src, n, true)
}
