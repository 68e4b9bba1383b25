package executor

import (
	"time"

	"vgpud/gpu"
	"vgpud/mediator/ipc"
)

// admission is how a context keeps to its guest's bound on GPUs where a suspension can't
// take back what is there: one launch that may run for long, or some that are expected to
// be over in a millisecond together, whatever context and channel they come from. So an
// endless kernel in each of many contexts keeps the GPU no longer than one does: when it
// is ended the guest has used its time, and is suspended before the next one goes.
//
// What a context has there, and since when it waits for room, is on the guest's page: see
// [ipc.Ranks].
type admission struct {
	admitter *ipc.Admitter
	long     int // launches on the GPU, or about to be put there, that are not known to be brief
	// waits is whether one waits for other contexts' launches to end, and since when; late
	// is since when only for a context that goes before, 0: it does not.
	waiting     bool
	since       time.Duration
	behindSince time.Duration
	// drains is the channel whose launch the context's own others make room for, since it
	// goes beside none of them, and drained the one that asks for that in this step; nil:
	// there is none.
	draining, drainNext *channel
	// billed is what the guest was charged when it was suspended last.
	billed time.Duration
}

// foreseen is what a launch was expected to be when it was put on the GPU.
type estimate struct {
	work time.Duration
	long bool
}

// patience is for how long a context that may go first is waited for. Its executor may
// be busy with something else, or gone.
const turnTimeout = 5 * time.Millisecond

// foresee returns what a launch of f is expected to be.
func (x *Executor) estimate(f *function) estimate {
	d, known := f.expected()
	return estimate{d, !known || d > x.o.FetchLimit.Work}
}

// bounded reports whether the guest's contexts share a bound. On other GPUs the daemon
// takes contexts off.
func (x *Executor) bounded() bool { return x.o.FetchLimit != DeepFetchLimit }

// roomHere reports whether a launch of ch may go beside the context's own. behind is of a
// launch that goes behind a preemptible one, and like that one leaves when told to.
func (x *Executor) fitsContext(ch *channel, s estimate, behind bool) bool {
	if d := x.admission.draining; d != nil && d != ch && !behind {
		return false
	}
	fits := x.fitsLimit(s, behind)
	if !fits {
		x.drainFor(ch, s)
	}
	return fits
}

// drainFor has the context's other channels wait until a launch of ch that goes beside
// nothing has gone: launches that are brief could keep it away for ever.
func (x *Executor) drainFor(ch *channel, s estimate) {
	if a := &x.admission; s.long && x.bounded() && a.drainNext == nil {
		a.drainNext = ch
	}
}

// fitsHere reports whether a launch may go beside what the context has on the GPU.
func (x *Executor) fitsLimit(s estimate, behind bool) bool {
	switch there := x.admitted; {
	case there < x.o.FetchLimit.Launches:
		return true
	case behind && there < successorLaunches:
		return true
	case there >= x.o.FetchLimit.MaxShort, s.long, x.bounded() && x.admission.long > 0:
		return false
	}
	return x.admittedWork+s.work <= x.o.FetchLimit.Work
}

// admit takes room on the GPU for a launch, which is given back by leave, and reports
// whether there was any. Where other contexts are in the way it is asked again.
func (x *Executor) admit(ch *channel, s estimate, behind bool) bool {
	if !x.fitsContext(ch, s, behind) {
		return false
	}
	if !x.bounded() {
		x.publishAdmitted(s, 1)
		return true
	}
	a := &x.admission
	next, room := x.fetchAheadWith(s), x.o.FetchLimit.Work
	answer := a.admitter.Admit(next, room, false)
	if answer != ipc.Admitted {
		now := x.o.Clock.Now()
		if a.waiting = true; a.since == 0 {
			a.since = now
			x.slot.SetWaiting(now)
			// Whoever made room meanwhile did not see that somebody waits.
			answer = a.admitter.Admit(next, room, false)
		}
		switch {
		case answer != ipc.Behind:
			a.behindSince = 0
		case a.behindSince == 0:
			a.behindSince = now
		case now-a.behindSince >= turnTimeout:
			answer = a.admitter.Admit(next, room, true)
		}
		if answer != ipc.Admitted {
			x.drainFor(ch, s)
			return false
		}
	}
	a.behindSince = 0
	if a.since != 0 {
		a.since = 0
		x.slot.SetWaiting(0)
		a.admitter.WakeNext() // who comes next may fit beside it
	}
	x.addAdmitted(s, 1)
	return true
}

// thereWith returns what the context has on the GPU with s.
func (x *Executor) fetchAheadWith(s estimate) ipc.FetchAhead {
	return ipc.FetchAhead{Launches: x.admitted + 1, Work: x.admittedWork + s.work, Long: s.long || x.admission.long > 0}
}

// take takes room for a launch that the daemon has let run.
func (x *Executor) reserve(s estimate) { x.publishAdmitted(s, 1) }

// leave gives back the room of a launch that is gone.
func (x *Executor) release(s estimate) {
	x.publishAdmitted(s, -1)
	if x.bounded() {
		x.admission.admitter.WakeNext()
	}
}

// count counts n more launches, and says so on the page; n is 1 or -1.
func (x *Executor) publishAdmitted(s estimate, n int) {
	x.addAdmitted(s, n)
	if x.bounded() {
		x.slot.SetFetchAhead(ipc.FetchAhead{Launches: x.admitted, Work: x.admittedWork, Long: x.admission.long > 0})
	}
}

// note counts n more launches.
func (x *Executor) addAdmitted(s estimate, n int) {
	x.admitted += n
	x.admittedWork += time.Duration(n) * s.work
	if s.long {
		x.admission.long += n
	}
}

// What a suspended guest has on the GPU that went there as brief has one kernel time limit
// together. Its neighbours have waited for longer than it was charged since: the suspension
// came a round after the first of those launches, and the charge is a round behind. So they
// are ended earlier, by a part of the limit that covers both where the limit is not short.
const (
	overstayMargin = 40
	// overstayLook is how often that is looked at.
	overstayInterval = 20 * time.Millisecond
)

// overstays reports whether what the context has on the GPU, all of it taken to be brief
// and some of it another context's perhaps, has kept the GPU for longer than one launch
// may since the guest was suspended. Launches that turn out to be endless would do so one
// after the other.
func (x *Executor) overstays() bool {
	limit := x.o.KernelTimeLimit
	if !x.mayOverstay() || limit <= 0 {
		return false
	}
	return x.o.Page.Bill().Used-x.admission.billed > limit-limit/overstayMargin
}

// mayOverstay reports whether the guest is suspended and the context has nothing on the GPU
// but launches that were taken to be brief.
func (x *Executor) mayOverstay() bool {
	return x.suspension.on && x.admitted > 0 && x.admission.long == 0 && x.bounded() && x.poison == nil
}

// endContext ends the context as a launch's time limit does: nothing less gets what is
// queued off the GPU.
func (x *Executor) endContext() {
	x.fail(gpu.ErrTimeLimit)
	if err := x.o.Context.Close(); err != nil {
		x.o.Log.Warn("end a context", "err", err)
	}
}

// settle is the end of a step that was not one of a suspended guest: a context in which
// nothing waits any more for the others is not waited for either.
func (a *admission) settle(x *Executor) {
	if a.since != 0 && !a.waiting {
		a.since, a.behindSince = 0, 0
		x.slot.SetWaiting(0)
		a.admitter.WakeNext()
	}
	a.waiting = false
	a.draining, a.drainNext = a.drainNext, nil
}

// waitFor returns for how long to sleep at most, d or less, for what nobody rings for.
func (x *Executor) admissionSleep(d time.Duration) time.Duration {
	switch {
	case x.admission.behindSince != 0:
		return min(d, turnTimeout)
	case x.mayOverstay():
		return min(d, overstayInterval)
	}
	return d
}
