package fairshare

// newPIV returns EffiSha's priority-based immediate eviction (§7).
//
// "The EffiSha runtime daemon schedules kernels purely based on their initial priorities. […] The
// kernels in the queue are ordered in their priorities. When the GPU becomes available, the
// scheduler always chooses the head of the queue […] to launch. If a new coming kernel has a higher
// priority than a currently running kernel, the scheduler immediately has the current kernel
// evicted and has the new kernel launched. Otherwise, the currently running kernel runs to
// completion."
//
// Launches of one priority run in order of arrival. A launch of low priority may starve, as the
// paper says.
func newPIV(o Options) *ranked {
	p := newFIFO(o)
	p.anticipates()
	p.before = func(a, b entry) bool { return a.Priority > b.Priority }
	p.displaces = func(waiting, running entry) bool { return waiting.Priority > running.Priority }
	return p
}
