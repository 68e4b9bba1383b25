package fairshare

import "time"

// triplet is a launch's times (FLEP §5.1): "a triplet to record the kernel's execution status,
// which contains three fields: predicted duration (T_e), waiting time (T_w), and the predicted
// remaining execution time (T_r)".
//
// "T_w and T_r are updated only in the following three cases: 1) a new kernel arrives; 2) a kernel
// is preempted; and 3) a kernel finishes execution."
type triplet struct {
	predicted time.Duration // T_e; "once initialized, is never updated"; 0: unknown
	waited    time.Duration // T_w
	remaining time.Duration // T_r; "its value decreases when it runs on the GPU"
	ran       time.Duration // as of the newest update
	at        time.Duration // time of the newest update
	running   bool          // state since then
	known     bool          // whether it was ever updated
}

// update brings T_w and T_r up to now.
func (t *triplet) update(now time.Duration, l *Launch) {
	if t.known && !t.running {
		// "Whenever a kernel is active but not running on the GPU, its T_w accumulates."
		t.waited += now - t.at
	}
	if t.predicted == 0 {
		t.predicted = l.Predicted
	}
	// "T_r's initial value is the same as T_e."
	t.remaining = max(t.predicted-l.Used, 0)
	t.ran, t.at, t.running, t.known = l.Used, now, l.Running, true
}

// predictable reports whether T_r is meaningful. It is not if the launch has no prediction, or has
// run longer than predicted. The paper has no such kernels.
func (t *triplet) predictable() bool { return t.predicted > 0 && t.ran <= t.predicted }

// before reports whether t's launch is likely to end sooner than b's, from now on. Launches that
// are not predictable come last, in order of arrival.
func (t *triplet) before(b *triplet) bool {
	if !t.predictable() {
		return false
	}
	return !b.predictable() || t.remaining < b.remaining
}

// worthPreempting reports whether t's launch, which waits, should get the GPU at once: FLEP's
// figure 6, "if (Kr.Tr > Ks.Tr + preemption_overhead)".
//
// If the running launch is not predictable, the time that it has run already stands for its T_r: it
// has proved to be that long. A waiting launch that is not predictable preempts none, so that two
// of them don't take turns.
func (t *triplet) worthPreempting(running *triplet, overhead time.Duration) bool {
	if !t.predictable() {
		return false
	}
	rest := running.remaining
	if !running.predictable() {
		rest = running.ran
	}
	return rest > t.remaining+overhead
}
