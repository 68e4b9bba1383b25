package executor

import "time"

// Where the daemon decides about guests only, and contexts can't be taken off the GPU, a context's
// event kernels need room on it, as a launch does that is not known to be short (see admission.go).
// Else endless events of many contexts would keep the GPU from other guests for a time limit each.
//
// The kernels are held until there are rings and there is room. They keep the room while something of
// them is on the GPU, and make room for the guest's other contexts when they are idle or have had the
// GPU for a while. The transitions are those of [eventState.nextInRoom]. Kernels that have a turn by
// the daemon's verdict have the room, too, so that no launch of another context goes ahead beside them.
//
// The goroutine of Step asks for room and gives it back, since it does so for launches.

// eventsShare is how long event kernels keep their room while other contexts of the guest wait for it.
const eventsShare = shallowWork

// eventRoom is the room of a context's event kernels on the GPU, under the mutex of their turn.
type eventRoom struct {
	room    bool          // they have room, or are to give it back
	awaited bool          // another context waits for it
	billed  time.Duration // what the guest had been charged when the daemon told them to leave
}

// eventRoomLook is what is known of it at a moment.
type eventRoomLook struct {
	shared  bool // they need room and no turn
	room    bool // they have it
	awaited bool // another context waits for room
	long    bool // they have had theirs for eventsShare
}

// nextInRoom is [eventState.next] where event kernels need room and no turn.
func (s eventState) nextInRoom(l *eventLook) (eventState, eventAction) {
	asks := l.wanted >= 0 && !l.suspended
	switch s {
	case eventsFree:
		return eventsParked, eventsStay
	case eventsWaiting:
		return eventsParked, eventsEnd
	case eventsOn, eventsLeaving:
		return eventsWithdrawing, eventsEnd
	case eventsParked:
		if asks {
			return eventsQueued, eventsStay
		}
	case eventsQueued:
		switch {
		case !asks:
			return eventsParked, eventsStay
		case l.room:
			return eventsAdmitted, eventsStay
		}
	case eventsAdmitted:
		switch {
		case !l.there && l.wanted < 0:
			return eventsParked, eventsStay
		case l.suspended, l.awaited && (l.idle || l.long):
			return eventsWithdrawing, eventsStay
		}
	case eventsWithdrawing:
		switch {
		case l.there:
		case asks && !l.awaited:
			return eventsAdmitted, eventsStay
		default:
			return eventsParked, eventsStay
		}
	}
	return s, eventsStay
}

// hasRoom reports whether event kernels may have something on the GPU in the state.
func (s eventState) hasRoom() bool {
	return s == eventsOn || s == eventsLeaving || s == eventsAdmitted || s == eventsWithdrawing
}

// enterEventState notes that event kernels are in a state now.
//
// Preconditions: the turn's mu is held.
func (x *Executor) enterEventState(s eventState) {
	t := &x.eventKernels.turn
	switch {
	case s == t.state:
		return
	case s == eventsLeaving:
		t.billed = x.o.Page.Bill().Used
	case s == eventsAdmitted:
		t.since = x.o.Clock.Now()
	}
	t.state = s
	if room := s.hasRoom(); room != t.room {
		t.room = room
		x.slot.Wake() // Step publishes it
	}
}

// eventRoomStirs asks for room if event kernels wait for it, and reports whether they have been given
// it, or whether another context has begun to wait for theirs.
//
// Preconditions: the turn's mu is held, by Step.
func (x *Executor) eventRoomStirs(suspended bool) bool {
	if !x.bounded() {
		return false
	}
	t := &x.eventKernels.turn
	x.admission.eventsQueued = t.state == eventsQueued && !suspended
	switch {
	case x.admission.eventsQueued:
		next := x.fetchAheadWith(estimate{long: true})
		if x.askRoom(next) {
			x.admission.events, t.room = true, true
		}
		t.awaited = false
		return t.room
	case t.state == eventsAdmitted:
		before := t.awaited
		t.awaited = x.admission.admitter.Awaited()
		return t.awaited && !before
	}
	return false
}

// publishEventRoom records on the page whether event kernels have room.
//
// Preconditions: the turn's mu is held, by Step.
func (x *Executor) publishEventRoom() {
	a, t := &x.admission, &x.eventKernels.turn
	a.eventsLeaving, a.eventsBilled = t.state == eventsLeaving, t.billed
	if a.events == t.room || !x.bounded() {
		return
	}
	a.events = t.room
	x.publishAdmitted(estimate{}, 0)
	if !t.room {
		a.admitter.WakeNext()
	}
}
