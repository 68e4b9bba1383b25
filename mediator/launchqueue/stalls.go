package launchqueue

import (
	"math"
	"time"

	"vgpud/fairshare"
	"vgpud/mediator/ipc"
	"vgpud/mediator/ipc/slotstate"
)

// Limits on how long others wait for a launch that was let to the GPU and makes no progress.
const (
	// TurnLimit is how long a launch may have its turn and leave the GPU idle while others wait. An
	// executor puts one on the GPU in less than 0.1 ms, some more if the host has no processor for
	// it; one that takes fifty times as long does something else, such as translating a module.
	TurnLimit = 5 * time.Millisecond
	// minBackoff and maxBackoff bound for how long the launches of its guest are then excluded:
	// twice as long each time, and minBackoff again after maxBackoff without one. So a guest leaves
	// the GPU idle for some 5 % of the time at most, however it goes about it.
	minBackoff = TurnLimit
	maxBackoff = 64 * TurnLimit
	// maxUngranted is how long, in all, launches of a guest are believed to have the GPU that the
	// daemon did not let there. Executors let launches run by themselves when the daemon was
	// silent, and when a context is put back; both are exceptions. The sum decays in ungrantedDecay
	// times as long as it took to accumulate.
	maxUngranted   = ipc.SilenceLimit
	ungrantedDecay = 64
	// timeLimitFactor times its time limit, plus ipc.LiarLimit, is how long a launch may have the
	// GPU: the time limit is GPU time, and the executor enforces it.
	timeLimitFactor = 2
	// leaveFactor times the eviction deadline is how long a launch that is to leave counts as about
	// to.
	leaveFactor = 2
)

// exclusion is the reason why the policy does not see a launch.
type exclusion uint8

const (
	notExcluded exclusion = iota
	backedOff             // its guest did not use a turn, and gets none for a while
	stuck                 // it has had the GPU for longer than it may
)

// progress is what stall detection knows of one launch.
type progress struct {
	excluded exclusion
	// granted reports whether a verdict let it to the GPU. ungranted reports whether it is there
	// without a verdict and was counted as that.
	granted, ungranted bool
	idleSince          time.Duration // the newest instant from which on it alone kept the GPU idle
	readySince         time.Duration
	onGPUSince         time.Duration
}

// conduct is what stall detection knows of one guest.
type conduct struct {
	// backoffUntil is until when its launches are excluded, and backoff how long that is.
	backoffUntil, backoff time.Duration
	ungrantedTime         time.Duration // see maxUngranted
	waiting, ungranted    int           // its launches, as last counted
}

// counts are the launches that a policy is shown, as last counted.
type counts struct{ waiting, onGPU int }

// recount counts the launches again.
func (q *Queue) recount() {
	q.count = counts{}
	for _, l := range q.launches {
		l.queue.waiting, l.queue.ungranted = 0, 0
	}
	for _, l := range q.launches {
		switch {
		case l.over || l.excluded != notExcluded:
		case l.Waits():
			q.count.waiting++
			l.queue.waiting++
		default:
			if l.onGPU() {
				q.count.onGPU++
			}
			if l.progress.ungranted {
				l.queue.ungranted++
			}
		}
	}
}

// othersWait reports whether launches of other guests wait.
func (q *Queue) othersWait(gq *guestQueue) bool { return q.count.waiting > gq.waiting }

// restartIdleTimes begins to count anew how long each launch keeps the GPU idle, if others had the
// GPU since the last read.
func (q *Queue) restartIdleTimes(now time.Duration) {
	q.recount()
	if q.count.onGPU == 0 {
		return
	}
	for _, l := range q.launches {
		l.idleSince = now
	}
}

// updateConduct accounts for the time since the last read.
func (q *Queue) updateConduct(now time.Duration, gq *guestQueue) {
	elapsed := max(now-q.readAt, 0)
	if gq.ungranted > 0 && q.othersWait(gq) {
		gq.addUngranted(elapsed)
	} else {
		gq.ungrantedTime = max(gq.ungrantedTime-elapsed/ungrantedDecay, 0)
	}
	gq.waiting, gq.ungranted = 0, 0
}

func (c *conduct) addUngranted(d time.Duration) {
	c.ungrantedTime += min(d, maxUngranted-c.ungrantedTime)
}

// backOff excludes the guest's launches for a while, from now on.
func (c *conduct) backOff(now time.Duration) {
	if now-c.backoffUntil >= maxBackoff || c.backoff == 0 {
		c.backoff = minBackoff
	} else {
		c.backoff = min(2*c.backoff, maxBackoff)
	}
	c.backoffUntil = now + c.backoff
}

// grant notes that the launch has its turn from now on.
func (l *Launch) grant(now time.Duration) {
	l.granted, l.progress.ungranted = true, false
	l.idleSince, l.onGPUSince = now, now
	l.slot.BelowSM = 0
}

// track notes where a launch stands now, before being the state in which it was last seen.
func (q *Queue) track(now time.Duration, l *Launch, before slotstate.State) {
	gq, s := l.queue, l.slot.State
	if !s.OnGPU() {
		if before != s {
			l.readySince = now
		}
		l.granted, l.progress.ungranted, l.unstarted = false, false, false
		if l.excluded == stuck {
			l.excluded = notExcluded
		}
		if now < gq.backoffUntil {
			q.exclude(l, backedOff)
		}
		return
	}
	switch {
	case s == slotstate.ToRun:
		if before != s {
			l.idleSince = now
		}
	case before != slotstate.Running && before != slotstate.ToEvict:
		l.onGPUSince = now
	}
	if s != slotstate.ToRun && l.excluded == backedOff {
		l.excluded = notExcluded // it is there, late as it was
	}
	l.granted = l.granted || !gq.needsVerdicts || gq.inTurn
	if !l.granted && !l.ahead && !l.progress.ungranted {
		l.progress.ungranted = true
		gq.addUngranted(TurnLimit)
	}
}

// exclude hides a launch from the policy, which is told that the launch has ended.
func (q *Queue) exclude(l *Launch, why exclusion) {
	l.excluded = why
	if l.announced {
		l.announced = false
		q.events = append(q.events, event{fairshare.Finished, l})
	}
}

// checkAt returns when a launch that makes no progress by then has to be dealt with. It returns
// false if it need not be.
func (q *Queue) checkAt(l *Launch) (at time.Duration, ok bool) {
	gq := l.queue
	switch {
	case l.over || !gq.needsVerdicts:
		return 0, false
	case l.excluded == backedOff:
		return gq.backoffUntil, true
	case l.excluded != notExcluded || l.ahead:
		return 0, false
	case l.unstarted:
		return l.slot.Asked + TurnLimit, true
	case !q.othersWait(gq):
		return 0, false
	}
	at = math.MaxInt64
	switch l.slot.State {
	case slotstate.ToRun:
		if q.count.onGPU == 0 {
			at = l.idleSince + TurnLimit
		}
	case slotstate.Running, slotstate.ToEvict:
		if gq.timeLimit > 0 {
			at = l.onGPUSince + timeLimitFactor*gq.timeLimit + ipc.UnresponsiveLimit
		}
		if below, leaves := l.leaving(); leaves && below == math.MaxUint32 && q.evictionDeadline > 0 {
			at = min(at, l.slot.Asked+leaveFactor*q.evictionDeadline)
		}
	}
	if l.progress.ungranted {
		at = min(at, q.readAt+maxUngranted-gq.ungrantedTime)
	}
	return at, at < math.MaxInt64
}

// checkStalls deals at now, after a read, with launches that make no progress while others wait.
func (q *Queue) checkStalls(now time.Duration, report func(Change)) {
	q.recount()
	for _, l := range q.launches {
		at, ok := q.checkAt(l)
		switch {
		case !ok || now < at:
		case l.excluded == backedOff:
			l.excluded = notExcluded
		case !l.onGPU():
			q.withdraw(now, l, report)
		default:
			q.exclude(l, stuck)
			report(Change{Kind: Stuck, Launch: l})
		}
	}
}

// NextCheck returns when the slots have to be read again for launches that may be stalled. It
// returns false if they need not be.
func (q *Queue) NextCheck() (at time.Duration, ok bool) {
	q.recount()
	at = math.MaxInt64
	for _, l := range q.launches {
		if t, ok := q.checkAt(l); ok {
			at = min(at, t)
		}
	}
	return at, at < math.MaxInt64
}

// withdraw takes a launch's turn back and backs its guest off. A launch that was told to leave
// instead, and has not given its turn up, is excluded until it does.
func (q *Queue) withdraw(now time.Duration, l *Launch, report func(Change)) {
	idle := time.Duration(0)
	if l.unstarted {
		q.exclude(l, stuck)
	} else {
		if !l.shared.Withdraw(l.slot.ID) {
			return // the next read shows what has become of it
		}
		// Anything beyond two turns is the daemon's own delay.
		idle = min(now-max(l.idleSince, q.othersReadySince(l.queue)), 2*TurnLimit)
		l.slot.State, l.readySince = slotstate.Ready, now
		l.granted, l.progress.ungranted = false, false
	}
	if now >= l.queue.backoffUntil {
		l.queue.backOff(now)
	} else {
		idle = 0 // the same time was charged for another launch of the guest
	}
	for _, o := range q.launches {
		if o.queue == l.queue && !o.over && o.Ready() {
			q.exclude(o, backedOff)
		}
	}
	report(Change{Kind: TurnUnused, Launch: l, Took: max(idle, 0)})
}

// othersReadySince returns since when a launch of another guest waits.
func (q *Queue) othersReadySince(gq *guestQueue) time.Duration {
	from := time.Duration(math.MaxInt64)
	for _, l := range q.launches {
		if l.queue != gq && !l.over && l.excluded == notExcluded && l.Waits() {
			from = min(from, l.readySince)
		}
	}
	return from
}
