package executor

import (
	"time"

	"vgpud/mediator/ipc"
	"vgpud/mediator/vgpu/abi"
)

// goesInTurn reports whether the job, which has no verdict, may go to the GPU in its guest's turn
// (see [ipc.Turn]).
func (j *job) goesInTurn() bool {
	x, ch := j.ch.x, j.ch
	others, work := x.admitted, x.admittedWork
	if j.state.hasRoom() {
		others, work = others-1, work-j.p.estimate.work
	}
	if ch.job == j {
		return others == 0 && x.turnLasts(0, false)
	}
	return others == 1 && ch.job.isFollowedBy(j.form, j.urgency, j.p.estimate) && x.turnLasts(work, true)
}

// isFollowedBy reports whether a launch may be announced while the job is on the GPU: it goes there
// behind the job. It can be taken back from the GPU only if both are preemptible. Where the daemon
// decides about launches both must be short as well, and no launch of the guest more urgent: the
// next verdict may be about another guest.
func (j *job) isFollowedBy(form abi.PreemptForm, urgency int, s estimate) bool {
	x := j.ch.x
	if x.o.Page.Mode() == ipc.ModeFree {
		return form != 0 && j.form != 0
	}
	first := j.p.estimate
	return (form == 0) == (j.form == 0) && !s.long && !first.long && first.work+s.work <= shallowWork &&
		urgency >= x.o.Page.Terms().PriorityCeiling
}

// letsNextGo reports whether the channel's newest command is a launch that has the GPU, and it is
// the guest's turn for another behind it.
func (ch *channel) letsNextGo() bool {
	j := ch.job
	return j != nil && ch.second == nil && ch.flight[(ch.after-1)%flightLimit].job == j && j.letsNextGo() &&
		ch.x.admitted == 1 && ch.x.turnLasts(ch.x.admittedWork, true)
}

// turnLasts reports whether it is the guest's turn, and still will be in a while, when the context's
// next launch is expected to begin; and nothing of the guest's other contexts is on the GPU. behind
// reports whether the launch goes behind another one.
func (x *Executor) turnLasts(in time.Duration, behind bool) bool {
	p := x.o.Page
	t := p.Turn()
	if t.Until == 0 || behind && !t.Behind || x.o.Clock.Now()+in >= t.Until {
		return false
	}
	for i := range ipc.MaxContexts {
		if i != x.o.Slot && p.Context(i).Outstanding() > 0 {
			return false
		}
	}
	return true
}

// begins records that the job, which was put on the GPU behind another one that is over, has the GPU
// from now on. A nil job does not.
func (j *job) begins() {
	if j == nil || !j.state.onGPU() {
		return
	}
	j.run.started = j.ch.x.o.Clock.Now()
	j.slot.Begin(j.run.started)
}
