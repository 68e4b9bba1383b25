package executor

import (
	"math/bits"
	"time"
)

// longPoll decides for how long the executor of an urgent guest polls before it sleeps. The time
// adapts as KVM's polling for halted processors does (Documentation/virt/kvm/halt-polling.rst): it
// doubles after a wait that outlasted it but not the limit, and is halved after a wait that
// outlasted the limit. Unlike KVM's, it is nothing unless at least half of the last waits ended
// within the limit, so a guest whose launches are further apart has its executor sleep at once. It
// is pure.
type longPoll struct {
	window time.Duration
	// recent has a bit for each of the last eight waits, the newest lowest: whether it ended within
	// the limit.
	recent uint8
}

// minPaidWaits is how many of the last eight waits must have ended within the limit.
const minPaidWaits = 4

// record records how long a wait took, and its limit. Without a limit it forgets all earlier waits.
func (l *longPoll) record(wait, limit time.Duration) {
	if limit <= 0 {
		*l = longPoll{}
		return
	}
	l.recent <<= 1
	switch {
	case wait > limit:
		l.window /= 2
		return
	case wait > l.window:
		l.window = min(max(2*l.window, PollWindow), limit)
	}
	l.recent |= 1
}

// length returns for how long to poll in the wait that begins.
func (l *longPoll) length(limit time.Duration) time.Duration {
	if bits.OnesCount8(l.recent) < minPaidWaits {
		return 0
	}
	return max(min(l.window, limit), 0)
}

// pollLimit returns the limit for the wait that begins at now: what the daemon allows the guest,
// divided among its executors. A daemon that is silent allows nothing.
func (x *Executor) pollLimit(now time.Duration) time.Duration {
	if len(x.channels) == 0 {
		return 0
	}
	return x.pollShare(now)
}

// pollShare is pollLimit of an executor that has something to poll. Any goroutine may call it.
func (x *Executor) pollShare(now time.Duration) time.Duration {
	p := x.o.Page
	limit := p.PollLimit()
	if limit == 0 || p.Silent(now) {
		return 0
	}
	return limit / time.Duration(max(p.Executors(), 1))
}
