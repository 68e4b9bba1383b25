package ipc

import (
	"sync/atomic"
	"time"
)

// Counters are a context's sums since the guest was created.
type Counters struct {
	Kernels, Errors, CopiedBytes, Commands, Wakeups uint64
	// ErrorsBy are the errors by reason.
	ErrorsBy [ErrorReasons]uint64
	// GPUTime is the time from each launch's start to its end by the GPU's timestamps, and that of
	// memory being filled or copied within the GPU. A launch that is evicted is counted run by run,
	// without the time between. LateTime is the part of GPUTime in which the guest was suspended.
	GPUTime, LateTime time.Duration

	// Evictions is how often a launch left the GPU with work undone because it was asked to, and
	// EvictionTime how long that took in all, from the daemon's request until the executor saw the
	// launch gone. Relaunches is how often a launch was put back.
	Evictions, Relaunches uint64
	EvictionTime          time.Duration
	// Unresponsive counts launches of preemptible kernels that were still on the GPU at their
	// eviction deadline.
	Unresponsive uint64
	// IgnoredPriorities counts launches that asked for a priority above the guest's.
	IgnoredPriorities uint64
}

// Add returns the sum of two sets of counters.
func (a Counters) Add(b Counters) Counters {
	return Counters{
		Kernels: a.Kernels + b.Kernels, Errors: a.Errors + b.Errors, CopiedBytes: a.CopiedBytes + b.CopiedBytes,
		Commands: a.Commands + b.Commands, Wakeups: a.Wakeups + b.Wakeups, ErrorsBy: addEach(a.ErrorsBy, b.ErrorsBy),
		GPUTime: a.GPUTime + b.GPUTime, LateTime: a.LateTime + b.LateTime,
		Evictions: a.Evictions + b.Evictions, Relaunches: a.Relaunches + b.Relaunches, EvictionTime: a.EvictionTime + b.EvictionTime,
		Unresponsive: a.Unresponsive + b.Unresponsive, IgnoredPriorities: a.IgnoredPriorities + b.IgnoredPriorities,
	}
}

// Bounds of a page's words: the guest's processes can write anything to them. A million events a
// second take eight years to reach maxCount. The sums of all contexts overflow nothing, and counts
// are whole numbers as float64 too.
const (
	maxCount       = 1 << 48
	maxBytes       = 1 << 57
	maxTime        = time.Duration(1 << 57)
	maxOutstanding = 1 << 20
)

func count(w *atomic.Uint64) uint64 { return min(w.Load(), maxCount) }

func timeIn(w *atomic.Int64) time.Duration { return min(max(time.Duration(w.Load()), 0), maxTime) }

// Max returns the larger of the two values of each counter. A counter never decreases, whatever its
// word on the page does.
func (a Counters) Max(b Counters) Counters {
	return Counters{
		Kernels: max(a.Kernels, b.Kernels), Errors: max(a.Errors, b.Errors), CopiedBytes: max(a.CopiedBytes, b.CopiedBytes),
		Commands: max(a.Commands, b.Commands), Wakeups: max(a.Wakeups, b.Wakeups), ErrorsBy: maxEach(a.ErrorsBy, b.ErrorsBy),
		GPUTime: max(a.GPUTime, b.GPUTime), LateTime: max(a.LateTime, b.LateTime),
		Evictions: max(a.Evictions, b.Evictions), Relaunches: max(a.Relaunches, b.Relaunches), EvictionTime: max(a.EvictionTime, b.EvictionTime),
		Unresponsive: max(a.Unresponsive, b.Unresponsive), IgnoredPriorities: max(a.IgnoredPriorities, b.IgnoredPriorities),
	}
}

// Counters returns the context's sums, each of them within bounds.
func (c *ContextSlot) Counters() Counters {
	failed := count(&c.errors)
	return Counters{
		Kernels: count(&c.kernels), Errors: failed, ErrorsBy: c.reasons.counts(failed), CopiedBytes: min(c.copied.Load(), maxBytes),
		Commands: count(&c.commands), Wakeups: count(&c.wakeups),
		GPUTime: timeIn(&c.gpuTime), LateTime: timeIn(&c.lateTime),
		Evictions: count(&c.evictions), Relaunches: count(&c.relaunches), EvictionTime: timeIn(&c.evictionTime),
		Unresponsive: count(&c.unresponsive), IgnoredPriorities: count(&c.ignored),
	}
}

// SetWorking records whether the context has unfinished commands from now on, by the host's clock.
// Its executor calls it.
func (c *ContextSlot) SetWorking(working bool, now time.Duration) {
	worked := c.worked.Load()
	switch {
	case working && worked >= 0:
		// A negative word is the complement of when the work would have begun if the context had
		// always worked.
		c.worked.Store(^max(int64(now)-worked, 0))
	case !working && worked < 0:
		c.worked.Store(max(int64(now)-^worked, 0))
	}
}

// Worked returns for how long, up to now by the host's clock, the context has had unfinished
// commands since its executor began. Such commands may execute or wait for the context's turn on
// the GPU. Worked returns 0 with an executor of an older version.
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

// AddUnresponsive counts a launch that did not leave in time.
func (c *ContextSlot) AddUnresponsive() { c.unresponsive.Add(1) }

// AddIgnoredPriority counts a launch that asked for more than the guest's priority.
func (c *ContextSlot) AddIgnoredPriority() { c.ignored.Add(1) }
