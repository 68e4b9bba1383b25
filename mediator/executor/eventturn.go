package executor

import (
	"hash/fnv"
	"math"
	"sync"
	"time"

	"vgpud/gpu"
	"vgpud/mediator/ipc"
	"vgpud/mediator/ipc/slotstate"
	"vgpud/mediator/vgpu/abi"
)

// Where the daemon decides about launches, what a context's event kernels have on the GPU is one
// launch: it has a launch slot with the priority of the most urgent kernel that was rung for, waits
// for its turn off the GPU, has the GPU until there are no more events, and leaves it when told. So
// an event takes the GPU from less urgent launches as a launch of its priority does.
//
// While event kernels have no turn they are held ([gpu.EventKernels]), so that a ring asks for a
// kick, which has the executor claim the slot. While they have it the GPU launches their events by
// itself. A look at their counts now and then finds that they are idle, which the slot shows: the
// daemon then has them leave for any launch that waits. The states are below; [eventState.next] has
// the transitions.

const (
	// eventLooks is how often event kernels that have their turn are looked at.
	eventLooks = 50 * time.Microsecond
	// ownPriority is the priority of event kernels that ask for none: the guest's own.
	ownPriority = math.MaxInt
)

// eventState is where a context's event kernels stand with the daemon.
type eventState uint8

const (
	eventsFree    eventState = iota // they need no turn: the daemon decides about guests only
	eventsParked                    // off the GPU, without a slot
	eventsWaiting                   // off the GPU, in a slot, until their turn
	eventsOn                        // they have their turn
	eventsLeaving                   // they have it, and begin no more events

	// Where they need no turn, but room: see eventroom.go.
	eventsQueued      // off the GPU, until there is room
	eventsAdmitted    // they have room
	eventsWithdrawing // they have it, and begin no more events

	eventStates = iota
)

// String returns the state's name.
func (s eventState) String() string {
	return [eventStates]string{"free", "parked", "waiting", "on", "leaving", "queued", "admitted", "withdrawing"}[s]
}

// held reports whether event kernels are kept off the GPU in the state.
func (s eventState) held() bool { return s != eventsFree && s != eventsOn && s != eventsAdmitted }

// eventAction is what is done about a context's event kernels and their slot, in the transition to
// the next state. They are held or let go by that state.
type eventAction uint8

const (
	eventsStay   eventAction = iota // nothing
	eventsClaim                     // take a slot, in place of the one that they have, if any
	eventsStart                     // they have their turn
	eventsLeave                     // give the turn up, and wait for the next one
	eventsEnd                       // give the slot up
	eventsNotice                    // show in the slot whether they are idle
)

// eventLook is what is known of a context's event kernels at a moment.
type eventLook struct {
	decides   bool            // the daemon decides about launches
	suspended bool            // the guest is
	wanted    int             // priority of the most urgent kernel with rings that were not taken; -1: there are none
	there     bool            // they poll, or events are under way
	idle      bool            // there, without an event lately
	shownIdle bool            // by the slot
	slot      slotstate.State // of their slot
	claimed   int             // the slot's priority
	ahead     bool            // no launch goes before one of that priority
	eventRoomLook
}

// next returns the state after s and what is done to get there. If they are s and eventsStay, that is
// all until something changes.
func (s eventState) next(l *eventLook) (eventState, eventAction) {
	switch {
	case l.decides:
	case l.shared:
		return s.nextInRoom(l)
	case s == eventsFree:
		return eventsFree, eventsStay
	default:
		return eventsFree, eventsEnd
	}
	asks := l.wanted >= 0 && !l.suspended
	switch s {
	case eventsFree:
		return eventsParked, eventsStay
	case eventsParked:
		if asks {
			return eventsWaiting, eventsClaim
		}
	case eventsWaiting:
		switch {
		case !asks || !l.slot.OnGPU() && l.slot != slotstate.Ready:
			return eventsParked, eventsEnd
		case l.slot == slotstate.ToEvict:
			return eventsWaiting, eventsLeave
		case l.slot.OnGPU(), l.ahead && l.claimed >= l.wanted:
			return eventsOn, eventsStart
		case l.wanted > l.claimed:
			return eventsWaiting, eventsClaim
		}
	case eventsOn:
		switch {
		case !l.there && l.wanted < 0:
			return eventsParked, eventsEnd
		case l.suspended, l.slot != slotstate.Running:
			return eventsLeaving, eventsStay
		case l.idle != l.shownIdle:
			return eventsOn, eventsNotice
		}
	case eventsQueued:
		return eventsParked, eventsStay
	case eventsAdmitted:
		return eventsWithdrawing, eventsStay
	case eventsWithdrawing:
		if !l.there {
			return eventsParked, eventsStay
		}
	case eventsLeaving:
		switch {
		case l.slot == slotstate.Running && !l.suspended:
			return eventsOn, eventsStay // they may stay after all
		case l.there:
		case asks && l.slot == slotstate.ToEvict:
			return eventsWaiting, eventsLeave
		default:
			return eventsParked, eventsEnd
		}
	}
	return s, eventsStay
}

// eventTurn is the turn of a context's event kernels. The goroutine of Step and the one that watches
// event kernels use it.
type eventTurn struct {
	mu        sync.Mutex
	gpu       gpu.EventKernels // nil before the first registration
	priority  [abi.MaxEventKernels]int
	state     eventState
	held      bool
	suspended bool
	slot      ipc.Claim
	claimed   int
	idle      bool
	since     time.Duration // when the turn began, or when they were given room
	started   uint64        // events, as of the look before
	late      bool          // they have outstayed an eviction deadline
	eventRoom
	// The state at the newest look, so that Step sees when to look again.
	decided bool
	seen    slotstate.State
}

// beginEventTurn has the turn begin, before the first registration.
func (x *Executor) beginEventTurn(g gpu.EventKernels) error {
	t := &x.eventKernels.turn
	t.mu.Lock()
	defer t.mu.Unlock()
	t.gpu = g
	return x.advanceEvents()
}

// end gives the slot up when the executor ends.
func (t *eventTurn) end(now time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.giveUp(now)
}

// setPriority sets the priority that an event kernel asks for.
func (t *eventTurn) setPriority(number, priority int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.priority[number] = priority
}

// eventsKernel is what the daemon knows all event kernels by.
var eventsKernel = func() uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte("event kernels")) // it returns no error
	return h.Sum64()
}()

// eventPriority returns the priority of an event kernel now.
func (x *Executor) eventPriority(asked int) int {
	return min(asked, x.o.Page.Terms().PriorityCeiling)
}

// lookAtEvents returns what next needs to know.
//
// Preconditions: the turn's mu is held, and it has a GPU.
func (x *Executor) lookAtEvents() (eventLook, error) {
	t := &x.eventKernels.turn
	l := eventLook{decides: !x.free(), suspended: t.suspended, wanted: -1, slot: t.slot.State(), claimed: t.claimed, shownIdle: t.idle}
	t.decided, t.seen = l.decides, l.slot
	l.eventRoomLook = eventRoomLook{!l.decides && x.bounded(), t.room, t.awaited, x.o.Clock.Now()-t.since >= eventsShare}
	if !l.decides && !l.shared {
		return l, nil
	}
	list, err := t.gpu.EventKernelCounts()
	if err != nil {
		return l, err
	}
	// Where contexts can't be taken off the GPU those of a guest go one by one. All of them could see at
	// the same time that the others have nothing there, so events wait for the daemon's verdict.
	l.ahead = !x.bounded() && x.goesAhead(t.claimed)
	l.idle = true
	started := uint64(0)
	for i := range list {
		k := &list[i]
		if k.Pending {
			l.wanted = max(l.wanted, x.eventPriority(t.priority[k.Number]))
		}
		l.there = l.there || k.Resident || k.Started != k.Ended
		l.idle = l.idle && !k.Pending && k.Started == k.Ended
		started += k.Started
	}
	l.idle = l.idle && started == t.started
	t.started = started
	return l, nil
}

// advanceEvents takes the event kernels as far as they go now.
//
// Preconditions: the turn's mu is held, and it has a GPU.
func (x *Executor) advanceEvents() error {
	t := &x.eventKernels.turn
	for {
		l, err := x.lookAtEvents()
		if err != nil {
			return nil // the GPU is lost, which others notice
		}
		next, action := t.state.next(&l)
		if next == t.state && action == eventsStay {
			break
		}
		if done, err := x.actOnEvents(action, &l); err != nil || !done {
			return err
		}
		x.enterEventState(next)
		if err := t.hold(next.held() || t.suspended); err != nil {
			return err
		}
	}
	if err := t.hold(t.state.held() || t.suspended); err != nil {
		return err
	}
	x.checkEventDeadline()
	return nil
}

// hold holds the event kernels, or lets them go.
func (t *eventTurn) hold(on bool) error {
	if t.held == on {
		return nil
	}
	if err := t.gpu.HoldEvents(on); err != nil {
		return err
	}
	t.held = on
	if !on {
		t.gpu.KickEvents()
	}
	return nil
}

// actOnEvents does what a transition asks for, and reports whether that was possible.
func (x *Executor) actOnEvents(action eventAction, l *eventLook) (done bool, err error) {
	t := &x.eventKernels.turn
	now := x.o.Clock.Now()
	switch action {
	case eventsClaim:
		t.giveUp(now)
		t.claimed, t.idle = l.wanted, false
		var ok bool
		t.slot, ok = x.o.Page.Claim(x.o.Slot, &ipc.Launch{
			// It may need any number of SMs: PerSM is unknown.
			Evictable: !t.late, Priority: l.wanted, Blocks: 1, Tasks: 1, Threads: 1, Kernel: eventsKernel,
			Arrived: now, Events: ipc.EventsBusy,
		})
		return ok, nil
	case eventsStart:
		// The daemon may have taken the turn back since the look; another launch has it then.
		if !l.slot.OnGPU() && !t.slot.Grant() || !t.slot.Start(now) {
			return false, nil
		}
		t.since = now
	case eventsLeave:
		t.slot.SetEvents(ipc.EventsBusy)
		t.idle = false
		t.slot.Leave(now, 0)
	case eventsEnd:
		t.giveUp(now)
	case eventsNotice:
		t.idle = l.idle
		use := ipc.EventsBusy
		if l.idle {
			use = ipc.EventsIdle
		}
		t.slot.SetEvictable(l.idle || !t.late)
		t.slot.SetEvents(use)
	}
	return true, nil
}

// giveUp gives the slot up, if there is one.
func (t *eventTurn) giveUp(now time.Duration) {
	switch t.slot.State() {
	case slotstate.Running, slotstate.ToEvict:
		t.slot.Finish(max(now-t.since, 0))
	default:
		t.slot.Abandon(0)
	}
	t.slot = ipc.Claim{}
}

// checkEventDeadline notices event kernels that do not leave when told, since an event takes long.
// From then on nobody counts on it that they leave. The kernel time limit ends them.
//
// Preconditions: the turn's mu is held.
func (x *Executor) checkEventDeadline() {
	t := &x.eventKernels.turn
	if t.state != eventsLeaving || t.late || t.slot.State() != slotstate.ToEvict {
		return
	}
	slot := t.slot
	_, asked, deadline := slot.EvictionRequest()
	if deadline == 0 || x.o.Clock.Now() < deadline {
		return
	}
	x.do(func() {
		// While the context is off the GPU its events can't end.
		if now := x.o.Clock.Now(); now < deadline+x.offHost.overlap(asked, now) {
			return
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.late {
			return
		}
		t.late = true
		x.slot.AddUnresponsive()
		slot.SetEvictable(false)
		x.o.Log.Debug("event kernels did not leave when asked")
	})
}

// kickedEvents is called when there may be rings that were not taken. It kicks the GPU if the event
// kernels need no turn, or have theirs: they may have parked by themselves since the newest look.
func (x *Executor) kickedEvents() {
	t := &x.eventKernels.turn
	t.mu.Lock()
	defer t.mu.Unlock()
	x.advanceOrFail()
	if !t.state.held() {
		t.gpu.KickEvents()
	}
}

// watchEventTurn looks at event kernels that have a slot, and at those that have none if the daemon
// decides about something else now. It returns where they stand, and whether to look again soon.
func (x *Executor) watchEventTurn() (s eventState, soon bool) {
	t := &x.eventKernels.turn
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.slot.Held() || t.room || x.eventTurnStirs() {
		x.advanceOrFail()
	}
	return t.state, t.room && (t.state != eventsAdmitted || t.awaited)
}

// eventTurnStirs reports whether the daemon has decided something since the newest look.
func (x *Executor) eventTurnStirs() bool {
	t := &x.eventKernels.turn
	return t.decided == x.free() || t.seen != t.slot.State()
}

// advanceOrFail is advanceEvents of a goroutine that need not be Step's.
func (x *Executor) advanceOrFail() {
	if err := x.advanceEvents(); err != nil {
		x.do(func() { x.fail(err) })
	}
}

// stepEventTurn is the part of Step. It reports whether events wait for the end of a suspension, or
// for their turn.
func (x *Executor) stepEventTurn(suspended bool) (waiting bool) {
	t := &x.eventKernels.turn
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.gpu == nil {
		return false
	}
	defer x.publishEventRoom()
	if x.poison != nil {
		t.giveUp(x.o.Clock.Now())
		t.room = false
		return false
	}
	if x.eventRoomStirs(suspended) || t.suspended != suspended || x.eventTurnStirs() {
		t.suspended = suspended
		before := t.state
		if err := x.advanceEvents(); err != nil {
			x.fail(err)
			return false
		}
		if t.state != before || t.awaited && t.room {
			x.wakeEventWatch() // it may be time to look more often
		}
	}
	return (suspended || t.state == eventsWaiting || t.state == eventsQueued) && x.eventsRung()
}
