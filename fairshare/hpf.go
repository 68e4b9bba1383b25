package fairshare

// newHPF returns FLEP's highest priority first with performance degradation minimization (§5.2.1,
// figure 6).
//
// A launch of higher priority takes the GPU from one of lower priority. Among those of one priority
// the one with the shortest remaining time T_r is next, and it takes the GPU from a running one
// "only if K_r's remaining execution time is larger" than "the sum of K_s's remaining time and the
// preemption overhead": shortest remaining time first yields an average degradation (T_w + T_e)/T_e
// no worse than twice the best schedule's.
//
// The preemption overhead is that of the launch that would be preempted (Launch.EvictionCost).
// Figure 6 compares costs among equals only: a higher priority always preempts, "since HPF always
// preempts the running kernel if any higher-priority kernels are waiting".
//
// As printed, figure 6 loses kernels. A new kernel of the running one's priority is never enqueued
// (lines 13 and 14), so that Schedule_for_queue can't find it; and a kernel that Schedule_for_queue
// preempts (lines 28 to 30) is not enqueued again. Here the new kernel is enqueued before its queue
// is scheduled, and the evicted one is enqueued again when it has left.
//
// A launch of low priority, or a long one among its equals, may starve.
func newHPF(o Options) *ranked {
	p := newFIFO(o)
	p.anticipates()
	p.handsOver = o.HandOver > 0
	p.before = urgentThenShort
	p.displaces = func(waiting, running entry) bool {
		if waiting.Priority != running.Priority {
			return waiting.Priority > running.Priority
		}
		return running.Evictable && waiting.worthPreempting(running.triplet, running.cost())
	}
	return p
}

// urgentThenShort ranks launches by priority, and those of one priority by the shortest remaining
// time.
func urgentThenShort(a, b entry) bool {
	if a.Priority != b.Priority {
		return a.Priority > b.Priority
	}
	return a.triplet.before(b.triplet)
}
