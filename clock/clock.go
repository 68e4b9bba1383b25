// Package clock gives code that waits or takes timestamps a clock that it does not own, so that the
// whole control plane runs on simulated time in tests and benchmarks: deterministic, and thousands
// of guests in seconds.
//
// Every instant is a [time.Duration] since an epoch that all users of one Clock share. For [Real]
// the epoch is that of the kernel's CLOCK_MONOTONIC, so that processes of one host can compare
// timestamps.
//
// Locks: [Sim] has one mutex, which is never held while a caller's code runs.
package clock

import (
	"context"
	"time"
)

// Clock tells the time and waits for instants. Implementations are safe for concurrent use.
type Clock interface {
	// Now returns the time since the clock's epoch. It never decreases.
	Now() time.Duration
	// WaitUntil waits until Now reaches t or ctx ends. In the latter case it returns ctx's error.
	// It returns at once if t has passed.
	WaitUntil(ctx context.Context, t time.Duration) error
}

// Sleep waits for d on c.
func Sleep(ctx context.Context, c Clock, d time.Duration) error {
	return c.WaitUntil(ctx, c.Now()+d)
}

// Tick waits on c for the next multiple of period. All that wait so are woken together. On an idle
// host that saves most of the cost of waking: two periods of 20 ms took half as much of a processor
// as one of 20 and one of 25.
func Tick(ctx context.Context, c Clock, period time.Duration) error {
	now := c.Now()
	return c.WaitUntil(ctx, now-now%period+period)
}
