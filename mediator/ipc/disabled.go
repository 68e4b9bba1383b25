package ipc

import "time"

// A context is disabled while the daemon has its channels off the GPU, through the
// GPU's driver, in mid-kernel where a kernel runs. It is said on the page for two
// reasons: the time is none that the context's kernels had, and a context that was
// left so by a daemon that is gone must be enabled by its own executor.

// SetDisabled records whether a context's channels are off the GPU, before they are
// taken off and after they were put back, and wakes its executor where that is new.
// The daemon calls it, and vm once the
// context's executor is gone.
func (p *Page) SetDisabled(slot int, yes bool) {
	bit := uint32(1) << slot
	if yes == p.Disabled(slot) {
		return
	}
	if yes {
		p.l.disabled.Or(bit)
	} else {
		p.l.disabled.And(^bit)
	}
	p.Context(slot).Ring()
}

// Disabled is whether the daemon says, or the last one said, that a context's
// channels are off the GPU.
func (p *Page) Disabled(slot int) bool { return p.l.disabled.Load()&(1<<slot) != 0 }

// SetSliced records whether a context has a time slice that is not the driver's own,
// before it gets one and after that was given back: who comes next is to undo it. The
// daemon calls it, and vm once the context's executor is gone.
func (p *Page) SetSliced(slot int, yes bool) {
	bit := uint32(1) << slot
	switch {
	case yes == p.Sliced(slot):
	case yes:
		p.l.sliced.Or(bit)
	default:
		p.l.sliced.And(^bit)
	}
}

// Sliced is whether the daemon says, or the last one said, that a context's time slice
// is of its making.
func (p *Page) Sliced(slot int) bool { return p.l.sliced.Load()&(1<<slot) != 0 }

// Abandoned is whether the daemon has been silent for [SuspensionLimit] at now, an instant
// of clock.Real: what it did to the guest's contexts is to be undone.
func (p *Page) Abandoned(now time.Duration) bool {
	return now-time.Duration(p.l.heartbeat.Load()) > SuspensionLimit
}
