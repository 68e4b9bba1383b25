package clock

import (
	"context"
	"time"

	"golang.org/x/sys/unix"
)

// Real is the host's monotonic clock.
type Real struct{}

// Now reads CLOCK_MONOTONIC, which all processes of the host share.
func (Real) Now() time.Duration {
	var ts unix.Timespec
	// The call fails only for a bad clock id or address, and has neither.
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic("clock: read CLOCK_MONOTONIC: " + err.Error())
	}
	return time.Duration(ts.Nano())
}

// WaitUntil sleeps on a runtime timer; it may return some tens of
// microseconds late. Code that paces hardware sleeps on its own OS thread
// instead.
func (r Real) WaitUntil(ctx context.Context, t time.Duration) error {
	d := t - r.Now()
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
