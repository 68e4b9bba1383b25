package fairshare

import (
	"time"

	"vgpud/fairshare/quota"
)

// Quota bounds a guest's part of the GPU's time.
type Quota = quota.Quota

// Bound returns a policy that limits p's answers to the guests' quotas.
//
// It does so in two ways. The policy is given weights that alone give each guest its entitlement by
// weights and quotas (see [Entitlement]), so that a policy that shares by weight has little left to
// be corrected. And each guest's use is metered against its quota, under any policy: package quota
// has the rules, and says which guests are at their caps and which are behind their guarantees.
//
// A guest at its cap is suspended. Meanwhile, and for the phase in which that ends, the policy is
// told that the guest was idle: a policy that shares by what guests have used would otherwise hold
// the others back to it. The same holds for a guest whose budget is spent ([Guest].Held).
//
// If a guest is owed more than half a round (50 ms if time slices are set, since a rotation of the
// GPU may take that long), the guests that are owed nothing are suspended until it is paid. The
// policy forgives such a guest its lead, since it has less than it is to have: a guest that is
// held at its cap at times, when the policy considers it idle, would get ahead at other times, and
// would have all of that to make up for once the quota is gone.
//
// Quotas are judged at the end of a polling phase, like everything else that is not about single
// launches.
//
// While the GPU is kept free because a guest is likely to submit again in a moment, that guest is
// charged for it, and a guest whose launch waits meanwhile leaves nothing unused.
//
// A guest that leaves while it has overdrawn its cap, and comes back, goes on from there. Otherwise one
// that starts again and again would have a round above its cap in each of its lives.
//
// Launches of a guest that is suspended for a quota are evicted if they leave when told. A guest is
// charged the time that evictions for its sake cost others.
func Bound(p Policy) Policy {
	k, _ := p.(idleKeeper)
	return &bounded{policy: p, idleKeeper: k, evictor: evictor{evictions: newEvictions(Rate{})}}
}

// bounded is a policy within quotas.
type bounded struct {
	estimator
	evictor
	guestTable[allowance]
	policy     Policy
	quotas     bool    // whether any guest has one, or is held
	urgent     bool    // whether any guest is behind, so that all others are suspended
	urgentFor  GuestID // the first one that is
	idleKeeper idleKeeper
	waiting    bool          // whether any launch waits since the newest state, see allowance.withheld
	at         time.Duration // time of that state
	departed   departures

	guests   []Guest // as the policy is told
	verdicts []Verdict

	weights, floors, ceilings, parts []float64 // scratch
}

// allowance is the record of a guest's quota.
type allowance struct {
	usage
	need  quota.Need
	meter quota.Meter
	use   quota.Use // in the newest phase
	// held reports whether the guest's budget is spent.
	held bool
	// watched reports whether a polling phase has ended since it came. It may have come in the
	// middle of that, so that it could not use all that was idle.
	watched bool
	// away reports whether it was suspended in the newest quiet phase.
	away bool
	// withheld is how long the GPU was kept free for it, or its launches waited, as far as that is
	// not accounted yet. waits reports whether its launches wait since the newest state.
	withheld time.Duration
	waits    bool
	// wantSuspended reports whether the policy wants the guest suspended, and wantReason why.
	wantSuspended bool
	wantReason    SuspendReason
	// reason is why the guest was suspended, when a verdict last said so, and forGuest for whose
	// guarantee.
	reason   SuspendReason
	forGuest GuestID
	// factor is what its weight is multiplied by for the policy.
	factor float64
	// joined reports whether wantSuspended and factor are set.
	joined bool
	// key and cap are the guest's, for when it has left.
	key string
	cap float64
}

// behind reports whether others are suspended for the guest.
func (a *allowance) behind() bool { return a.meter.Standing() == quota.Behind }

// kept reports whether the guest is kept from the GPU: by its budget, its cap, or a guarantee of
// another guest.
func (b *bounded) kept(a *allowance) bool {
	return a.held || a.meter.Standing() == quota.Capped || b.urgent && !a.behind()
}

// why returns why a guest is suspended that is kept from the GPU, or that the policy wants
// suspended, and for whose guarantee.
func (b *bounded) why(a *allowance) (SuspendReason, GuestID) {
	switch {
	case a.held:
		return BudgetSpent, 0
	case a.meter.Standing() == quota.Capped:
		return AtCap, 0
	case b.kept(a):
		return BehindGuarantee, b.urgentFor
	}
	return a.wantReason, 0
}

const (
	// capPressure is how much more than its cap the weight of a guest at its cap would give it, so
	// that it reaches the cap and the cap is what limits it.
	capPressure = 1.5
	// soonAgain is when a policy is called again after a quota has changed what may run.
	soonAgain = time.Millisecond
	// leastRest is the least part that guarantees are assumed to leave over when weights are
	// adjusted. They may add up to 1 but for a rounding error, and weights would be some 1e16 times
	// others'.
	leastRest = 0.001
)

// Decide implements [Policy].
func (b *bounded) Decide(now time.Duration, ev Event, st State) ([]Verdict, time.Duration) {
	b.sync(now, &st)
	b.pass(now, &st)
	if ev.Kind == Tick {
		b.account(&ev, &st)
	}
	if ev.Kind == Tick && ev.Phase == PollPhase {
		b.judge(now, &st)
	}
	b.lift(&st)
	b.weigh(&st)
	told := st
	told.Guests = b.tell(&st)
	inner, next := b.policy.Decide(now, ev, told)
	b.evictions.buckets.sync(st.Guests)
	verdicts, again := b.answer(now, &st, inner)
	b.withhold(&st)
	if again && (next <= 0 || next > soonAgain) {
		next = soonAgain
	}
	return verdicts, next
}

// sync follows the guests of st.
func (b *bounded) sync(now time.Duration, st *State) {
	if !b.has(len(st.Guests), func(i int) GuestID { return st.Guests[i].ID }) {
		b.departed.note(now, b.ids, b.of, st.Guests)
	}
	b.guestTable.sync(st.Guests)
	b.quotas = false
	for i := range st.Guests {
		g, a := &st.Guests[i], &b.of[i]
		b.quotas = b.quotas || g.Quota != Quota{} || g.Held
		if !a.joined {
			a.joined, a.wantSuspended, a.factor = true, g.Suspended, 1
			if g.Quota.Cap > 0 {
				a.meter.Inherit(b.departed.take(g.Key, now))
			}
		}
		a.held, a.key, a.cap = g.Held, g.Key, g.Quota.Cap
	}
}

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
	var given float64 // what the GPU gave to any guest, or had for it
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
	for _, l := range st.Left {
		used := factor * float64(l.Used)
		if !b.departed.spend(l.Key, used) {
			for i := range st.Guests { // it is back already
				if a := &b.of[i]; l.Key != "" && a.key == l.Key && a.cap > 0 {
					a.meter.Spend(used)
				}
			}
		}
	}
	for i := range st.Guests {
		g := &st.Guests[i]
		a := &b.of[i]
		if a.meter.Charge(g.Quota, a.use, given, ev.Length, st.Round); g.Held {
			a.meter.Reset()
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

// forgiver is a policy that holds guests back for their lead over others.
type forgiver interface {
	// forgive ends a guest's lead.
	forgive(id GuestID)
}

// judge finds out which guests are at their caps or behind their guarantees.
func (b *bounded) judge(now time.Duration, st *State) {
	tolerated := st.Round / 2
	if st.Slices.Max > 0 {
		tolerated = max(tolerated, slicePaid)
	}
	b.urgent = false
	for i := range st.Guests {
		g := &st.Guests[i]
		a := &b.of[i]
		a.meter.Judge(g.Quota, g.Active && !g.Held, tolerated, now)
		b.urgent = b.urgent || a.behind()
		if f, ok := b.policy.(forgiver); ok && a.behind() {
			f.forgive(g.ID)
		}
	}
}

// lift drops records for quotas that guests no longer have.
func (b *bounded) lift(st *State) {
	b.urgent = false
	for i := range st.Guests {
		g := &st.Guests[i]
		a := &b.of[i]
		if a.meter.Lift(g.Quota); g.Held {
			a.meter.Reset()
		}
		if a.behind() && !b.urgent {
			b.urgent, b.urgentFor = true, g.ID
		}
	}
}

// weigh finds the weights that give each guest its entitlement. They differ from the given ones
// only for guests at the bound of a quota.
func (b *bounded) weigh(st *State) {
	if !b.quotas {
		for i := range st.Guests {
			b.of[i].factor = 1
		}
		return
	}
	b.weights, b.floors, b.ceilings, b.parts = b.weights[:0], b.floors[:0], b.ceilings[:0], b.parts[:0]
	for i := range st.Guests {
		g := &st.Guests[i]
		demand := 0.0
		if g.Active && !g.Held {
			demand = b.of[i].demand()
		}
		floor, ceiling := g.Quota.Bounds(demand)
		b.weights, b.floors, b.ceilings = append(b.weights, g.Weight), append(b.floors, floor), append(b.ceilings, ceiling)
		b.parts = append(b.parts, 0)
	}
	level := waterFill(b.parts, b.weights, b.floors, b.ceilings, 1)
	sum, open := 0.0, level > 0 // whether some guest is not at a bound
	for i, p := range b.parts {
		sum += p
		open = open || p == 0 && b.weights[i] > 0 && b.ceilings[i] > 0
	}
	if weight, _ := activeWeight(st); open && weight > 0 {
		level = max(level, leastRest/weight)
	}
	for i := range st.Guests {
		g := &st.Guests[i]
		a := &b.of[i]
		a.factor = 1
		part, natural := b.parts[i], level*g.Weight
		switch {
		case part <= 0 || g.Weight <= 0:
		case level == 0:
			// If that leaves nothing over, the bounds are the weights. Otherwise no guest is in
			// another's way.
			if sum >= 1-saturating {
				a.factor = part / g.Weight
			}
		case part > natural:
			a.factor = part / natural
		case g.Quota.Cap > 0 && part == g.Quota.Cap:
			a.factor = min(capPressure*part/natural, 1)
		}
	}
}

// tell returns the guests as the policy is told of them.
func (b *bounded) tell(st *State) []Guest {
	if !b.quotas {
		return st.Guests
	}
	b.guests = append(b.guests[:0], st.Guests...)
	for i := range b.guests {
		g := &b.guests[i]
		a := &b.of[i]
		g.Weight *= a.factor
		if a.held || a.meter.Barred() {
			g.Active, g.Backlogged, g.NoWork = false, false, 0
		}
	}
	return b.guests
}

// answer returns the policy's answer as far as the quotas allow it. again reports whether launches
// that the policy knows of may run from now on, or may not any more, so that it is to be called
// again soon.
func (b *bounded) answer(now time.Duration, st *State, inner []Verdict) (verdicts []Verdict, again bool) {
	b.verdicts = b.verdicts[:0]
	b.evictor.newState()
	for i := range st.Guests {
		// Where it says nothing it wants what it was told of, unless that was a quota's doing.
		if g := &st.Guests[i]; !g.Suspended {
			b.of[i].wantSuspended = false
		}
	}
	for _, v := range inner {
		a := b.get(v.Guest)
		switch {
		case v.Action == Evict && v.For == v.Guest && a != nil && a.wantSuspended && a.behind():
			// The policy wanted it suspended, but it won't be.
		case v.Action == Run && a != nil && b.kept(a):
			again = true
		case v.Action != Suspend && v.Action != Resume:
			b.verdicts = append(b.verdicts, v)
		case a != nil:
			a.wantSuspended, a.wantReason = v.Action == Suspend, v.Reason
		}
	}
	for i := range st.Guests {
		g := &st.Guests[i]
		a := &b.of[i]
		suspend := a.wantSuspended
		switch {
		case b.kept(a):
			if suspend = true; !a.wantSuspended {
				b.verdicts = b.clear(now, st, g.ID, b.verdicts)
			}
		case a.behind():
			suspend = false
		}
		v := Verdict{Guest: g.ID, Action: Resume}
		if suspend {
			v.Action = Suspend
			v.Reason, v.For = b.why(a)
		}
		if suspend == g.Suspended && (!suspend || v.Reason == a.reason && v.For == a.forGuest) {
			continue
		}
		a.reason, a.forGuest = v.Reason, v.For
		b.verdicts = append(b.verdicts, v)
		again = again || suspend != g.Suspended && len(st.Launches) > 0
	}
	return b.verdicts, again
}
