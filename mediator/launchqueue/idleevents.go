package launchqueue

import (
	"vgpud/mediator/ipc"
	"vgpud/mediator/ipc/slotstate"
)

// IdleEvents calls f with each launch of event kernels that are on the GPU without an event while
// other launches wait for it, or were told to leave: one that a time slice has taken off the GPU before
// its blocks saw that can't leave while event kernels poll.
func (q *Queue) IdleEvents(f func(*Launch)) {
	counted := false
	for _, l := range q.launches {
		if l.over || l.slot.Events != ipc.EventsIdle || l.slot.State != slotstate.Running {
			continue
		}
		if !counted {
			q.recount()
			counted = true
		}
		others := q.count.waiting + q.leaving()
		if l.Waits() {
			others-- // itself: it went ahead
		}
		if others > 0 {
			f(l)
		}
	}
}

// leaving returns how many launches were told to leave the GPU and have not.
func (q *Queue) leaving() (n int) {
	for _, l := range q.launches {
		if !l.over && l.slot.State == slotstate.ToEvict {
			n++
		}
	}
	return n
}
