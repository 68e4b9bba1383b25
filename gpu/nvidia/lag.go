package nvidia

import (
	"context"
	"fmt"
	"slices"
	"time"

	"vgpud/clock"
)

// Between the end of the driver's call that launches a kernel and the kernel's
// beginning lies a lag, which depends on whether the GPU had something to do lately.
// It is below 0 where the call has things to do after it rang the doorbell.
const (
	lagTries = 9
	lagPause = 500 * time.Microsecond
	// lagAfter is for how long the GPU must have been idle not to count as busy lately.
	lagAfter = 200 * time.Microsecond
	// lagMost is no more than is believed of it, either way.
	lagMost = 50 * time.Microsecond
)

// lags are the two cases of it.
type lags struct{ lately, idle time.Duration }

// was is the GPU's time at an instant of the host's clock that has just passed, for
// who may hold the device's lock.
func (c *Context) was(then time.Duration) (time.Duration, error) {
	if c.d.o.GPUClock != nil {
		return c.d.now.was(then, c.d.o.Clock, c.d.o.GPUClock)
	}
	return c.clock.estimate(then), nil
}

// measureLags finds out both, in a context in which nothing runs.
func (c *Context) measureLags(ctx context.Context) (l lags, err error) {
	if l.lately, err = c.measureLag(ctx, 0); err == nil {
		l.idle, err = c.measureLag(ctx, lagPause)
	}
	return l, err
}

// measureLag is the lag of kernels with such a pause before each, by their own
// readings of the clock: the median of several.
func (c *Context) measureLag(ctx context.Context, pause time.Duration) (time.Duration, error) {
	k := c.clock
	all := make([]time.Duration, 0, lagTries)
	for range lagTries {
		if err := clock.Sleep(ctx, k.host, pause); err != nil {
			return 0, err
		}
		if err := c.drv.EventRecord(k.before, k.stream); err != nil {
			return 0, err
		}
		if err := c.drv.LaunchKernel(k.kernel, [3]uint32{1, 1, 1}, [3]uint32{1, 1, 1}, 0, k.stream, k.args, 8); err != nil {
			return 0, err
		}
		then := k.host.Now()
		if err := c.drv.EventRecord(k.next.event, k.stream); err != nil {
			return 0, err
		}
		if err := c.drv.EventSynchronize(k.next.event); err != nil {
			return 0, err
		}
		called, err := c.was(then)
		if err != nil {
			return 0, fmt.Errorf("read the GPU's clock: %w", err)
		}
		all = append(all, time.Duration(k.stamp[0].Load())-called)
	}
	slices.Sort(all)
	return min(max(all[lagTries/2], -lagMost), lagMost), nil
}
