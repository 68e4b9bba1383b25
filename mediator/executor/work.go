package executor

import (
	"time"

	"vgpud/gpu"
)

// ongoing is what of a channel's launches and fills is on the GPU.
type ongoing struct {
	commands int
	// since is when the oldest of them can have begun at the earliest, on the GPU's
	// clock; 0 where nobody wants to know.
	since time.Duration
}

// placed takes note of a launch that was put on the GPU.
func (ch *channel) placed() {
	ch.x.slot.AddFetched()
	ch.x.began(&ch.onGPU)
}

// began takes note of a launch or fill that was put behind those of on.
func (x *Executor) began(on *ongoing) {
	x.launches++
	on.commands++
	if on.commands > 1 || !x.work.Wanted() {
		return // it comes after the others
	}
	if now, err := x.o.Device.Now(); err == nil { // a GPU that is gone is found out by others
		on.since = now
		x.publishSince()
	}
}

// gone takes note of a launch that is not there any more, and of when it was.
func (ch *channel) gone(out gpu.Outcome) { ch.x.ended(&ch.onGPU, out) }

// ended takes note of a launch or fill of on that is not there any more, and of when it
// was.
func (x *Executor) ended(on *ongoing, out gpu.Outcome) {
	x.launches--
	on.commands--
	switch {
	case on.commands == 0:
		on.since = 0
	case out.End != 0 && on.since != 0:
		on.since = out.End
	}
	if x.work.Wanted() {
		x.work.Add(out.Start, out.End)
		x.publishSince()
	}
}

// tellWorking says whether the context has commands under way: launches, and copies,
// which wait for its turn on the GPU just as long.
func (x *Executor) publishWorking(yes bool) {
	if yes != x.working {
		x.working = yes
		x.slot.SetWorking(yes, x.o.Clock.Now())
	}
}

// tellSince says since when the context has had work on the GPU.
func (x *Executor) publishSince() {
	since := x.zeroes.onGPU.since
	for _, chs := range [...][]*channel{x.channels, x.draining} {
		for _, ch := range chs {
			if t := ch.onGPU.since; t != 0 && (since == 0 || t < since) {
				since = t
			}
		}
	}
	x.work.SetSince(since)
}
