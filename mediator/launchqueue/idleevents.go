package launchqueue

import (
	"vgpud/mediator/ipc"
	"vgpud/mediator/ipc/slotstate"
)

// IdleEvents calls f with each launch of event kernels that are on the GPU without an event while
// launches of other guests wait for it.
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
		if q.othersWait(l.queue) {
			f(l)
		}
	}
}
