package executor

import (
	"context"
	"time"

	"vgpud/gpu"
	"vgpud/mediator/vgpu/abi"
)

// ringWait is the wait for a ring of event kernels that are parked, where the daemon decides about
// launches. A kick comes through the virtual GPU's process, and on a quiet host each of the two that
// it wakes takes some 100 µs. So the executor of an urgent guest polls the doorbells for a while, as it
// polls rings of commands ([longPoll]), and rings ask for no kick meanwhile. It belongs to the
// goroutine that watches event kernels.
type ringWait struct {
	x      *Executor
	gpu    gpu.EventPolling // nil: rings kick in any case
	long   longPoll
	yields yieldLimiter
	on     bool // it has begun
	from   time.Duration
	limit  time.Duration
}

func newRingWait(x *Executor, ek gpu.EventKernels) *ringWait {
	w := &ringWait{x: x}
	if p, ok := ek.(gpu.EventPolling); ok {
		w.gpu = p
	}
	return w
}

// ended records that there was a ring.
func (w *ringWait) ended() {
	if w.on {
		w.long.record(w.x.o.Clock.Now()-w.from, w.limit)
	}
	w.on = false
}

// poll polls for as long as the wait is worth it, and reports whether there is a ring, or something
// else to look at: seen is what was counted of kicks before the last look. The event kernels are
// parked, and not rung for but by a guest that is suspended.
func (w *ringWait) poll(ctx context.Context, seen uint32) (again bool) {
	x := w.x
	now := x.o.Clock.Now()
	if !w.on {
		w.on, w.from, w.limit = true, now, x.pollShare(now)
	}
	length := w.long.length(w.limit)
	if w.gpu == nil || now-w.from >= length || w.yields.blocked(now) || x.eventsRung() {
		return false
	}
	kicks := abi.AtomicWord(x.o.Events, abi.EventKicksWord)
	w.gpu.PollEvents(true)
	for !x.eventsRung() && kicks.Load() == seen && ctx.Err() == nil && now-w.from < length && !w.yields.blocked(now) {
		x.yield()
		back := x.o.Clock.Now()
		w.yields.yielded(now, back)
		now = back
	}
	return w.gpu.PollEvents(false) || x.eventsRung() || kicks.Load() != seen
}
