package fairshare

import (
	"math"
	"slices"
	"time"
)

// anticipation has the GPU wait for a moment after a guest's launch has ended, where a
// less urgent one of another guest would be next, and the guest is likely to come back.
//
// A program that waits for each of its kernels launches the next some tens of
// microseconds after the end of the one before. A policy that never leaves the GPU idle
// gives it to somebody less urgent in between, and takes it back at once: on an H100 that
// one's kernel is launched again and its context loaded, its blocks leave before they
// have done anything, and the urgent context is loaded again, before the urgent kernel
// begins. Neither guest has anything of that. Disks had the same, and the same cure:
// Iyer and Druschel (Anticipatory scheduling, SOSP 2001) call it deceptive idleness, and
// have the disk wait for a short, bounded time for whom it has just served.
//
// How long is what competitive spinning found (Karlin, Li, Manasse and Owicki, SOSP
// 1991): as long as giving the GPU away and taking it back costs. Whatever the guest
// does then, the wait costs at most as much again. And it is made only for those who
// lately came back within that time at least as often as not, so that a guest with
// pauses stalls nobody; and who had the GPU for as long as it has waited for them, so
// that a guest which only ever comes back does not keep it idle.
//
// The zero value knows of nobody.
type anticipation struct {
	guests []thinker // of st.Guests[i]
	spare  []thinker
	at     time.Duration // the newest state
}

const (
	// switchCost is what an H100 takes to change from one context to another that is
	// newly ready.
	switchCost = 135 * time.Microsecond
	// longestWait bounds the wait, also where evictions were measured that took long.
	longestWait = 500 * time.Microsecond
	// pausesKept is how many of a guest's pauses are remembered.
	pausesKept = 8
	// mostCredit bounds what a guest may save up.
	mostCredit = pausesKept * longestWait
)

// thinker is what is kept of a guest: when it had no launch at all.
type thinker struct {
	guest    GuestID
	busy     bool
	since    time.Duration // when it last was busy, where it is not and ever was
	priority int           // then, of the most urgent of its launches
	pauses   [pausesKept]time.Duration
	ended    int // pauses
	// credit is for how long it had the GPU, or others left it for it, less how long
	// the GPU waited for it.
	credit        time.Duration
	kept          time.Duration // for how long the GPU waited for it, as yet uncharged
	runs, awaited bool          // since the newest state
	until         time.Duration // when it no longer is awaited
}

// observe takes in who has launches at now. It is told of each state.
func (a *anticipation) observe(now time.Duration, st *State) {
	a.bill(now)
	a.sync(st.Guests)
	elapsed := now - a.at
	a.at = now
	for i := range a.guests {
		g := &a.guests[i]
		if g.runs {
			g.credit = min(g.credit+elapsed, mostCredit)
		}
		g.awaited = false
		g.runs = slices.ContainsFunc(st.Launches, func(l Launch) bool { return l.Guest == g.guest && l.Running })
		urgency, busy := urgencyNow(st.Launches, g.guest)
		switch {
		case busy && !g.busy && g.since > 0:
			g.pauses[g.ended%pausesKept] = now - g.since
			g.ended++
		case !busy && g.busy:
			g.since = now
		}
		if g.busy = busy; busy {
			g.priority = urgency
		}
	}
}

// bill charges those for whom the GPU waited since the newest state: all who were awaited
// at a time share it.
func (a *anticipation) bill(now time.Duration) {
	for from := a.at; from < now; {
		to, n := now, time.Duration(0)
		for i := range a.guests {
			if g := &a.guests[i]; g.awaited && g.until > from {
				to = min(to, g.until)
				n++
			}
		}
		if n == 0 {
			return
		}
		for i := range a.guests {
			if g := &a.guests[i]; g.awaited && g.until > from {
				g.credit -= (to - from) / n
				g.kept += (to - from) / n
			}
		}
		from = to
	}
}

// sync takes in the guests, of which those that are new have never been busy.
func (a *anticipation) sync(guests []Guest) {
	if slices.EqualFunc(a.guests, guests, func(t thinker, g Guest) bool { return t.guest == g.ID }) {
		return
	}
	a.spare = a.spare[:0]
	for i := range guests {
		t := thinker{guest: guests[i].ID}
		if k := slices.IndexFunc(a.guests, func(t thinker) bool { return t.guest == guests[i].ID }); k >= 0 {
			t = a.guests[k]
		}
		a.spare = append(a.spare, t)
	}
	a.guests, a.spare = a.spare, a.guests
}

// urgencyNow is the priority of the most urgent of a guest's launches, if it has any.
func urgencyNow(launches []Launch, id GuestID) (urgency int, any bool) {
	for i := range launches {
		if l := &launches[i]; l.Guest == id && (!any || l.Priority > urgency) {
			urgency, any = l.Priority, true
		}
	}
	return urgency, any
}

// let takes note that a launch of the guest may run from now on.
func (a *anticipation) let(id GuestID) {
	for i := range a.guests {
		if g := &a.guests[i]; g.guest == id {
			g.runs = true
		}
	}
}

// wait is for how long from now on the GPU had better be left to nobody, though l could
// have it; 0 or less: not at all. Nobody is charged for it while a launch that was told to
// leave still has the GPU.
func (a *anticipation) wait(now time.Duration, st *State, l *Launch) (wait time.Duration) {
	bound := st.handOver(l)
	free := !slices.ContainsFunc(st.Launches, func(l Launch) bool { return l.Evicting })
	for i := range a.guests {
		g := &a.guests[i]
		if g.busy || g.priority <= l.Priority || st.Guests[i].Suspended || !g.returns(bound) {
			continue
		}
		if left := g.since + bound - now; left > 0 && g.credit >= left {
			g.awaited, g.until = free, now+left
			wait = max(wait, left)
		}
	}
	for i := range a.guests {
		if g := &a.guests[i]; g.awaited && g.until == now+wait {
			g.until = math.MaxInt64 // also where the policy is asked late
		}
	}
	return wait
}

// waits is whether the GPU is left to nobody since the newest state.
func (a *anticipation) waits() bool {
	return slices.ContainsFunc(a.guests, func(t thinker) bool { return t.awaited })
}

// charge is for how long the GPU has waited for a guest, less what was charged before.
func (a *anticipation) charge(id GuestID) (kept time.Duration) {
	for i := range a.guests {
		if g := &a.guests[i]; g.guest == id {
			kept, g.kept = g.kept, 0
		}
	}
	return kept
}

// keeper is a policy that may keep the GPU for a guest which has no work, for others to
// know who had it then.
type keeper interface {
	// keeps is whether it does so from now on, though somebody's launch waits.
	keeps() bool
	// kept is for how long it did for a guest, since that was last asked.
	kept(id GuestID) time.Duration
}

// returns is whether the guest's pauses of late were no longer than bound, at least as
// often as not.
func (t *thinker) returns(bound time.Duration) bool {
	kept := t.pauses[:min(t.ended, pausesKept)]
	short := 0
	for _, p := range kept {
		if p <= bound {
			short++
		}
	}
	return len(kept) > 0 && 2*short >= len(kept)
}

// handOver is about what it costs to let a launch have the GPU and take it back.
func (st *State) handOver(l *Launch) time.Duration {
	cost := l.cost()
	if !st.CoRuns {
		cost += 2 * switchCost
	}
	return min(cost, longestWait)
}
