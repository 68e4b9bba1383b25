package executor

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"vgpud/clock"
	"vgpud/gpu"
)

// TestNoYieldOnABusyProcessor: after a yield in which other threads ran for long, an executor does
// not yield for many times as long, however often it waits.
func TestNoYieldOnABusyProcessor(t *testing.T) {
	const took = 50 * time.Millisecond
	r := newRig(t, gpu.ContextOptions{})
	var sim clock.Sim
	r.x.o.Clock = &sim
	var yields atomic.Uint64
	r.x.yield = func() {
		yields.Add(1)
		sim.Advance(took)
	}
	r.open()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.x.Run(ctx) }()
	// waits has the executor wait so many more times.
	waits := func(n uint64) {
		slot := r.page.Context(0)
		for before := slot.Counters().Wakeups; slot.Counters().Wakeups < before+n; {
			slot.Wake()
		}
	}
	waits(20)
	if n := yields.Load(); n != 1 {
		t.Errorf("it yielded %d times, want once", n)
	}
	sim.Advance((yieldBackoff + 1) * took)
	waits(20)
	if n := yields.Load(); n != 2 {
		t.Errorf("it yielded %d times, want twice: later it tries again", n)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestYieldsWhereTheyAreShort: a short yield does not keep the executor from yielding again.
func TestYieldsWhereTheyAreShort(t *testing.T) {
	var c yieldLimiter
	if c.yielded(0, longYield); c.blocked(longYield) {
		t.Error("after a short one")
	}
	c.yielded(0, longYield+1)
	if until := longYield + 1 + yieldBackoff*(longYield+1); !c.blocked(until-1) || c.blocked(until) {
		t.Errorf("after a long one: until %v, want %v", c.until, until)
	}
}
