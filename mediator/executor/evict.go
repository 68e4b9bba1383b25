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

// service is a channel of the executor's own, and who sleeps for it.
type service struct {
	gpu    gpu.Channel
	waiter waiter
}

// ownChannels makes the executor's own channels, once, when the first preemptible launch
// needs them: one for the words of control blocks, so that an evict word waits
// behind nothing long, and one for lists and bitmaps. A copy on a channel beside
// the kernel's is the one way to reach a running kernel that every GPU has; it is
// seen in under 10 µs (docs/results/preemption-on-h100.md). Where the context has a
// window words are stored there instead, and seen in 5 (see [gpu.Windowed]).
func (x *Executor) ownChannels() error {
	for _, s := range []*service{&x.words, &x.bulk} {
		if s.gpu != nil {
			continue
		}
		c, err := x.o.Context.NewChannel()
		if err != nil {
			return err
		}
		s.gpu = c
		s.waiter.start(c, x.slot)
	}
	return nil
}

func (s *service) close() error {
	if s.gpu == nil {
		return nil
	}
	s.waiter.stop()
	return s.gpu.Close()
}

// outcome is how a copy on the service's channel ended; 0 is none.
func (s *service) outcome(f gpu.Fence) error {
	if f == 0 {
		return nil
	}
	err := s.gpu.Outcome(f).Err
	if errors.Is(err, gpu.ErrNotFound) {
		return nil // so long ago that it is forgotten; what ended the context says so itself
	}
	return err
}

// reached is whether the copies are done that a job waits for.
func (x *Executor) reached(j *job) bool {
	return (j.words == 0 || j.words <= x.words.gpu.Done()) && (j.bulk == 0 || j.bulk <= x.bulk.gpu.Done())
}

// copied is how these copies ended. They are not waited for any more.
func (x *Executor) copied(j *job) error {
	words, bulk := j.words, j.bulk
	j.words, j.bulk = 0, 0
	if err := x.words.outcome(words); err != nil {
		return err
	}
	return x.bulk.outcome(bulk)
}

// attend obeys, while a job is on the GPU, the daemon's word to leave, and watches
// that the kernel does. It reports whether it did anything.
func (j *job) attend() bool {
	if j.form == 0 || j.plan.Stay {
		return false
	}
	x := j.ch.x
	state := j.claim.State()
	if state != slotstate.ToEvict {
		if j.told && state == slotstate.Running {
			return j.recalled()
		}
		return j.refilling && x.reached(j) && j.refill()
	}
	if below, _, _ := j.claim.EvictionRequest(); !j.told || below != j.below {
		j.told, j.below, j.refilling = true, below, false
		if !j.hushed {
			j.hushNext()
			j.tell(below)
		}
		j.readAhead()
		return true
	}
	// While the context is off the GPU its blocks can't look.
	now := x.o.Clock.Now()
	if j.leftAt != 0 || x.offGPU.off || now < j.due(now) {
		return false
	}
	return j.exposed(now)
}

// hushNext sees to it that the launch behind the job, if it is on the GPU already,
// does nothing before the job has done all: its blocks find that they are to leave,
// whenever they begin. That is written before the job's own word.
func (j *job) hushNext() {
	n := j.ch.second
	if n == nil || n == j || n.phase != running || n.hushed {
		return
	}
	n.hushed = true
	n.tell(abi.EvictAll)
}

// tell writes the evict word. A copy need not be waited for: what is written to the
// control block later goes the same way, behind it. Where the word can't be
// written the kernel runs on, and is found out like one that doesn't look; only the
// end of the GPU or the context does that, and its fence tells soon.
func (j *job) tell(below uint32) {
	x := j.ch.x
	j.evicted = j.evicted || below != abi.EvictNone
	if b := &j.memory.block; b.window != nil {
		b.store(evictWord, below)
		return
	}
	w := &j.wordsOut[j.wordAt%len(j.wordsOut)]
	j.wordAt++
	binary.LittleEndian.PutUint32(w[:], below)
	var err error
	if j.words, err = x.words.gpu.CopyIn(j.memory.block.at+evictWord, w[:]); err != nil {
		x.o.Log.Debug("evict word not written", "kernel", j.fn.attrs.Name, "err", err)
	}
}

// recalled is for a kernel that was told to leave and may stay: its blocks look and
// find nothing any more. A persistent one's, that have left some SMs, come back as a
// second launch on the same counter, where kernels can be on the GPU side by side
// (FLEP figure 4c).
func (j *job) recalled() bool {
	j.told = false
	if j.hushed {
		return true // its turn comes after the launch before it
	}
	j.tell(abi.EvictNone)
	j.refilling = j.form == abi.PreemptPersistent && j.ch.x.props.CoRuns && j.besideFence == 0
	return true
}

// refill launches the blocks that left once more, when the word that they look at
// is zero.
func (j *job) refill() bool {
	x, ch := j.ch.x, j.ch
	j.refilling = false
	if err := x.copied(j); err != nil {
		return false // the kernel's own end says more
	}
	if ch.corun.gpu == nil {
		c, err := x.o.Context.NewChannel()
		if err != nil {
			x.o.Log.Debug("freed SMs stay free", "err", err)
			return false
		}
		ch.corun.gpu = c
		ch.corun.waiter.start(c, x.slot)
	}
	freed := min(j.below, uint32(x.props.SMs))
	plan, err := j.run.Refill(freed * j.stub.PerSM)
	if err != nil {
		x.o.Log.Debug("freed SMs stay free", "err", err)
		return false
	}
	// Its arguments are those that the first has.
	gl := j.gl
	gl.Grid = gpu.Dim3{X: plan.Grid[0], Y: plan.Grid[1], Z: plan.Grid[2]}
	if j.besideFence, err = ch.corun.gpu.Launch(&gl); err != nil {
		x.o.Log.Debug("freed SMs stay free", "err", err)
		j.besideFence = 0
		return false
	}
	x.slot.AddRelaunch()
	return true
}

// besideDone is whether a second launch of the kernel, if there is one, has ended.
func (j *job) besideDone() bool {
	return j.besideFence == 0 || j.ch.corun.gpu.Done() >= j.besideFence
}

// due is when the launch must have left, by the daemon's word; once that is past,
// when it is ended; as far as is known at now. One that is to leave some SMs only
// goes on, on the others.
func (j *job) due(now time.Duration) time.Duration {
	_, asked, _ := j.claim.EvictionRequest()
	limit := j.limit()
	if away := j.ch.x.offHost.overlap(asked, now); limit < math.MaxInt64-away {
		limit += away
	}
	return limit
}

// limit is due of a launch whose context was on the GPU all along.
func (j *job) limit() time.Duration {
	below, asked, deadline := j.claim.EvictionRequest()
	switch {
	case deadline == 0 || below < uint32(j.ch.x.props.SMs):
		return math.MaxInt64 // never
	case !j.lied || j.ch.x.props.Preempts:
		// An honest kernel leaves when the blocks that run are done.
		return max(deadline, asked+min(blocksGrace*j.blockTime(), ipc.UnresponsiveLimit))
	default:
		return max(deadline, asked+ipc.UnresponsiveLimit)
	}
}

// blocksGrace is how many times as long as a block takes a kernel may stay, where
// that is longer than the daemon's deadline.
const blocksGrace = 4

// blockTime is about how long the kernel's blocks run between two looks, by how
// long it took on the average; 0 where that is not known. The blocks of an early
// exit run in waves, of as many as the GPU holds; persistent ones take their tasks
// in as many rounds.
func (j *job) blockTime() time.Duration {
	resident := uint64(j.stub.PerSM) * uint64(j.ch.x.props.SMs)
	if resident == 0 {
		return 0
	}
	unit := uint64(j.plan.Args.Group) * uint64(j.plan.Args.Every)
	rounds := (uint64(j.plan.Args.Tasks) + unit*resident - 1) / (unit * resident)
	return j.fn.mean / time.Duration(max(rounds, 1))
}

// exposed deals with a launch that was to leave, said that it would, and is still
// there. The first time it is counted, and its kernel is never taken at its word
// again. If the GPU can take kernels off by itself, then this one is, with its
// context; else it is ended like one past its time limit, and has the rest of
// [ipc.LiarLimit] until then.
func (j *job) exposed(now time.Duration) bool {
	x := j.ch.x
	if !j.lied {
		j.lied, j.fn.unresponsive = true, true
		x.slot.AddUnresponsive()
		j.claim.SetEvictable(false)
		x.o.Log.Debug("kernel did not leave when asked", "kernel", j.fn.attrs.Name)
	}
	if j.park() {
		return true
	}
	_, asked, deadline := j.claim.EvictionRequest()
	if away := x.offHost.overlap(asked, now); now < max(deadline, asked+ipc.UnresponsiveLimit)+away {
		return false
	}
	x.fail(fmt.Errorf("kernel %s did not leave the GPU when asked: %w", j.fn.attrs.Name, gpu.ErrTimeLimit))
	// Nothing less than the context's end gets it off. Its time until then, which
	// the GPU has no stamps of, is charged.
	if err := x.o.Context.Close(); err != nil {
		x.o.Log.Warn("end a context", "err", err)
	}
	j.owed = now - j.began
	j.used += j.owed
	j.finish(x.status)
	return true
}

// park takes the context off the GPU in mid-kernel, with all its channels, where the
// hardware can do that. The job waits for its turn like one that left. It reports whether
// that worked.
func (j *job) park() bool {
	x := j.ch.x
	s, ok := x.o.Device.(gpu.Suspender)
	if !ok || !x.props.Preempts || x.parked != nil {
		return false
	}
	if err := s.Suspend(x.o.Context); err != nil {
		x.o.Log.Debug("take a context off the GPU", "err", err)
		return false
	}
	x.parked = j
	x.updateOffTimes()
	j.phase = parked
	now := x.o.Clock.Now()
	_, asked, _ := j.claim.EvictionRequest()
	x.slot.AddEviction(now - asked)
	j.evictions++
	ran := now - j.began - x.offHost.overlap(j.began, now)
	j.claim.Leave(now, j.used+max(ran, 0))
	return true
}

// unpark puts the context back, since its turn has come, or a launch's beside the
// one for whose sake it was taken off.
func (x *Executor) unpark() {
	j := x.parked
	if j == nil {
		return
	}
	if err := x.putBack(); err != nil {
		x.fail(err)
		return
	}
	j.phase, j.told = running, false
	j.tell(abi.EvictNone) // should it look after all, it finds that it may stay
	if j.claim.Grant() {
		j.claim.Start(x.o.Clock.Now())
	}
}

// putBack undoes what park did to the context.
func (x *Executor) putBack() (err error) {
	x.parked = nil
	if s, ok := x.o.Device.(gpu.Suspender); ok {
		err = s.Resume(x.o.Context)
	}
	x.updateOffTimes()
	return err
}
