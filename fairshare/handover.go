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
	l, r := &st.Launches[running], &p.book.of[running]
	if r.early {
		r.early, r.queued = false, l.Used-r.before
	}
	if !p.handsOver || st.CoRuns || l.BelowSM > 0 {
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
	again := r.triplet
	again.remaining, again.ran = again.predicted, 0
	if p.displaces(entry{l, &again}, p.entry(st, head)) {
		return 0
	}
	left, known := l.left(r.queued)
	if !known {
		return 0
	}
	if wait = left - p.options.HandOver; wait > 0 {
		return wait
	}
	p.let(st, head)
	p.book.of[head].early = true
	return 0
}

// left returns how much longer the launch is predicted to run, of whose Used it was queued for some
// time. known is false if there is no prediction, or it was wrong.
func (l *Launch) left(queued time.Duration) (left time.Duration, known bool) {
	used := l.Used - queued
	return l.Predicted - used, l.Predicted > 0 && used < 2*l.Predicted
}

// handOver lets the next guest's launch run if the guest whose turn it is ends its epoch with the
// launch l, which is predicted to end within [Options].HandOver. Until that has ended, the time is
// its guest's. wait is the time until it is so soon, 0 if that is not known or has come; next is the
// guest that has its turn, if it has.
func (p *fairFirst) handOver(st *State, t *epoch, l *Launch) (wait time.Duration, next *epoch) {
	left, known := l.left(0)
	if p.ahead <= 0 || st.CoRuns || !known || t.launches > 1 || t.credit-left > t.cost {
		return 0, nil
	}
	if wait = left - p.ahead; wait > 0 {
		return wait, nil
	}
	t.credit -= left // which it will have had
	next = p.choose(t)
	t.credit += left
	if next == t {
		return 0, nil // the others are in debt
	}
	if next != nil {
		p.tail = l.ID
	}
	return 0, next
}

// ends reports whether a launch is about to end while the next guest has its turn already.
func (p *fairFirst) ends(l *Launch) bool {
	_, known := l.left(0)
	return known && l.ID == p.tail
}
