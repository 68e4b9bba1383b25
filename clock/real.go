package clock

import (
	"context"
	"time"

	"golang.org/x/sys/unix"
)

// Real is the host's monotonic clock.
type Real struct{}

// The runtime reads the clock without entering the kernel but returns only differences;
// unix.ClockGettime returns instants but enters the kernel. So the instant of the process's start
// is found once, and differences are added.
var (
	start   = time.Now()
	startAt = instantOf(start)
)

// instantOf returns t on CLOCK_MONOTONIC, for a recent t. Being descheduled between the two
// readings would shift it, so the tightest of several counts.
func instantOf(t time.Time) time.Duration {
	var best, at time.Duration
	for i := range 16 {
		before := time.Since(t)
		var ts unix.Timespec
		// The call fails only for a bad clock id or address, and has neither.
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
			panic("clock: read CLOCK_MONOTONIC: " + err.Error())
		}
		after := time.Since(t)
		if width := after - before; i == 0 || width < best {
			best, at = width, time.Duration(ts.Nano())-before-width/2
		}
	}
	return at
}

// Now reads CLOCK_MONOTONIC, which all processes of the host share. It takes some tens of
// nanoseconds.
func (Real) Now() time.Duration { return startAt + time.Since(start) }

// WaitUntil sleeps on a runtime timer; it may return a millisecond late, since the runtime waits in
// whole milliseconds in a process that has nothing else to do. Code that paces hardware sleeps on
// its own OS thread instead.
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
