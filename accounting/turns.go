package accounting

import "time"

// turn is when one of several GPUs that a thread watches is to be polled next
// (LoGA §5.6).
type turn struct {
	due  time.Duration // host time of the next polling phase
	gone bool          // the GPU can't be watched any more
}

// turns lets one thread visit its GPUs one after the other, exactly one being
// in its polling phase at a time. With quiet phases five times as long as the
// polling phases it has room for six; with more, their quiet phases get longer,
// which all sums take as they are.
type turns []turn

// stagger spreads n GPUs' first polling phases evenly over a round.
func stagger(n int, now, round time.Duration) turns {
	t := make(turns, n)
	for i := range t {
		t[i].due = now + round*time.Duration(i)/time.Duration(n)
	}
	return t
}

// next is the GPU whose polling phase is due first; ok is false when none is
// left.
func (t turns) next() (i int, ok bool) {
	for j := range t {
		if !t[j].gone && (!ok || t[j].due < t[i].due) {
			i, ok = j, true
		}
	}
	return i, ok
}
