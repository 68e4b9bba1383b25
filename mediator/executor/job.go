package executor

import (
	"cmp"
	"fmt"
	"time"

	"vgpud/gpu"
	"vgpud/mediator/executor/preemption"
	"vgpud/mediator/ipc"
	"vgpud/mediator/ipc/slotstate"
	"vgpud/mediator/vgpu/abi"
)

// job is a launch that is more than one command on the GPU: it waits for its turn, or its kernel is
// preemptible and is put on the GPU as often as it takes. Later commands of its channel wait until
// it is over, since a relaunch comes before them.
//
// One other preemptible launch may be on the GPU behind it, so that the GPU need not wait for the
// executor between the two. When the first is told to leave, the second is told before it. Its
// blocks check the evict word when they start, so it does nothing, and has its turn when the first
// is over.
//
// A job advances where the channel's commands are retired, so it goes on even if the guest is
// suspended; hasTurn says what it may do then. Its states are in jobstate.go.
type job struct {
	ch    *channel
	p     *pending // its place among the commands, until it is over
	fn    *function
	slot  ipc.Claim // its launch slot, if it has one
	state jobState

	launch   gpu.Launch
	params   []byte // with the arguments that a preemptible kernel has in addition
	arrived  time.Duration
	urgency  int
	resident int // blocks that an SM holds

	// Of a preemptible launch.
	form     abi.PreemptForm // 0: a plain one
	argsAt   uint64          // where the additional arguments are in params
	relaunch *preemption.Launch
	plan     preemption.Plan
	memory   controlMemory
	control  [abi.ControlBytes]byte // as read back
	record   []byte                 // of skipped units, as read back
	list     []byte                 // of units to run, as written
	words    evictWords
	copies   copies // what it waits for on the executor's channels

	run   run
	total totals
}

// run is one run of a job on the GPU.
type run struct {
	below   uint32        // the bound of the daemon's request to leave that was passed on; 0: none was
	late    time.Duration // how long after the request that was, up to maxLate
	freed   uint32        // the bound of a request that was recalled
	evicted bool          // an evict word was written
	behind  bool          // the launch before it was told to leave, so it does nothing
	// corun is the fence of a second launch that takes the SMs that the first has left, on the
	// channel's second channel; 0: there is none.
	corun gpu.Fence
	// read is the fence by which what the kernel leaves has been read, behind it on its own
	// channel, and early how many bytes of the record that is; 0: it was not asked for.
	read    gpu.Fence
	early   uint64
	started time.Duration // when it was put on the GPU, on the executor's clock
	stopped time.Duration // when it was seen to have left, likewise; 0: it has not
}

// totals are what all runs of a job come to.
type totals struct {
	runs         int
	billed       time.Duration // Options.Elapsed when the first run began
	start, end   time.Duration // of the first and the last run, on the GPU's clock
	used         time.Duration // GPU time
	evictions    uint64        // how often it left with work undone
	unresponsive bool          // it did not leave when told, and was counted
}

// newJob makes a job of the launch in x.launch, as p. The error is errWaits if there is no memory
// for it yet; then nothing has happened.
func (ch *channel) newJob(p *pending, f *function, a *attributes, urgency int) error {
	x := ch.x
	i := 0
	if ch.jobs[0] != nil && ch.jobs[0].p != nil {
		i = 1
	}
	if ch.jobs[i] == nil {
		ch.jobs[i] = &job{ch: ch}
	}
	j := ch.jobs[i]
	j.launch = x.gl
	j.params = append(j.params[:0], x.gl.Params...)
	resident, err := f.resident(int(j.launch.Block.Count()), j.launch.SharedBytes)
	if err != nil {
		return err
	}
	j.form, j.fn, j.state, j.resident = a.preempt.Form, f, waiting, resident
	if j.form != 0 {
		if a.cooperative {
			return fmt.Errorf("a cooperative launch that is preemptible: %w", abi.StatusInvalidValue)
		}
		if j.argsAt, err = f.arguments(uint32(len(j.params))); err != nil {
			return err
		}
		for uint64(len(j.params)) < j.argsAt+abi.PreemptArgsBytes {
			j.params = append(j.params, 0)
		}
		if err := j.planFirst(a.preempt); err != nil {
			return err
		}
	}
	j.urgency, j.arrived = urgency, x.o.Clock.Now()
	shape := j.launch
	if j.form != 0 {
		shape.Grid = gpu.Dim3{X: j.plan.Grid[0], Y: j.plan.Grid[1], Z: j.plan.Grid[2]}
	}
	p.estimate = x.estimate(f, &shape)
	j.p, p.job = p, j
	if ch.job == nil {
		ch.job = j
	} else {
		ch.second = j
	}
	// If it need not wait it goes to the GPU now; an error is its answer.
	j.advance()
	return nil
}

// holdsBack reports whether a later command of the channel waits for the job, or for the one behind
// it. A copy behind plain kernels on the GPU need not: it comes behind the kernels there.
func (j *job) holdsBack(op abi.Opcode) bool {
	second := j.ch.second
	if op == abi.OpLaunch {
		return second != nil || !j.letsNextGo() // it may be another preemptible launch
	}
	return j.form != 0 || j.state != running || second != nil && second.state != running || op == abi.OpEventRecord
}

// letsNextGo reports whether a launch behind the job may go to the GPU now: the job is there as one
// launch, and does all of its work unless it is told to leave.
func (j *job) letsNextGo() bool {
	switch {
	case j.state != running || j.run.evicted:
		return false
	case j.form == 0:
		return j.ch.x.o.Page.Mode() != ipc.ModeFree
	}
	return j.relaunch.Launches() == 1 && j.run.corun == 0
}

// isNext reports whether the order of the channel lets the job go to the GPU.
func (j *job) isNext() bool {
	first := j.ch.job
	if first == j {
		return true
	}
	// A word that is stored would overtake one that is copied: see deferSuccessor.
	inOrder := first.memory.block.window == nil || j.form == 0 || j.memory.block.window != nil
	return inOrder && j.total.runs == 0 && first.letsNextGo()
}

// awaitFences has the executor woken when the copies and reads are done that the job waits for. A
// nil job waits for none.
func (j *job) awaitFences() {
	if j == nil {
		return
	}
	x := j.ch.x
	x.words.waiter.ask(j.copies.words)
	x.bulk.waiter.ask(j.copies.bulk)
	j.ch.corun.waiter.ask(j.run.corun)
	j.ch.waiter.ask(j.run.read)
}

// advance takes a job as far as it goes now, and reports whether it went any further. When it is
// over the channel no longer has it.
func (j *job) advance() (did bool) {
	for j.p != nil && j.step() {
		did = true
	}
	return did
}

// step does the next thing, if it can be done now.
func (j *job) step() bool {
	x := j.ch.x
	if x.poison != nil && (!j.state.onGPU() && j.state != preempted || x.o.Context.Fault() != nil) {
		// Its last write may still be under way, in memory of its own.
		j.finish(x.status)
		return true
	}
	if j.leavesUnstarted() {
		return true
	}
	closing := j.ch.closing || j.ch.dead
	switch j.state {
	case waiting:
		if closing {
			j.finish(abi.StatusCanceled)
			return true
		}
		return j.isNext() && j.hasTurn() && j.takeRoom() && j.prepare(turnCame)
	case preparing:
		if !j.isNext() {
			j.to(turnLost)
			return true
		}
		return j.copiesDone() && j.start()
	case preempted:
		if j.ch.gpu.Done() >= j.lastFence() && j.corunDone() {
			return j.left()
		}
		if x.preempted != j || !closing && !j.hasTurn() {
			return false // or its context could not be put back, and ends
		}
		x.resume()
		return true
	case readingControl:
		return j.copiesDone() && j.readControl()
	case readingSkipped:
		return j.copiesDone() && j.next(j.record)
	default: // on the GPU
		done := j.ch.gpu.Done()
		if j.run.stopped == 0 && done >= j.p.fence && j.corunDone() {
			j.run.stopped = x.o.Clock.Now() // others run while it is read back
		}
		if done < j.lastFence() {
			return j.followRequest()
		}
		return j.corunDone() && j.left()
	}
}

// takeRoom takes room on the GPU for the job, and reports whether there is any. A launch that the
// daemon has let run always finds some.
func (j *job) takeRoom() bool {
	x := j.ch.x
	if x.free() {
		return x.admit(j.ch, j.p.estimate, j.ch.second == j)
	}
	x.reserve(j.p.estimate)
	return true
}

// copiesDone reports whether the copies are done that the job waits for. While another job has the
// context off the GPU they are not done, so copiesDone puts it back.
func (j *job) copiesDone() bool {
	if j.ch.x.reached(&j.copies) {
		return true
	}
	j.ch.x.resume()
	return false
}

// start puts the job on the GPU.
func (j *job) start() bool {
	x, ch := j.ch.x, j.ch
	if err := x.outcomeOf(&j.copies); err != nil {
		return j.fail(err)
	}
	if !j.slot.Started() {
		j.slot.SetEvictable(j.evictable())
		inTurn := j.slot.State() != slotstate.Ready || !x.suspension.on && j.goesInTurn() && j.slot.Grant()
		if !inTurn || !j.slot.Start(x.o.Clock.Now()) {
			j.to(turnLost)
			return true
		}
	}
	x.resume() // another job may have taken the context off since this one prepared
	if j.form != 0 {
		args := j.plan.Args
		args.Control = uint64(j.memory.block.at)
		if j.form.EarlyExit() {
			args.Skipped = uint64(j.memory.base) + skippedAt
		}
		if j.plan.List != nil {
			args.List = uint64(j.memory.list())
		}
		args.Encode(j.params[j.argsAt:])
		j.launch.Grid = gpu.Dim3{X: j.plan.Grid[0], Y: j.plan.Grid[1], Z: j.plan.Grid[2]}
	}
	j.launch.Params = j.params
	f, err := ch.gpu.Launch(&j.launch)
	if err != nil {
		return j.fail(err)
	}
	j.p.fence, j.p.timed = f, true
	if j.total.runs > 0 {
		x.slot.AddRelaunch()
	} else if x.o.Elapsed != nil {
		j.total.billed = x.o.Elapsed()
	}
	j.total.runs++
	j.run = run{started: x.o.Clock.Now()}
	j.to(kernelLaunched)
	ch.placed()
	return true
}

// evictable reports whether the job's kernel leaves when told.
func (j *job) evictable() bool { return j.form != 0 && !j.fn.unresponsive && !j.plan.Stay }

// lastFence is the fence of the last command of a run on its channel.
func (j *job) lastFence() gpu.Fence { return max(j.p.fence, j.run.read) }

// left accounts for a run that has left the GPU, and goes on with what it left undone.
func (j *job) left() bool {
	x, ch := j.ch.x, j.ch
	if x.preempted == j {
		x.resume() // it ran to its end all the same
	}
	out := ch.gpu.Outcome(j.p.fence)
	if j.run.corun != 0 {
		second := ch.corun.gpu.Outcome(j.run.corun)
		out.End = max(out.End, second.End)
		out.Err = cmp.Or(out.Err, second.Err)
		j.run.corun, j.run.read = 0, 0 // the second may have gone on after that
	}
	j.p.fence, j.copies.words = 0, 0
	if j.run.stopped == 0 {
		j.run.stopped = x.o.Clock.Now()
	}
	ch.gone(out)
	t, _ := x.gpuTime(out.Start, out.End)
	if j.total.start == 0 {
		j.total.start = out.Start
	}
	j.total.end = out.End
	j.total.used += t
	x.slot.AddRun(x.newTime(out.Start, out.End))
	if out.Err != nil {
		return j.fail(out.Err)
	}
	closing := ch.closing || ch.dead
	switch {
	case x.poison != nil:
		// It ran behind the fault, or beside it: what it did is of no use.
		j.finish(x.status)
	case j.form == 0:
		j.finish(abi.StatusOK)
	case closing && j.run.evicted:
		j.finish(abi.StatusCanceled) // no one waits for what is left, if anything is
	case closing:
		j.finish(abi.StatusOK)
	case j.overLimit():
		x.fail(&gpu.Fault{Kind: gpu.FaultTimeLimit, Kernel: j.fn.attrs.Name})
		j.finish(x.status)
	case !j.run.evicted && j.form.EarlyExit() && j.relaunch.Whole():
		// Most launches end here, without copies that take as long as a short kernel. A persistent
		// kernel's own count is read, which may be less than its end suggests.
		j.wipeControl()
		j.finish(abi.StatusOK)
	default:
		return j.readBack()
	}
	return true
}

// overLimit reports whether its runs took more GPU time than a launch may use.
func (j *job) overLimit() bool {
	o, limit := &j.ch.x.o, j.ch.x.kernelTimeLimit()
	return limit > 0 && j.total.used > limit && (o.Elapsed == nil || o.Elapsed()-j.total.billed > limit)
}

// fail ends the job with an error of the GPU's.
func (j *job) fail(err error) bool {
	x := j.ch.x
	status := statusOf(err)
	if status.Poisons() || x.o.Context.Fault() != nil {
		x.fail(err)
		status = x.status
	}
	j.finish(status)
	return true
}

// finish ends the job. The channel keeps the job's memory for the next one.
func (j *job) finish(status abi.Status) {
	x, p := j.ch.x, j.p
	if p.fence != 0 { // it ended with its context
		j.gone(0)
	}
	if x.preempted == j {
		// Else what waits for the end of the context's kernels would wait for ever.
		if err := x.putBack(); err != nil {
			x.o.Log.Debug("put back a context that is over", "err", err)
		}
	}
	j.to(jobEnded)
	p.com.Status = status
	p.com.Start, p.com.End = x.guestTime(j.total.start), x.guestTime(j.total.end)
	if j.form != 0 {
		p.com.Value = [3]uint64{j.total.evictions, uint64(j.total.used)}
	}
	p.done, p.job = true, nil
	if status != abi.StatusOK {
		x.slot.AddErrorReason(reasonOf(status))
	}
	if j.total.runs > 0 {
		x.slot.AddEnded(status != abi.StatusOK)
	} else if status != abi.StatusOK {
		x.slot.AddError()
	}
	if status == abi.StatusOK {
		j.fn.ran(j.total.used)
		j.slot.Finish(j.total.used)
	} else {
		j.slot.Abandon(j.total.used)
		j.memory.used, j.memory.dirty = true, true // it may be
	}
	j.reset()
	if ch := j.ch; ch.second == j {
		ch.second = nil
	} else {
		ch.job, ch.second = ch.second, nil
		ch.job.begins()
	}
}

// gone accounts for a run of GPU time t whose end the GPU has no timestamps of.
func (j *job) gone(t time.Duration) {
	j.ch.gone(gpu.Outcome{})
	j.ch.x.slot.AddRun(t, 0)
	j.total.used += t
	j.p.fence = 0
}

// reset prepares the job for the channel's next launch.
func (j *job) reset() {
	if cap(j.record) > maxKeptRecord {
		j.record = nil
	}
	if cap(j.list) > maxKeptRecord {
		j.list = nil
	}
	j.slot, j.p, j.launch, j.plan = ipc.Claim{}, nil, gpu.Launch{}, preemption.Plan{}
	j.copies, j.run, j.total = copies{}, run{}, totals{}
}
