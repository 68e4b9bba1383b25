package cudatest

import (
	"time"

	"vgpud/gpu/nvidia/cuda"
)

// stream executes its commands in order, in a goroutine of its own.
type stream struct {
	todo    []func() error
	running bool
}

// queue checks a command, with mu held, and queues it on the stream.
func (g *GPU) queue(method string, s cuda.Stream, check, do func() error) error {
	defer g.mu.Unlock()
	if err := g.inContext(method); err != nil {
		return err
	}
	q := g.streams[s]
	if q == nil {
		return cuda.ErrInvalidHandle
	}
	if check != nil {
		if err := check(); err != nil {
			return err
		}
	}
	q.todo = append(q.todo, do)
	if !q.running {
		q.running = true
		g.busy.Go(func() { g.carryOut(q) })
	}
	return nil
}

// carryOut executes a stream's commands until there are no more. After a fault it executes none.
func (g *GPU) carryOut(q *stream) {
	for {
		g.mu.Lock()
		if len(q.todo) == 0 || g.fault != 0 {
			q.todo, q.running = nil, false
			g.wake.Broadcast()
			g.mu.Unlock()
			return
		}
		do := q.todo[0]
		g.mu.Unlock()
		if err := do(); err != nil {
			e, ok := err.(cuda.Error)
			if !ok {
				e = cuda.ErrLaunchFailed
			}
			g.Fault(e)
		}
		g.mu.Lock()
		if len(q.todo) > 0 {
			q.todo = q.todo[1:]
		}
		g.wake.Broadcast()
		g.mu.Unlock()
	}
}

// StreamCreate is [cuda.Library.StreamCreate].
func (g *GPU) StreamCreate(uint32, int) (cuda.Stream, error) {
	defer g.mu.Unlock()
	if err := g.inContext("StreamCreate"); err != nil {
		return 0, err
	}
	s := cuda.Stream(g.handle())
	g.streams[s] = &stream{}
	return s, nil
}

// StreamDestroy is [cuda.Library.StreamDestroy].
func (g *GPU) StreamDestroy(s cuda.Stream) error {
	defer g.mu.Unlock()
	if err := g.inContext("StreamDestroy"); err != nil {
		return err
	}
	delete(g.streams, s)
	return nil
}

// StreamSynchronize is [cuda.Library.StreamSynchronize].
func (g *GPU) StreamSynchronize(s cuda.Stream) error {
	defer g.mu.Unlock()
	if err := g.inContext("StreamSynchronize"); err != nil {
		return err
	}
	q := g.streams[s]
	if q == nil {
		return cuda.ErrInvalidHandle
	}
	for len(q.todo) > 0 && g.fault == 0 {
		g.wake.Wait()
	}
	g.pooled = 0
	return g.faulted()
}

// faulted returns the fault as an error. The caller holds mu.
func (g *GPU) faulted() error {
	if g.fault != 0 {
		return g.fault
	}
	return nil
}

// StreamWaitEvent is [cuda.Library.StreamWaitEvent].
func (g *GPU) StreamWaitEvent(s cuda.Stream, e cuda.Event) error {
	var ev *event
	upTo := 0
	return g.queue("StreamWaitEvent", s, func() error {
		if ev = g.events[e]; ev == nil {
			return cuda.ErrInvalidHandle
		}
		upTo = ev.recorded
		return nil
	}, func() error {
		g.mu.Lock()
		defer g.mu.Unlock()
		for ev.reached < upTo && g.fault == 0 && !g.ended.Load() {
			g.wake.Wait()
		}
		return nil
	})
}

// StreamWriteValue64 is [cuda.Library.StreamWriteValue64].
func (g *GPU) StreamWriteValue64(s cuda.Stream, at cuda.DevicePtr, value uint64) error {
	return g.queue("StreamWriteValue64", s, func() error {
		if g.device[uint64(at)] != nil {
			return cuda.ErrInvalidValue // the driver rejects a pool's memory
		}
		return nil
	}, func() error { return g.Store(at, value) })
}

// EventCreate is [cuda.Library.EventCreate].
func (g *GPU) EventCreate(flags uint32) (cuda.Event, error) {
	defer g.mu.Unlock()
	if err := g.inContext("EventCreate"); err != nil {
		return 0, err
	}
	e := cuda.Event(g.handle())
	g.events[e] = &event{interrupts: flags&cuda.EventBlockingSync != 0}
	return e, nil
}

// EventDestroy is [cuda.Library.EventDestroy].
func (g *GPU) EventDestroy(e cuda.Event) error {
	defer g.mu.Unlock()
	delete(g.events, e)
	return g.inContext("EventDestroy")
}

// EventRecord is [cuda.Library.EventRecord].
func (g *GPU) EventRecord(e cuda.Event, s cuda.Stream) error {
	var ev *event
	n := 0
	return g.queue("EventRecord", s, func() error {
		if ev = g.events[e]; ev == nil {
			return cuda.ErrInvalidHandle
		}
		ev.recorded++
		n = ev.recorded
		return nil
	}, func() error {
		g.mu.Lock()
		defer g.mu.Unlock()
		ev.reached, ev.at = max(ev.reached, n), g.Clock()
		if ev.interrupts {
			g.interrupts++
		}
		return nil
	})
}

// EventQuery is [cuda.Library.EventQuery].
func (g *GPU) EventQuery(e cuda.Event) (bool, error) {
	defer g.mu.Unlock()
	if err := g.inContext("EventQuery"); err != nil {
		return false, err
	}
	ev := g.events[e]
	return ev.reached == ev.recorded, nil
}

// EventSynchronize is [cuda.Library.EventSynchronize].
func (g *GPU) EventSynchronize(e cuda.Event) error {
	defer g.mu.Unlock()
	if err := g.inContext("EventSynchronize"); err != nil {
		return err
	}
	ev := g.events[e]
	for ev.reached < ev.recorded && g.fault == 0 {
		g.wake.Wait()
	}
	g.pooled = 0
	return g.faulted()
}

// EventElapsedTime is [cuda.Library.EventElapsedTime].
func (g *GPU) EventElapsedTime(from, to cuda.Event) (float32, error) {
	defer g.mu.Unlock()
	if err := g.inContext("EventElapsedTime"); err != nil {
		return 0, err
	}
	a, b := g.events[from], g.events[to]
	if a.recorded == 0 || b.recorded == 0 {
		return 0, cuda.ErrInvalidHandle
	}
	if a.reached < a.recorded || b.reached < b.recorded {
		return 0, cuda.ErrNotReady
	}
	return float32(float64(b.at-a.at) / float64(time.Millisecond)), nil
}

// LaunchKernel is [cuda.Library.LaunchKernel].
func (g *GPU) LaunchKernel(f cuda.Function, grid, block [3]uint32, shared uint32, s cuda.Stream, a *cuda.Args, n int) error {
	l := &Launch{GPU: g, Grid: grid, Block: block, Shared: shared, Params: append([]byte(nil), a.Params[:n]...)}
	var k Kernel
	return g.queue("LaunchKernel", s, func() error {
		if k = g.Kernels[g.kernels[f]]; k == nil {
			return cuda.ErrInvalidHandle
		}
		return nil
	}, func() error { return k(l) })
}
