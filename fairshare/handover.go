package fairshare

import "time"

// handOver lets the first waiting launch in rank run if the running one, at an index, is predicted
// to end within [Options].HandOver: from an executor that sees the end, through the daemon, to
// another executor that starts its launch, three processes are woken while the GPU waits. The
// hardware starts the next launch when the one before ends, or has the two take turns for the rest
// of that time. wait is the time until it is so soon, 0 if that is not known or has been done.
//
// It is not done where it might matter that the choice was made early: for a launch that is less
// urgent than the running one, whose guest is likely to submit another in a moment; and for one than
// which other guests may have more urgent ones, since those would wait for both. Nor is it done for a
// launch from which the next one of the running launch's guest would take the GPU again: then that
// one would have to leave the GPU, and not only to give up a turn that it has not used yet.
func (p *ranked) handOver(st *State, running int) (wait time.Duration) {
	l := &st.Launches[running]
	if !p.handsOver || st.CoRuns || l.BelowSM > 0 || l.Predicted <= 0 || l.Used >= 2*l.Predicted {
		return 0
	}
	head := p.head(st)
	if head < 0 {
		return 0
	}
	h := &st.Launches[head]
	if h.Guest == l.Guest || h.Priority < l.Priority || lessUrgent(st, h.Guest) {
		return 0
	}
	again := p.book.of[running].triplet
	again.remaining, again.ran = again.predicted, 0
	if p.displaces(entry{l, &again}, p.entry(st, head)) {
		return 0
	}
	if left := l.Predicted - l.Used - p.options.HandOver; left > 0 {
		return left
	}
	p.let(st, head)
	p.book.of[head].early = true
	return 0
}
