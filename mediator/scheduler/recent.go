package scheduler

import (
	"time"

	"vgpud/fairshare"
)

// recent is what a guest did lately.
type recent struct {
	kernels uint64        // that had ended when last observed
	late    time.Duration // the executors' count of late time when last observed
	// executed is the executors' count of GPU time when last observed.
	executed time.Duration
	// outstanding is how many commands were on the GPU when last observed.
	outstanding uint64
	// coming is how much commands on the GPU were to use yet, the most lately, in nanoseconds, fading.
	coming  float64
	active  time.Duration // when last seen to have work
	used    float64       // GPU nanoseconds, fading
	elapsed float64       // nanoseconds in which that was used, fading
	tail    tail
	slice   time.Duration // of its contexts, as decided; 0 is the driver's own
	// worked is how long its context had commands on the GPU up to observedAt, and idle the part of
	// the time before that in which it had none.
	worked, observedAt time.Duration
	idle               float64
	// workedBefore is how long its contexts had commands on the GPU when the policy was last asked.
	workedBefore time.Duration
}

// newRecent returns the history of a guest that comes at now.
func newRecent(now time.Duration, a Activity) recent {
	return recent{kernels: a.Counters.Kernels, active: now - stayActive, tail: tail{counted: a.Counters.LateTime}, worked: unknown}
}

// requests returns what the guest has asked of the GPU: its kernels. It is known for how long the
// guest had any on the GPU since the policy was last asked, but not when; they are taken to have
// been the last thing that happened.
func (r *recent) requests(now time.Duration, a *Activity) fairshare.Requests {
	first := now - min(max(a.Worked-r.workedBefore, 0), now)
	r.workedBefore = a.Worked
	return fairshare.Requests{Completed: a.Counters.Kernels, Calls: a.Counters.Kernels, UnderWay: a.Outstanding > 0, First: first}
}

// unknown stands for times that are not known.
const unknown time.Duration = -1

// observe computes idle, the part of the time since the last call in which the guest's context had
// no commands on the GPU. It is 0 if that is not known: with an executor of an older version, and
// with several contexts, of which one may have some just when another has none.
//
// A phase of some length that is reported right after the last call is included in it already: if
// polling is spread over the quiet time, both phases are reported at once.
func (r *recent) observe(now, worked, length time.Duration) {
	elapsed, did := now-r.observedAt, worked-r.worked
	if elapsed < length/2 && r.worked != unknown && worked != unknown {
		return
	}
	r.idle = 0
	if worked > 0 && r.worked != unknown && elapsed > 0 && did >= 0 {
		r.idle = max(float64(elapsed-did), 0) / float64(elapsed)
	}
	r.worked, r.observedAt = worked, now
}

// stayActive is how long a guest counts in the length of the phases after it had work. A guest that
// has some in every other round would otherwise set the length of just those phases that see it.
const stayActive = time.Second
