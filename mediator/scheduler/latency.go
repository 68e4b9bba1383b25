package scheduler

import (
	"time"

	"vgpud/fairshare"
	"vgpud/mediator/api"
)

// DefaultLatency is the time within which other guests' kernels should leave the GPU for those of a
// guest with a priority whose terms don't say so. A change of contexts takes an H100 some
// 140 µs more, whatever the kernel.
const DefaultLatency = 100 * time.Microsecond

// equalsLatency is that for guests without a priority, under policies that tell a kernel to leave for
// one of another guest of no higher priority: its slice is over, or the other one is shorter.
const equalsLatency = 500 * time.Microsecond

// hardwareSuspension is how long the hardware takes to take a context off the GPU in the midst of its
// blocks, where it can: 360 µs were measured on an H100.
const hardwareSuspension = 360 * time.Microsecond

// suspension returns within what time the hardware takes a kernel off the GPU by itself; 0 if it does
// not.
//
// Preconditions: s.mu is held.
func (s *Scheduler) suspension() time.Duration {
	if s.gpu.Properties.Preempts {
		return hardwareSuspension
	}
	return 0
}

// latencies say within what time guests' kernels should leave the GPU.
type latencies struct {
	// wanted are, by priority ceiling, the least that a guest with it wants; 0 is none.
	wanted [api.MaxPriority + 1]time.Duration
	// equals is for guests that nobody is above; 0 if they are not told to leave.
	equals time.Duration
}

// latenciesOf returns what guests want, and what the policy has use for.
//
// Preconditions: s.mu is held.
func (s *Scheduler) latenciesOf(guests []*Guest) (l latencies) {
	if !s.launches.byKernel || s.over() || len(guests) < 2 {
		return l
	}
	if fairshare.EvictsEquals(s.policyName) {
		l.equals = equalsLatency
	}
	if !fairshare.ByPriority(s.policyName) {
		return l
	}
	for _, g := range guests {
		t := g.bounded()
		wants := t.Latency
		if wants == 0 {
			wants = DefaultLatency
		}
		if had := &l.wanted[min(max(t.PriorityCeiling, 0), api.MaxPriority)]; *had == 0 || wants < *had {
			*had = wants
		}
	}
	return l
}

// below returns within what time kernels of a guest with that ceiling should leave: what the guests
// want that have a higher one. 0 if they are not told to leave for another guest's.
func (l *latencies) below(ceiling int) time.Duration {
	least := l.equals
	for _, d := range l.wanted[min(max(ceiling+1, 0), len(l.wanted)):] {
		if d > 0 && (least == 0 || d < least) {
			least = d
		}
	}
	return least
}
