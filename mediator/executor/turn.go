package executor

import (
	"encoding/binary"
	"math"
	"slices"
	"time"

	"vgpud/gpu"
	"vgpud/mediator/ipc"
	"vgpud/mediator/ipc/slotstate"
	"vgpud/mediator/vgpu/abi"
)

// free reports whether launches need no turn from the daemon: it decides about guests only, or has
// been silent for too long.
func (x *Executor) free() bool {
	return x.o.Page.Mode() == ipc.ModeFree || x.o.Page.TurnsExpired(x.o.Clock.Now())
}

// hasTurn reports whether it is the job's turn. The daemon's word in the launch slot comes first.
// Where the daemon says nothing about launches, the jobs of a suspended guest have no turn.
func (j *job) hasTurn() bool {
	x := j.ch.x
	// If the channel's second launch has the turn, the first takes it.
	second := j.ch.second
	free := x.free() || second != nil && second != j && second.slot.State() == slotstate.ToRun
	if !j.slot.Held() && (!free || j.form != 0) {
		// In a mode that decides about launches one without a slot waits for one; in another it
		// just can't be told to leave.
		description := j.describe()
		var ok bool
		if j.slot, ok = x.o.Page.Claim(x.o.Slot, &description); !ok && !free {
			return false
		}
	}
	switch j.slot.State() {
	case slotstate.ToRun, slotstate.Running, slotstate.ToEvict:
		// In the last two it was told to leave some SMs before it started, or that it may stay
		// after all.
		return true
	case slotstate.Ready:
		switch {
		case x.suspension.on:
			return false
		case free:
			return j.slot.Grant()
		case j != j.ch.job:
			// It takes its turn when it starts: the launch before it may be told to leave meanwhile.
			return j.goesInTurn() && j.goesAlone()
		case !x.goesAhead(j.urgency) && !j.goesInTurn(), !j.goesAlone():
			return false
		}
		if !j.slot.Grant() {
			x.publishAdmitted(estimate{}, 0) // it goes later
			return false
		}
		return true
	default: // it has no slot
		return free && !x.suspension.on
	}
}

// goesAhead reports whether no guest's launch goes before one of this urgency, so that it need not
// wait for the daemon. The daemon decides among the guest's own.
func (x *Executor) goesAhead(urgency int) bool {
	p := x.o.Page
	if p.Mode() != ipc.ModeAhead || urgency < p.Terms().PriorityCeiling {
		return false
	}
	for i := range ipc.MaxContexts {
		if p.Context(i).Outstanding() > 0 {
			return false
		}
	}
	return true
}

// goesAlone takes room on the GPU for a job that has no verdict, beside nothing of the guest's other
// contexts, and reports whether there was any. Their executors ask at the same time, and each may have
// seen that the others have nothing there. Where contexts can be taken off the GPU it is enough that
// they have looked.
func (j *job) goesAlone() bool {
	x := j.ch.x
	if !x.bounded() {
		return true
	}
	next := x.fetchAheadWith(j.p.estimate)
	next.Long = true // nothing goes beside it, whatever it is
	return x.admission.admitter.Admit(next, x.o.FetchLimit.Work, true) == ipc.Admitted
}

// leavesUnstarted has a job that has its turn and is not on the GPU give the turn up, if it was
// told to leave all SMs, and reports whether it did. A job that was told to leave some SMs goes to
// the GPU, and leaves those there.
func (j *job) leavesUnstarted() bool {
	if j.state != waiting && j.state != preparing && j.state != preempted || j.slot.State() != slotstate.ToEvict {
		return false
	}
	x := j.ch.x
	below, asked, _ := j.slot.EvictionRequest()
	if below < uint32(x.props.SMs) {
		return false
	}
	now := x.o.Clock.Now()
	if j.slot.Started() { // it is between two of its runs
		x.slot.AddEviction(now - asked)
		j.total.evictions++
	}
	j.slot.Leave(now, j.total.used)
	j.to(turnGivenUp)
	return true
}

// describe returns what the daemon is told of the job: what is known before it runs, and nothing
// that only the guest says.
func (j *job) describe() ipc.Launch {
	x, l := j.ch.x, &j.launch
	v := ipc.Launch{
		Form: uint32(j.form), Evictable: j.form != 0 && !j.fn.unresponsive, Priority: j.urgency,
		Blocks: uint32(min(l.Grid.Count(), math.MaxUint32)), PerSM: uint32(max(j.resident, 0)), Tasks: uint32(min(l.Grid.Count(), abi.MaxPreemptTasks)),
		Threads: uint32(l.Block.Count()), SharedBytes: uint32(j.fn.attrs.SharedBytes + l.SharedBytes),
		InputBytes: x.inputBytes(j.fn, j.params), Kernel: j.fn.hash,
		Arrived: j.arrived, Predicted: j.fn.mean,
	}
	if j.form != 0 {
		g := j.plan.Grid
		v.Blocks, v.Tasks = g[0]*g[1]*g[2], j.plan.Args.Tasks
	}
	return v
}

// inputBytes returns the size of the allocations that a launch's pointers point into, each counted
// once: those of each parameter of 8 bytes that is an address in one. (FLEP §4.2 calls it the
// input's size.)
func (x *Executor) inputBytes(f *function, params []byte) (sum uint64) {
	var seen [16]gpu.Ptr // further ones are counted each time
	n := 0
	for _, p := range f.attrs.Params {
		if p.Size != 8 || p.Offset%8 != 0 || p.Offset+8 > uint64(len(params)) {
			continue
		}
		a, found := x.memory.around(gpu.Ptr(binary.LittleEndian.Uint64(params[p.Offset:])))
		if !found || slices.Contains(seen[:n], a.base) {
			continue
		}
		if n < len(seen) {
			seen[n] = a.base
			n++
		}
		sum += a.size
	}
	return sum
}

// launchUrgency returns the urgency of a launch that asks for a CUDA priority, or for none, and
// reports whether it asked for more than it may. (EffiSha §6.4: "If a normal user sets the priority
// higher than the host thread, the EffiSha runtime ignores the value and uses the priority of the
// host thread instead")
func (x *Executor) launchUrgency(asks bool, priority int32) (urgency int, ignored bool) {
	ceiling := x.o.Page.Terms().PriorityCeiling
	if !asks {
		return ceiling, false
	}
	if u := max(-int64(priority), 0); u <= int64(ceiling) {
		return int(u), false
	}
	return ceiling, true
}

// Limits of a sleep, for events that wake nobody.
const (
	sleepLimit   = 250 * time.Millisecond // a suspension ends without a daemon
	silenceSleep = ipc.SilenceLimit / 4   // a launch waits for a daemon that may be gone
	slotSleep    = time.Millisecond       // a launch waits for a free launch slot
)

// sleepFor returns for how long to sleep at most, at now.
func (x *Executor) sleepFor(now time.Duration) time.Duration {
	d := x.admissionSleep(x.textures.refused.retryIn(now, x.refusedLoad.retryIn(now, x.zeroes.refused.retryIn(now, sleepLimit))))
	for _, chs := range [...][]*channel{x.channels, x.draining} {
		for _, ch := range chs {
			d = min(d, ch.job.sleepFor(now), ch.second.sleepFor(now))
		}
	}
	return d
}

func (j *job) sleepFor(now time.Duration) time.Duration {
	switch {
	case j == nil:
		return sleepLimit
	case (j.state == waiting || j.state == preempted) && j.ch.x.o.Page.Mode() != ipc.ModeFree:
		if !j.slot.Held() {
			return slotSleep
		}
		return silenceSleep
	case j.state.onGPU() && j.run.below > 0:
		return max(j.evictionDeadline(now)-now, time.Millisecond)
	}
	return sleepLimit
}
