package ipc

import "time"

// Mode is what the daemon decides about.
type Mode uint32

const (
	// ModeFree: guests. A launch does not wait for the daemon; a preemptible one can be told to
	// leave.
	ModeFree Mode = iota
	// ModeByKernel: launches. Each waits for its turn.
	ModeByKernel
	// ModeAhead: launches, and no other guest's launch goes before this guest's most urgent ones.
	// These are announced and don't wait. An executor of the version before takes it for
	// ModeByKernel.
	ModeAhead
)

// MaxPollLimit is the highest poll limit that [ControlPage.PollLimit] returns.
const MaxPollLimit = 20 * time.Millisecond

// SetMode records what the daemon decides about, and wakes the guest's executors if that has
// changed. The daemon calls it, and Beat as long as it is to hold.
func (p *ControlPage) SetMode(m Mode) {
	if p.launches != nil && Mode(p.launches.mode.Swap(uint32(m))) != m {
		p.wakeAll()
	}
}

// Mode returns what the daemon decides about.
func (p *ControlPage) Mode() Mode {
	if p.launches == nil {
		return ModeFree
	}
	if m := Mode(p.launches.mode.Load()); m <= ModeAhead {
		return m
	}
	return ModeByKernel // as older versions took a mode that they did not know
}

// SetBusyWait records whether executors whose kernel may be told to leave poll for that instead of
// sleeping. The daemon calls it.
func (p *ControlPage) SetBusyWait(b bool) {
	if p.launches != nil && b != p.BusyWait() {
		storeBool(&p.launches.busyWait, b)
		p.wakeAll()
	}
}

// BusyWait returns what SetBusyWait recorded.
func (p *ControlPage) BusyWait() bool { return p.launches != nil && p.launches.busyWait.Load() != 0 }

// SetPollLimit records for how long an executor of the guest may poll in one wait to avoid
// sleeping; 0 leaves that to the executor. The daemon calls it.
func (p *ControlPage) SetPollLimit(d time.Duration) {
	if p.launches == nil {
		return
	}
	v := uint32(min(max(d, 0), MaxPollLimit) / time.Microsecond)
	if p.launches.pollLimit.Load() != v {
		p.launches.pollLimit.Store(v)
	}
}

// PollLimit returns what SetPollLimit recorded, at most [MaxPollLimit].
func (p *ControlPage) PollLimit() time.Duration {
	if p.launches == nil {
		return 0
	}
	return min(time.Duration(p.launches.pollLimit.Load())*time.Microsecond, MaxPollLimit)
}

// wakeAll wakes all of the guest's executors.
func (p *ControlPage) wakeAll() {
	for i := range p.l.contexts {
		p.Context(i).Wake()
	}
}
