package link

import "time"

// Counters are a context's sums since the guest was created.
type Counters struct {
	Kernels, Errors, CopiedBytes, Commands, Wakeups uint64
	// GPUTime is from each launch's start to its end by the GPU's own stamps, and of
	// memory that is filled or copied within the GPU likewise; LateTime is what of it ran
	// while the guest was suspended. Of a launch that was evicted, each run counts when it
	// has ended, and not the time between.
	GPUTime, LateTime time.Duration

	// Evictions is how often a launch left the GPU with work undone because it was
	// asked to, and EvictionTime how long that took in all, from the daemon's word
	// until the executor saw it gone. Relaunches is how often one was put back.
	Evictions, Relaunches uint64
	EvictionTime          time.Duration
	// Liars counts launches that were said to be preemptible and were still on the
	// GPU at the deadline that they were given.
	Liars uint64
	// IgnoredPriorities counts launches that asked for a priority above the guest's.
	IgnoredPriorities uint64
}

// Add sums two sets of counters.
func (a Counters) Add(b Counters) Counters {
	return Counters{
		Kernels: a.Kernels + b.Kernels, Errors: a.Errors + b.Errors, CopiedBytes: a.CopiedBytes + b.CopiedBytes,
		Commands: a.Commands + b.Commands, Wakeups: a.Wakeups + b.Wakeups,
		GPUTime: a.GPUTime + b.GPUTime, LateTime: a.LateTime + b.LateTime,
		Evictions: a.Evictions + b.Evictions, Relaunches: a.Relaunches + b.Relaunches, EvictionTime: a.EvictionTime + b.EvictionTime,
		Liars: a.Liars + b.Liars, IgnoredPriorities: a.IgnoredPriorities + b.IgnoredPriorities,
	}
}

// Unused is whether the slot has no executor, and none has counted anything in it.
func (c *ContextSlot) Unused() bool {
	return c.State() == ContextNone && c.fetched.Load() == 0 && c.errors.Load() == 0 && c.commands.Load() == 0 && c.wakeups.Load() == 0
}

// Counters reads the context's sums.
func (c *ContextSlot) Counters() Counters {
	return Counters{
		Kernels: c.kernels.Load(), Errors: c.errors.Load(), CopiedBytes: c.copied.Load(),
		Commands: c.commands.Load(), Wakeups: c.wakeups.Load(),
		GPUTime: time.Duration(c.gpuTime.Load()), LateTime: time.Duration(c.lateTime.Load()),
		Evictions: c.evictions.Load(), Relaunches: c.relaunches.Load(), EvictionTime: time.Duration(c.evictionTime.Load()),
		Liars: c.liars.Load(), IgnoredPriorities: c.ignored.Load(),
	}
}

// SetWorking says that the context has commands under way from now on, by the host's
// clock, or has none any more; its executor calls it.
func (c *ContextSlot) SetWorking(yes bool, now time.Duration) {
	worked := c.worked.Load()
	switch {
	case yes && worked >= 0:
		// Below 0 it is when that would have begun had there been no time without.
		c.worked.Store(^max(int64(now)-worked, 0))
	case !yes && worked < 0:
		c.worked.Store(max(int64(now)-^worked, 0))
	}
}

// Worked is for how long the context had commands under way, executing or waiting for
// its turn on the GPU, up to an instant of the host's clock, since its executor began. It is 0
// with an executor of an older version.
func (c *ContextSlot) Worked(now time.Duration) time.Duration {
	worked := c.worked.Load()
	if worked < 0 {
		worked = max(int64(now)-^worked, 0)
	}
	return time.Duration(worked)
}

// AddEviction counts a launch that left when asked, and how long that took.
func (c *ContextSlot) AddEviction(took time.Duration) {
	c.evictions.Add(1)
	c.evictionTime.Add(int64(max(took, 0)))
}

// AddRelaunch counts a launch that was put back on the GPU.
func (c *ContextSlot) AddRelaunch() { c.relaunches.Add(1) }

// AddLiar counts a launch that did not leave in time.
func (c *ContextSlot) AddLiar() { c.liars.Add(1) }

// AddIgnoredPriority counts a launch that asked for more than the guest's priority.
func (c *ContextSlot) AddIgnoredPriority() { c.ignored.Add(1) }
