package nvidia

import (
	"cmp"
	"context"
	"slices"
	"time"

	"vgpud/clock"
)

// On an idle GPU a launch's event is reached while the launch is still being called
// for. From then until the kernel begins it takes as long as the host's call does, and
// a lag, which is found out when a context is made.
const (
	lagTries = 15
	// lagCounted is how many of the tries count: those whose calls were the quickest.
	// What holds up a call, an interrupt or others' contexts in the making, does so
	// behind the doorbell as well as before it.
	lagCounted = 5
	lagPause   = 500 * time.Microsecond
	// lagMost is no more than is believed of it. It is no less than 0: no kernel begins
	// before its call has rung the doorbell, which is the last that it does.
	lagMost = 5 * time.Microsecond
)

// was returns the GPU's time at an instant of the host's clock that has just passed. Its callers may hold the device's lock.
func (c *Context) was(then time.Duration) (time.Duration, error) {
	if c.d.o.GPUClock != nil {
		return c.d.now.was(then, c.d.o.Clock, c.d.o.GPUClock)
	}
	return c.clock.estimate(then), nil
}

// measureLag measures the lag with kernels that come after pauses and read the GPU's clock.
// Preconditions: nothing else runs in the context.
func (c *Context) measureLag(ctx context.Context) (time.Duration, error) {
	k := c.clock
	all := make([]lagTry, 0, lagTries)
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
		all = append(all, lagTry{took: took, lag: beside - min(stampAfter, beside) - took})
	}
	return lagOf(all), nil
}

// lagTry is one kernel: how long the host's call took, and how much longer it took from the event before it to its start.
type lagTry struct{ took, lag time.Duration }

// lagOf returns the median of the tries that count, within bounds. It sorts them.
func lagOf(tries []lagTry) time.Duration {
	slices.SortFunc(tries, func(a, b lagTry) int { return cmp.Compare(a.took, b.took) })
	counted := tries[:lagCounted]
	slices.SortFunc(counted, func(a, b lagTry) int { return cmp.Compare(a.lag, b.lag) })
	return min(max(counted[lagCounted/2].lag, 0), lagMost)
}
