package fairshare

import (
	"time"

	"vgpud/fairshare/quota"
)

// account compares what the guests used in a phase with their quotas.
func (b *bounded) account(ev *Event, st *State) {
	factor := 1.0
	switch ev.Phase {
	case PollPhase:
		factor = b.factor(ev, b.usedAway(ev, st))
	case QuietPhase:
		b.rest(ev)
		for i := range st.Guests {
			b.of[i].away = st.Guests[i].Suspended
		}
	default:
		return
	}
	given := b.measure(ev, st, factor)
	b.spendDeparted(st, factor)
	for i := range st.Guests {
		g := &st.Guests[i]
		a := &b.of[i]
		if a.meter.Charge(g.Quota, a.use, given, ev.Length, st.Round); g.Held {
			a.meter.Reset()
		}
	}
}

// measure finds out what each guest used of a phase and what it left, and returns what the GPU gave to
// any guest, or had for it. A phase stands for factor times as much.
func (b *bounded) measure(ev *Event, st *State, factor float64) (given float64) {
	n, keep := contenders(st), fade(ev.Length)
	fading := quota.NewFading(keep)
	for i := range st.Guests {
		g := &st.Guests[i]
		a := &b.of[i]
		kept := b.takeKeptIdle(g.ID)
		used, unused := b.spent(ev, a.idled(ev, g, factor, kept), a, factor)
		wasted := a.observe(g, phaseUse{
			used: used, unused: unused, contended: othersContend(g, n), factor: factor, length: ev.Length, round: st.Round, turns: st.Slices.Max > 0, keep: keep,
		})
		if g.Active && a.watched {
			a.need.Observe(quota.Seen{Used: used, Pauses: factor * float64(g.NoWork), Left: wasted, Suspended: g.Suspended}, fading)
		}
		if a.need.Saturates() {
			unused = 0 // what it leaves is for want of its launches, and not of its work
		}
		a.watched = a.watched || ev.Phase == PollPhase
		used = max(used+float64(g.Charged), 0)
		given += used
		if i == 0 {
			given += factor * float64(g.Idle)
		}
		used += float64(kept) // which the GPU was idle
		works := working(g, ev.Length)
		unused = max(unused-(1-works)*factor*float64(ev.Length), 0) // some of it is time without work
		a.use = quota.Use{Used: used, Unused: unused, Works: works, Demand: a.need.Demand()}
	}
	return given
}

// spendDeparted charges what guests that have left used in a phase to their records, or to the guests
// themselves where they are back.
func (b *bounded) spendDeparted(st *State, factor float64) {
	for _, l := range st.Left {
		used := factor * float64(l.Used)
		if b.departed.spend(l.Key, used) {
			continue
		}
		for i := range st.Guests {
			if a := &b.of[i]; l.Key != "" && a.key == l.Key && a.cap > 0 {
				a.meter.Spend(used)
			}
		}
	}
}

// pass notes the time since the newest state.
func (b *bounded) pass(now time.Duration, st *State) {
	elapsed := now - b.at
	b.at = now
	if !b.waiting {
		return
	}
	b.waiting = false
	for i := range st.Guests {
		if a := &b.of[i]; a.waits {
			a.waits = false
			a.withheld += elapsed
		}
	}
}

// withhold finds out which guests' launches wait from now on for a verdict, or for another guest
// that the GPU is kept free for. If the GPU is idle meanwhile, that is not for want of their work:
// between two launches of a guest whose turn it is, for instance.
func (b *bounded) withhold(st *State) {
	if !b.quotas || b.idleKeeper == nil {
		return
	}
	for i := range st.Launches {
		l := &st.Launches[i]
		if a := b.get(l.Guest); a != nil && !l.Running {
			a.waits, b.waiting = true, true
		}
	}
	if b.idleKeeper.keepsIdle() {
		return
	}
	// A guest that has its turn leaves idle time unused.
	for i := range st.Launches {
		if l := &st.Launches[i]; l.Running {
			if a := b.get(l.Guest); a != nil {
				a.waits = false
			}
		}
	}
}

// takeKeptIdle returns how long the GPU was kept free for a guest since the last call.
func (b *bounded) takeKeptIdle(id GuestID) time.Duration {
	if b.idleKeeper == nil {
		return 0
	}
	return b.idleKeeper.takeKeptIdle(id)
}

// idled returns the guest with its Idle reduced to time in which the GPU was idle and available to
// it: time kept for others was not, and time kept for it is charged to it. Of unwatched time this
// is accounted with the polling phase that stands for it.
func (a *allowance) idled(ev *Event, g *Guest, factor float64, kept time.Duration) *Guest {
	a.withheld += kept
	if a.withheld == 0 {
		return g
	}
	watched := 1 / factor // of the time that this stands for
	if ev.Phase == QuietPhase {
		watched = float64(ev.Watched) / float64(max(ev.Length, 1))
	}
	withheld := time.Duration(watched * float64(a.withheld))
	if a.withheld -= withheld; ev.Phase == PollPhase {
		a.withheld = 0
	}
	less := *g
	less.Idle = max(g.Idle-withheld, 0)
	return &less
}

// usedAway returns how much of a polling phase was used by guests that had been suspended in the
// quiet phase before it, unless both were the same time.
func (b *bounded) usedAway(ev *Event, st *State) (sum time.Duration) {
	if ev.Spread {
		return 0
	}
	for i := range st.Guests {
		if b.of[i].away {
			sum += st.Guests[i].Used
		}
	}
	return sum
}

// spent returns what a guest used in a phase, and what it left unused. a is its record.
func (b *bounded) spent(ev *Event, g *Guest, a *allowance, factor float64) (used, unused float64) {
	if a.away && !ev.Spread {
		factor = 1
	}
	return b.estimator.spent(ev, g, factor)
}

// working returns the part of a phase in which the guest had work.
func working(g *Guest, length time.Duration) float64 {
	switch {
	case !g.Active, g.NoWork == 0 && !g.Backlogged:
		return 0
	case float64(g.NoWork) <= saturating*float64(length):
		return 1
	}
	return max(1-float64(g.NoWork)/float64(length), 0)
}
