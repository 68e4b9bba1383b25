package executor

import (
	"time"

	"vgpud/gpu"
)

// ongoing is a channel's launches and fills on the GPU.
type ongoing struct {
	commands int
	// since is the earliest time at which the oldest of them can have started, on the GPU's clock,
	// or 0 if work logs are not wanted.
	since time.Duration
}

// placed counts a launch that was put on the GPU.
func (ch *channel) placed() {
	ch.x.slot.AddFetched()
	ch.x.began(&ch.onGPU)
}

// began counts a launch or fill that was put on the GPU behind those of on.
func (x *Executor) began(on *ongoing) {
	x.launches++
	on.commands++
	if on.commands > 1 || !x.work.Wanted() {
		return // it starts after the others
	}
	if now, err := x.o.Device.Now(); err == nil { // other calls report a GPU that is gone
		on.since = now
		x.publishSince()
	}
}

// gone counts a launch that has left the GPU, and adds its interval to the work log.
func (ch *channel) gone(out gpu.Outcome) { ch.x.ended(&ch.onGPU, out) }

// ended counts a launch or fill of on that has left the GPU, and adds its interval to the work log.
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

// publishWorking records on the page whether the context has unfinished commands: launches, and
// copies, which wait for the context's turn on the GPU just as long.
func (x *Executor) publishWorking(working bool) {
	if working != x.working {
		x.working = working
		x.slot.SetWorking(working, x.o.Clock.Now())
	}
}

// publishSince records on the page since when the context has had work on the GPU.
func (x *Executor) publishSince() {
	since := x.zeroes.onGPU.since
	if t := x.eventKernels.since; t != 0 && (since == 0 || t < since) {
		since = t
	}
	for _, chs := range [...][]*channel{x.channels, x.draining} {
		for _, ch := range chs {
			if t := ch.onGPU.since; t != 0 && (since == 0 || t < since) {
				since = t
			}
		}
	}
	x.work.SetSince(since)
}
