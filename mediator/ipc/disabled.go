package ipc

import "time"

// A context is disabled while the daemon has its channels off the GPU, through the GPU's driver, if
// need be in mid-kernel. The page has a bit for that for two reasons: the executor must not count
// the time as its kernels', and it must enable a context that a daemon left disabled and is gone.

// SetDisabled records whether a context's channels are off the GPU, and wakes its executor if that
// has changed. The daemon calls it before it takes the channels off and after it has put them back,
// and vm once the context's executor is gone.
func (p *ControlPage) SetDisabled(slot int, on bool) {
	bit := uint32(1) << slot
	if on == p.Disabled(slot) {
		return
	}
	if on {
		p.l.disabled.Or(bit)
	} else {
		p.l.disabled.And(^bit)
	}
	p.Context(slot).Wake()
}

// Disabled reports whether this daemon or one before it recorded that a context's channels are off
// the GPU.
func (p *ControlPage) Disabled(slot int) bool { return p.l.disabled.Load()&(1<<slot) != 0 }

// SetSliced records whether a context has a time slice that is not the driver's own, so that a
// later daemon can restore the driver's. The daemon calls it before it sets one and after it has
// restored the driver's, and vm once the context's executor is gone.
func (p *ControlPage) SetSliced(slot int, on bool) {
	bit := uint32(1) << slot
	switch {
	case on == p.Sliced(slot):
	case on:
		p.l.sliced.Or(bit)
	default:
		p.l.sliced.And(^bit)
	}
}

// Sliced reports whether this daemon or one before it recorded that it set a context's time slice.
func (p *ControlPage) Sliced(slot int) bool { return p.l.sliced.Load()&(1<<slot) != 0 }

// SuspensionExpired reports whether the daemon has been silent for [SuspensionLimit] at now, an
// instant of clock.Real, and is gone, or has been silent for [HungLimit]. Then executors undo what
// it did to the guest's contexts. A process without the guest's suspension file takes a daemon that
// is silent to be gone.
func (p *ControlPage) SuspensionExpired(now time.Duration) bool {
	return p.expired(now, SuspensionLimit, HungLimit)
}
