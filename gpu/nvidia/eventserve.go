package nvidia

import (
	"encoding/binary"
	"errors"
	"runtime"
	"slices"
	"time"

	"vgpud/gpu"
	"vgpud/gpu/nvidia/cuda"
	"vgpud/gpu/nvidia/dispatch"
)

// serveEvents looks after the event kernels when it is kicked, and as long as something is under way
// whose end it has to notice. It ends with the context.
func (c *Context) serveEvents() {
	for {
		select {
		case <-c.stop:
			c.failEvents()
			return
		case <-c.events.kick:
		}
		for since := time.Now(); c.turnEvents(); {
			select {
			case <-c.stop:
				c.failEvents()
				return
			default:
			}
			if waited := time.Since(since); waited < 50*time.Microsecond {
				runtime.Gosched()
			} else {
				time.Sleep(pollInterval(waited))
			}
		}
	}
}

// turnEvents does what there is to do, and reports whether something is under way whose end it has to
// notice.
func (c *Context) turnEvents() (more bool) {
	c.events.mu.Lock()
	defer c.events.mu.Unlock()
	return c.lookAtEvents()
}

// lookAtEvents is turnEvents for a caller that holds the events' mu.
func (c *Context) lookAtEvents() (more bool) {
	e := &c.events
	if c.fault.Load() != nil {
		c.dropRows()
		return false
	}
	for i := range e.rows {
		if r := e.rows[i].Load(); r != nil {
			more = r.look(e.held || e.parks > 0) || more
		}
	}
	return more
}

// failEvents ends all registrations: the context has faulted, or closes.
func (c *Context) failEvents() {
	c.events.mu.Lock()
	defer c.events.mu.Unlock()
	c.stopDispatchers(true)
	c.dropRows()
}

func (c *Context) dropRows() {
	for i := range c.events.rows {
		if r := c.events.rows[i].Load(); r != nil {
			c.events.table.Drop(r.n)
		}
	}
}

// look does what there is to do for a kernel, and reports whether it has to look again soon. The
// caller holds the context's events' mu.
func (r *eventRow) look(held bool) (again bool) {
	if d := r.d; d != nil && d.launched.Load() {
		if d.control.Resident() && !r.ending && !held {
			return false // who rings kicks once it has parked
		}
		if err := r.signal(); err != nil {
			return r.fail(err)
		}
		if r.berth.busy() {
			return true
		}
		r.taken()
		if r.ending {
			r.end()
		}
	}
	if r.gone {
		return false
	}
	r.land()
	switch {
	case r.gone:
		return false
	case held:
		if r.d == nil && len(r.flying) == 0 {
			r.arm() // whoever holds the events asks whether some are pending
		}
		return len(r.flying) > 0
	case r.d != nil && !r.ending:
		if !r.queue.Pending() {
			return false
		}
		return r.fail(r.launchDispatcher())
	}
	if err := r.launchPending(); err != nil {
		return r.fail(err)
	}
	if r.pending && !r.queue.Pending() {
		r.pending = false
		if r.c.events.table.Ended(r.n) {
			return false
		}
	}
	if len(r.flying) > 0 {
		return true
	}
	return !r.arm()
}

// arm asks for a kick with the next ring, unless the doorbells are polled, and reports whether there is
// none yet. No dispatcher is there.
func (r *eventRow) arm() (idle bool) {
	if r.c.events.polled {
		r.queue.Disarm()
		return !r.queue.Pending()
	}
	return r.queue.Arm()
}

// fail poisons the context if a launch failed: its events would never end.
func (r *eventRow) fail(err error) (again bool) {
	if err != nil && r.c.fault.Load() == nil {
		r.c.poison(errors.Join(err, gpu.ErrPoisoned))
	}
	return false
}

// launchDispatcher puts the dispatcher on the GPU.
func (r *eventRow) launchDispatcher() error {
	d := r.d
	d.number++
	r.was = r.queue.State()
	d.control.Launching(r.was)
	p := r.berth.args.Params[:0]
	p = binary.LittleEndian.AppendUint64(p, uint64(r.c.events.at))
	p = binary.LittleEndian.AppendUint64(p, uint64(address(r.berth.mem)))
	p = binary.LittleEndian.AppendUint32(p, d.number)
	r.cameBefore = d.control.Came()
	d.launched.Store(true)
	err := r.launch(d.f, len(p))
	if err != nil {
		d.control.SetResident(false)
		d.launched.Store(false)
	}
	return err
}

// taken takes over from a dispatcher that has ended.
func (r *eventRow) taken() {
	d := r.d
	r.stay(0)
	d.launched.Store(false)
	d.control.SetResident(false)
	s := d.control.State(r.was)
	r.takeLatencies(uint32(s.Ended))
	r.queue.Resume(s)
	if r.c.events.polled {
		r.queue.Disarm() // the dispatcher had armed it
	}
}

// takeLatencies counts the latencies of a dispatcher's events up to the number of those that have
// ended.
func (r *eventRow) takeLatencies(ended uint32) {
	if r.d == nil {
		return
	}
	for _, t := range r.d.control.Latencies(nil, r.counted, ended) {
		r.latency.Add(t)
	}
	r.counted = ended
}

// launchPending launches the events that were rung for.
func (r *eventRow) launchPending() error {
	for {
		entry, ok := r.queue.Next(r.params)
		if !ok {
			return nil
		}
		rung := r.c.d.o.Clock.Now()
		r.c.events.table.Started(r.n, 1)
		r.begun.Add(1)
		copy(r.berth.args.Params[:], r.params)
		if err := r.launch(r.f, len(r.params)); err != nil {
			return err
		}
		if err := r.signal(); err != nil {
			return err
		}
		put, err := r.c.d.Now()
		if err != nil {
			put = 0 // its time is not told
		}
		r.flying = append(r.flying, flight{entry, r.berth.last.Load(), rung, put})
	}
}

// land takes note of the ends of events that the host launched.
func (r *eventRow) land() {
	n := 0
	for ; n < len(r.flying) && r.berth.word.Load() >= r.flying[n].word; n++ {
		fl := r.flying[n]
		r.queue.Done(fl.entry)
		r.ended.Add(1)
		r.latency.Add(r.c.d.o.Clock.Now() - fl.rung)
		if now, err := r.c.d.Now(); err == nil && fl.put > 0 {
			r.times.add(fl.put, now)
		}
		r.c.events.table.Ended(r.n)
	}
	r.flying = slices.Delete(r.flying, 0, n)
}

// launch queues a kernel with the first n bytes of the berth's arguments in the kernel's stream,
// behind the zeroing of fresh memory. Its end is not signalled: what comes behind a dispatcher in its stream keeps
// others off the hardware channel that the driver has streams share.
func (r *eventRow) launch(f *Function, n int) error {
	c, b, l := r.c, r.berth, &r.k.Launch
	return c.do("launch events of "+r.f.attrs.Name, func() error {
		if tail := cuda.Event(c.zero.tail.Load()); tail != 0 && c.zero.word.Load() != c.zero.last.Load() {
			if err := c.drv.StreamWaitEvent(b.stream, tail); err != nil {
				return err
			}
		}
		if err := f.allow(l.SharedBytes); err != nil {
			return err
		}
		if err := c.drv.LaunchKernel(f.f, [3]uint32{l.Grid.X, l.Grid.Y, l.Grid.Z}, [3]uint32{l.Block.X, l.Block.Y, l.Block.Z},
			uint32(l.SharedBytes), b.stream, b.args, n); err != nil {
			return err
		}
		b.last.Add(1)
		return nil
	})
}

// signal queues the signals of the end of what was launched, if they are not. A dispatcher has parked
// or was told to leave.
func (r *eventRow) signal() error {
	if r.berth.signalled.Load() == r.berth.last.Load() {
		return nil
	}
	return r.c.do("signal the end of events", func() error { return r.berth.signal(r.c.drv) })
}

// signal is [eventRow.signal] with the context current.
func (b *berth) signal(d Driver) error {
	n := b.last.Load()
	if b.signalled.Load() == n {
		return nil
	}
	if err := d.EventRecord(b.tail, b.stream); err != nil {
		return err
	}
	b.signalled.Store(n)
	return d.StreamWriteValue64(b.stream, address(b.mem[dispatch.ControlBytes:]), n)
}
