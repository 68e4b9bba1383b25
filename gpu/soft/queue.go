package soft

import (
	"errors"
	"slices"
	"time"

	"vgpud/gpu"
	"vgpud/gpu/soft/machine"
	"vgpud/gpu/soft/ring"
	"vgpud/gpu/soft/simt"
)

// queue is the engine's side of a channel. The pacing thread owns it.
type queue struct {
	e    *Engine
	c    *engineContext
	id   uint32
	ch   *machine.Channel
	ring *ring.Consumer
	// cmds are the launches that are fetched and not completed, in order. They complete in this
	// order; a refused launch waits for those before it.
	cmds     []*command
	spare    []*command
	entry    ring.Entry
	event    *eventLane // of a channel for events, which has no ring
	dead     bool       // nothing is fetched any more: the ring is corrupt, or the channel was closed
	draining bool       // closed, but a launch still executes
}

// command is a fetched launch.
type command struct {
	machine.Launch
	q           *queue
	kernel      *simt.Kernel
	run         runner
	placed      bool // its first blocks are resident
	event       eventCommand
	aheadEnough bool          // interpreted as far ahead of the clock as it may be
	clocks      []uint64      // see [queue.clocks]
	preempted   time.Duration // executed when it was last preempted
	over        bool
	out         ring.Outcome
}

// room reports whether the machine would accept another launch.
func (q *queue) room() bool { return len(q.cmds) < fetchAhead && !q.dead }

// fetch takes the launches that fit and reports whether there were any.
func (q *queue) fetch() bool {
	any := false
	for q.room() {
		n, err := q.ring.Waiting()
		if err != nil {
			q.e.o.Log.Warn("soft GPU: channel ended", "group", q.c.Group(), "channel", q.id, "error", err)
			q.kill()
			return true
		}
		if n == 0 {
			break
		}
		any = true
		q.ring.Fetch(&q.entry)
		cmd := q.command()
		q.cmds = append(q.cmds, cmd)
		if code := q.submit(cmd); code != ring.OK {
			now := int64(q.e.m.Now())
			cmd.over, cmd.out = true, ring.Outcome{Start: now, End: now, Code: code}
			q.complete()
		}
	}
	return any
}

func (q *queue) command() *command {
	if n := len(q.spare); n > 0 {
		cmd := q.spare[n-1]
		q.spare = q.spare[:n-1]
		cmd.placed, cmd.aheadEnough, cmd.over = false, false, false
		return cmd
	}
	cmd := &command{q: q}
	cmd.Tag = cmd
	return cmd
}

// submit checks the launch that was just fetched and passes it to the machine.
func (q *queue) submit(cmd *command) ring.Code {
	c, en := q.c, &q.entry
	if c.fault.Load() != nil {
		return ring.Poisoned
	}
	k := c.kernel(en.Kernel)
	if k == nil {
		return ring.BadLaunch
	}
	attr := k.Attributes()
	need, ok := blockNeed(&attr, en.Block, en.Shared)
	if !ok || q.e.o.Machine.Occupancy(need) == 0 || !gridFits(en.Grid) {
		return ring.BadLaunch
	}
	q.e.gridID++
	grid, err := simt.NewGrid(simt.Launch{
		Kernel: k, Grid: en.Grid, Block: en.Block, SharedBytes: en.Shared, Params: en.Params, Memory: &c.mem,
		SMs: q.e.o.Machine.SMs, ID: q.e.gridID, Print: &c.print,
	})
	if err != nil {
		q.e.o.Log.Debug("soft GPU: launch refused", "kernel", k.Name(), "error", err)
		return codeOf(err)
	}
	cmd.kernel = k
	cmd.run.reset(grid, q.clocks(cmd))
	cmd.Work = machine.Work{Open: true, Limit: c.o.KernelTimeLimit, Blocks: en.Grid.Count(), Need: need}
	// The time of the preparation must not count as execution.
	q.e.step(q.e.now())
	if err := q.ch.Submit(&cmd.Launch); err != nil {
		return ring.Dropped
	}
	return ring.OK
}

// clocks returns the clocks of the SMs for a launch: the context's, or its own under
// [machine.CoRun], where launches do not slow each other down.
func (q *queue) clocks(cmd *command) []uint64 {
	if q.e.o.Machine.Mode != machine.CoRun {
		return q.c.clocks
	}
	if cmd.clocks == nil {
		cmd.clocks = make([]uint64, q.e.o.Machine.SMs)
	}
	clear(cmd.clocks)
	return cmd.clocks
}

// executed returns the launch's position on its SMs' clocks at the machine's Now: how long the
// context has executed, or the launch itself under [machine.CoRun].
func (cmd *command) executed() time.Duration {
	if cmd.q.e.o.Machine.Mode != machine.CoRun {
		return cmd.q.c.group.Usage().Busy
	}
	return cmd.Elapsed()
}

// blockNeed returns the resources that a block of the kernel occupies, and false if the block is
// too large.
func blockNeed(attr *gpu.FunctionAttributes, block gpu.Dim3, dynamic uint64) (machine.Resources, bool) {
	if block.X == 0 || block.Y == 0 || block.Z == 0 || block.X > maxBlockThreads || block.Y > maxBlockThreads ||
		block.Z > maxBlockZ || block.Count() > maxBlockThreads || dynamic > 1<<32 {
		return machine.Resources{}, false
	}
	threads := int(block.Count()+31) &^ 31
	return machine.Resources{
		Blocks: 1, Threads: threads, Registers: threads * max(attr.Registers, 1), Shared: attr.SharedBytes + dynamic,
	}, true
}

func gridFits(g gpu.Dim3) bool {
	return g.X > 0 && g.Y > 0 && g.Z > 0 && g.X <= maxGridX && g.Y <= maxGridYZ && g.Z <= maxGridYZ
}

func codeOf(err error) ring.Code {
	switch {
	case errors.Is(err, gpu.ErrOutOfMemory):
		return ring.NoMemory
	case errors.Is(err, gpu.ErrUnsupported):
		return ring.Unsupported
	}
	return ring.BadLaunch
}

// ended records the end of a launch and completes it after those before it.
func (q *queue) ended(cmd *command, code ring.Code) {
	start := cmd.Start()
	if start == 0 {
		start = q.e.m.Now() // killed before it began
	}
	cmd.over = true
	if q.event != nil {
		q.event.ended(cmd, code)
		return
	}
	cmd.out = ring.Outcome{Start: int64(start), End: int64(q.e.m.Now()), Code: code}
	q.complete()
}

// complete reports finished launches to the producer, in order.
func (q *queue) complete() {
	for len(q.cmds) > 0 && q.cmds[0].over {
		cmd := q.cmds[0]
		q.cmds = slices.Delete(q.cmds, 0, 1)
		cmd.run.drop()
		cmd.kernel = nil
		q.spare = append(q.spare, cmd)
		q.ring.Complete(cmd.out)
	}
	if q.draining && len(q.cmds) == 0 {
		if err := q.free(); err != nil {
			q.e.o.Log.Error("soft GPU: close a channel", "group", q.c.Group(), "channel", q.id, "error", err)
		}
	}
}

// flush ends all fetched launches.
func (q *queue) flush(code func(*command) ring.Code) {
	for _, cmd := range slices.Clone(q.cmds) {
		if cmd.over {
			continue
		}
		q.e.m.Kill(&cmd.Launch)
		q.e.inactive(cmd)
		q.ended(cmd, code(cmd))
	}
}

// kill ends the channel at once. Nothing more completes.
func (q *queue) kill() {
	q.flush(func(*command) ring.Code { return ring.Dropped })
	if !q.dead {
		q.dead = true
		q.ring.Kill()
		q.ch.Close()
	}
}

// close drops queued launches. One that executes runs on, and the queue is freed after it.
func (q *queue) close() error {
	if len(q.cmds) == 0 || q.cmds[0].over || q.cmds[0].Start() == 0 {
		q.kill()
		return q.free()
	}
	for _, cmd := range slices.Clone(q.cmds[1:]) {
		q.e.m.Kill(&cmd.Launch)
	}
	q.cmds = q.cmds[:1]
	q.dead, q.draining = true, true
	q.ring.Kill()
	q.ch.Close()
	return nil
}

// free removes the queue from the engine. It must have no launch in the machine.
func (q *queue) free() error {
	q.draining = false
	c := q.c
	delete(c.queues, q.id)
	q.e.queues = slices.DeleteFunc(q.e.queues, func(o *queue) bool { return o == q })
	c.uncountChannel()
	return q.ring.Close()
}
