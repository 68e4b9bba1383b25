package fairshare

import "time"

// fairQueue is weighted disengaged fair queueing: LoGA §3.4 with weights, and with a suspended
// guest charged for what it used rather than for what it would have used.
//
// A verdict is made at the end of a polling phase and holds through the quiet phase and the next
// polling phase. So the polling phase shows the mix of work that the quiet phase before it had, and
// quiet time that was not measured is estimated from the polling phase after it. A guest that was
// suspended all along used nothing of it except for the commands that were fetched before, which
// are charged as Late; if polling is spread over the quiet time they are seen like everything else.
// If it is not spread, the mix is different for a while after a verdict: then the caller should
// watch on for about a polling phase's length after a verdict that changed something, and report
// that as the watched part of the quiet phase.
//
// Two things go beyond LoGA's rule. Only guests that could use more than they are entitled to
// define the system's time, and the others are brought up to it: a guest that often has no work
// would otherwise hold all others back to the little that it uses, and leave the GPU idle. How much
// a guest could use is known without running it alone: its GPU time, over that and the time in
// which it had no work. And if quiet time is measured, the verdict is revised at the end of a quiet
// phase, to resume guests earlier.
//
// A suspended guest is not only kept from the GPU: its launches on the GPU are evicted if they leave
// when told and would probably stay for longer than an eviction costs. The guest's own lead makes that
// necessary, and the guest pays: the time that leaving and relaunching takes is measured as its own
// GPU time. The cost of evictions for its sake to others is charged to it as well ([Guest].Charged).
//
// Where kernels run to their end, others also wait for guests that pause if these could use nearly
// their part: see classify, chargeAll and leeway.
//
// If the hardware has time slices that can be set, these hold the shares of guests that fill them
// (see [slicing]). They can't give its part to a guest that waits for each of its launches, or
// pauses as LoGA's throttles do (§5.5): beside four of these it waits for four turns, with their
// switches, each time. So a guest is suspended for a lead that slices have not kept from growing,
// also for the sake of a guest that could use less than its part and lacks much of that. The limit
// of the lead depends on how long the GPU takes to serve all groups once, see rotations.
type fairQueue struct {
	accounts
	estimator
	evictor
	slices   slicing
	rotation rotation
	options  Options
	verdicts []Verdict
}

func newFairQueue(o Options) *fairQueue {
	return &fairQueue{options: o, evictor: evictor{evictions: newEvictions(o.Evictions)}}
}

// Decide implements [Policy].
func (q *fairQueue) Decide(now time.Duration, ev Event, st State) ([]Verdict, time.Duration) {
	q.verdicts = q.verdicts[:0]
	q.sync(&st)
	q.evictions.buckets.sync(st.Guests)
	if ev.Kind != Tick {
		return nil, 0
	}
	switch ev.Phase {
	case PollPhase:
		q.pollEnded(&ev, &st)
		q.decide(now, &st)
	case QuietPhase:
		q.quietEnded(&ev, &st)
	}
	return q.verdicts, 0
}

// pollEnded charges a polling phase and the quiet time before it.
func (q *fairQueue) pollEnded(ev *Event, st *State) {
	q.scale(st)
	if st.Slices.Max > 0 {
		q.slices.sync(st, ev.Length)
	}
	factor := q.factor(ev, 0)
	q.chargeAll(ev, st, ev.Length, factor)
	q.rotation.observe(st, ev, factor)
	q.classify(st)
	q.level(st)
	q.advanceSystem(st, true)
	if st.Slices.Max > 0 {
		q.slices.compare(st, func(i int) bool { return q.of[i].waitedFor })
	}
}

// chargeAll charges the guests for a phase that was watched for so long and stands for factor times
// itself.
//
// A guest is also charged for time that it leaves unused, though it has work and others are
// suspended, if that is most of the time: otherwise they would wait the longer for it the less it
// does with the GPU. A guest that submits its next kernel only after each completion leaves less
// time unused.
//
// Where kernels run to their end, the time in which the GPU is idle while others are suspended is
// divided among the guests for which they are suspended, and charged to those that could hardly use
// more than their part (see payers), as far as they had no work: they could have had it. So a
// program beside guests that pause gets as much of the GPU as if these always had work, which LoGA
// calls fair (§5.5).
func (q *fairQueue) chargeAll(ev *Event, st *State, watched time.Duration, factor float64) {
	there := factor * idle(st)
	n, running, suspended := contenders(st), unsuspended(st), anySuspended(st)
	spare, keep := spareFor(st), fade(ev.Length)
	for i := range st.Guests {
		g := &st.Guests[i]
		used, unused := q.spent(ev, g, factor)
		there += used
		wasted := q.of[i].observe(g, phaseUse{
			used: used, unused: unused, contended: othersContend(g, n), factor: factor, length: ev.Length, round: st.Round,
			turns: st.Slices.Max > 0, alone: suspended && running == g.unsuspended(), keep: keep,
		})
		if !suspended || wasted <= hardly*factor*float64(watched) {
			wasted = 0
		}
		if g.Active && !g.Suspended && q.of[i].pays {
			wasted = max(wasted, factor*min(spare*g.Weight, float64(g.NoWork)))
		}
		q.charge(i, g, used*q.interest(st, i)+float64(g.Charged)+wasted)
		q.slices.charge(g.ID, used)
	}
	q.offer(st, there, factor*float64(watched))
}

// unsuspended returns how many guests have work and are not suspended.
func unsuspended(st *State) (n int) {
	for i := range st.Guests {
		n += st.Guests[i].unsuspended()
	}
	return n
}

// unsuspended returns 1 if the guest has work and is not suspended, and otherwise 0.
func (g *Guest) unsuspended() int {
	if g.Active && !g.Suspended {
		return 1
	}
	return 0
}

// debtRounds is a lead, in rounds, that a guest only gets by a kernel that can't be taken off the GPU.
// Use beyond that lead is charged debtInterest more: the error in measuring it must not be at the
// expense of those that wait for it.
const (
	debtRounds   = 4
	debtInterest = 0.01
)

// interest returns how many times its use the guest at index i is charged.
func (q *fairQueue) interest(st *State, i int) float64 {
	if st.Slices.Max == 0 && q.lead(i) > debtRounds*float64(st.Round) {
		return 1 + debtInterest
	}
	return 1
}

// hardly is the part of the time that a guest which has the GPU for itself leaves unused at least
// if it hardly uses it.
const hardly = 2. / 3

// spareFor returns how much of the watched part of a phase the GPU was idle, for each unit of
// weight of the guests that ran while others with work were suspended. It is 0 if time slices hold
// the shares.
func spareFor(st *State) float64 {
	var weight float64
	for i := range st.Guests {
		if g := &st.Guests[i]; g.Active && !g.Suspended {
			weight += g.Weight
		}
	}
	if weight == 0 || st.Slices.Max > 0 || !anySuspended(st) {
		return 0
	}
	return idle(st) / weight
}

// forgive implements forgiver.
func (q *fairQueue) forgive(id GuestID) {
	if acc := q.get(id); acc != nil {
		acc.virtual = min(acc.virtual, q.system)
	}
}

// idle returns how much of the watched part of a phase the GPU was idle.
func idle(st *State) float64 {
	if len(st.Guests) == 0 {
		return 0
	}
	return float64(st.Guests[0].Idle)
}

// If slices hold the shares, a guest is suspended when it is ahead by the GPU time of so many
// rotations of the GPU, and resumed at half of that. Smaller leads also occur right after a guest's
// turn, or while slices are being corrected. If a guest waits for each of its launches, turns are
// short, no slice is filled, and a rotation takes less than two milliseconds; the minimum lead,
// half a round, is then reached soon. The maximum, sliceDebt, is little beside some seconds.
const (
	rotations = 5
	sliceDebt = 100 * time.Millisecond
	slicePaid = sliceDebt / 2
)

// thresholds returns the leads above which a guest is suspended, and above which a suspended one
// stays so.
func (q *fairQueue) thresholds(st *State) (hold, keep float64) {
	if st.Slices.Max > 0 && q.options.Threshold == 0 {
		hold = min(max(rotations*q.rotation.mean(), float64(st.Round)/2), float64(sliceDebt))
		return hold, hold / 2
	}
	t := q.options.threshold(st)
	return t, t
}

// leeway is how many times as far ahead a modest guest may be, where kernels run to their end. It
// takes nothing of the others' parts, and is ahead because of a measuring error, or because it is
// no longer modest: then it is suspended in the end.
const leeway = 4

// decide suspends guests that are ahead by more than the threshold. If no guest has work none is
// suspended, but leads are kept: otherwise the next guest with work would wait for a whole phase,
// which is a long one then.
func (q *fairQueue) decide(now time.Duration, st *State) {
	q.evictor.newState()
	hold, keep := q.thresholds(st)
	active := activeGuests(st)
	for i := range st.Guests {
		g := &st.Guests[i]
		lead := q.lead(i)
		times := 1.0
		if st.Slices.Max == 0 && q.of[i].modest {
			times = leeway
		}
		ahead := active > 0 && (lead > times*hold || g.Suspended && lead > times*keep)
		switch {
		case ahead && !g.Suspended:
			q.verdicts = append(q.verdicts, Verdict{Guest: g.ID, Action: Suspend})
		case !ahead && g.Suspended:
			q.verdicts = append(q.verdicts, Verdict{Guest: g.ID, Action: Resume})
		}
		if ahead {
			q.verdicts = q.evictor.clear(now, st, g.ID, q.verdicts)
		}
	}
	if st.Slices.Max > 0 {
		q.verdicts = append(q.verdicts, q.slices.decide(now, st)...)
	}
}

// quietEnded charges what was measured of a quiet phase and keeps the rest for the next polling
// phase.
func (q *fairQueue) quietEnded(ev *Event, st *State) {
	q.scale(st)
	q.rest(ev)
	q.chargeAll(ev, st, ev.Watched, 1)
	if ev.Watched < ev.Length || ev.Spread {
		return
	}
	q.classify(st)
	q.level(st)
	q.advanceSystem(st, true)
	_, keep := q.thresholds(st)
	for i := range st.Guests {
		g := &st.Guests[i]
		if g.Suspended && q.lead(i) <= keep {
			q.verdicts = append(q.verdicts, Verdict{Guest: g.ID, Action: Resume})
		}
	}
}
