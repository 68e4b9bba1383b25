package scheduler

import (
	"time"

	"vgpud/fairshare"
	"vgpud/mediator/api"
)

// DefaultLatency is the time within which other guests' kernels should leave the GPU for those of a
// guest that has a priority and whose terms don't say so. A change of contexts takes an H100 some
// 140 µs more, whatever the kernel.
const DefaultLatency = 100 * time.Microsecond

// latencies are, by priority ceiling, the least time within which a guest with it wants others'
// kernels to leave the GPU; 0 is none.
type latencies [api.MaxPriority + 1]time.Duration

// latenciesOf returns what guests want. Only under a policy that goes by priority is a kernel told
// to leave for another guest's.
//
// Preconditions: s.mu is held.
func (s *Scheduler) latenciesOf(guests []*Guest) (l latencies) {
	if !s.launches.byKernel || s.over() || !fairshare.ByPriority(s.policyName) {
		return l
	}
	for _, g := range guests {
		t := g.bounded()
		wants := t.Latency
		if wants == 0 {
			wants = DefaultLatency
		}
		if had := &l[min(max(t.PriorityCeiling, 0), api.MaxPriority)]; *had == 0 || wants < *had {
			*had = wants
		}
	}
	return l
}

// below returns within what time kernels of a guest with that ceiling should leave: what the guests
// want that have a higher one. 0 if there is none.
func (l *latencies) below(ceiling int) (least time.Duration) {
	for _, d := range l[min(max(ceiling+1, 0), len(l)):] {
		if d > 0 && (least == 0 || d < least) {
			least = d
		}
	}
	return least
}
