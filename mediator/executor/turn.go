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

// free is whether launches need nobody's word: the daemon decides about guests
// only, or is not there.
func (x *Executor) free() bool {
	return x.o.Page.Mode() == ipc.ModeFree || x.o.Page.Silent(x.o.Clock.Now())
}

// granted is whether it is the job's turn. The daemon's word holds whatever else
// is said; where it says nothing about launches, a suspended context has no turn.
func (j *job) granted() bool {
	x := j.ch.x
	// Where the channel's second launch has the turn, the first takes it.
	second := j.ch.second
	free := x.free() || second != nil && second != j && second.claim.State() == slotstate.ToRun
	if !j.claim.Held() && (!free || j.form != 0) {
		// In a mode that decides about launches one without a stub waits for one;
		// in another it just can't be told to leave.
		var ok bool
		if j.claim, ok = x.o.Page.Claim(x.o.Slot, &j.stub); !ok && !free {
			return false
		}
	}
	switch j.claim.State() {
	case slotstate.ToRun, slotstate.Running, slotstate.ToEvict: // or it was told to leave some SMs, or that it may stay after all
		return true
	case slotstate.Ready:
		return (free || j.first()) && !x.suspension.on && j.claim.Grant()
	default: // none
		return free && !x.suspension.on
	}
}

// first is whether nobody's launch goes before this one, so that it need not wait to
// hear that. Which of the guest's own does is the daemon's to say.
func (j *job) first() bool {
	p := j.ch.x.o.Page
	if p.Mode() != ipc.ModeAhead || j.stub.Priority < p.Terms().PriorityCeiling {
		return false
	}
	for i := range ipc.MaxContexts {
		if p.Context(i).Outstanding() > 0 {
			return false
		}
	}
	return true
}

// describe says what the daemon is told of a launch: what is known before it runs,
// and nothing that is the guest's word.
func (j *job) describe(resident, urgency int) {
	x, l := j.ch.x, &j.gl
	j.stub = ipc.Launch{
		Form: uint32(j.form), Evictable: j.form != 0 && !j.fn.unresponsive, Priority: urgency,
		Blocks: uint32(min(l.Grid.Count(), math.MaxUint32)), PerSM: uint32(max(resident, 0)), Tasks: uint32(min(l.Grid.Count(), abi.MaxPreemptTasks)),
		Threads: uint32(l.Block.Count()), SharedBytes: uint32(j.fn.attrs.SharedBytes + l.SharedBytes),
		InputBytes: x.inputBytes(j.fn, x.gl.Params), Kernel: j.fn.hash,
		Arrived: x.o.Clock.Now(), Predicted: j.fn.mean,
	}
	if j.form != 0 {
		j.stub.Blocks = uint32(j.plan.Grid[0] * j.plan.Grid[1] * j.plan.Grid[2])
	}
}

// inputBytes is the size of the allocations that a launch's pointers point into:
// of each parameter of 8 bytes that is an address in one, every allocation once
// (what FLEP §4.2 calls the input's size).
func (x *Executor) inputBytes(f *function, params []byte) (sum uint64) {
	var seen [16]gpu.Ptr // more are counted each time they are named
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

// urgency is how urgent a launch is that asks for a priority, CUDA's, or for none
// (EffiSha §6.4: "If a normal user sets the priority higher than the host thread,
// the EffiSha runtime ignores the value and uses the priority of the host thread
// instead"); and whether it asked for more than it may.
func (x *Executor) urgency(asks bool, priority int32) (urgency int, ignored bool) {
	ceiling := x.o.Page.Terms().PriorityCeiling
	if !asks {
		return ceiling, false
	}
	if u := max(-int64(priority), 0); u <= int64(ceiling) {
		return int(u), false
	}
	return ceiling, true
}

// sleepLimit bounds a sleep, so that the end of a suspension without a daemon is
// noticed; and these, so that the end of other waits is that nobody rings for.
const (
	sleepLimit   = 250 * time.Millisecond
	silenceSleep = ipc.SilenceLimit / 4 // a launch waits for a daemon that may be gone
	stubSleep    = time.Millisecond     // a launch waits for a stub
)

// sleepFor is for how long to sleep at most, at now.
func (x *Executor) sleepFor(now time.Duration) time.Duration {
	d := x.admissionSleep(x.refusedLoad.retryIn(now, x.zeroes.refused.retryIn(now, sleepLimit)))
	for _, ch := range x.channels {
		d = min(d, ch.sleepFor(now))
	}
	for _, ch := range x.draining {
		d = min(d, ch.sleepFor(now))
	}
	return d
}

func (ch *channel) sleepFor(now time.Duration) time.Duration {
	return min(ch.job.sleepFor(now), ch.second.sleepFor(now))
}

func (j *job) sleepFor(now time.Duration) time.Duration {
	switch {
	case j == nil:
		return sleepLimit
	case (j.phase == waiting || j.phase == parked) && j.ch.x.o.Page.Mode() != ipc.ModeFree:
		if !j.claim.Held() {
			return stubSleep
		}
		return silenceSleep
	case j.phase == running && j.told:
		return max(j.due(now)-now, time.Millisecond)
	}
	return sleepLimit
}
