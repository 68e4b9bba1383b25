package ipc

import (
	"sync/atomic"
	"time"
)

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

// Bounds of what a page's words can say, whoever wrote them: the guest's processes can put
// there anything. A million events a second come to less than maxCount in eight years, and so
// do sums of maxTime and maxBytes; those of all contexts overflow nothing, and their counts
// are whole numbers as float64 too.
const (
	maxCount       = 1 << 48
	maxBytes       = 1 << 57
	maxTime        = time.Duration(1 << 57)
	maxOutstanding = 1 << 20
)

func count(w *atomic.Uint64) uint64 { return min(w.Load(), maxCount) }

func timeIn(w *atomic.Int64) time.Duration { return min(max(time.Duration(w.Load()), 0), maxTime) }

// Max is the larger of the two in each sum. What is counted only grows, whatever the words
// that it is read from do.
func (a Counters) Max(b Counters) Counters {
	return Counters{
		Kernels: max(a.Kernels, b.Kernels), Errors: max(a.Errors, b.Errors), CopiedBytes: max(a.CopiedBytes, b.CopiedBytes),
		Commands: max(a.Commands, b.Commands), Wakeups: max(a.Wakeups, b.Wakeups),
		GPUTime: max(a.GPUTime, b.GPUTime), LateTime: max(a.LateTime, b.LateTime),
		Evictions: max(a.Evictions, b.Evictions), Relaunches: max(a.Relaunches, b.Relaunches), EvictionTime: max(a.EvictionTime, b.EvictionTime),
		Liars: max(a.Liars, b.Liars), IgnoredPriorities: max(a.IgnoredPriorities, b.IgnoredPriorities),
	}
}

// Unused is whether the slot has no executor, and none has counted anything in it.
func (c *ContextSlot) Unused() bool {
	return c.State() == ContextNone && c.fetched.Load() == 0 && c.errors.Load() == 0 && c.commands.Load() == 0 && c.wakeups.Load() == 0
}

// Counters reads the context's sums, each of which is within bounds.
func (c *ContextSlot) Counters() Counters {
	return Counters{
		Kernels: count(&c.kernels), Errors: count(&c.errors), CopiedBytes: min(c.copied.Load(), maxBytes),
		Commands: count(&c.commands), Wakeups: count(&c.wakeups),
		GPUTime: timeIn(&c.gpuTime), LateTime: timeIn(&c.lateTime),
		Evictions: count(&c.evictions), Relaunches: count(&c.relaunches), EvictionTime: timeIn(&c.evictionTime),
		Liars: count(&c.liars), IgnoredPriorities: count(&c.ignored),
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
		worked = int64(now) - ^worked
	}
	return min(max(time.Duration(worked), 0), max(now, 0))
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
