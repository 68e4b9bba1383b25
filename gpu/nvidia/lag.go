package nvidia

import (
	"cmp"
	"context"
	"slices"
	"time"

	"vgpud/clock"
)

// On an idle GPU a launch's event is reached during the launch call. From then until the kernel
// begins it takes as long as the host's call does, and a lag that is measured when a context is
// made.
const (
	lagTries = 15
	// lagCounted is the number of tries that count: those with the quickest calls. Delays of a
	// call, such as interrupts or other contexts' creation, also occur after the doorbell, not only
	// before it.
	lagCounted = 5
	lagPause   = 500 * time.Microsecond
	// maxLag bounds the measured lag. The lower bound is 0: no kernel begins before its call has
	// rung the doorbell, which is the call's last action.
	maxLag = 5 * time.Microsecond
)

// was returns the GPU's time at a recent instant of the host's clock. The caller may hold the
// device's lock.
func (c *Context) was(then time.Duration) (time.Duration, error) {
	if c.d.o.GPUClock != nil {
		return c.d.now.was(then, c.d.o.Clock, c.d.o.GPUClock)
	}
	return c.clock.estimate(then), nil
}

// measureLag measures the lag with kernels that follow pauses. Nothing else runs in the context.
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

// lagTry is one kernel: the duration of the host's call, and the further time from the event before
// the kernel to its beginning.
type lagTry struct{ took, lag time.Duration }

// lagOf returns the median of the tries that count, within the bounds. It sorts the tries.
func lagOf(tries []lagTry) time.Duration {
	slices.SortFunc(tries, func(a, b lagTry) int { return cmp.Compare(a.took, b.took) })
	counted := tries[:lagCounted]
	slices.SortFunc(counted, func(a, b lagTry) int { return cmp.Compare(a.lag, b.lag) })
	return min(max(counted[lagCounted/2].lag, 0), maxLag)
}
