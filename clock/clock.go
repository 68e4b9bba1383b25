// Package clock gives code that waits or stamps a notion of time it does not
// own, so that the whole control plane runs on simulated time in tests and
// benchmarks: deterministic, and thousands of guests in seconds.
//
// Every instant is a [time.Duration] since an epoch that all users of one Clock
// share. For [Real] the epoch is the kernel's CLOCK_MONOTONIC, so that
// processes of one host can compare stamps.
package clock

import (
	"context"
	"time"
)

// Clock tells the time and waits for it. Implementations are safe for
// concurrent use.
type Clock interface {
	// Now is the time since the clock's epoch. It never goes back.
	Now() time.Duration
	// WaitUntil blocks until Now reaches t or ctx ends, and returns ctx's
	// error in the latter case. An instant that has passed returns at once.
	WaitUntil(ctx context.Context, t time.Duration) error
}

// Sleep waits for d on c. It is WaitUntil for those who count from now.
func Sleep(ctx context.Context, c Clock, d time.Duration) error {
	return c.WaitUntil(ctx, c.Now()+d)
}

// Tick waits on c for the next multiple of period. All who wait so are woken together,
// which on an idle host is most of what a wake costs: two periods of 20 ms took half as
// much of a processor as one of 20 and one of 25.
func Tick(ctx context.Context, c Clock, period time.Duration) error {
	now := c.Now()
	return c.WaitUntil(ctx, now-now%period+period)
}
