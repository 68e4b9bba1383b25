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

// soonAgain is when a policy is called again after a quota has changed what may run.
const soonAgain = time.Millisecond

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
