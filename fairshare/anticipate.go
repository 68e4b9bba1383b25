package fairshare

import (
	"math"
	"slices"
	"time"
)

// anticipation keeps the GPU free for a moment after a guest's launch has ended if a less urgent
// launch of another guest would be next and the guest is likely to submit another one.
//
// A program that waits for each of its kernels launches the next some tens of microseconds after
// the end of the last. A policy that never leaves the GPU idle gives it to a less urgent guest in
// between, and takes it back at once: on an H100 that guest's kernel is launched again and its
// context loaded, its blocks leave before they have done anything, and the urgent context is loaded
// again before the urgent kernel begins. Neither guest gains. Disks had the same problem and the
// same remedy: Iyer and Druschel (Anticipatory scheduling, SOSP 2001) call it deceptive idleness,
// and have the disk wait for a short, bounded time for the process that it has just served.
//
// The wait is as long as giving the GPU away and taking it back costs, which is the rule of
// competitive spinning (Karlin, Li, Manasse and Owicki, SOSP 1991): whatever the guest does then,
// the wait at most doubles that cost. It is made only for guests that lately submitted again within
// that time at least every second time, so that a guest with pauses stalls none; and that had the
// GPU for as long as it has been kept free for them, so that a guest which only submits empty
// kernels does not keep it idle.
//
// The zero value knows no guest.
type anticipation struct {
	guests guestTable[pauseRecord]
	at     time.Duration // time of the newest state
}

const (
	// switchCost is how long an H100 takes to change to a context that is newly ready.
	switchCost = 135 * time.Microsecond
	// longestWait bounds the wait, even if evictions were measured that took long.
	longestWait = 500 * time.Microsecond
	// pausesKept is how many of a guest's pauses are remembered.
	pausesKept = 8
	// mostCredit bounds a guest's credit.
	mostCredit = pausesKept * longestWait
)

// pauseRecord is the record of when a guest had no launch at all.
type pauseRecord struct {
	// busy reports whether it has launches in the newest state, and wasBusy in the one before.
	busy, wasBusy bool
	since         time.Duration // when it was last busy, if it is not now and ever was
	priority      int           // priority then, of the most urgent of its launches
	pauses        [pausesKept]time.Duration
	ended         int // number of pauses
	// credit is how long it had the GPU, or others left it for it, less how long the GPU was kept
	// free for it.
	credit        time.Duration
	kept          time.Duration // how long the GPU was kept free for it, not yet charged
	runs, awaited bool          // since the newest state
	until         time.Duration // end of the wait for it
}

// observe notes which guests have launches at now. It is called with each state.
func (a *anticipation) observe(now time.Duration, st *State) {
	a.bill(now)
	a.guests.sync(st.Guests)
	elapsed := now - a.at
	a.at = now
	for i := range a.guests.of {
		g := &a.guests.of[i]
		if g.runs {
			g.credit = min(g.credit+elapsed, mostCredit)
		}
		g.awaited, g.runs = false, false
		g.wasBusy, g.busy = g.busy, false
	}
	for i := range st.Launches {
		l := &st.Launches[i]
		g := a.guests.get(l.Guest)
		if g == nil {
			continue
		}
		if !g.busy || l.Priority > g.priority {
			g.busy, g.priority = true, l.Priority
		}
		g.runs = g.runs || l.Running
	}
	for i := range a.guests.of {
		switch g := &a.guests.of[i]; {
		case g.busy && !g.wasBusy && g.since > 0:
			g.pauses[g.ended%pausesKept] = now - g.since
			g.ended++
		case !g.busy && g.wasBusy:
			g.since = now
		}
	}
}

// bill charges the guests for which the GPU was kept free since the newest state. Several at a time
// share it.
func (a *anticipation) bill(now time.Duration) {
	for from := a.at; from < now; {
		to, n := now, time.Duration(0)
		for i := range a.guests.of {
			if g := &a.guests.of[i]; g.awaited && g.until > from {
				to = min(to, g.until)
				n++
			}
		}
		if n == 0 {
			return
		}
		for i := range a.guests.of {
			if g := &a.guests.of[i]; g.awaited && g.until > from {
				g.credit -= (to - from) / n
				g.kept += (to - from) / n
			}
		}
		from = to
	}
}

// let notes that a launch of the guest may run from now on.
func (a *anticipation) let(id GuestID) {
	if g := a.guests.get(id); g != nil {
		g.runs = true
	}
}

// wait returns how long from now on the GPU should be kept free although l could have it. 0 or
// less: not at all. No guest is charged for the wait while a launch that was told to leave still
// has the GPU.
func (a *anticipation) wait(now time.Duration, st *State, l *Launch) (wait time.Duration) {
	bound := st.handOver(l)
	free := !slices.ContainsFunc(st.Launches, func(l Launch) bool { return l.Evicting })
	for i := range a.guests.of {
		g := &a.guests.of[i]
		if g.busy || g.priority <= l.Priority || st.Guests[i].Suspended || !g.returns(bound) {
			continue
		}
		if left := g.since + bound - now; left > 0 && g.credit >= left {
			g.awaited, g.until = free, now+left
			wait = max(wait, left)
		}
	}
	for i := range a.guests.of {
		if g := &a.guests.of[i]; g.awaited && g.until == now+wait {
			g.until = math.MaxInt64 // also if the policy is called late
		}
	}
	return wait
}

// waits reports whether the GPU is kept free since the newest state.
func (a *anticipation) waits() bool {
	return slices.ContainsFunc(a.guests.of, func(t pauseRecord) bool { return t.awaited })
}

// charge returns how long the GPU was kept free for a guest, less what was charged before.
func (a *anticipation) charge(id GuestID) (kept time.Duration) {
	if g := a.guests.get(id); g != nil {
		kept, g.kept = g.kept, 0
	}
	return kept
}

// idleKeeper is a policy that may keep the GPU free for a guest that has no work. [Bound] needs to
// know for which guest that was.
type idleKeeper interface {
	// keepsIdle reports whether the GPU is kept free from now on although a launch waits.
	keepsIdle() bool
	// takeKeptIdle returns how long the GPU was kept free for a guest since the last call.
	takeKeptIdle(id GuestID) time.Duration
}

// returns reports whether at least half of the guest's recent pauses were no longer than bound.
func (t *pauseRecord) returns(bound time.Duration) bool {
	kept := t.pauses[:min(t.ended, pausesKept)]
	short := 0
	for _, p := range kept {
		if p <= bound {
			short++
		}
	}
	return len(kept) > 0 && 2*short >= len(kept)
}

// handOver returns the approximate cost of giving the GPU to a launch and taking it back.
func (st *State) handOver(l *Launch) time.Duration {
	cost := l.cost()
	if !st.CoRuns {
		cost += 2 * switchCost
	}
	return min(cost, longestWait)
}
