package nvidia

import (
	"context"
	"fmt"
	"slices"
	"time"

	"vgpud/clock"
)

// A GPU that had nothing to do for some time begins a kernel later than one that
// worked a moment ago: on an H100 some 10 µs after the driver's call is over.
const (
	lagTries = 9
	lagPause = 500 * time.Microsecond
	// lagAfter is for how long the GPU must have been idle to begin late.
	lagAfter = 200 * time.Microsecond
	// lagMost is no more than is believed of it.
	lagMost = 50 * time.Microsecond
)

// now is the GPU's clock, for who may hold the device's lock.
func (c *Context) now() (time.Duration, error) {
	host := c.d.o.Clock
	if c.d.o.GPUClock != nil {
		return c.d.now.at(host.Now(), host, c.d.o.GPUClock)
	}
	return c.clock.estimate(host.Now()), nil
}

// measureLag is how long after its call was over a kernel begins on an idle GPU, by
// the kernel's own reading of the clock: the median of several. It is for a context
// in which nothing runs.
func (c *Context) measureLag(ctx context.Context) (time.Duration, error) {
	k := c.clock
	lags := make([]time.Duration, 0, lagTries)
	for range lagTries {
		if err := clock.Sleep(ctx, k.host, lagPause); err != nil {
			return 0, err
		}
		if err := c.drv.EventRecord(k.next.event, k.stream); err != nil {
			return 0, err
		}
		if err := c.drv.LaunchKernel(k.kernel, [3]uint32{1, 1, 1}, [3]uint32{1, 1, 1}, 0, k.stream, k.args, 8); err != nil {
			return 0, err
		}
		called, err := c.now()
		if err != nil {
			return 0, fmt.Errorf("read the GPU's clock: %w", err)
		}
		if err := c.drv.EventRecord(k.after, k.stream); err != nil {
			return 0, err
		}
		if err := c.drv.EventSynchronize(k.after); err != nil {
			return 0, err
		}
		lags = append(lags, time.Duration(k.stamp.Load())-called)
	}
	slices.Sort(lags)
	return min(max(lags[lagTries/2], 0), lagMost), nil
}
