package soft

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"vgpud/gpu"
	"vgpud/gpu/eventtable"
	"vgpud/internal/memfd"
	"vgpud/mediator/vgpu/abi"
	"vgpud/mediator/vgpu/abi/eventqueue"
)

// eventBase is where the event area is for kernels: above memory of the host that windows are in.
const eventBase = 0x6800_0000_0000

// MapEvents maps the event area, for the engine and for kernels.
func (c *engineContext) MapEvents(f *os.File) (gpu.Ptr, error) {
	if err := c.usable(); err != nil {
		return 0, err
	}
	if err := memfd.Check(f, abi.EventAreaBytes); err != nil {
		return 0, fmt.Errorf("event area: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0, fmt.Errorf("look at the event area: %w", err)
	}
	area, err := unix.Mmap(int(f.Fd()), 0, abi.EventAreaBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return 0, fmt.Errorf("map the event area: %w", err)
	}
	if err := c.keepEvents(area); err != nil {
		if uerr := unix.Munmap(area); uerr != nil {
			return 0, fmt.Errorf("%w (and unmap it: %w)", err, uerr)
		}
		return 0, err
	}
	var merr error
	err = c.e.do(func() {
		if c.over.Load() {
			merr = fmt.Errorf("context is closed: %w", gpu.ErrLost)
		} else if merr = c.mem.Map(eventBase, area); merr != nil {
			merr = fmt.Errorf("event area: %w: %w", merr, gpu.ErrInvalidPtr)
		} else {
			c.events = &eventPoller{c: c, area: area, inode: st.Ino}
			c.e.pollers = append(c.e.pollers, c.events)
		}
	})
	return eventBase, errors.Join(err, merr)
}

// keepEvents keeps the area's mapping until the context is freed.
func (c *engineContext) keepEvents(area []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.eventArea != nil || c.freed {
		return fmt.Errorf("event area: the context has one, or is closed: %w", gpu.ErrInvalidLaunch)
	}
	c.eventArea = area
	return nil
}

// unmapEvents unmaps the area. The caller holds mu, and the context has ended.
func (c *engineContext) unmapEvents() error {
	area := c.eventArea
	c.eventArea = nil
	if area == nil {
		return nil
	}
	return unix.Munmap(area)
}

// RegisterEvents registers an event kernel.
func (c *engineContext) RegisterEvents(k EventKernel) error {
	if err := c.usable(); err != nil {
		return err
	}
	var rerr error
	if err := c.e.do(func() { rerr = c.registerEvents(k) }); err != nil {
		return err
	}
	return rerr
}

// registerEvents runs on the pacing thread.
func (c *engineContext) registerEvents(k EventKernel) error {
	p := c.events
	bad := func(format string, args ...any) error {
		return fmt.Errorf("register an event kernel: %s: %w", fmt.Sprintf(format, args...), gpu.ErrInvalidLaunch)
	}
	switch {
	case c.over.Load():
		return fmt.Errorf("context is closed: %w", gpu.ErrLost)
	case c.fault.Load() != nil:
		return *c.fault.Load()
	case p == nil:
		return bad("the context has no event area")
	case k.Number < 0 || k.Number >= len(p.rows):
		return bad("number %d of %d", k.Number, len(p.rows))
	case p.rows[k.Number] != nil:
		return bad("number %d is taken", k.Number)
	}
	r := &eventRow{k: k, kernel: c.kernel(k.Kernel)}
	if r.kernel == nil {
		return bad("no such kernel")
	}
	attr := r.kernel.Attributes()
	var ok bool
	r.need, ok = blockNeed(&attr, k.Block, k.Shared)
	units := (k.Shared + abi.SharedUnit - 1) / abi.SharedUnit
	if !ok || c.e.o.Machine.Occupancy(r.need) == 0 || !gridFits(k.Grid) || units > 1<<16-1 || uint64(len(k.Params)) < attr.ParamBytes {
		return bad("grid %v of blocks %v with %d bytes of shared memory, and %d of parameters", k.Grid, k.Block, k.Shared, len(k.Params))
	}
	r.params = make([]byte, attr.ParamBytes)
	row := abi.EventRow{
		Function: k.Function, Grid: [3]uint32{k.Grid.X, k.Grid.Y, k.Grid.Z}, Block: [3]uint32{k.Block.X, k.Block.Y, k.Block.Z}, Shared: uint16(units),
	}
	steps := []eventtable.Step{p.channelStep()}
	for range eventLanes {
		steps = append(steps, p.laneStep())
	}
	steps = append(steps, eventtable.Step{
		Take: func() (err error) {
			r.queue, err = eventqueue.NewPoller(p.area, k.Number, row, k.Params[:attr.ParamBytes], k.Entries)
			if err != nil {
				return fmt.Errorf("%w: %w", err, gpu.ErrInvalidLaunch)
			}
			p.rows[k.Number] = r
			return nil
		},
		Back: func() {
			p.rows[k.Number], r.gone = nil, true
			state := abi.EventUnregistered
			if c.fault.Load() != nil || c.over.Load() {
				state = abi.EventFailed
			}
			p.stray[k.Number] += uint64(r.queue.Close(state))
		},
	})
	p.displace(k.Number)
	p.stray[k.Number] += uint64(eventqueue.Stray(p.area, k.Number))
	n, err := c.e.events.Register(c.owner.name, row, steps...)
	if err != nil {
		return err
	}
	r.n = n
	return nil
}

// displace ends another context's registration of the same number in the same area. That context's
// process is gone, and the GPU has not noticed yet.
func (p *eventPoller) displace(number int) {
	for _, o := range p.c.e.pollers {
		if o != p && o.inode == p.inode && o.rows[number] != nil {
			p.c.e.events.Drop(o.rows[number].n)
		}
	}
}

// channelStep takes the channel of the poller's launch, which the first registration makes and the
// last gives back.
func (p *eventPoller) channelStep() eventtable.Step {
	return eventtable.Step{
		Take: func() error {
			p.users++
			if p.ch != nil {
				return nil
			}
			ch, err := p.c.group.NewChannel()
			if err != nil {
				p.users--
				return fmt.Errorf("%w: %w", gpu.ErrFull, err)
			}
			p.ch = ch
			return nil
		},
		Back: func() {
			if p.users--; p.users > 0 {
				return
			}
			if p.resident {
				p.resident, p.on = false, false
				p.c.e.m.Kill(&p.work)
			}
			p.ch.Close()
			p.ch = nil
		},
	}
}

// laneStep takes a channel for events, which counts as one of the owner's.
func (p *eventPoller) laneStep() eventtable.Step {
	return eventtable.Step{
		Take: func() error {
			c := p.c
			if !c.owner.channels.reserve(1) {
				return fmt.Errorf("a channel for events beside %d of the same owner: %w", c.owner.channels.taken(), gpu.ErrFull)
			}
			ch, err := c.group.NewChannel()
			if err != nil {
				c.owner.channels.release(1)
				return fmt.Errorf("%w: %w", gpu.ErrFull, err)
			}
			l := &eventLane{p: p}
			l.q = &queue{e: c.e, c: c, ch: ch, event: l}
			p.lanes = append(p.lanes, l)
			return nil
		},
		Back: func() {
			p.surplus++
			p.trim()
		},
	}
}

// trim gives back the lanes that are too many. Lanes are all alike, so one that runs another kernel's
// event goes when that has ended.
func (p *eventPoller) trim() {
	for p.surplus > 0 {
		i := slices.IndexFunc(p.lanes, func(l *eventLane) bool { return !l.busy })
		if i < 0 {
			return
		}
		p.lanes[i].q.ch.Close()
		p.lanes = slices.Delete(p.lanes, i, i+1)
		p.c.owner.channels.release(1)
		p.surplus--
	}
}

// UnregisterEvents begins to unregister a kernel, and reports whether it is gone.
func (c *engineContext) UnregisterEvents(number int) (gone bool, err error) {
	if err := c.open(); err != nil {
		return false, err
	}
	var rerr error
	err = c.e.do(func() {
		p := c.events
		if p == nil || number < 0 || number >= len(p.rows) || p.rows[number] == nil {
			rerr = fmt.Errorf("unregister event kernel %d: %w", number, gpu.ErrNotFound)
			return
		}
		r := p.rows[number]
		if r.ending {
			return
		}
		r.ending = true
		r.queue.End()
		if r.queue.Pending() {
			r.pending = true
			c.e.events.Started(r.n, 1)
		}
		gone, rerr = c.e.events.Unregister(r.n)
	})
	if err == nil {
		err = rerr
	}
	return gone, err
}

// HoldEvents keeps the context's poller off the GPU, or no longer does.
func (c *engineContext) HoldEvents(on bool) error {
	if err := c.usable(); err != nil {
		return err
	}
	return c.e.do(func() {
		if p := c.events; p != nil && p.held != on && c.fault.Load() == nil {
			p.held = on
			c.e.step(c.e.now())
			if on || !p.resident {
				p.park()
			}
		}
	})
}

// EventCounts returns the counts of the context's event kernels.
func (c *engineContext) EventCounts() (n EventCounts, err error) {
	if err := c.open(); err != nil {
		return n, err
	}
	err = c.e.do(func() {
		n.Faulted = c.fault.Load() != nil
		if c.events != nil {
			n.Kernels = c.events.counts()
		}
	})
	return n, err
}
