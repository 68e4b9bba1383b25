package driver

import (
	"maps"
	"time"

	"vgpud/guestagent/allot"
)

// missedEvery is how often the agent is told of calls of functions that are not built.
const missedEvery = 2 * time.Second

// ReportMissed has the agent told how often the program has called functions of CUDA that are not
// built: calls, by name. It is told now and then, if anything was called since, and when the bus is
// closed. calls is called from another goroutine. It may be called once.
func (b *AgentBus) ReportMissed(calls func() map[string]uint64) {
	b.missed = calls
	b.workers.Go(func() {
		t := time.NewTicker(missedEvery)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				b.FlushMissed()
			case <-b.gone:
				return
			case <-b.life.Done():
				return
			}
		}
	})
}

// FlushMissed tells the agent now.
func (b *AgentBus) FlushMissed() {
	if b.missed == nil || b.ended() != nil {
		return
	}
	b.reporting.Lock()
	defer b.reporting.Unlock()
	now := b.missed()
	if len(now) == 0 || maps.Equal(now, b.reported) {
		return
	}
	// An agent of an older version does not know the request. It is told again in vain.
	if _, err := b.question(allot.Request{Op: allot.OpMissed, Missed: now}); err == nil {
		b.reported = now
	}
}
