package executor

import (
	"math"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"vgpud/gpu"
	"vgpud/mediator/ipc"
	"vgpud/mediator/ipc/slotstate"
	"vgpud/mediator/vgpu/abi"
	"vgpud/mediator/vgpu/abi/eventqueue"
)

// eventCase is a transition of event kernels' states.
type eventCase struct {
	what   string
	from   eventState
	look   eventLook
	to     eventState
	action eventAction
}

func checkEventStates(t *testing.T, cases []eventCase) {
	t.Helper()
	for _, c := range cases {
		if to, action := c.from.next(&c.look); to != c.to || action != c.action {
			t.Errorf("%s: %v to %v, action %d; want %v, action %d", c.what, c.from, to, action, c.to, c.action)
		}
	}
}

// TestEventStates has a line for each transition of event kernels' states.
func TestEventStates(t *testing.T) {
	none := eventLook{decides: true, wanted: -1}
	look := func(f func(*eventLook)) eventLook {
		l := none
		f(&l)
		return l
	}
	rung := func(s slotstate.State, claimed, wanted int) eventLook {
		return look(func(l *eventLook) { l.slot, l.claimed, l.wanted = s, claimed, wanted })
	}
	there := func(s slotstate.State, wanted int) eventLook {
		l := rung(s, 5, wanted)
		l.there = true
		return l
	}
	suspended := func(l eventLook) eventLook { l.suspended = true; return l }
	checkEventStates(t, []eventCase{
		{"the daemon decides about guests", eventsFree, eventLook{wanted: 3}, eventsFree, eventsStay},
		{"it decides about launches from now on", eventsFree, none, eventsParked, eventsStay},
		{"and no longer", eventsParked, eventLook{wanted: -1}, eventsFree, eventsEnd},
		{"no ring", eventsParked, none, eventsParked, eventsStay},
		{"a ring", eventsParked, rung(slotstate.None, 0, 3), eventsWaiting, eventsClaim},
		{"a ring of a suspended guest", eventsParked, suspended(rung(slotstate.None, 0, 3)), eventsParked, eventsStay},
		{"waits", eventsWaiting, rung(slotstate.Ready, 3, 3), eventsWaiting, eventsStay},
		{"waits, and the guest is suspended", eventsWaiting, suspended(rung(slotstate.Ready, 3, 3)), eventsParked, eventsEnd},
		{"waits, and its kernel is gone", eventsWaiting, rung(slotstate.Ready, 3, -1), eventsParked, eventsEnd},
		{"a more urgent ring", eventsWaiting, rung(slotstate.Ready, 3, 5), eventsWaiting, eventsClaim},
		{"its turn", eventsWaiting, rung(slotstate.ToRun, 3, 3), eventsOn, eventsStart},
		{"its turn, with a more urgent ring", eventsWaiting, rung(slotstate.ToRun, 3, 5), eventsOn, eventsStart},
		{"its turn is over before it began", eventsWaiting, rung(slotstate.ToEvict, 3, 3), eventsWaiting, eventsLeave},
		{"its slot was freed", eventsWaiting, rung(slotstate.Done, 3, 3), eventsParked, eventsEnd},
		{"no launch goes before it", eventsWaiting, look(func(l *eventLook) { l.slot, l.wanted, l.claimed, l.ahead = slotstate.Ready, 3, 3, true }), eventsOn, eventsStart},
		{"no launch goes before a less urgent claim", eventsWaiting, look(func(l *eventLook) { l.slot, l.wanted, l.claimed, l.ahead = slotstate.Ready, 5, 3, true }), eventsWaiting, eventsClaim},
		{"the GPU has not taken the ring yet", eventsOn, rung(slotstate.Running, 3, 3), eventsOn, eventsStay},
		{"has events", eventsOn, there(slotstate.Running, 3), eventsOn, eventsStay},
		{"has none", eventsOn, look(func(l *eventLook) { l.slot, l.there, l.idle = slotstate.Running, true, true }), eventsOn, eventsNotice},
		{"has none, as the slot shows", eventsOn, look(func(l *eventLook) { l.slot, l.there, l.idle, l.shownIdle = slotstate.Running, true, true, true }), eventsOn, eventsStay},
		{"has some again", eventsOn, look(func(l *eventLook) { l.slot, l.there, l.shownIdle = slotstate.Running, true, true }), eventsOn, eventsNotice},
		{"has parked by itself", eventsOn, rung(slotstate.Running, 3, -1), eventsParked, eventsEnd},
		{"told to leave", eventsOn, there(slotstate.ToEvict, 3), eventsLeaving, eventsStay},
		{"suspended", eventsOn, suspended(there(slotstate.Running, 3)), eventsLeaving, eventsStay},
		{"its slot was freed on the GPU", eventsOn, there(slotstate.Done, 3), eventsLeaving, eventsStay},
		{"an event is under way", eventsLeaving, there(slotstate.ToEvict, -1), eventsLeaving, eventsStay},
		{"it may stay", eventsLeaving, there(slotstate.Running, -1), eventsOn, eventsStay},
		{"resumed before it left", eventsLeaving, there(slotstate.Running, 3), eventsOn, eventsStay},
		{"left", eventsLeaving, rung(slotstate.ToEvict, 5, -1), eventsParked, eventsEnd},
		{"left, with rings", eventsLeaving, rung(slotstate.ToEvict, 5, 5), eventsWaiting, eventsLeave},
		{"left, suspended", eventsLeaving, suspended(rung(slotstate.ToEvict, 5, 5)), eventsParked, eventsEnd},
		{"left, suspended in its turn", eventsLeaving, suspended(rung(slotstate.Running, 5, 5)), eventsParked, eventsEnd},
		{"left, its slot was freed", eventsLeaving, rung(slotstate.Done, 5, 5), eventsParked, eventsEnd},
		{"on, and the daemon is silent", eventsOn, eventLook{slot: slotstate.Running, there: true}, eventsFree, eventsEnd},
		{"waits, and the daemon is silent", eventsWaiting, eventLook{slot: slotstate.Ready, wanted: 3}, eventsFree, eventsEnd},
		{"leaves, and the daemon is silent", eventsLeaving, eventLook{slot: slotstate.ToEvict, there: true}, eventsFree, eventsEnd},
	})
}

// TestEventsNeverOnWithoutATurn looks at every state and what can be known: event kernels are let go
// only by a turn, and a suspension holds them.
func TestEventsNeverOnWithoutATurn(t *testing.T) {
	bools := []bool{false, true}
	for s := range eventState(eventStates) {
		for slot := slotstate.None; slot <= slotstate.Done; slot++ {
			for bits := range 1 << 6 {
				for wanted := -1; wanted <= 1; wanted++ {
					bit := func(i int) bool { return bools[bits>>i&1] }
					l := eventLook{decides: true, suspended: bit(0), there: bit(1), idle: bit(2), shownIdle: bit(3), ahead: bit(4), slot: slot, wanted: wanted}
					to, action := s.next(&l)
					turn := slot.OnGPU() || l.ahead && slot == slotstate.Ready
					switch {
					case to == eventsFree:
						t.Fatalf("%v with %+v is free", s, l)
					case to == eventsOn && s != eventsOn && (!turn || l.suspended):
						t.Fatalf("%v with %+v goes on", s, l)
					case l.suspended && to == eventsOn && (l.there || wanted >= 0):
						t.Fatalf("%v with %+v is on, and suspended", s, l)
					case action == eventsStart && slot == slotstate.ToEvict:
						t.Fatalf("%v with %+v starts when told to leave", s, l)
					}
				}
			}
		}
	}
}

// eventRig is a rig whose daemon is the test, with kernels of the priorities 3 and 9, of which the
// guest's ceiling leaves 7.
type eventRig struct {
	*rig
	g         *guestEnd
	low, high *eventqueue.Launcher
}

func newEventRig(t *testing.T) *eventRig { return newEventRigOn(t, ShallowFetchLimit) }

// newEventRigOn is newEventRig on a GPU with that fetch limit.
func newEventRigOn(t *testing.T, limit FetchLimit) *eventRig {
	return newEventRigIn(t, limit, func(c gpu.Context) gpu.Context { return c })
}

// newEventRigIn is newEventRigOn in a context that wrap returns.
func newEventRigIn(t *testing.T, limit FetchLimit, wrap func(gpu.Context) gpu.Context) *eventRig {
	r := &eventRig{rig: newRigIn(t, testGPU, gpu.ContextOptions{}, wrap)}
	r.x.o.FetchLimit = limit
	r.page.SetTerms(ipc.Terms{Weight: 1, PriorityCeiling: 7})
	r.g = r.open()
	mem := r.g.must(abi.OpMemAlloc, abi.Alloc{Size: 256}).Value[0]
	fn := r.g.load(incPTX, "inc")
	r.byKernel()
	r.low, r.high = r.registerAt(fn, -3, mem), r.registerAt(fn, -9, mem+128)
	if n := r.page.Context(0).Counters().IgnoredPriorities; n != 1 {
		t.Errorf("%d priorities above the ceiling, want 1", n)
	}
	return r
}

// registerAt registers a kernel with a CUDA priority.
func (r *eventRig) registerAt(fn uint64, priority int32, params ...uint64) *eventqueue.Launcher {
	r.t.Helper()
	a := abi.Attribute{ID: abi.AttributePriority}
	a.PutUint32(0, uint32(priority))
	l, data := launchOf(fn, 32, params...)
	c := r.g.call(abi.Header{Op: abi.OpEventKernelRegister, Aux: 1}, l, attributed(data, a)...)
	if c.Status != abi.StatusOK {
		r.t.Fatal(c.Status)
	}
	q, err := eventqueue.Attach(r.options.Events, int(c.Value[0]))
	if err != nil {
		r.t.Fatal(err)
	}
	return q
}

// launches returns the launches that the daemon sees. The goroutine that watches event kernels may
// exchange one for another, so it is kept from that while they are read.
func (r *eventRig) launches() []ipc.Launch {
	turn := &r.x.eventKernels.turn
	turn.mu.Lock()
	defer turn.mu.Unlock()
	return r.rig.launches()
}

// await steps the executor until the only launch that the daemon sees is in a state.
func (r *eventRig) await(what string, is func(ipc.Launch) bool) (v ipc.Launch) {
	r.t.Helper()
	r.stepUntil(what, func() bool {
		live := r.launches()
		if len(live) > 1 {
			r.t.Fatalf("%s: launches %+v", what, live)
		}
		if len(live) == 1 {
			v = live[0]
			return is(v)
		}
		return false
	})
	return v
}

// none steps the executor until the daemon sees no launch.
func (r *eventRig) none(what string) {
	r.t.Helper()
	r.stepUntil(what, func() bool { return len(r.launches()) == 0 })
}

// finish waits for an event while the executor steps.
func (r *eventRig) finish(q *eventqueue.Launcher) {
	r.t.Helper()
	r.stepUntil("the event's end", func() bool { _, ok := q.Done(); return ok })
	q.Complete()
}

// idle launches events, and lets them run, until the slot shows that there are none. On a busy machine
// the kernels may have parked by themselves before somebody looks.
func (r *eventRig) idle() (v ipc.Launch) {
	r.t.Helper()
	r.stepUntil("idle event kernels", func() bool {
		live := r.launches()
		if _, ok := r.low.Done(); ok {
			r.low.Complete()
		}
		switch {
		case len(live) == 0 && r.low.Flying() == 0:
			r.fire(r.low)
		case len(live) == 1 && live[0].State == slotstate.Ready:
			r.runAll()
		case len(live) == 1 && live[0].State == slotstate.Running && live[0].Events == ipc.EventsIdle:
			v = live[0]
			return true
		}
		return false
	})
	return v
}

func (r *eventRig) started() (n uint64) {
	r.t.Helper()
	list, err := r.ctx.(gpu.EventKernels).EventKernelCounts()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, k := range list {
		n += k.Started
	}
	return n
}

func ready(v ipc.Launch) bool { return v.State == slotstate.Ready }

// TestEventsTakeTurns: a ring asks for a turn with its kernel's priority, nothing runs before, and the
// slot shows when there are no more events; told to leave then, it is given up.
func TestEventsTakeTurns(t *testing.T) {
	r := newEventRig(t)
	for range 50 {
		r.x.Step(false)
	}
	if live := r.launches(); len(live) != 0 {
		t.Fatalf("launches without a ring: %+v", live)
	}
	r.fire(r.low)
	v := r.await("a launch", ready)
	if v.Priority != 3 || v.Events != ipc.EventsBusy || !v.Evictable || v.PerSM != 0 {
		t.Fatalf("the launch is %+v", v)
	}
	// The slot may have been claimed by the goroutine that watches event kernels, before Step knows.
	r.stepUntil("a backlog", func() bool { return r.page.Context(0).Backlog() })
	for range 50 {
		r.ctx.(gpu.EventKernels).KickEvents()
		r.x.Step(false)
	}
	if n := r.started(); n != 0 {
		t.Fatalf("%d events without a turn", n)
	}
	r.fire(r.high)
	r.await("a more urgent launch", func(v ipc.Launch) bool { return ready(v) && v.Priority == 7 })
	r.runAll()
	r.finish(r.low)
	r.finish(r.high)
	r.idle()
	r.evictAll(math.MaxUint32)
	r.none("the end of the turn")
	r.fire(r.low)
	r.await("another launch", ready)
}

// TestEventsGoAhead: if no launch goes before a guest's most urgent ones, neither does one before its
// events of that priority, on a GPU that contexts can be taken off.
func TestEventsGoAhead(t *testing.T) {
	r := newEventRigOn(t, DeepFetchLimit)
	r.page.SetMode(ipc.ModeAhead)
	r.fire(r.low)
	v := r.await("a launch", ready)
	for range 50 {
		r.x.Step(false)
	}
	if n := r.started(); n != 0 || r.newest().State != slotstate.Ready {
		t.Fatalf("%d events of a less urgent kernel, %v", n, r.newest().State)
	}
	r.fire(r.high)
	r.finish(r.high)
	if got := r.newest(); got.ID == v.ID || got.Priority != 7 {
		t.Errorf("it went as %+v", got)
	}
}

// TestEventsOfManyContexts: on a GPU that keeps a kernel until it ends, events of a guest's contexts go
// by a verdict only, although nothing of the others is there when each of them looks.
func TestEventsOfManyContexts(t *testing.T) {
	r := newEventRig(t)
	r.page.SetMode(ipc.ModeAhead)
	r.fire(r.high)
	v := r.await("a launch", func(ipc.Launch) bool { return true })
	for range 50 {
		r.x.Step(false)
	}
	if n := r.started(); n != 0 || v.Priority != 7 || r.newest().State != slotstate.Ready {
		t.Fatalf("%d events without a verdict, %v", n, r.newest().State)
	}
	r.runAll()
	r.finish(r.high)
}

// TestEventsOfALongTurn: told to leave, event kernels end the event under way, begin none, and wait
// for their turn with the rings that are left.
func TestEventsOfALongTurn(t *testing.T) {
	r := newEventRig(t)
	long := r.registerAt(r.g.load(spinPTX, "spin"), -5, 20000)
	for range 60 {
		r.fire(long)
	}
	r.await("a launch", ready)
	r.runAll()
	r.await("running", func(v ipc.Launch) bool { return v.State == slotstate.Running && r.started() > 0 })
	r.evictAll(math.MaxUint32)
	if v := r.await("it has left", ready); v.Evictions != 1 || v.Priority != 5 {
		t.Errorf("it left as %+v", v)
	}
	if n := r.started(); n == 60 {
		t.Error("all events have begun")
	}
	r.runAll()
	for range 60 {
		r.finish(long)
	}
}

// TestEventsOfAFreeDaemon: without a daemon that decides about launches events need no slot, also
// those that were waiting for a turn, and those that had it.
func TestEventsOfAFreeDaemon(t *testing.T) {
	for _, turn := range []bool{false, true} {
		r := newEventRig(t)
		r.fire(r.low)
		r.await("a launch", ready)
		if turn {
			r.runAll()
			r.finish(r.low)
		}
		r.page.SetMode(ipc.ModeFree)
		r.none("no slot")
		if turn {
			r.fire(r.low)
		}
		r.finish(r.low)
		if live := r.launches(); len(live) != 0 {
			t.Errorf("launches %+v", live)
		}
	}
}

// TestEventsOfASuspendedTurn: a suspension ends the turn, and the next one needs a slot anew.
func TestEventsOfASuspendedTurn(t *testing.T) {
	r := newEventRig(t)
	r.fire(r.high)
	r.await("a launch", ready)
	r.runAll()
	r.finish(r.high)
	for len(r.launches()) > 0 {
		r.x.Step(true)
		runtime.Gosched()
	}
	r.fire(r.high)
	for range 50 {
		r.x.Step(true)
	}
	if live := r.launches(); len(live) != 0 || !r.page.Context(0).Backlog() {
		t.Fatalf("a suspended guest's: %+v, backlog %v", live, r.page.Context(0).Backlog())
	}
	r.await("a launch", ready)
	r.runAll()
	r.finish(r.high)
}

// TestEventsTurnIsTakenBack: event kernels do not begin if the daemon takes their turn back just when
// they are about to.
func TestEventsTurnIsTakenBack(t *testing.T) {
	r := newEventRig(t)
	r.fire(r.high)
	r.await("a launch", ready)
	turn := &r.x.eventKernels.turn
	func() {
		turn.mu.Lock() // nobody else acts meanwhile
		defer turn.mu.Unlock()
		r.say(func(s *ipc.LaunchSlot, v ipc.Launch) { s.Run(v.ID) })
		l, err := r.x.lookAtEvents()
		if err != nil {
			t.Fatal(err)
		}
		if next, action := turn.state.next(&l); next != eventsOn || action != eventsStart {
			t.Fatalf("with the turn: %v, %v", next, action)
		}
		r.say(func(s *ipc.LaunchSlot, v ipc.Launch) { s.Withdraw(v.ID) })
		if done, err := r.x.actOnEvents(eventsStart, &l); done || err != nil {
			t.Fatalf("without the turn: %v, %v", done, err)
		}
	}()
	if v := r.await("a launch", ready); r.started() != 0 {
		t.Errorf("%d events have begun: %+v", r.started(), v)
	}
	r.runAll()
	r.finish(r.high)
}

// TestEventsThatStay: event kernels that outstay an eviction deadline no longer count as evictable,
// unless they are idle.
func TestEventsThatStay(t *testing.T) {
	r := newEventRig(t)
	long := r.registerAt(r.g.load(spinPTX, "spin"), -5, 1<<19)
	r.fire(long)
	r.await("a launch", ready)
	r.runAll()
	r.await("running", func(v ipc.Launch) bool { return v.State == slotstate.Running && r.started() > 0 })
	now := r.x.o.Clock.Now()
	r.say(func(s *ipc.LaunchSlot, v ipc.Launch) { s.Evict(v.ID, math.MaxUint32, now-time.Second, now) })
	r.stepUntil("unresponsive", func() bool {
		return slices.ContainsFunc(r.launches(), func(v ipc.Launch) bool { return v.State == slotstate.ToEvict && !v.Evictable })
	})
	if n := r.page.Context(0).Counters().Unresponsive; n != 1 {
		t.Errorf("%d unresponsive", n)
	}
	r.finish(long)
	r.none("the end of the turn")
	r.fire(r.low)
	if v := r.await("a launch", ready); v.Evictable {
		t.Error("the next turn is evictable")
	}
	r.runAll()
	r.finish(r.low)
	if v := r.idle(); !v.Evictable {
		t.Error("idle, they are not evictable")
	}
}

// TestEventSlotOfAFault: a context that is over has no slot.
func TestEventSlotOfAFault(t *testing.T) {
	r := newEventRig(t)
	bad := r.registerAt(r.g.load(incPTX, "inc"), -5, 8)
	r.fire(bad)
	r.await("a launch", ready)
	r.runAll()
	// Nothing but a look every so often notices, by a clock that stands still.
	r.stepUntil("a fault", func() bool {
		if err := r.ctx.Fault(); err != nil {
			r.x.do(func() { r.x.fail(err) })
		}
		return len(r.faults) > 0
	})
	r.none("the slot")
}

// deafEvents are event kernels that, once they are deaf, have left the GPU and find no ring before they
// are kicked.
type deafEvents struct {
	gpu.Context
	gpu.EventKernels
	deaf         atomic.Bool
	looks, kicks atomic.Int64 // since they are deaf
}

func (d *deafEvents) EventKernelCounts() ([]gpu.EventKernelCounts, error) {
	list, err := d.EventKernels.EventKernelCounts()
	if d.deaf.Load() {
		d.looks.Add(1)
		for i := range list {
			k := &list[i]
			k.Resident, k.Pending, k.Ended = false, true, k.Started
		}
	}
	return list, err
}

func (d *deafEvents) KickEvents() {
	if d.deaf.Load() {
		d.kicks.Add(1)
	}
	d.EventKernels.KickEvents()
}

// TestRingOfParkedTurn: event kernels that have their turn, and have left the GPU by themselves, are
// kicked for a ring that comes before anybody has noticed.
func TestRingOfParkedTurn(t *testing.T) {
	d := &deafEvents{}
	r := newEventRigIn(t, ShallowFetchLimit, func(c gpu.Context) gpu.Context {
		d.Context, d.EventKernels = c, c.(gpu.EventKernels)
		return d
	})
	turn := &r.x.eventKernels.turn
	for rung := false; !rung; {
		r.idle()
		func() {
			turn.mu.Lock() // nobody looks meanwhile
			defer turn.mu.Unlock()
			if rung = turn.state == eventsOn; rung {
				if err := d.HoldEvents(true); err != nil {
					t.Fatal(err)
				}
				d.deaf.Store(true)
				r.fire(r.low)
			}
		}()
	}
	const looks = 1000
	r.stepUntil("a kick, or many looks", func() bool { return d.kicks.Load() > 0 || d.looks.Load() > looks })
	if d.kicks.Load() == 0 {
		t.Errorf("%d looks and no kick", looks)
	}
}
