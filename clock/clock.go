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
