package fairshare

import (
	"math"
	"time"
)

// Quota bounds a guest's part of the GPU's time. The zero value does not.
type Quota struct {
	// Cap is the largest part that the guest gets, even if the GPU is idle otherwise. 0 is no cap.
	Cap float64
	// Guarantee is the part that the guest gets while it has work for it, whichever other guests
	// want the GPU. 0 is none.
	Guarantee float64
}

// bounds returns the least and the most that a guest with a demand is entitled to.
func (q Quota) bounds(demand float64) (floor, ceiling float64) {
	ceiling = demand
	if q.Cap > 0 {
		ceiling = min(q.Cap, demand)
	}
	return min(q.Guarantee, ceiling), ceiling
}

// Bound returns a policy that limits p's answers to the guests' quotas.
//
// It does so in two ways. The policy is given weights that alone give each guest its entitlement by
// weights and quotas (see [Entitlement]), so that a policy that shares by weight has little left to
// be corrected. And each guest's use is compared with its quota, under any policy:
//
// A cap is a bucket of GPU time that fills at the cap's rate. It holds the time of two rounds, and
// of a quarter of a second while the guest has work that others' work keeps from the GPU. A guest
// that overdraws it is suspended until that is paid back. Meanwhile, and for the phase in which
// that ends, the policy is told that the guest was idle: a policy that shares by what guests have
// used would otherwise hold the others back to it.
//
// A guarantee is a debt that grows at the guarantee's rate, of the time that the GPU gave to any
// guest, while the guest has work, and shrinks by what the guest uses or leaves unused. If a guest
// is owed more than half a round (50 ms if time slices are set, since a rotation of the GPU may
// take that long), the guests that are owed nothing are suspended until it is paid. What a guest
// could not use of its guarantee lapses, and for one that uses less than half of it the debt grows
// at twice what it uses.
//
// The policy forgives such a guest its lead, since it has less than it is to have: a guest that is
// held at its cap at times, when the policy considers it idle, would get ahead at other times, and
// would have all of that to make up for once the quota is gone.
//
// Quotas are judged at the end of a polling phase, like everything else that is not about single
// launches.
//
// While the GPU is kept free because a guest is likely to submit again in a moment, that guest is
// charged for it, and a guest whose launch waits meanwhile leaves nothing unused.
//
// Launches of a guest that is suspended for a quota are evicted if they leave when told. What
// evictions for a guest's sake cost others counts as used by it.
func Bound(p Policy) Policy {
	k, _ := p.(idleKeeper)
	return &bounded{policy: p, idleKeeper: k, of: make(map[GuestID]*allowance), evictor: evictor{evictions: newEvictions(Rate{})}}
}

// bounded is a policy within quotas.
type bounded struct {
	estimator
	evictor
	policy     Policy
	of         map[GuestID]*allowance
	generation uint64
	quotas     bool // whether any guest has one
	idleKeeper idleKeeper
	waiting    bool          // whether any launch waits since the newest state, see allowance.withheld
	at         time.Duration // time of that state

	guests   []Guest // as the policy is told
	verdicts []Verdict

	weights, floors, ceilings, parts []float64 // scratch
}

// allowance is the record of a guest's quota.
type allowance struct {
	usage
	// credit is GPU time in nanoseconds that the cap leaves; below 0 it was overdrawn. owed is what
	// the guest lacks of its guarantee.
	credit, owed float64
	// capped reports whether the guest is suspended for its cap, behind whether others are
	// suspended for its guarantee, and yields whether it is one of these others.
	capped, behind, yields bool
	turned                 time.Duration // when capped or behind last changed
	// barred reports whether its cap kept it from the GPU in some of the newest phase.
	barred bool
	// away reports whether it was suspended in the newest quiet phase.
	away bool
	// withheld is how long the GPU was kept free for it, or for another guest while its launches
	// waited, as far as that is not accounted yet. waits reports whether its launches wait since
	// the newest state.
	withheld time.Duration
	waits    bool
	// wantSuspended reports whether the policy wants the guest suspended.
	wantSuspended bool
	// factor is what its weight is multiplied by for the policy.
	factor float64
	seen   uint64 // generation of the newest state that had the guest
}

const (
	// halfDuty is the least time between two changes of a decision about a guest's quota: a duty
	// cycle of less than 10 ms costs more in context switches than it gains.
	halfDuty = 5 * time.Millisecond
	// creditRounds is how much of its cap a guest may save while it has no work, in rounds, and
	// maxCredit while it has work and others use the GPU.
	creditRounds = 2
	maxCredit    = 250 * time.Millisecond
	// maxOverdraft is how long a guest is suspended for its cap at most, whatever it is reported to
	// have used.
	maxOverdraft = 10 * time.Minute
	// surplusRounds is how much use above its guarantee counts for later, in rounds.
	surplusRounds = 2
	// capPressure is how much more than its cap the weight of a guest at its cap would give it, so
	// that it reaches the cap and the cap is what limits it.
	capPressure = 1.5
	// eager is how many times a guest's demand its guarantee may be and still grow at its full
	// rate: some of the time that a guest has the GPU for itself passes unused, which counts as
	// given to it.
	eager = 2
	// soonAgain is when a policy is called again after a quota has changed what may run.
	soonAgain = time.Millisecond
	// leastRest is the least part that guarantees are assumed to leave over when weights are
	// adjusted. They may add up to 1 but for a rounding error, and weights would be some 1e16 times
	// others'.
	leastRest = 0.001
	// maxOwed is how much of a guarantee can be caught up with.
	maxOwed = 500 * time.Millisecond
)

// Decide implements [Policy].
func (b *bounded) Decide(now time.Duration, ev Event, st State) ([]Verdict, time.Duration) {
	b.sync(&st)
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
func (b *bounded) sync(st *State) {
	b.generation++
	b.quotas = false
	for i := range st.Guests {
		g := &st.Guests[i]
		b.quotas = b.quotas || g.Quota != Quota{}
		a := b.of[g.ID]
		if a == nil {
			a = &allowance{wantSuspended: g.Suspended, factor: 1, turned: math.MinInt64 / 2}
			b.of[g.ID] = a
		}
		a.seen = b.generation
	}
	if len(b.of) == len(st.Guests) {
		return
	}
	for id, a := range b.of {
		if a.seen != b.generation {
			delete(b.of, id)
		}
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
			b.of[st.Guests[i].ID].away = st.Guests[i].Suspended
		}
	default:
		return
	}
	var given float64 // what the GPU gave to any guest, or had for it
	n := contenders(st)
	for i := range st.Guests {
		g := &st.Guests[i]
		a := b.of[g.ID]
		kept := b.takeKeptIdle(g.ID)
		used, unused := b.spent(ev, a.idled(ev, g, factor, kept), factor)
		a.observe(g, phaseUse{
			used: used, unused: unused, contended: othersContend(g, n), factor: factor, length: ev.Length, round: st.Round, turns: st.Slices.Max > 0,
		})
		used = max(used+float64(g.Charged), 0)
		given += used
		if i == 0 {
			given += factor * float64(g.Idle)
		}
		used += float64(kept) // which the GPU was idle
		a.credit += g.Quota.Cap*float64(ev.Length) - used
		a.owed -= used + unused
	}
	for i := range st.Guests {
		g := &st.Guests[i]
		a := b.of[g.ID]
		works := working(g, ev.Length)
		saved := creditRounds * float64(st.Round)
		if works == 1 {
			saved = max(saved, float64(maxCredit))
		}
		a.credit = max(min(a.credit, g.Quota.Cap*saved), -g.Quota.Cap*float64(maxOverdraft))
		if works > 0 {
			a.owed += works * min(g.Quota.Guarantee, eager*a.demand()) * given
		} else {
			a.owed = min(a.owed, 0)
		}
		a.owed = min(max(a.owed, -surplusRounds*float64(st.Round)), float64(maxOwed))
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
		if a := b.of[st.Guests[i].ID]; a.waits {
			a.waits = false
			a.withheld += elapsed
		}
	}
}

// withhold finds out which guests' launches wait from now on while the GPU is kept free for another
// guest.
func (b *bounded) withhold(st *State) {
	if !b.quotas || b.idleKeeper == nil || !b.idleKeeper.keepsIdle() {
		return
	}
	for i := range st.Launches {
		l := &st.Launches[i]
		if a := b.of[l.Guest]; a != nil && !l.Running {
			a.waits, b.waiting = true, true
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
		if b.of[st.Guests[i].ID].away {
			sum += st.Guests[i].Used
		}
	}
	return sum
}

// spent returns what a guest used in a phase, and what it left unused.
func (b *bounded) spent(ev *Event, g *Guest, factor float64) (used, unused float64) {
	if b.of[g.ID].away && !ev.Spread {
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

// judge decides which guests are suspended for a quota.
func (b *bounded) judge(now time.Duration, st *State) {
	urgent := false
	most := float64(st.Round) / 2
	if st.Slices.Max > 0 {
		most = max(most, float64(slicePaid))
	}
	for i := range st.Guests {
		g := &st.Guests[i]
		a := b.of[g.ID]
		capped := g.Quota.Cap > 0 && a.credit < 0
		behind := !capped && g.Active && (a.owed > most || a.behind && a.owed > 0)
		a.barred = a.capped
		if (capped != a.capped || behind != a.behind) && now-a.turned >= halfDuty {
			a.capped, a.behind, a.turned = capped, behind, now
		}
		a.barred = a.barred || a.capped
		urgent = urgent || a.behind
		if f, ok := b.policy.(forgiver); ok && a.behind {
			f.forgive(g.ID)
		}
	}
	for i := range st.Guests {
		a := b.of[st.Guests[i].ID]
		a.yields = urgent && !a.behind
	}
}

// lift drops records for quotas that guests no longer have.
func (b *bounded) lift(st *State) {
	urgent := false
	for i := range st.Guests {
		g := &st.Guests[i]
		a := b.of[g.ID]
		if g.Quota.Cap == 0 {
			a.credit, a.capped, a.barred = 0, false, false
		}
		if g.Quota.Guarantee == 0 {
			a.owed, a.behind = 0, false
		}
		urgent = urgent || a.behind
	}
	for i := range st.Guests {
		a := b.of[st.Guests[i].ID]
		a.yields = a.yields && urgent
	}
}

// weigh finds the weights that give each guest its entitlement. They differ from the given ones
// only for guests at the bound of a quota.
func (b *bounded) weigh(st *State) {
	if !b.quotas {
		for i := range st.Guests {
			b.of[st.Guests[i].ID].factor = 1
		}
		return
	}
	b.weights, b.floors, b.ceilings, b.parts = b.weights[:0], b.floors[:0], b.ceilings[:0], b.parts[:0]
	for i := range st.Guests {
		g := &st.Guests[i]
		demand := 0.0
		if g.Active {
			demand = b.of[g.ID].demand()
		}
		floor, ceiling := g.Quota.bounds(demand)
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
		a := b.of[g.ID]
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
		a := b.of[g.ID]
		g.Weight *= a.factor
		if a.barred {
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
	for i := range st.Guests {
		// Where it says nothing it wants what it was told of, unless that was a quota's doing.
		if g := &st.Guests[i]; !g.Suspended {
			b.of[g.ID].wantSuspended = false
		}
	}
	for _, v := range inner {
		a := b.of[v.Guest]
		switch {
		case v.Action == Evict && v.For == v.Guest && a != nil && a.wantSuspended && a.behind:
			// The policy wanted it suspended, but it won't be.
		case v.Action == Run && a != nil && (a.capped || a.yields):
			again = true
		case v.Action != Suspend && v.Action != Resume:
			b.verdicts = append(b.verdicts, v)
		case a != nil:
			a.wantSuspended = v.Action == Suspend
		}
	}
	for i := range st.Guests {
		g := &st.Guests[i]
		a := b.of[g.ID]
		suspend := a.wantSuspended
		switch {
		case a.capped, a.yields:
			if suspend = true; !a.wantSuspended {
				b.verdicts = b.clear(now, st, g.ID, b.verdicts)
			}
		case a.behind:
			suspend = false
		}
		if suspend == g.Suspended {
			continue
		}
		v := Verdict{Guest: g.ID, Action: Resume}
		if suspend {
			v.Action = Suspend
		}
		b.verdicts = append(b.verdicts, v)
		again = again || len(st.Launches) > 0
	}
	return b.verdicts, again
}
