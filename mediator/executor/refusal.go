package executor

import (
	"errors"
	"time"

	"vgpud/gpu"
)

// What a guest has freed, and the GPU does not have back yet since commands that were put
// before may still use it, is the guest's own: who finds no room because of it waits, as
// CUDA's calls would have waited when it was freed.

// refusal is what there was no memory for, while some was owed. As long as nothing has
// changed there is little point in asking again.
type refusal struct {
	size, freed uint64        // what was asked for, and was owed then; 0: nothing was refused
	retryAt     time.Duration // when to ask again all the same
}

// The time until then: another context of the guest may have given something back, or the
// same amount be owed behind something else. Who takes long to be refused, as a module
// that is compiled first, is not asked more often than takes a fifth of the time.
const (
	retryAfter  = 5 * time.Millisecond
	retryFactor = 4
)

// asking is one asking for memory.
type attempt struct {
	*refusal
	size, freed uint64
	began       time.Duration
}

// ask begins to ask for memory, about size bytes of it. The error is errWaits where that was
// refused so short a time ago.
func (x *Executor) attempt(r *refusal, size uint64) (attempt, error) {
	a := attempt{refusal: r, size: size}
	if lazy, ok := x.o.Context.(gpu.Lazy); ok {
		a.freed = lazy.Freed()
	}
	if a.freed == 0 {
		return a, nil
	}
	a.began = x.o.Clock.Now()
	if a.freed == r.freed && size >= r.size && a.began < r.retryAt {
		return a, errWaits
	}
	return a, nil
}

// answered is what becomes of the asking: err, or errWaits where there may be room when the
// GPU has back what was freed.
func (x *Executor) attempted(a attempt, err error) error {
	*a.refusal = refusal{}
	if a.freed == 0 || !errors.Is(err, gpu.ErrMemoryLimit) && !errors.Is(err, gpu.ErrOutOfMemory) {
		return err
	}
	if _, total, merr := x.o.Context.Memory(); merr == nil && a.size > total {
		return err // it never will
	}
	now := x.o.Clock.Now()
	*a.refusal = refusal{a.size, a.freed, now + max(retryAfter, retryFactor*(now-a.began))}
	return errWaits
}

// forgive forgets what was refused: there may be room now.
func (x *Executor) forgetRefusals() { x.zeroes.refused, x.refusedLoad = refusal{}, refusal{} }

// asksIn is how long it is until somebody asks again, at now; at most d.
func (r *refusal) retryIn(now, d time.Duration) time.Duration {
	if r.freed == 0 || r.retryAt <= now {
		return d
	}
	return min(d, r.retryAt-now)
}
