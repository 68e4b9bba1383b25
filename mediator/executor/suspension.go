package executor

import "time"

// suspension is the time that a guest is or was last held for, on the GPU's
// clock. What of a launch lies in it is charged although nobody may have watched
// (LoGA §4.3).
type suspension struct {
	on       bool
	from, to time.Duration
}

// turn begins or ends a suspension at now.
func (s *suspension) set(on bool, now time.Duration) {
	if s.on = on; on {
		s.from = now
	} else {
		s.to = now
	}
}

// within is the part of the time from start to end that was in the suspension.
func (s *suspension) within(start, end time.Duration) (from, to time.Duration) {
	if !s.on {
		end = min(end, s.to)
	}
	from = max(start, s.from)
	return from, max(end, from)
}
