package executor

import "time"

// suspension is the newest suspension of the guest, on the GPU's clock. A launch's time in it is
// charged although the daemon may not have sampled that (LoGA §4.3).
type suspension struct {
	on       bool
	from, to time.Duration
}

// set starts or ends a suspension at now.
func (s *suspension) set(on bool, now time.Duration) {
	if s.on = on; on {
		s.from = now
	} else {
		s.to = now
	}
}

// within returns the part of the time from start to end that is in the suspension.
func (s *suspension) within(start, end time.Duration) (from, to time.Duration) {
	if !s.on {
		end = min(end, s.to)
	}
	from = max(start, s.from)
	return from, max(end, from)
}
