package nvidia

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"vgpud/gpu"
	"vgpud/gpu/eventtable"
	"vgpud/gpu/nvidia/cuda"
	"vgpud/gpu/nvidia/dispatch"
	"vgpud/mediator/vgpu/abi"
	"vgpud/mediator/vgpu/abi/eventqueue"
	"vgpud/ptx"
)

// dispatcher is what dispatches an event kernel's events on the GPU.
type dispatcher struct {
	m        *Module
	f        *Function
	control  dispatch.Control
	launched atomic.Bool // and its end was not taken note of
	number   uint32      // of launches
}

// RegisterEventKernel implements [gpu.EventKernels]. A kernel without a dispatcher is launched by the
// host: one that can't be called, or whose grid would fill the GPU.
func (c *Context) RegisterEventKernel(k *gpu.EventKernel) error {
	if err := c.usable(); err != nil {
		return err
	}
	f, ok := k.Function.(*Function)
	if !ok {
		return fmt.Errorf("register a function of another device: %w", gpu.ErrInvalidLaunch)
	}
	if err := f.check(c, &k.Launch); err != nil {
		return err
	}
	e := &c.events
	if e.area == nil || k.Number < 0 || k.Number >= len(e.rows) || e.rows[k.Number].Load() != nil {
		return fmt.Errorf("register event kernel %d: the number is taken, or there is no event area: %w", k.Number, gpu.ErrInvalidLaunch)
	}
	units := (k.SharedBytes + abi.SharedUnit - 1) / abi.SharedUnit
	if units > 1<<16-1 {
		return fmt.Errorf("register an event kernel with %d bytes of shared memory: %w", k.SharedBytes, gpu.ErrInvalidLaunch)
	}
	if err := c.unloadDispatchers(); err != nil {
		return err
	}
	r := &eventRow{c: c, k: *k, f: f}
	r.k.Params = slices.Clone(k.Params[:f.attrs.ParamBytes])
	r.params = make([]byte, len(r.k.Params))
	var err error
	if r.d, err = c.newDispatcher(r); err != nil {
		return err
	}
	row := abi.EventRow{
		Function: k.Handle, Grid: [3]uint32{k.Grid.X, k.Grid.Y, k.Grid.Z}, Block: [3]uint32{k.Block.X, k.Block.Y, k.Block.Z}, Shared: uint16(units),
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stray[k.Number] += uint64(eventqueue.Stray(e.area, k.Number))
	r.n, err = e.table.Register(c.o.Label, row, r.loadedStep(), r.berthStep(), r.queueStep(row))
	if err == nil {
		c.KickEvents()
	}
	return err
}

// loadedStep takes the dispatcher's module, which is loaded.
func (r *eventRow) loadedStep() eventtable.Step {
	return eventtable.Step{
		Take: func() error { return nil },
		Back: func() {
			if r.d != nil {
				r.c.events.dead = append(r.c.events.dead, r.d.m)
			}
		},
	}
}

// unloadDispatchers unloads the dispatchers of kernels that are gone, for which all others have to
// leave the GPU.
func (c *Context) unloadDispatchers() error {
	e := &c.events
	e.mu.Lock()
	dead := e.dead
	e.dead = nil
	e.mu.Unlock()
	if len(dead) == 0 {
		return nil
	}
	return c.parked(func() error {
		var errs []error
		for _, m := range dead {
			errs = append(errs, m.unload())
		}
		return errors.Join(errs...)
	})
}

// berthStep takes a stream and its memory.
func (r *eventRow) berthStep() eventtable.Step {
	e := &r.c.events
	return eventtable.Step{
		Take: func() (err error) {
			if n := len(e.berths); n > 0 {
				r.berth, e.berths = e.berths[n-1], e.berths[:n-1]
			} else if r.berth, err = r.c.newBerth(); err != nil {
				return err
			}
			if r.d != nil {
				r.d.control = dispatch.NewControl(r.berth.mem)
				r.d.control.Launching(eventqueue.State{})
				r.d.control.SetResident(false)
				r.d.control.Stop(e.held || e.parks > 0)
			}
			return nil
		},
		Back: func() { e.berths = append(e.berths, r.berth) },
	}
}

// queueStep makes the queue, which is the kernel's registration.
func (r *eventRow) queueStep(row abi.EventRow) eventtable.Step {
	e := &r.c.events
	return eventtable.Step{
		Take: func() (err error) {
			if r.queue, err = eventqueue.NewPoller(e.area, r.k.Number, row, r.k.Params, r.k.Entries); err != nil {
				return fmt.Errorf("%w: %w", err, gpu.ErrInvalidLaunch)
			}
			e.rows[r.k.Number].Store(r)
			return nil
		},
		Back: func() {
			e.rows[r.k.Number].Store(nil)
			e.past = append(e.past, r.times.spans...)
			r.gone = true
			state := abi.EventUnregistered
			if r.c.usable() != nil {
				state = abi.EventFailed
			}
			e.stray[r.k.Number] += uint64(r.queue.Close(state))
		},
	}
}

// newBerth makes a stream and its memory.
func (c *Context) newBerth() (*berth, error) {
	b := &berth{args: cuda.NewArgs()}
	err := c.do("make a stream for events", func() (err error) {
		// The stream comes first: the memory stays until the process ends.
		if b.stream, err = c.drv.StreamCreate(cuda.StreamNonBlocking, 0); err != nil {
			return err
		}
		if b.tail, err = c.drv.EventCreate(0); err != nil {
			return errors.Join(err, c.drv.StreamDestroy(b.stream))
		}
		if b.mem, err = pinned(c.drv, dispatch.ControlBytes+hostPage); err != nil {
			return errors.Join(err, c.drv.EventDestroy(b.tail), c.drv.StreamDestroy(b.stream))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	b.word = word(b.mem, dispatch.ControlBytes)
	all := append(slices.Clone(c.eventBerths()), b)
	c.events.all.Store(&all)
	return b, nil
}

// newDispatcher makes and loads a kernel's dispatcher, or returns nil if the host is to launch its
// events. Only a lack of memory is an error: what the driver refuses is not the guest's mistake.
func (c *Context) newDispatcher(r *eventRow) (*dispatcher, error) {
	d, err := c.buildDispatcher(r)
	if err != nil && c.fault.Load() == nil && !errors.Is(err, gpu.ErrOutOfMemory) {
		c.d.o.Log.Info("the host launches an event kernel's events", "label", c.o.Label, "kernel", r.f.attrs.Name, "because", err)
		r.why = dispatch.Why(err)
		return nil, nil
	}
	return d, err
}

func (c *Context) buildDispatcher(r *eventRow) (*dispatcher, error) {
	text := r.f.m.text
	if text == "" {
		return nil, &dispatch.Refusal{Why: abi.EventReasonMachineCode, Detail: "its module is machine code, or longer than is kept"}
	}
	m, err := ptx.Parse(text)
	if err != nil {
		return nil, err
	}
	made, err := dispatch.Build(m, &dispatch.Kernel{
		Number: r.k.Number, Name: r.f.attrs.Name, Grid: r.k.Grid, Block: r.k.Block, ParamBytes: len(r.k.Params), Entries: r.k.Entries,
	}, r.f.m.place)
	if err != nil {
		return nil, err
	}
	loaded, err := c.LoadModule([]byte(made.PTX))
	if err != nil {
		return nil, err
	}
	d := &dispatcher{m: loaded.(*Module)}
	f, err := loaded.Function(made.Entry)
	if err == nil {
		d.f = f.(*Function)
		err = c.fits(d.f, &r.k.Launch)
	}
	if err != nil {
		return nil, errors.Join(err, c.parked(d.m.unload))
	}
	return d, nil
}

// A dispatcher's blocks stay on the GPU, so they take at most an eighth of its threads, and no SM's
// last place.
const residentPart = 8

// fits returns an error if a resident grid would leave others of its context too little room.
func (c *Context) fits(f *Function, l *gpu.Launch) error {
	p := &c.d.info.Properties
	each, err := f.Occupancy(int(l.Block.Count()), l.SharedBytes)
	if err != nil {
		return err
	}
	blocks, threads := l.Grid.Count(), l.Grid.Count()*l.Block.Count()
	if each < 2 || blocks > uint64(p.SMs) || threads > uint64(p.SMs)*uint64(p.ThreadsPerSM)/residentPart {
		return &dispatch.Refusal{Why: abi.EventReasonGrid, Detail: fmt.Sprintf("its %d blocks of %d threads, %d an SM, would take too much of the GPU while they wait for events",
			blocks, l.Block.Count(), each)}
	}
	return nil
}

// UnregisterEventKernel implements [gpu.EventKernels].
func (c *Context) UnregisterEventKernel(number int) (gone bool, err error) {
	if c.over.Load() {
		return false, fmt.Errorf("context is closed: %w", gpu.ErrLost)
	}
	e := &c.events
	missing := fmt.Errorf("unregister event kernel %d: %w", number, gpu.ErrNotFound)
	if number < 0 || number >= len(e.rows) {
		return false, missing
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	r := e.rows[number].Load()
	if r == nil {
		return false, missing
	}
	if r.ending {
		return false, nil
	}
	r.ending = true
	if r.d != nil {
		r.d.control.Stop(true) // the host launches the rest
	}
	if r.d == nil || !r.d.launched.Load() {
		r.end()
	}
	c.KickEvents()
	return r.gone, nil
}

// end ends the registration of a kernel whose dispatcher is not there: as soon as all events have
// ended that were rung for.
func (r *eventRow) end() {
	e := &r.c.events
	r.queue.End()
	if r.queue.Pending() {
		r.pending = true
		e.table.Started(r.n, 1)
	}
	if _, err := e.table.Unregister(r.n); err != nil { // r.gone says whether it is gone
		r.c.d.o.Log.Error("an event kernel stays registered", "kernel", r.f.attrs.Name, "err", err)
	}
}
