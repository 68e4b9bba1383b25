package launchqueue

import (
	"vgpud/mediator/ipc"
	"vgpud/mediator/ipc/slotstate"
)

// IdleEvents calls f with each launch of event kernels that are on the GPU without an event while
// other launches wait for it.
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
		others := q.count.waiting
		if l.Waits() {
			others-- // itself: it went ahead
		}
		if others > 0 {
			f(l)
		}
	}
}
