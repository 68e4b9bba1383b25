package executor

import (
	"errors"
	"strings"
	"testing"
	"time"

	"vgpud/gpu"
	"vgpud/internal/proctest"
	"vgpud/mediator/ipc"
	"vgpud/mediator/vgpu/abi"
	"vgpud/mediator/vgpu/abi/eventqueue"
)

// TestEventStatesInRoom has a line for each transition of event kernels that need room and no turn.
func TestEventStatesInRoom(t *testing.T) {
	look := func(wanted int, f func(*eventLook)) eventLook {
		l := eventLook{wanted: wanted}
		l.shared = true
		if f != nil {
			f(&l)
		}
		return l
	}
	room := func(l *eventLook) { l.room = true }
	there := func(l *eventLook) { l.room, l.there = true, true }
	suspended := func(l *eventLook) { l.suspended = true }
	decides := eventLook{decides: true, wanted: -1}
	decidesThere := decides
	decidesThere.there = true
	checkEventStates(t, []eventCase{
		{"the first registration", eventsFree, look(-1, nil), eventsParked, eventsStay},
		{"no ring", eventsParked, look(-1, nil), eventsParked, eventsStay},
		{"a ring", eventsParked, look(3, nil), eventsQueued, eventsStay},
		{"a ring of a suspended guest", eventsParked, look(3, suspended), eventsParked, eventsStay},
		{"no room", eventsQueued, look(3, nil), eventsQueued, eventsStay},
		{"room", eventsQueued, look(3, room), eventsAdmitted, eventsStay},
		{"room, and the kernel is gone", eventsQueued, look(-1, room), eventsParked, eventsStay},
		{"waits, and the guest is suspended", eventsQueued, look(3, suspended), eventsParked, eventsStay},
		{"the GPU has not taken the ring yet", eventsAdmitted, look(3, room), eventsAdmitted, eventsStay},
		{"has events", eventsAdmitted, look(3, there), eventsAdmitted, eventsStay},
		{"has parked by itself", eventsAdmitted, look(-1, room), eventsParked, eventsStay},
		{"suspended", eventsAdmitted, look(3, func(l *eventLook) { there(l); suspended(l) }), eventsWithdrawing, eventsStay},
		{"another context waits", eventsAdmitted, look(3, func(l *eventLook) { there(l); l.awaited = true }), eventsAdmitted, eventsStay},
		{"another waits, for long", eventsAdmitted, look(3, func(l *eventLook) { there(l); l.awaited, l.long = true, true }), eventsWithdrawing, eventsStay},
		{"another waits, and there are no events", eventsAdmitted, look(-1, func(l *eventLook) { there(l); l.awaited, l.idle = true, true }), eventsWithdrawing, eventsStay},
		{"no events", eventsAdmitted, look(-1, func(l *eventLook) { there(l); l.idle = true }), eventsAdmitted, eventsStay},
		{"for long", eventsAdmitted, look(3, func(l *eventLook) { there(l); l.long = true }), eventsAdmitted, eventsStay},
		{"an event is under way", eventsWithdrawing, look(3, there), eventsWithdrawing, eventsStay},
		{"left, with rings", eventsWithdrawing, look(3, func(l *eventLook) { l.room, l.awaited = true, true }), eventsParked, eventsStay},
		{"left, with rings, and nobody waits", eventsWithdrawing, look(3, room), eventsAdmitted, eventsStay},
		{"left", eventsWithdrawing, look(-1, room), eventsParked, eventsStay},
		{"left, suspended", eventsWithdrawing, look(3, func(l *eventLook) { room(l); suspended(l) }), eventsParked, eventsStay},
		{"it waited for its turn", eventsWaiting, look(3, nil), eventsParked, eventsEnd},
		{"it had its turn", eventsOn, look(3, there), eventsWithdrawing, eventsEnd},
		{"it left in its turn", eventsLeaving, look(3, there), eventsWithdrawing, eventsEnd},
		{"it needs a turn from now on", eventsQueued, decides, eventsParked, eventsStay},
		{"it has room and needs a turn", eventsAdmitted, decides, eventsWithdrawing, eventsStay},
		{"it has room and needs a turn, with an event under way", eventsWithdrawing, decidesThere, eventsWithdrawing, eventsStay},
		{"it had room and needs a turn", eventsWithdrawing, decides, eventsParked, eventsStay},
	})
}

// eventGuest is a guest with some contexts that have an event kernel each, on GPUs that keep a kernel
// until it ends. The daemon decides about guests.
type eventGuest struct {
	t    *testing.T
	page *ipc.ControlPage
	all  []*eventMember
}

type eventMember struct {
	*eventRig
	spin uint64 // a kernel that runs for as long as its parameter says
	q    *eventqueue.Launcher
	runs uint64 // of the event
}

// newEventGuest returns a guest with a context for each of runs. prepare is called for each before its
// kernel is registered.
func newEventGuest(t *testing.T, prepare func(*rig), runs ...uint64) *eventGuest {
	c := &eventGuest{t: t}
	for i, n := range runs {
		r := newRig(t, gpu.ContextOptions{})
		if c.page == nil {
			c.page = r.page
		}
		r.options.Page, r.options.Slot = c.page, i
		r.page = c.page
		r.x = New(r.options)
		t.Cleanup(func() {
			if err := r.x.Close(); err != nil {
				t.Error(err)
			}
		})
		c.page.Context(i).Reset(1)
		c.page.AddChange()
		m := &eventMember{eventRig: &eventRig{rig: r}, runs: n}
		m.g = r.open()
		m.spin = m.g.load(spinPTX, "spin")
		prepare(r)
		m.q = m.registerAt(m.spin, 0, n)
		c.all = append(c.all, m)
	}
	return c
}

// stepUntil steps all executors until done.
func (c *eventGuest) stepUntil(what string, suspended bool, done func() bool) {
	c.t.Helper()
	var w proctest.Wait
	for !done() {
		if err := w.Over(); err != nil {
			c.t.Fatalf("never: %s (%v)", what, err)
		}
		for _, m := range c.all {
			m.x.Step(suspended)
		}
	}
}

// endless is the number of rounds of a kernel that only its time limit ends.
const endless = 1 << 62

// TestEventsTakeRoom: events of a guest's contexts go one context after the other, and beside no
// launch of another, where contexts can't be taken off the GPU.
func TestEventsTakeRoom(t *testing.T) {
	c := newEventGuest(t, func(*rig) {}, endless, 1, 1)
	a, b, other := c.all[0], c.all[1], c.all[2]
	a.fire(a.q)
	c.stepUntil("the first event", false, func() bool { return a.started() == 1 })
	b.fire(b.q)
	c.stepUntil("the second context to wait", false, func() bool { return c.page.Context(1).Waiting() > 0 || b.started() > 0 })
	l, params := launchOf(other.spin, 1, 1)
	other.g.send(abi.Header{Op: abi.OpLaunch}, l, params...)
	c.stepUntil("a launch to wait", false, func() bool { return c.page.Context(2).Waiting() > 0 || other.x.admitted > 0 })
	for _, suspended := range []bool{false, true, false} {
		for range 50 {
			for _, m := range c.all {
				m.x.Step(suspended)
			}
		}
		if n := b.started(); n != 0 || other.x.admitted != 0 {
			t.Fatalf("%d events and %d launches beside an endless event (suspended %v)", n, other.x.admitted, suspended)
		}
	}
	c.page.SetKernelTimeLimit(time.Second)
	c.stepUntil("the event's end", false, func() bool { return a.x.poison != nil })
	c.stepUntil("the others", false, func() bool {
		_, ok := b.q.Done()
		return ok && other.x.launches == 0 && !c.page.Context(2).Backlog()
	})
}

// TestEventsMakeRoom: a context whose events never cease makes room for the others' launches and
// events, and has its turn again.
func TestEventsMakeRoom(t *testing.T) {
	c := newEventGuest(t, func(*rig) {}, 1, 1, 1)
	a, b, other := c.all[0], c.all[1], c.all[2]
	ended, launched := 0, 0
	c.stepUntil("turns", false, func() bool {
		for _, m := range []*eventMember{a, b} {
			if _, ok := m.q.Done(); ok {
				m.q.Complete()
				if m == b {
					ended++
				}
			}
			if m == a || m.q.Flying() == 0 {
				if _, ok := m.q.Free(); ok {
					m.fire(m.q)
				}
			}
		}
		if !c.page.Context(2).Backlog() {
			launched++
			l, params := launchOf(other.spin, 1, 1)
			other.g.send(abi.Header{Op: abi.OpLaunch}, l, params...)
		}
		return ended >= 20 && launched >= 20 && a.started() >= 20
	})
}

// TestEventsGiveRoomBack: event kernels that have parked or whose context has ended keep no room.
func TestEventsGiveRoomBack(t *testing.T) {
	c := newEventGuest(t, func(*rig) {}, 1, 1)
	for range 3 {
		for _, m := range c.all {
			m.fire(m.q)
			c.stepUntil("the event's end", false, func() bool { _, ok := m.q.Done(); return ok })
			m.q.Complete()
		}
	}
	c.stepUntil("no room taken", true, func() bool {
		return c.page.Context(0).FetchAhead() == ipc.FetchAhead{} && c.page.Context(1).FetchAhead() == ipc.FetchAhead{}
	})
}

// TestEventsOverstay: what a suspended guest has on the GPU beside events that are under way has one
// time limit together, and so have events that the daemon tells to leave.
func TestEventsOverstay(t *testing.T) {
	const limit = time.Second
	const most = limit - limit/overstayMargin
	for _, byKernel := range []bool{false, true} {
		c := newEventGuest(t, func(r *rig) {
			r.x.o.KernelTimeLimit = limit
			if byKernel {
				r.byKernel()
			}
		}, endless)
		a := c.all[0]
		a.fire(a.q)
		c.stepUntil("an event", false, func() bool {
			if byKernel {
				a.runAll()
			}
			return a.started() == 1
		})
		c.page.SetBill(ipc.Bill{Used: time.Minute})
		if byKernel {
			a.evictAll(^uint32(0))
		}
		suspended := !byKernel
		c.stepUntil("it is to leave", suspended, func() bool { return a.x.admission.eventsLeaving || a.x.suspension.on })
		c.page.SetBill(ipc.Bill{Used: time.Minute + most})
		if a.x.Step(suspended); a.x.poison != nil {
			t.Errorf("by kernel %v: ended too early", byKernel)
		}
		c.page.SetBill(ipc.Bill{Used: time.Minute + most + time.Millisecond})
		if a.x.Step(suspended); !errors.Is(a.x.poison, gpu.ErrTimeLimit) || !strings.Contains(a.x.lastFault, "in kernel ") {
			t.Errorf("by kernel %v: ended with %q", byKernel, a.x.lastFault)
		}
	}
}
