package executor

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"vgpud/gpu"
	"vgpud/mediator/ipc"
	"vgpud/mediator/ipc/slotstate"
	"vgpud/mediator/vgpu/abi"
)

// service is a channel of the executor's own, with its waiter.
type service struct {
	gpu    gpu.Channel
	waiter waiter
}

// open makes the channel, once.
func (s *service) open(x *Executor) error {
	if s.gpu != nil {
		return nil
	}
	c, err := x.o.Context.NewChannel()
	if err != nil {
		return err
	}
	s.gpu = c
	s.waiter.start(c, x.slot)
	return nil
}

func (s *service) close() error {
	if s.gpu == nil {
		return nil
	}
	s.waiter.stop()
	return s.gpu.Close()
}

// outcome returns the error with which a copy on the channel ended; fence 0 is none.
func (s *service) outcome(f gpu.Fence) error {
	if f == 0 {
		return nil
	}
	err := s.gpu.Outcome(f).Err
	if errors.Is(err, gpu.ErrNotFound) {
		return nil // so long ago that it is forgotten; what ended the context reports itself
	}
	return err
}

// ownChannels makes the executor's own channels when the first preemptible launch needs them: one
// for the words of control blocks, so that an evict word waits behind nothing long, and one for
// lists and records. A copy on another channel than the kernel's is the one way to reach a running
// kernel that every GPU has; the kernel sees it in under 10 µs
// (docs/results/preemption-on-h100.md). If the context has a window, words are stored there
// instead, and seen in 5 µs (see [gpu.Windowed]).
func (x *Executor) ownChannels() error {
	return errors.Join(x.words.open(x), x.bulk.open(x))
}

// copies are the newest fences of a job's copies on the executor's channels; 0: none.
type copies struct{ words, bulk gpu.Fence }

// reached reports whether the copies are done.
func (x *Executor) reached(c *copies) bool {
	return (c.words == 0 || c.words <= x.words.gpu.Done()) && (c.bulk == 0 || c.bulk <= x.bulk.gpu.Done())
}

// outcomeOf returns the error with which the copies ended, and forgets them.
func (x *Executor) outcomeOf(c *copies) error {
	done := *c
	*c = copies{}
	if err := x.words.outcome(done.words); err != nil {
		return err
	}
	return x.bulk.outcome(done.bulk)
}

// followRequest does what the daemon asks of a job on the GPU, and watches that its kernel leaves.
// It reports whether it did anything.
func (j *job) followRequest() bool {
	if j.form == 0 || j.plan.Stay {
		return false
	}
	x := j.ch.x
	switch below, _, _ := j.slot.EvictionRequest(); j.slot.State() {
	case slotstate.ToEvict:
		if below != j.run.below {
			j.evict(below)
			return true
		}
		// While the context is off the GPU the kernel's blocks can't check the evict word.
		now := x.o.Clock.Now()
		asked := j.state == leaving || j.state == deferred // whatever the slot says
		return asked && j.run.stopped == 0 && !x.offGPU.off && now >= j.evictionDeadline(now) && j.overdue(now)
	case slotstate.Running:
		if j.run.below > 0 {
			j.recall()
			return true
		}
	}
	return j.state == refilling && x.reached(&j.copies) && j.refill()
}

// maxLate is more than an executor that runs at all waits for a processor.
const maxLate = time.Minute

// evict passes on the daemon's request to leave the SMs below a bound.
func (j *job) evict(below uint32) {
	_, asked, _ := j.slot.EvictionRequest()
	j.run.below, j.run.late = below, min(max(j.ch.x.o.Clock.Now()-asked, 0), maxLate)
	if j.state != deferred {
		j.deferSuccessor()
		j.tell(below)
	}
	j.to(evictionAsked)
	j.readEarly()
}

// deferSuccessor tells the launch behind the job, if it is on the GPU already, to leave: its blocks
// do nothing whenever they start, so it does nothing before the job has done all. Its word is
// written before the job's own.
func (j *job) deferSuccessor() {
	n := j.ch.second
	switch {
	case n == nil || n == j || n.state == deferred:
		return
	case n.state == preempted: // until its context is back
	case n.state.onGPU():
		n.to(earlierLeaves)
	default:
		return
	}
	n.run.behind = true
	n.tell(abi.EvictAll)
}

// evictWords are the newest evict words of a job, as they are copied to GPU memory.
type evictWords struct {
	words [4][4]byte
	next  int
}

// tell writes the evict word. It need not wait for a copy: later copies to the control block come
// behind it on the same channel. If the word can't be written the kernel runs on, and is found like
// one that does not check the word; only the end of the GPU or the context does that, and its fence
// reports it soon.
func (j *job) tell(below uint32) {
	x := j.ch.x
	j.run.evicted = j.run.evicted || below != abi.EvictNone
	if b := &j.memory.block; b.window != nil {
		b.store(evictWord, below)
		return
	}
	w := &j.words.words[j.words.next%len(j.words.words)]
	j.words.next++
	binary.LittleEndian.PutUint32(w[:], below)
	var err error
	if j.copies.words, err = x.words.gpu.CopyIn(j.memory.block.at+evictWord, w[:]); err != nil {
		x.o.Log.Debug("evict word not written", "kernel", j.fn.attrs.Name, "err", err)
	}
}

// recall tells a kernel that was told to leave that it may stay. Blocks of a persistent kernel that
// have left some SMs come back as a second launch on the same counter, if kernels can be on the GPU
// side by side (FLEP figure 4c). Those of a launch behind another one don't: the second launch, on
// another channel, would not wait for the one before.
func (j *job) recall() {
	j.run.below, j.run.freed = 0, j.run.below
	if j.state != deferred { // else its turn comes after the launch before it
		j.tell(abi.EvictNone)
	}
	if j.state == leaving && j.form == abi.PreemptPersistent && j.ch.x.props.CoRuns && j.run.corun == 0 && j.ch.job == j {
		j.to(refillWanted)
		return
	}
	j.to(evictionRecall)
}

// refill launches the blocks that left once more. Their evict word is zero.
func (j *job) refill() (did bool) {
	x := j.ch.x
	j.to(refillDone)
	if err := x.outcomeOf(&j.copies); err != nil {
		return false // the kernel's own end tells more
	}
	f, err := j.launchFreed()
	if err != nil {
		x.o.Log.Debug("freed SMs stay free", "err", err)
		return false
	}
	j.run.corun = f
	x.slot.AddRelaunch()
	return true
}

// launchFreed launches as many blocks as the SMs that were left hold.
func (j *job) launchFreed() (gpu.Fence, error) {
	x, ch := j.ch.x, j.ch
	if err := ch.corun.open(x); err != nil {
		return 0, err
	}
	freed := min(j.run.freed, uint32(x.props.SMs))
	plan, err := j.relaunch.Refill(freed * uint32(max(j.resident, 0)))
	if err != nil {
		return 0, err
	}
	l := j.launch // its arguments are those of the first launch
	l.Grid = gpu.Dim3{X: plan.Grid[0], Y: plan.Grid[1], Z: plan.Grid[2]}
	return ch.corun.gpu.Launch(&l)
}

// corunDone reports whether the kernel's second launch, if there is one, has ended.
func (j *job) corunDone() bool {
	return j.run.corun == 0 || j.ch.corun.gpu.Done() >= j.run.corun
}

// evictionDeadline returns when the launch must have left by the daemon's request or, once that is
// past, when it is ended, as far as is known at now. A launch that is to leave some SMs only has no
// deadline.
func (j *job) evictionDeadline(now time.Duration) time.Duration {
	limit := j.limitOnGPU()
	if more := j.notTold(now); limit < math.MaxInt64-more {
		limit += more
	}
	return limit
}

// notTold returns how much of the time since the daemon's request the kernel could not have left in:
// the executor had no processor on a busy host, and told it later, or its context was off the GPU.
func (j *job) notTold(now time.Duration) time.Duration {
	_, asked, _ := j.slot.EvictionRequest()
	return j.run.late + j.ch.x.offHost.overlap(asked+j.run.late, now)
}

// limitOnGPU is the eviction deadline of a launch whose context is on the GPU all the time.
func (j *job) limitOnGPU() time.Duration {
	below, asked, deadline := j.slot.EvictionRequest()
	switch {
	case deadline == 0 || below < uint32(j.ch.x.props.SMs):
		return math.MaxInt64 // never
	case !j.total.unresponsive || j.ch.x.props.Preempts:
		// A responsive kernel leaves when its running blocks are done.
		return max(deadline, asked+min(blocksGrace*j.blockTime(), ipc.UnresponsiveLimit))
	default:
		return max(deadline, asked+ipc.UnresponsiveLimit)
	}
}

// blocksGrace is how many times as long as one of its blocks takes a kernel may stay, if that is
// longer than the daemon's deadline.
const blocksGrace = 4

// blockTime estimates how long the kernel's blocks run between two checks of the evict word, from
// the mean of how long the kernel took; it is 0 if that is not known. The blocks of an early exit
// run in waves of as many as the GPU holds; persistent blocks take their tasks in as many rounds.
func (j *job) blockTime() time.Duration {
	resident := uint64(max(j.resident, 0)) * uint64(j.ch.x.props.SMs)
	if resident == 0 {
		return 0
	}
	unit := uint64(j.plan.Args.Group) * uint64(j.plan.Args.Every)
	rounds := (uint64(j.plan.Args.Tasks) + unit*resident - 1) / (unit * resident)
	return j.fn.mean / time.Duration(max(rounds, 1))
}

// overdue deals with a launch that is still there after its eviction deadline. The first time it is
// counted, and its kernel no longer counts as preemptible. If the GPU can take kernels off by
// itself, it takes this one off with its context. Otherwise the launch is ended like one past its
// time limit, after the rest of [ipc.UnresponsiveLimit].
func (j *job) overdue(now time.Duration) bool {
	x := j.ch.x
	if !j.total.unresponsive {
		j.total.unresponsive, j.fn.unresponsive = true, true
		x.slot.AddUnresponsive()
		j.slot.SetEvictable(false)
		x.o.Log.Debug("kernel did not leave when asked", "kernel", j.fn.attrs.Name)
	}
	if j.preempt() {
		return true
	}
	_, asked, deadline := j.slot.EvictionRequest()
	if now < max(deadline, asked+ipc.UnresponsiveLimit)+j.notTold(now) {
		return false
	}
	x.fail(fmt.Errorf("kernel %s did not leave the GPU when asked: %w", j.fn.attrs.Name, gpu.ErrTimeLimit))
	// Only the end of the context takes it off. Its time until then is charged, though the GPU has
	// no timestamps of it.
	if err := x.o.Context.Close(); err != nil {
		x.o.Log.Warn("end a context", "err", err)
	}
	j.gone(now - j.run.started)
	j.finish(x.status)
	return true
}

// preempt takes the context off the GPU in mid-kernel, with all its channels, if the hardware can
// do that. The job then waits for its turn. It reports whether that worked.
func (j *job) preempt() bool {
	x := j.ch.x
	s, ok := x.o.Device.(gpu.Suspender)
	if !ok || !x.props.Preempts || x.preempted != nil {
		return false
	}
	if err := s.Suspend(x.o.Context); err != nil {
		x.o.Log.Debug("take a context off the GPU", "err", err)
		return false
	}
	x.preempted = j
	x.updateOffTimes()
	j.to(kernelPreempted)
	now := x.o.Clock.Now()
	_, asked, _ := j.slot.EvictionRequest()
	x.slot.AddEviction(now - asked)
	j.total.evictions++
	ran := now - j.run.started - x.offHost.overlap(j.run.started, now)
	j.slot.Leave(now, j.total.used+max(ran, 0))
	return true
}

// resume puts the context back if a job has it off the GPU: the job's turn has come, or another
// launch of the context needs it.
func (x *Executor) resume() {
	j := x.preempted
	if j == nil {
		return
	}
	if err := x.putBack(); err != nil {
		x.fail(err)
		return
	}
	if j.run.below = 0; j.run.behind {
		j.to(earlierLeaves)
	} else {
		j.to(contextResumed)
		j.tell(abi.EvictNone) // should the kernel check after all, it may stay
	}
	for j.slot.Grant() && !j.slot.Start(x.o.Clock.Now()) {
		// The daemon has just taken the turn back. The kernel is on the GPU all the same.
	}
}

// putBack undoes what preempt did to the context.
func (x *Executor) putBack() (err error) {
	x.preempted = nil
	if s, ok := x.o.Device.(gpu.Suspender); ok {
		err = s.Resume(x.o.Context)
	}
	x.updateOffTimes()
	return err
}
