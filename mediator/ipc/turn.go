package ipc

import "time"

// Turn is a guest's turn on the GPU, where the daemon decides about launches. While it lasts the
// guest's executors let its next launch go to the GPU without waiting for the daemon, if the guest
// has nothing else there. The zero value is no turn.
type Turn struct {
	// Until is the instant of clock.Real by which such a launch must be expected to begin.
	Until time.Duration
	// Behind reports whether a short launch may be put on the GPU behind another short one of the
	// guest that runs.
	Behind bool
}

// SetTurn records the guest's turn. The daemon calls it. It wakes nobody: an executor has no launch
// that waits for it when it is set.
func (p *ControlPage) SetTurn(t Turn) {
	if p.launches == nil {
		return
	}
	v := int64(max(t.Until, 0)) << 1
	if t.Behind {
		v |= 1
	}
	if p.launches.turn.Load() != v {
		// Swapped, since the launches that executors let run until then are read behind it.
		p.launches.turn.Swap(v)
	}
}

// Turn returns what SetTurn recorded. It is the zero value with a daemon of an older version.
func (p *ControlPage) Turn() Turn {
	if p.launches == nil {
		return Turn{}
	}
	v := p.launches.turn.Load()
	return Turn{Until: time.Duration(v >> 1), Behind: v&1 != 0}
}
