package nvidia

import (
	"sync"
	"time"

	"vgpud/clock"
)

// readingEvery is the time for which a reading of the GPU's clock is extrapolated by the host's.
// The two drift apart by about 20 µs a second.
const readingEvery = 50 * time.Millisecond

// readingTries is the number of readings of which the quickest counts. A reading that was
// interrupted by the scheduler, or is the first in a while, may be off by 30 µs.
const readingTries = 3

// readings caches a clock that is slow to read. A reading takes the driver 7 µs, and every launch
// needs one. It is safe for concurrent use.
type readings struct {
	mu     sync.Mutex
	known  bool
	last   pair
	newest time.Duration
}

// pair is one instant on both clocks.
type pair struct{ host, gpu time.Duration }

// at returns the GPU's time now, on the host's clock. It never goes back.
func (r *readings) at(now time.Duration, host clock.Clock, read func() (time.Duration, error)) (time.Duration, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t, err := r.of(now, host, read)
	if err != nil {
		return 0, err
	}
	r.newest = max(r.newest, t)
	return r.newest, nil
}

// was returns the GPU's time at a recent instant of the host's clock.
func (r *readings) was(then time.Duration, host clock.Clock, read func() (time.Duration, error)) (time.Duration, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.of(then, host, read)
}

// of extrapolates from the last reading, or back from a new one. The caller holds mu.
func (r *readings) of(instant time.Duration, host clock.Clock, read func() (time.Duration, error)) (time.Duration, error) {
	if !r.known || instant-r.last.host > readingEvery {
		for i, best := 0, time.Duration(0); i < readingTries; i++ {
			before := host.Now()
			t, err := read()
			if err != nil {
				return 0, err
			}
			if width := host.Now() - before; i == 0 || width < best {
				best = width
				r.last, r.known = pair{host: before + width/2, gpu: t}, true
			}
		}
	}
	return r.last.gpu + instant - r.last.host, nil
}
