package soft

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"vgpud/gpu"
	"vgpud/gpu/soft/machine"
	"vgpud/gpu/soft/ring"
)

const (
	// chunk is how long the pacing thread interprets before it checks the machine's events and the
	// rings again.
	chunk = 20 * time.Microsecond
	// stepBudget is the number of warp instructions that a block executes at a time, about half a
	// chunk.
	stepBudget = 256
	// fetchAhead is the number of launches of a channel in the machine. A real GPU's fetcher is
	// ahead by one, too.
	fetchAhead = 2
	// minSleep is the shortest sleep. The thread spins for shorter times.
	minSleep = 20 * time.Microsecond
)

// pace is the pacing thread. It ends with the engine.
func (e *Engine) pace(started chan<- struct{}) {
	// The thread is never unlocked: it ends with the goroutine, and so does its priority.
	runtime.LockOSThread()
	// If the host can't provide a page of a context's memory, only that context faults.
	debug.SetPanicOnFault(true)
	e.raisePriority()
	e.begun = e.now()
	close(started)
	busyUntil := e.now()
	for {
		e.runCalls()
		if e.stopping {
			break
		}
		now := e.now()
		ended := e.step(now)
		if e.fetch() || ended {
			busyUntil = now + e.o.PollWindow
		}
		if e.pollEvents(now) {
			busyUntil = now + e.o.PollWindow
		}
		next := e.m.Next()
		if len(e.active) > 0 && e.interpret(now) {
			continue
		}
		if now < busyUntil && next > now+minSleep {
			continue // nothing is due soon; poll for work a little longer
		}
		e.sleep(now, min(next, e.nextInterpretation(now), e.nextPoll(now)))
	}
	for len(e.contexts) > 0 {
		c := e.contexts[0]
		c.end()
		c.free()
	}
	e.failCalls()
	close(e.stopped)
}

// failCalls answers calls that came after the close.
func (e *Engine) failCalls() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range e.calls {
		close(c.done)
	}
	e.calls = nil
}

func (e *Engine) raisePriority() {
	level := e.o.Priority
	if level < 0 {
		e.pacing.Reason = "not requested"
		return
	}
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: uint32(level)}
	switch err := unix.SchedSetAttr(0, &attr, 0); {
	case err == nil:
		e.pacing.Realtime, e.pacing.Level = true, level
	case errors.Is(err, unix.EPERM):
		e.pacing.Reason = fmt.Sprintf("SCHED_FIFO %d not permitted: needs CAP_SYS_NICE, or RLIMIT_RTPRIO of at least %d", level, level)
	default:
		e.pacing.Reason = fmt.Sprintf("SCHED_FIFO %d: %v", level, err)
	}
}

// sleep waits until next or a doorbell. It wakes early by the recent delays of waking, and spins
// for the rest.
func (e *Engine) sleep(now, next time.Duration) {
	d := time.Duration(-1)
	if next != machine.Never {
		if d = next - now - e.wakeCost; d < minSleep {
			for e.now() < next && e.pending.Load() == 0 {
				if next-e.now() > minSleep && e.waiting() {
					return
				}
			}
			return
		}
	}
	for _, q := range e.queues {
		q.ring.WantKick(q.room())
	}
	if !e.waiting() && e.pending.Load() == 0 && !e.eventsPending() {
		e.door.wait(d)
		e.pacing.Sleeps++
		if d < 0 || e.now() < now+min(d, pinnedSleep) {
			e.throttleRings(d)
		}
		if d >= 0 {
			late := e.now() - (now + d)
			if late > 0 {
				e.pacing.Late += late
				e.pacing.MaxLate = max(e.pacing.MaxLate, late)
				// The estimate decays by half, so that one late wake-up doesn't make the next spin
				// long.
				e.wakeCost = min((e.wakeCost*7+late)/8, 40*time.Microsecond)
			}
		}
	}
	for _, q := range e.queues {
		q.ring.WantKick(false)
	}
}

// spuriousRings is the number of consecutive rings without a reason after which the thread sleeps
// without listening.
const spuriousRings = 32

// throttleRings keeps a program that rings its doorbell without a reason from using the thread's
// CPU. It is called after a sleep that ended before its time d.
func (e *Engine) throttleRings(d time.Duration) {
	switch {
	case e.pending.Load() > 0 || e.waiting() || e.eventsPending():
		e.spurious = 0
	case e.spurious < spuriousRings:
		e.spurious++
	default:
		nap := 200 * time.Microsecond
		if d >= 0 {
			nap = min(nap, d/2)
		}
		ts := unix.NsecToTimespec(int64(nap))
		_ = unix.Nanosleep(&ts, nil)
	}
}

// waiting reports whether there are launches to fetch.
func (e *Engine) waiting() bool {
	for _, q := range e.queues {
		if !q.room() {
			continue
		}
		if n, err := q.ring.Waiting(); err != nil || n > 0 {
			return true
		}
	}
	return false
}

// step advances the machine to now and handles its events. It reports whether a launch ended.
func (e *Engine) step(now time.Duration) (ended bool) {
	for evs := e.m.Step(now); evs != nil; evs = e.m.Step(now) {
		for _, ev := range evs {
			cmd, _ := launchCommand(ev)
			if cmd == nil {
				polls(ev)
				continue
			}
			switch ev.Kind {
			case machine.Started, machine.Resumed:
				cmd.resume()
				e.active = append(e.active, cmd)
			case machine.Preempted:
				cmd.preempted = cmd.executed()
				e.inactive(cmd)
			case machine.Finished:
				e.inactive(cmd)
				cmd.q.ended(cmd, ring.OK)
				ended = true
			case machine.Expired:
				cmd.q.c.poison(cmd, &gpu.Fault{Kind: gpu.FaultTimeLimit, Kernel: cmd.kernel.Name()})
			}
		}
	}
	return ended
}

func launchCommand(ev machine.Event) (*command, bool) {
	if ev.Launch == nil {
		return nil, false
	}
	cmd, ok := ev.Launch.Tag.(*command)
	return cmd, ok
}

// resume has a launch go on when it is back on the engine. If others of its context executed
// meanwhile, their time is lost for it.
func (cmd *command) resume() {
	if x := cmd.executed(); cmd.placed && x > cmd.preempted {
		cmd.run.delay(uint64(x))
	}
}

func (e *Engine) inactive(cmd *command) {
	if i := slices.Index(e.active, cmd); i >= 0 {
		e.active = slices.Delete(e.active, i, i+1)
	}
}

// fetch moves launches from the rings into the machine, and reports whether there were any.
func (e *Engine) fetch() bool {
	any := false
	for i := 0; i < len(e.queues); i++ {
		any = e.queues[i].fetch() || any
	}
	return any
}

// interpret works for a chunk on executing launches that are not interpreted far enough ahead. It
// reports whether there was anything to do.
func (e *Engine) interpret(now time.Duration) bool {
	worked := false
	until := now + chunk
	for {
		cmd := e.leastAhead(now)
		if cmd == nil {
			return worked
		}
		worked = true
		e.interpretOne(cmd)
		if e.now() >= until || e.pending.Load() > 0 && len(e.batch) == 0 {
			return true
		}
	}
}

// ahead returns how much further cmd is interpreted than it has executed.
func (e *Engine) ahead(cmd *command, now time.Duration) time.Duration {
	return time.Duration(cmd.run.interpretedTo()) - cmd.executed() - (now - e.m.Now())
}

// leastAhead returns the executing launch that is interpreted least far ahead; of several that
// share an SM's clock, that which was interpreted longest ago. A launch that is ahead by the whole
// lead is skipped until half of the lead is used up, so that the thread can sleep in between.
func (e *Engine) leastAhead(now time.Duration) *command {
	var best *command
	var least time.Duration
	for _, cmd := range e.active {
		if !cmd.Open {
			continue
		}
		ahead := e.ahead(cmd, now)
		if ahead >= e.o.Lead {
			cmd.aheadEnough = true
		} else if ahead < e.o.Lead/2 {
			cmd.aheadEnough = false
		}
		if !cmd.aheadEnough && (best == nil || ahead < least) {
			best, least = cmd, ahead
		}
	}
	return best
}

// nextInterpretation returns when a launch must be interpreted again.
func (e *Engine) nextInterpretation(now time.Duration) time.Duration {
	t := machine.Never
	for _, cmd := range e.active {
		if cmd.Open {
			t = min(t, now+max(0, e.ahead(cmd, now)-e.o.Lead/2))
		}
	}
	return t
}

// interpretOne interprets a part of one launch.
func (e *Engine) interpretOne(cmd *command) {
	if n := len(e.active); n > 1 && e.active[n-1] != cmd {
		e.inactive(cmd)
		e.active = append(e.active, cmd)
	}
	fault := e.interpretStep(cmd)
	switch {
	case fault != nil:
		e.step(e.now())
		cmd.q.c.poison(cmd, fault)
	case cmd.run.done():
		e.pacing.Instructions += cmd.run.grid.Counts().WarpInstructions
		rest := time.Duration(cmd.run.end) - cmd.executed()
		e.m.Settle(&cmd.Launch, max(cmd.Elapsed()+rest-e.o.Machine.Overhead, 0))
	}
}

// interpretStep performs one step of the interpreter. A panic is a bug, or means that the host has
// no memory for a page; in either case the context ends and the GPU goes on.
func (e *Engine) interpretStep(cmd *command) (fault *gpu.Fault) {
	defer func() {
		if r := recover(); r != nil {
			e.o.Log.Error("soft GPU: interpreter failed", "kernel", cmd.kernel.Name(), "panic", r, "stack", string(debug.Stack()))
			fault = &gpu.Fault{Kind: gpu.FaultInstruction, Kernel: cmd.kernel.Name()}
		}
	}()
	x := cmd.executed()
	base := e.m.Now() - x
	if !cmd.placed {
		cmd.placed = true
		cmd.run.start(cmd.Placed(), uint64(x-cmd.Elapsed()+e.o.Machine.Overhead))
	}
	if cmd.run.done() {
		return nil
	}
	return cmd.run.step(uint64(base), stepBudget)
}
