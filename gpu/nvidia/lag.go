package nvidia

import (
	"context"
	"slices"
	"time"

	"vgpud/clock"
)

// On an idle GPU a launch's event is reached while the launch is still being called
// for. From then until the kernel begins it takes as long as the host's call does, and
// a lag, which is found out when a context is made.
const (
	lagTries = 9
	lagPause = 500 * time.Microsecond
	// lagMost is no more than is believed of it, either way.
	lagMost = 10 * time.Microsecond
)

// was is the GPU's time at an instant of the host's clock that has just passed, for
// who may hold the device's lock.
func (c *Context) was(then time.Duration) (time.Duration, error) {
	if c.d.o.GPUClock != nil {
		return c.d.now.was(then, c.d.o.Clock, c.d.o.GPUClock)
	}
	return c.clock.estimate(then), nil
}

// measureLag finds out the lag, by the readings of kernels that come after pauses: the
// median of several. Nothing else runs in the context.
func (c *Context) measureLag(ctx context.Context) (time.Duration, error) {
	k := c.clock
	all := make([]time.Duration, 0, lagTries)
	for range lagTries {
		if err := clock.Sleep(ctx, k.host, lagPause); err != nil {
			return 0, err
		}
		if err := c.drv.EventRecord(k.before, k.stream); err != nil {
			return 0, err
		}
		from := k.host.Now()
		if err := c.drv.LaunchKernel(k.kernel, [3]uint32{1, 1, 1}, [3]uint32{1, 1, 1}, 0, k.stream, k.args, 8); err != nil {
			return 0, err
		}
		took := k.host.Now() - from
		if err := c.drv.EventRecord(k.next.event, k.stream); err != nil {
			return 0, err
		}
		if err := c.drv.EventSynchronize(k.next.event); err != nil {
			return 0, err
		}
		_, beside, err := k.read()
		if err != nil {
			return 0, err
		}
		all = append(all, beside-min(stampAfter, beside)-took)
	}
	slices.Sort(all)
	return min(max(all[lagTries/2], -lagMost), lagMost), nil
}
