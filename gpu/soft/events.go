package soft

import (
	"slices"
	"time"

	"vgpud/gpu"
	"vgpud/gpu/eventtable"
	"vgpud/gpu/soft/machine"
	"vgpud/gpu/soft/ring"
	"vgpud/gpu/soft/simt"
	"vgpud/mediator/vgpu/abi"
	"vgpud/mediator/vgpu/abi/eventqueue"
)

const (
	// parkAfter is how long a resident poller without events stays on the GPU if nobody waits for it.
	parkAfter = 5 * time.Millisecond
	// pollEvery is how often the pacing thread looks at the doorbells of a resident poller, if it may
	// not poll all the time.
	pollEvery = 100 * time.Microsecond
	// eventLanes is how many channels for events a registration adds to its context's: that many
	// more run side by side.
	eventLanes = 4
)

// pollerNeed is what a resident poller occupies: one warp.
var pollerNeed = machine.Resources{Blocks: 1, Threads: 32, Registers: 32 * 32}

// eventPoller is a context's event kernels, and what polls their doorbells: an endless launch of the
// machine, so that it is shared and charged as any other. The pacing thread owns it.
type eventPoller struct {
	c     *engineContext
	area  []byte // BAR4
	inode uint64 // of the area
	rows  [abi.MaxEventKernels]*eventRow
	stray [abi.MaxEventKernels]uint64 // rings on numbers of kernels that had ended
	ch    *machine.Channel            // of work, while a kernel is registered
	users int                         // kernels that are registered
	work  machine.Launch              // Tag is the poller

	resident bool // work is in the machine
	on       bool // and executes: doorbells are polled
	held     bool // it is to stay parked
	since    time.Duration
	idle     time.Duration // since when there was no event
	turn     int           // the row that is looked at first
	lanes    []*eventLane
	surplus  int // lanes that are to go
}

// eventRow is a registered event kernel.
type eventRow struct {
	k       EventKernel
	n       int // in the GPU's table
	queue   *eventqueue.Poller
	kernel  *simt.Kernel
	need    machine.Resources
	params  []byte // of the event that starts
	ending  bool
	gone    bool
	pending bool // rings from before it was unregistered are not taken yet
	latency eventtable.Latencies
}

// eventLane is a channel on which one event at a time runs.
type eventLane struct {
	p    *eventPoller
	q    *queue
	busy bool
}

// eventCommand is what a launch is an event of.
type eventCommand struct {
	row   *eventRow
	entry int
	rung  time.Duration // when the GPU found the ring
}

// polls takes note of a machine's event about a poller.
func polls(ev machine.Event) {
	if ev.Launch == nil {
		return
	}
	p, ok := ev.Launch.Tag.(*eventPoller)
	if !ok {
		return
	}
	switch ev.Kind {
	case machine.Started, machine.Resumed:
		p.on = true
		p.since = p.c.e.m.Now()
		p.idle = p.since
	case machine.Preempted:
		p.on = false
	}
}

// pollEvents looks at the doorbells, and reports whether an event has started.
func (e *Engine) pollEvents(now time.Duration) (any bool) {
	for _, p := range e.pollers {
		any = p.poll(now) || any
	}
	return any
}

// eventsPending reports whether a parked poller has rings.
func (e *Engine) eventsPending() bool {
	for _, p := range e.pollers {
		if !p.resident && !p.held && p.pending() {
			return true
		}
	}
	return false
}

// nextPoll returns when the doorbells are to be looked at again.
func (e *Engine) nextPoll(now time.Duration) time.Duration {
	for _, p := range e.pollers {
		if !p.on {
			continue
		}
		if e.o.PollWindow > 0 {
			return now
		}
		return now + pollEvery
	}
	return machine.Never
}

// pending reports whether there are rings that were not taken.
func (p *eventPoller) pending() bool {
	for _, r := range p.rows {
		if r != nil && r.queue.Pending() {
			return true
		}
	}
	return false
}

// flying reports whether an event is under way.
func (p *eventPoller) flying() bool {
	return slices.ContainsFunc(p.lanes, func(l *eventLane) bool { return l.busy })
}

// poll starts the events that were rung for, if p is on the GPU; parks it if it has nothing to do; and
// has it come back if it is parked and there are rings.
func (p *eventPoller) poll(now time.Duration) (any bool) {
	switch {
	case p.held:
		return false
	case !p.resident:
		if p.pending() {
			p.unpark()
		}
		return false
	case !p.on:
		return false // it waits for its turn
	}
	for i := range p.rows {
		if r := p.rows[(p.turn+i)%len(p.rows)]; r != nil {
			any = p.start(r, now) || any
		}
	}
	p.turn++
	m := p.c.e.m
	switch {
	case any || p.flying() || p.pending():
		p.idle = now
		// Where nothing is taken off the GPU, others get their turn all the same.
		if cfg := m.Config(); cfg.Mode != machine.Slices && now-p.since >= cfg.Slice && m.Waiting() {
			p.park()
		}
	case m.Waiting() || now-p.idle >= parkAfter:
		p.park()
	}
	return any
}

// park takes the poller off the GPU, and asks for kicks. If there is a ring already it comes back, in
// its turn.
func (p *eventPoller) park() {
	if p.resident {
		p.resident, p.on = false, false
		p.c.e.m.Kill(&p.work)
	}
	idle := true
	for _, r := range p.rows {
		if r != nil && !r.queue.Arm() {
			idle = false
		}
	}
	if !idle && !p.held {
		p.unpark()
	}
}

// unpark puts the poller on the GPU, in its turn.
func (p *eventPoller) unpark() {
	if p.resident || p.ch == nil || p.c.fault.Load() != nil {
		return
	}
	e := p.c.e
	e.step(e.now())
	p.work.Work = machine.Work{Open: true, Blocks: 1, Need: pollerNeed}
	p.work.Tag = p
	p.resident = p.ch.Submit(&p.work) == nil
}

// start starts a kernel's events as far as there are lanes.
func (p *eventPoller) start(r *eventRow, now time.Duration) (any bool) {
	for {
		i := slices.IndexFunc(p.lanes, func(l *eventLane) bool { return !l.busy })
		if i < 0 {
			return any
		}
		entry, ok := r.queue.Next(r.params)
		if !ok {
			break
		}
		any = true
		p.c.e.events.Started(r.n, 1)
		p.lanes[i].launch(r, entry, now)
	}
	if r.pending && !r.queue.Pending() {
		r.pending = false
		p.c.e.events.Ended(r.n)
	}
	return any
}

// launch runs an event.
func (l *eventLane) launch(r *eventRow, entry int, now time.Duration) {
	q := l.q
	e := q.e
	cmd := q.command()
	cmd.event = eventCommand{r, entry, now}
	l.busy = true
	q.cmds = append(q.cmds, cmd)
	e.gridID++
	grid, err := simt.NewGrid(simt.Launch{
		Kernel: r.kernel, Grid: r.k.Grid, Block: r.k.Block, SharedBytes: r.k.Shared, Params: r.params, Memory: &q.c.mem,
		SMs: e.o.Machine.SMs, ID: e.gridID, Print: &q.c.print,
	})
	if err != nil {
		e.o.Log.Debug("soft GPU: event refused", "kernel", r.kernel.Name(), "error", err)
		l.ended(cmd, codeOf(err))
		return
	}
	cmd.kernel = r.kernel
	cmd.run.reset(grid, q.clocks(cmd))
	cmd.Work = machine.Work{Open: true, Limit: q.c.o.KernelTimeLimit, Blocks: r.k.Grid.Count(), Need: r.need}
	e.step(e.now())
	if err := q.ch.Submit(&cmd.Launch); err != nil {
		l.ended(cmd, ring.Dropped)
	}
}

// ended takes note of an event's end.
func (l *eventLane) ended(cmd *command, code ring.Code) {
	q, ev := l.q, cmd.event
	l.busy = false
	q.cmds = q.cmds[:0]
	cmd.run.drop()
	cmd.kernel, cmd.event = nil, eventCommand{}
	q.spare = append(q.spare, cmd)
	if code == ring.OK {
		ev.row.queue.Done(ev.entry)
		ev.row.latency.Add(q.e.m.Now() - ev.rung)
	} else {
		ev.row.queue.Drop(ev.entry)
	}
	if !ev.row.gone {
		q.e.events.Ended(ev.row.n)
	}
	l.p.trim()
}

// fail ends everything: the context has faulted, or closes.
func (p *eventPoller) fail() {
	if p == nil {
		return
	}
	if p.resident {
		p.resident, p.on = false, false
		p.c.e.m.Kill(&p.work)
	}
	p.held = true
	for _, l := range slices.Clone(p.lanes) {
		l.q.flush(func(*command) ring.Code { return ring.Dropped })
	}
	for _, r := range p.rows {
		if r != nil {
			p.c.e.events.Drop(r.n)
		}
	}
}

// setLimit changes how long an event may run.
func (p *eventPoller) setLimit(d time.Duration) {
	if p == nil {
		return
	}
	for _, l := range p.lanes {
		for _, cmd := range l.q.cmds {
			cmd.Limit = d
		}
	}
}

// counts returns the counts of all kernels.
func (p *eventPoller) counts() (list []gpu.EventKernelCounts) {
	for i, r := range p.rows {
		if r == nil {
			continue
		}
		n := r.queue.Counts()
		list = append(list, gpu.EventKernelCounts{
			Number: i, Kernel: r.kernel.Name(), Started: n.Started, Ended: n.Ended, Dropped: n.Dropped, Stray: p.stray[i],
			Pending: r.queue.Pending(), Resident: p.resident, P50: r.latency.Quantile(0.5), P99: r.latency.Quantile(0.99),
		})
	}
	return list
}
