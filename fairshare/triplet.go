package fairshare

import "time"

// triplet is what is kept of a launch's times (FLEP §5.1): "a triplet to record
// the kernel's execution status, which contains three fields: predicted duration
// (T_e), waiting time (T_w), and the predicted remaining execution time (T_r)".
//
// "T_w and T_r are updated only in the following three cases: 1) a new kernel
// arrives; 2) a kernel is preempted; and 3) a kernel finishes execution."
type triplet struct {
	predicted time.Duration // T_e; "once initialized, is never updated"; 0: unknown
	waited    time.Duration // T_w
	remaining time.Duration // T_r; "its value decreases when it runs on the GPU"
	ran       time.Duration // as of the newest update
	at        time.Duration // of the newest update
	running   bool          // since then
	known     bool          // whether it has been updated
}

// update brings T_w and T_r up to now.
func (t *triplet) update(now time.Duration, l *Launch) {
	if t.known && !t.running {
		// "Whenever a kernel is active but not running on the GPU, its T_w
		// accumulates."
		t.waited += now - t.at
	}
	if t.predicted == 0 {
		t.predicted = l.Predicted
	}
	// "T_r's initial value is the same as T_e."
	t.remaining = max(t.predicted-l.Used, 0)
	t.ran, t.at, t.running, t.known = l.Used, now, l.Running, true
}

// foreseen is whether T_r means anything: nobody knows how long a launch goes on
// that has no prediction, or has outrun it. The paper has no such kernels.
func (t *triplet) foreseen() bool { return t.predicted > 0 && t.ran <= t.predicted }

// before is whether a is likely to be done sooner than b, from now on. Those that
// nobody can tell of come last, in order of arrival.
func (t *triplet) before(b *triplet) bool {
	if !t.foreseen() {
		return false
	}
	return !b.foreseen() || t.remaining < b.remaining
}

// worthPreempting is whether a launch that waits, and of which t is kept, had
// better have the GPU at once: FLEP's figure 6, "if (Kr.Tr > Ks.Tr +
// preemption_overhead)".
//
// Where T_r of the running one means nothing, the time that it has run already
// stands for it: it has shown to be that long. One that waits and of which
// nothing is known preempts nobody, so that two of them don't take turns.
func (t *triplet) worthPreempting(running *triplet, overhead time.Duration) bool {
	if !t.foreseen() {
		return false
	}
	rest := running.remaining
	if !running.foreseen() {
		rest = running.ran
	}
	return rest > t.remaining+overhead
}
