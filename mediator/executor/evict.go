package executor

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"vgpud/gpu"
	"vgpud/mediator/link"
	"vgpud/mediator/stub"
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
// seen in under 10 µs (preemption-on-h100.md).
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
	if j.form == 0 || j.plan.Stay || j.claim.State() != stub.ToEvict {
		return false
	}
	x := j.ch.x
	if !j.told {
		below, _, _ := j.claim.Word()
		binary.LittleEndian.PutUint32(j.word[:], below)
		// The word's copy need not be waited for: what is written to the control
		// block later goes the same way, behind it.
		_, err := x.words.gpu.CopyIn(j.memory.base+controlAt+evictWord, j.word[:])
		j.told = true
		if err != nil {
			// It runs on, and is found out like one that doesn't look. Only the end of
			// the GPU or the context does that, and its fence tells soon.
			x.o.Log.Debug("evict word not written", "kernel", j.fn.attrs.Name, "err", err)
			return true
		}
		j.evicted = j.evicted || below != abi.EvictNone
		return true
	}
	now := x.o.Clock.Now()
	if now < j.due() {
		return false
	}
	return j.exposed(now)
}

// due is when the launch must have left, by the daemon's word; once that is past,
// when it is ended.
func (j *job) due() time.Duration {
	_, asked, deadline := j.claim.Word()
	switch {
	case deadline == 0:
		return math.MaxInt64 // never
	case !j.lied || j.ch.x.props.Preempts:
		return deadline
	default:
		return max(deadline, asked+link.LiarLimit)
	}
}

// exposed deals with a launch that was to leave, said that it would, and is still
// there. The first time it is counted, and its kernel is never taken at its word
// again. If the GPU can take kernels off by itself, then this one is, with its
// context; else it is ended like one past its time limit, and has the rest of
// [link.LiarLimit] until then.
func (j *job) exposed(now time.Duration) bool {
	x := j.ch.x
	if !j.lied {
		j.lied, j.fn.liar = true, true
		x.slot.AddLiar()
		j.claim.SetEvictable(false)
		x.o.Log.Debug("kernel did not leave when asked", "kernel", j.fn.attrs.Name)
	}
	if s, ok := x.o.Device.(gpu.Suspender); ok && x.props.Preempts && j.park(s, now) {
		return true
	}
	if _, asked, deadline := j.claim.Word(); now < max(deadline, asked+link.LiarLimit) {
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

// park takes the context off the GPU in mid-kernel, with all its channels: the
// hardware knows no less. The job waits for its turn like one that left. It
// reports whether that worked.
func (j *job) park(s gpu.Suspender, now time.Duration) bool {
	x := j.ch.x
	at, err := x.o.Device.Now()
	if err == nil {
		err = s.Suspend(x.o.Context)
	}
	if err != nil {
		x.o.Log.Debug("take a context off the GPU", "err", err)
		return false
	}
	x.parked = j
	j.phase, j.parkedAt = parked, at
	_, asked, _ := j.claim.Word()
	x.slot.AddEviction(now - asked)
	j.evictions++
	j.claim.Leave(now, j.used)
	return true
}

// unpark puts the context back, since its turn has come, or a launch's beside the
// one for whose sake it was taken off.
func (x *Executor) unpark() {
	j := x.parked
	if j == nil {
		return
	}
	x.parked = nil
	if s, ok := x.o.Device.(gpu.Suspender); ok {
		if err := s.Resume(x.o.Context); err != nil {
			x.fail(err)
			return
		}
	}
	if at, err := x.o.Device.Now(); err == nil {
		j.parkedFor += at - j.parkedAt
	}
	j.phase, j.told = running, false
	// Should it look after all, it finds that it may stay. Where that can't be
	// written it leaves, and is put back.
	if _, err := x.words.gpu.CopyIn(j.memory.base+controlAt+evictWord, zeros[:4]); err != nil {
		x.o.Log.Debug("evict word not taken back", "kernel", j.fn.attrs.Name, "err", err)
	}
	if j.claim.Grant() {
		j.claim.Start(x.o.Clock.Now())
	}
}
