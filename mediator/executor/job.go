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

// job is a launch that is more than a command on the GPU: one that waits for its
// turn, or one of a preemptible kernel, which is put on the GPU as often as it
// takes. What comes behind it in the channel's order waits until it is over: a
// relaunch comes before what was sent later.
//
// One other preemptible launch may be on the GPU behind it, so that the GPU need not
// wait for us between two. When the first is told to leave, the second is before;
// since its blocks look as they begin, it then does nothing, and its turn comes when
// the first is over.
//
// It is taken up where the channel's commands are retired, so it goes on whether or
// not the context is suspended; what it may do then is in granted.
type job struct {
	ch    *channel
	p     *pending // its place among the commands, while it is not over
	fn    *function
	claim ipc.Claim
	stub  ipc.Launch // what the daemon is told of it
	phase phase

	gl     gpu.Launch
	params []byte   // with the arguments that are appended
	seen   estimate // what it is expected to be
	roomed bool     // it has room on the GPU, see admission

	// Of a preemptible launch.
	form      abi.PreemptForm // 0: a plain one
	argsAt    uint64          // where in params they go
	run       *preemption.Launch
	plan      preemption.Plan
	memory    controlMemory
	control   [abi.ControlBytes]byte // as read back
	record    []byte                 // what was skipped, as read back
	list      []byte                 // as written
	wordsOut  [4][4]byte             // the newest evict words, as they are written
	wordAt    int                    // where the next goes
	told      bool                   // the daemon's word to leave was passed on
	below     uint32                 // with this bound
	hushed    bool                   // it was told to leave for the sake of the launch before it
	evicted   bool                   // an evict word was written in this run
	lied      bool                   // found to lie, and counted
	refilling bool                   // a second launch is to take the SMs that it left
	// besideFence is that second launch's, on the channel's second channel.
	besideFence gpu.Fence
	words       gpu.Fence // what it waits for on the executor's channels
	bulk        gpu.Fence
	// read is when what the kernel leaves has been read, behind it on its own channel; 0:
	// that was not asked for. Of the record, it is the first ahead bytes.
	read  gpu.Fence
	ahead uint64

	launched   bool          // it was on the GPU
	billed     time.Duration // Options.Elapsed when it first was
	began      time.Duration // when this run was put there, on the executor's clock
	leftAt     time.Duration // when it was seen to have left the GPU, likewise; 0: not yet
	start, end time.Duration // of its first and last run, on the GPU's clock
	used       time.Duration // GPU time, of all its runs
	evictions  uint64        // how often it left with work undone
	owed       time.Duration // of that, what is not accounted
}

// newJob takes up the launch that x.gl says, as p. The error is errWaits where there is no
// memory for it yet; then nothing has happened.
func (ch *channel) newJob(p *pending, f *function, asks *asks, urgency int) error {
	x := ch.x
	i := 0
	if ch.jobs[0] != nil && ch.jobs[0].p != nil {
		i = 1
	}
	if ch.jobs[i] == nil {
		ch.jobs[i] = &job{ch: ch}
	}
	j := ch.jobs[i]
	j.gl = x.gl
	j.params = append(j.params[:0], x.gl.Params...)
	resident, err := f.resident(int(j.gl.Block.Count()), j.gl.SharedBytes)
	if err != nil {
		return err
	}
	j.form, j.fn, j.phase = asks.preempt.Form, f, waiting
	if j.form != 0 {
		if asks.cooperative {
			return fmt.Errorf("a cooperative launch that is preemptible: %w", abi.StatusInvalidValue)
		}
		if j.argsAt, err = f.arguments(uint32(len(j.params))); err != nil {
			return err
		}
		for uint64(len(j.params)) < j.argsAt+abi.PreemptArgsBytes {
			j.params = append(j.params, 0)
		}
		if err := j.planFirst(asks.preempt, resident); err != nil {
			return err
		}
	}
	j.describe(resident, urgency)
	j.seen = x.estimate(f)
	j.p, p.job = p, j
	if ch.job == nil {
		ch.job = j
	} else {
		ch.second = j
	}
	// Where it waits for nobody, it goes to the GPU now; an error is its answer.
	j.pursue()
	return nil
}

// keeps is whether a command behind the job waits for it. Only launches and
// preemptible kernels' successors have to: a copy behind a plain kernel that is
// on the GPU comes behind it there.
func (j *job) keeps(op abi.Opcode) bool {
	if op == abi.OpLaunch {
		return j.ch.second != nil || !j.leads() // it can be another preemptible one
	}
	return j.form != 0 || j.phase != running || op == abi.OpEventRecord
}

// leads is whether a launch behind the job may go to the GPU now: the job is there
// as one launch, and does all of its work unless it is told to leave.
func (j *job) leads() bool {
	return j.form != 0 && j.phase == running && !j.told && !j.evicted && j.run.Launches() == 1 && j.besideFence == 0 && !j.refilling &&
		j.ch.x.o.Page.Mode() == ipc.ModeFree
}

// mayGo is whether the order of the channel lets the job go to the GPU.
func (j *job) mayGo() bool {
	first := j.ch.job
	if first == j {
		return true
	}
	// A word that is stored would overtake one that is copied: see hushNext.
	inOrder := first.memory.block.window == nil || j.form == 0 || j.memory.block.window != nil
	return inOrder && !j.launched && first.leads()
}

// ask has the bell rung when the copies are done that the job waits for. A nil job
// waits for none.
func (j *job) ask() {
	if j == nil {
		return
	}
	if j.words != 0 {
		j.ch.x.words.waiter.ask(j.words)
	}
	if j.bulk != 0 {
		j.ch.x.bulk.waiter.ask(j.bulk)
	}
	if j.besideFence != 0 {
		j.ch.corun.waiter.ask(j.besideFence)
	}
	if j.read != 0 {
		j.ch.waiter.ask(j.read)
	}
}

// phase is what a job waits for.
type phase uint8

const (
	waiting   phase = iota // its turn
	preparing              // what the kernel is to find in GPU memory
	running                // the kernel's end
	parked                 // its turn, off the GPU in mid-kernel
	reading                // its control block
	listing                // its record of what it skipped
)

// pursue takes a job as far as it goes now, and reports whether that was any
// distance. When it is over the channel has none any more.
func (j *job) pursue() (did bool) {
	for j.p != nil && j.step() {
		did = true
	}
	return did
}

// step does the next thing, if it can be done now.
func (j *job) step() bool {
	x := j.ch.x
	if x.poison != nil && (j.phase != running && j.phase != parked || x.o.Context.Fault() != nil) {
		// What it wrote last may still be under way, in memory of its own.
		j.finish(x.status)
		return true
	}
	if j.leavesUnbegun() {
		return true
	}
	switch j.phase {
	case waiting:
		if j.ch.closing || j.ch.dead {
			j.finish(abi.StatusCanceled)
			return true
		}
		return j.mayGo() && j.granted() && j.makeRoom() && j.prepare()
	case preparing:
		if !j.mayGo() || j.claim.State() == slotstate.Ready { // its turn was taken back
			j.phase = waiting
			j.giveRoom()
			return true
		}
		return j.copiesDone() && j.launch()
	case running:
		done := j.ch.gpu.Done()
		if j.leftAt == 0 && done >= j.p.fence && j.besideDone() {
			j.leftAt = x.o.Clock.Now() // what is read behind it is read while others run
		}
		if done < j.last() {
			return j.attend()
		}
		return j.besideDone() && j.left()
	case parked:
		if j.ch.gpu.Done() >= j.last() {
			return j.left()
		}
		if j.ch.closing || j.ch.dead || j.granted() {
			x.unpark()
			return true
		}
		return false
	case reading:
		return j.copiesDone() && j.readControl()
	default:
		return j.copiesDone() && j.next(j.record)
	}
}

// makeRoom takes room on the GPU for the job until it is over, or waits for its turn
// anew, and reports whether there is any. What the daemon has let run finds some.
func (j *job) makeRoom() bool {
	x := j.ch.x
	if !j.roomed && x.free() {
		j.roomed = x.admit(j.ch, j.seen, j.ch.second == j)
	} else if !j.roomed {
		x.reserve(j.seen)
		j.roomed = true
	}
	return j.roomed
}

// giveRoom gives it back.
func (j *job) giveRoom() {
	if j.roomed {
		j.roomed = false
		j.ch.x.release(j.seen)
	}
}

// copiesDone is whether the copies are done that the job waits for. They are not while
// the context is off the GPU for another job's sake.
func (j *job) copiesDone() bool {
	if j.ch.x.reached(j) {
		return true
	}
	j.ch.x.unpark()
	return false
}

// launch puts it on the GPU.
func (j *job) launch() bool {
	x, ch := j.ch.x, j.ch
	if err := x.copied(j); err != nil {
		return j.fail(err)
	}
	x.unpark() // another may have been parked since it prepared
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
		j.gl.Grid = gpu.Dim3{X: j.plan.Grid[0], Y: j.plan.Grid[1], Z: j.plan.Grid[2]}
	}
	j.gl.Params = j.params
	f, err := ch.gpu.Launch(&j.gl)
	if err != nil {
		return j.fail(err)
	}
	j.p.fence, j.p.timed = f, true
	if j.launched {
		x.slot.AddRelaunch()
	} else if x.o.Elapsed != nil {
		j.billed = x.o.Elapsed()
	}
	j.launched, j.told, j.evicted = true, false, false
	j.hushed, j.refilling, j.besideFence, j.read = false, false, 0, 0
	j.began, j.leftAt = x.o.Clock.Now(), 0
	j.phase = running
	ch.placed()
	if !j.claim.Started() {
		j.claim.SetEvictable(j.form != 0 && !j.fn.unresponsive && !j.plan.Stay)
		j.claim.Start(j.began)
	}
	return true
}

// leavesUnbegun has a job that has its turn and is not on the GPU give the turn up, if it was
// told to leave all SMs, and reports whether it did. A job that was told to leave some of
// them goes to the GPU, and leaves those there.
func (j *job) leavesUnbegun() bool {
	if j.phase != waiting && j.phase != preparing && j.phase != parked || j.claim.State() != slotstate.ToEvict {
		return false
	}
	x := j.ch.x
	below, asked, _ := j.claim.EvictionRequest()
	if below < uint32(x.props.SMs) {
		return false
	}
	now := x.o.Clock.Now()
	if j.claim.Started() { // it is between two of its pieces
		x.slot.AddEviction(now - asked)
		j.evictions++
	}
	j.claim.Leave(now, j.used)
	if j.phase == preparing {
		j.giveRoom()
		j.phase = waiting
	}
	return true
}

// last is the fence of the last of a run that is on its channel.
func (j *job) last() gpu.Fence { return max(j.p.fence, j.read) }

// left is when the GPU has done with a run of it.
func (j *job) left() bool {
	x, ch := j.ch.x, j.ch
	if x.parked == j {
		x.unpark() // it ran to its end all the same
	}
	out := ch.gpu.Outcome(j.p.fence)
	if j.besideFence != 0 {
		beside := ch.corun.gpu.Outcome(j.besideFence)
		out.End = max(out.End, beside.End)
		out.Err = cmp.Or(out.Err, beside.Err)
		j.besideFence, j.read = 0, 0 // the second may have gone on after that
	}
	j.p.fence, j.words = 0, 0
	if j.leftAt == 0 {
		j.leftAt = x.o.Clock.Now()
	}
	ch.gone(out)
	t, late := x.gpuTime(out.Start, out.End)
	if j.start == 0 {
		j.start = out.Start
	}
	j.end = out.End
	j.used += t
	x.slot.AddRun(t, late)
	if out.Err != nil {
		return j.fail(out.Err)
	}
	switch {
	case x.poison != nil:
		// It came behind the fault, or beside it: what it did is of no use.
		j.finish(x.status)
	case j.form == 0:
		j.finish(abi.StatusOK)
	case (ch.closing || ch.dead) && j.evicted:
		j.finish(abi.StatusCanceled) // nobody waits for what is left, if anything is
	case ch.closing || ch.dead:
		j.finish(abi.StatusOK)
	case j.overLimit():
		x.fail(gpu.ErrTimeLimit)
		j.finish(x.status)
	case !j.evicted && j.form.EarlyExit() && j.run.Whole():
		// What most launches come to: nobody waits for copies that take as long as a
		// short kernel. Persistent kernels count what they have finished, which may be
		// less than they say by ending.
		j.wipe()
		j.finish(abi.StatusOK)
	default:
		return j.readBack()
	}
	return true
}

// overLimit is whether its runs took more GPU time than a launch may use.
func (j *job) overLimit() bool {
	o := &j.ch.x.o
	return o.KernelTimeLimit > 0 && j.used > o.KernelTimeLimit && (o.Elapsed == nil || o.Elapsed()-j.billed > o.KernelTimeLimit)
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

// finish ends the job. What it needs of the GPU's memory stays the channel's.
func (j *job) finish(status abi.Status) {
	x, p := j.ch.x, j.p
	if p.fence != 0 { // ended with its context
		j.ch.gone(gpu.Outcome{})
		x.slot.AddRun(j.owed, 0)
		p.fence = 0
	}
	if x.parked == j {
		// What waits for the end of the context's kernels would wait for ever.
		if err := x.putBack(); err != nil {
			x.o.Log.Debug("put back a context that is over", "err", err)
		}
	}
	j.giveRoom()
	p.com.Status = status
	p.com.Start, p.com.End = uint64(j.start), uint64(j.end)
	if j.form != 0 {
		p.com.Value = [3]uint64{j.evictions, uint64(j.used)}
	}
	p.done, p.job = true, nil
	if j.launched {
		x.slot.AddEnded(status != abi.StatusOK)
	} else if status != abi.StatusOK {
		x.slot.AddError()
	}
	if status == abi.StatusOK {
		j.fn.ran(j.used)
		j.claim.Finish(j.used)
	} else {
		j.claim.Abandon(j.used)
		j.memory.used, j.memory.dirty = true, true // as far as anybody knows
	}
	j.clean()
	j.claim, j.p = ipc.Claim{}, nil
	if ch := j.ch; ch.second == j {
		ch.second = nil
	} else {
		ch.job, ch.second = ch.second, nil
	}
}
