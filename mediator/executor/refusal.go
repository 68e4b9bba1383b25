package executor

import (
	"errors"
	"time"

	"vgpud/gpu"
)

// Memory that a guest has freed is still the guest's while earlier commands on the GPU may use it.
// A command that finds no room because of it waits, as CUDA's call to free it would have waited.

// refusal is an allocation for which there was no memory while the GPU still held freed memory.
// While nothing has changed there is little point in trying again.
type refusal struct {
	size, freed uint64        // what was asked for, and the freed memory then; 0: nothing was refused
	retryAt     time.Duration // when to try again all the same
}

// The time until the next attempt: another context of the guest may have freed memory, or other
// memory of the same size may have been freed. An attempt that takes long, such as to load a module
// that is compiled first, takes at most a fifth of the time.
const (
	retryAfter  = 5 * time.Millisecond
	retryFactor = 4
)

// attempt is one attempt to allocate memory.
type attempt struct {
	*refusal
	size, freed uint64
	began       time.Duration
}

// attempt begins an attempt to allocate about size bytes. The error is errWaits if that was refused
// a short time ago.
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

// attempted ends an attempt. It returns err, or errWaits if there may be room when the GPU no
// longer holds freed memory.
func (x *Executor) attempted(a attempt, err error) error {
	*a.refusal = refusal{}
	if a.freed == 0 || !errors.Is(err, gpu.ErrMemoryLimit) && !errors.Is(err, gpu.ErrOutOfMemory) {
		return err
	}
	if _, total, merr := x.o.Context.Memory(); merr == nil && a.size > total {
		return err // there never will be room
	}
	now := x.o.Clock.Now()
	*a.refusal = refusal{a.size, a.freed, now + max(retryAfter, retryFactor*(now-a.began))}
	return errWaits
}

// forgetRefusals allows new attempts: there may be room now.
func (x *Executor) forgetRefusals() {
	x.zeroes.refused, x.refusedLoad, x.textures.refused = refusal{}, refusal{}, refusal{}
}

// retryIn returns how long it is from now until the next attempt, at most d.
func (r *refusal) retryIn(now, d time.Duration) time.Duration {
	if r.freed == 0 || r.retryAt <= now {
		return d
	}
	return min(d, r.retryAt-now)
}
