package executor

import (
	"time"

	"vgpud/gpu"
	"vgpud/mediator/ipc"
)

// admission bounds what a guest has on a GPU where a suspension can't take it back: one launch that
// may be long, or some that are expected to take a millisecond together, from whatever context and
// channel. So an endless kernel in each of many contexts keeps the GPU no longer than one does:
// when it is ended its guest has used its time, and is suspended before the next one goes. Launches
// of one context that run side by side count as one.
//
// The control page says what each context has there, and since when it waits for room: see
// [ipc.Admitter].
type admission struct {
	admitter *ipc.Admitter
	long     int // launches that have room and are not known to be short
	// occupied is the part of each SM that the launches that have room occupy together.
	occupied smPart
	// waiting reports whether a launch waits for other contexts' launches to end. since is since
	// when, and behindSince since when it waits only for a context that goes before; 0: it does
	// not.
	waiting     bool
	since       time.Duration
	behindSince time.Duration
	// draining is the channel whose launch goes beside no other, so that the context's other
	// channels make room for it; drainNext is the one that asks for that in this step.
	draining, drainNext *channel
	// billed is what the guest had been charged when it was last suspended.
	billed time.Duration
	// events reports whether the context's event kernels have room, and eventsQueued whether they
	// wait for it: see eventroom.go. eventsLeaving reports whether the daemon has told them to leave,
	// when the guest had been charged eventsBilled.
	events, eventsQueued, eventsLeaving bool
	eventsBilled                        time.Duration
}

// estimate is what a launch is expected to take. long reports whether it is not known to be short.
// part is the part of each SM that its blocks occupy.
type estimate struct {
	work time.Duration
	long bool
	part smPart
}

// smPart is a part of an SM, of wholeSM.
type smPart uint64

const wholeSM smPart = 1 << 40

// turnTimeout is how long a context waits for another that goes before it. That context's executor
// may be busy with something else, or gone.
const turnTimeout = 5 * time.Millisecond

// estimate estimates a launch of f.
func (x *Executor) estimate(f *function, l *gpu.Launch) estimate {
	d, known := f.expected()
	return estimate{d, !known || d > x.o.FetchLimit.Work, x.part(f, l)}
}

// part returns the part of each SM that a launch occupies if its blocks are spread evenly.
func (x *Executor) part(f *function, l *gpu.Launch) smPart {
	if !x.props.SideBySide || x.checkShape(l.Grid, l.Block) != nil {
		return wholeSM
	}
	perSM, err := f.resident(int(l.Block.Count()), l.SharedBytes)
	if err != nil || perSM < 1 {
		return wholeSM // the launch will fail
	}
	sms := uint64(x.props.SMs)
	n := min((l.Grid.Count()+sms-1)/sms, uint64(perSM))
	return wholeSM * smPart(n) / smPart(perSM)
}

// bounded reports whether the guest's contexts share a bound. On other GPUs the daemon takes
// contexts off.
func (x *Executor) bounded() bool { return x.o.FetchLimit != DeepFetchLimit }

// fitsContext reports whether a launch of ch may go beside the context's own launches. behind is
// set for a launch that goes behind a preemptible one and leaves when told, like that one.
func (x *Executor) fitsContext(ch *channel, s estimate, behind bool) bool {
	if d := x.admission.draining; d != nil && d != ch && !behind {
		return false
	}
	fits := x.fitsLimit(s, behind) || x.fitsBeside(ch, s)
	if !fits && ch.onGPU.commands == 0 { // else its own channel's launches keep it away
		x.drainFor(ch, s)
	}
	return fits
}

// fitsBeside reports whether a launch of ch starts at once, side by side with what the context has
// on the GPU. However long the launches are, they are then ended by one time limit.
func (x *Executor) fitsBeside(ch *channel, s estimate) bool {
	return ch.onGPU.commands == 0 && x.admitted < x.o.FetchLimit.MaxShort && x.admission.occupied+s.part <= wholeSM
}

// drainFor has the context's other channels wait for a launch of ch that there is no room for beside
// theirs. Short launches could keep it away for ever.
func (x *Executor) drainFor(ch *channel, s estimate) {
	if a := &x.admission; s.long && x.bounded() && a.drainNext == nil {
		a.drainNext = ch
	}
}

// fitsLimit reports whether a launch fits the limit beside what the context has on the GPU.
func (x *Executor) fitsLimit(s estimate, behind bool) bool {
	switch n := x.admitted; {
	case n < x.o.FetchLimit.Launches:
		return true
	case behind && n < successorLaunches:
		return true
	case n >= x.o.FetchLimit.MaxShort, s.long, x.bounded() && x.admission.long > 0:
		return false
	}
	return x.admittedWork+s.work <= x.o.FetchLimit.Work
}

// admit takes room on the GPU for a launch, and reports whether there was any; release gives it
// back. If there was none because of other contexts, admit is called again.
func (x *Executor) admit(ch *channel, s estimate, behind bool) bool {
	if !x.fitsContext(ch, s, behind) {
		return false
	}
	if !x.bounded() {
		x.publishAdmitted(s, 1)
		return true
	}
	if !x.askRoom(x.fetchAheadWith(s)) {
		x.drainFor(ch, s)
		return false
	}
	x.addAdmitted(s, 1)
	return true
}

// askRoom records that the context has next on the GPU, and reports whether there is room for that
// beside what the guest's other contexts have there. If there is none, the context waits for its turn
// among them, and asks again.
func (x *Executor) askRoom(next ipc.FetchAhead) bool {
	a, room := &x.admission, x.o.FetchLimit.Work
	answer := a.admitter.Admit(next, room, false)
	if answer != ipc.Admitted {
		now := x.o.Clock.Now()
		if a.waiting = true; a.since == 0 {
			a.since = now
			x.slot.SetWaiting(now)
			// A context that made room meanwhile did not see that this one waits.
			if answer = a.admitter.Admit(next, room, false); answer != ipc.Admitted {
				a.admitter.WakeLong() // event kernels make room
			}
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
			return false
		}
	}
	a.behindSince = 0
	if a.since != 0 && !a.eventsQueued { // else event kernels keep their place until they have room, too
		a.since = 0
		x.slot.SetWaiting(0)
		a.admitter.WakeNext() // the next context's launch may fit beside this one
	}
	return true
}

// fetchAhead returns what the context has on the GPU.
func (x *Executor) fetchAhead() ipc.FetchAhead {
	a := ipc.FetchAhead{Launches: x.admitted, Work: x.admittedWork, Long: x.admission.long > 0 || x.admission.events}
	if x.admission.events {
		a.Launches++
	}
	return a
}

// fetchAheadWith returns what the context has on the GPU, and s.
func (x *Executor) fetchAheadWith(s estimate) ipc.FetchAhead {
	a := x.fetchAhead()
	return ipc.FetchAhead{Launches: a.Launches + 1, Work: a.Work + s.work, Long: a.Long || s.long}
}

// reserve takes room for a launch that the daemon has let run.
func (x *Executor) reserve(s estimate) { x.publishAdmitted(s, 1) }

// release gives back the room of a launch that has left the GPU.
func (x *Executor) release(s estimate) {
	x.publishAdmitted(s, -1)
	if x.bounded() {
		x.admission.admitter.WakeNext()
	}
}

// publishAdmitted counts n more launches, and records that on the page; n is 1 or -1.
func (x *Executor) publishAdmitted(s estimate, n int) {
	x.addAdmitted(s, n)
	if x.bounded() {
		x.slot.SetFetchAhead(x.fetchAhead())
	}
}

// addAdmitted counts n more launches.
func (x *Executor) addAdmitted(s estimate, n int) {
	x.admitted += n
	x.admittedWork += time.Duration(n) * s.work
	if n > 0 {
		x.admission.occupied += s.part
	} else {
		x.admission.occupied -= s.part
	}
	if s.long {
		x.admission.long += n
	}
}

// The launches of a suspended guest that were taken to be short have one kernel time limit
// together, and so has what it has there beside events that are under way. Other guests have waited
// for longer than what the guest was charged since: the suspension came a round after the first of
// those launches, and the charge is a round late. So they are ended earlier, by a fraction of the limit
// that covers both unless the limit is short.
const (
	overstayMargin = 40
	// overstayInterval is the time between two checks.
	overstayInterval = 20 * time.Millisecond
)

// overstays reports whether launches that were taken to be short, or events, have kept the GPU for
// longer than one launch may since the guest was suspended, or since the events were told to leave.
// Endless ones would do so one after the other. Some of the time may be other contexts' of the guest.
func (x *Executor) overstays() bool {
	limit := x.kernelTimeLimit()
	billed, may := x.mayOverstay()
	if !may || limit <= 0 {
		return false
	}
	return x.o.Page.Bill().Used-billed > limit-limit/overstayMargin
}

// mayOverstay reports whether the guest is suspended and the context has only launches on the GPU
// that were taken to be short, or events, or events were told to leave by the daemon. It returns what
// the guest had been charged then.
func (x *Executor) mayOverstay() (billed time.Duration, may bool) {
	a := &x.admission
	switch {
	case !x.bounded() || x.poison != nil:
		return 0, false
	case x.suspension.on && (x.admitted > 0 && a.long == 0 || a.events):
		return a.billed, true
	}
	return a.eventsBilled, a.eventsLeaving
}

// endContext ends the context as a launch's time limit does. Nothing less takes what is queued off
// the GPU.
func (x *Executor) endContext() {
	x.fail(x.timeLimitFault())
	if err := x.o.Context.Close(); err != nil {
		x.o.Log.Warn("end a context", "err", err)
	}
}

// settle ends a step of a guest that is not suspended. A context in which no launch waits any more
// gives up its place among the waiting contexts.
func (a *admission) settle(x *Executor) {
	if a.since != 0 && !a.waiting {
		a.since, a.behindSince = 0, 0
		x.slot.SetWaiting(0)
		a.admitter.WakeNext()
	}
	a.waiting = false
	a.draining, a.drainNext = a.drainNext, nil
}

// admissionSleep returns for how long to sleep at most, d or less, for events that wake nobody.
func (x *Executor) admissionSleep(d time.Duration) time.Duration {
	switch {
	case x.admission.behindSince != 0:
		return min(d, turnTimeout)
	}
	if _, may := x.mayOverstay(); may {
		return min(d, overstayInterval)
	}
	return d
}

// timeLimitFault returns the fault of a kernel that ran past the time limit, as far as the executor
// knows. It names the kernel if the context had no other.
func (x *Executor) timeLimitFault() *gpu.Fault {
	names := map[string]bool{}
	for _, ch := range x.channels {
		for i := ch.first; i != ch.after; i++ {
			switch p := &ch.flight[i%flightLimit]; {
			case p.done:
			case p.job != nil:
				names[p.job.fn.attrs.Name] = true
			case p.fn != nil:
				names[p.fn.attrs.Name] = true
			}
		}
	}
	for _, k := range x.eventKernels.registered {
		names[k.name] = true
	}
	f := &gpu.Fault{Kind: gpu.FaultTimeLimit}
	if len(names) == 1 {
		for f.Kernel = range names {
		}
	}
	return f
}
