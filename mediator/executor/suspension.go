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
func (s *suspension) turn(on bool, now time.Duration) {
	if s.on = on; on {
		s.from = now
	} else {
		s.to = now
	}
}

// overlap is how much of the time from start to end was in the suspension.
func (s *suspension) overlap(start, end time.Duration) time.Duration {
	if !s.on {
		end = min(end, s.to)
	}
	return max(end-max(start, s.from), 0)
}
