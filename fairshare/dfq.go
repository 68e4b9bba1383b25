package fairshare

import "time"

// fairQueue is weighted disengaged fair queueing: LoGA §3.4 with weights, and
// with a suspended guest charged for what it used rather than for what it would
// have used.
//
// A verdict is made at the end of a polling phase and holds through the quiet
// phase and the next polling phase. So what is polled shows the mix that the
// quiet phase before it had, and quiet time that nobody measured is estimated
// from the polling phase after it. A guest that was suspended all along used
// nothing of it but what it had fetched before, which is charged as Late; where
// polling is spread over the quiet time it is seen like everything else. Where
// it is not, the mix is another for a while after a verdict: whoever asks for
// verdicts had better watch on for about a polling phase's length after one that
// changed something, and report that as the watched part of the quiet phase.
//
// Two things are beyond what LoGA prints. Only guests that could use more than
// they are entitled to define the system's time, and the rest is brought up to
// it: a guest that often has no work would otherwise hold all others back to
// the little it uses, and leave the GPU idle. How much a guest could use is
// known without running it alone: its GPU time, over that and the time it had
// no work. And where quiet time is measured, the verdict is looked at again at
// the end of a quiet phase, to let guests in earlier.
//
// A guest that is suspended is not only kept from the GPU: what it has there is
// taken off it, where that leaves when told and is likely to stay for longer than
// taking it off costs. It is the guest's own lead that makes that necessary, and
// the guest that pays: what leaving and coming back takes is its own GPU time, as
// measured. What evictions for its sake cost others is charged to it as well
// ([Guest].Charged).
//
// Where kernels run to their end, guests that pause are waited for as well, if they could
// use nearly their part: see classify, chargeAll and leeway.
//
// Where the hardware has time slices that can be set, these hold the shares of guests
// that fill them (see [slicing]). They can't give its part to one that waits for each
// of its launches, or pauses as LoGA's throttles do (§5.5): beside four of these it
// waits for four turns, with their switches, each time. So a guest is suspended for a
// lead that slices have not kept from growing, also over one that could use less than
// its part and lacks much of that. How far it may grow goes by how long the GPU takes to
// go around, see rotations.
type fairQueue struct {
	accounts
	reckoning
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
	q.evictions.sync(now, &st)
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

// pollEnded charges a polling phase, and the quiet time before it.
func (q *fairQueue) pollEnded(ev *Event, st *State) {
	q.scale(st)
	if st.Slices.Max > 0 {
		q.slices.sync(st, ev.Length)
	}
	factor := q.factor(ev, 0)
	q.chargeAll(ev, st, ev.Length, factor)
	q.rotation.observe(st, ev, factor)
	q.classify(st)
	q.advanceSystem(st, true)
	if st.Slices.Max > 0 {
		q.slices.compare(st, func(id GuestID) bool { return q.of[id].waitedFor })
	}
}

// chargeAll charges the guests for a phase that was watched for so long, and stands for
// factor of its kind.
//
// What a guest leaves unused, though it has work and others are suspended, is charged to
// it, too, where that is most of the time: they would wait the longer for it the less it
// does with the GPU. One whose next kernel is always a delay of the host away leaves less.
//
// Where kernels run to their end, the time in which the GPU is idle while others are
// suspended is shared out among those that they are suspended for, and charged to them as
// far as they had no work: they could have had it. So a program beside guests that pause
// has as much of the GPU as if these had always worked, which is what LoGA calls fair (§5.5).
// It is charged with a margin: an error in estimating it must not leave the suspended guest
// with less than that.
func (q *fairQueue) chargeAll(ev *Event, st *State, watched time.Duration, factor float64) {
	there := factor * idle(st)
	n, held := contenders(st), heldBack(st)
	spare := spareFor(st)
	for i := range st.Guests {
		g := &st.Guests[i]
		used, left := q.spent(ev, g, factor)
		there += used
		wasted := q.of[g.ID].observe(g, spell{
			used: used, left: left, contended: othersContend(g, n), factor: factor, length: ev.Length, round: st.Round,
			turns: st.Slices.Max > 0, alone: hasAll(st, g),
		})
		if !held || wasted <= hardly*factor*float64(watched) {
			wasted = 0
		}
		if g.Active && !g.Suspended {
			wasted = max(wasted, factor*min(spareMargin*spare*g.Weight, float64(g.NoWork)))
		}
		q.charge(g, used*q.interest(st, g)+float64(g.Charged)+wasted)
		q.slices.charge(g.ID, used)
	}
	q.offer(st, there, factor*float64(watched))
}

// hasAll reports whether all guests with work but g are suspended, and there are some.
func hasAll(st *State, g *Guest) bool {
	for i := range st.Guests {
		if o := &st.Guests[i]; o.Active && !o.Suspended && o.ID != g.ID {
			return false
		}
	}
	return heldBack(st)
}

// spareMargin is how many times the idle time that guests are suspended for is charged.
// Without it a fifth of the programs beside LoGA's throttles were slower than fair, by up to
// 5 %; with it one in fifty.
const spareMargin = 4. / 3

// debtRounds is how far ahead, in rounds, a guest gets by nothing but a kernel that can't
// be taken off the GPU. What it uses then is charged debtInterest more: the error in
// measuring it is not to fall to those who wait for it.
const (
	debtRounds   = 4
	debtInterest = 0.01
)

// interest is how many times what it used a guest is charged.
func (q *fairQueue) interest(st *State, g *Guest) float64 {
	if st.Slices.Max == 0 && q.lead(g) > debtRounds*float64(st.Round) {
		return 1 + debtInterest
	}
	return 1
}

// hardly is the part of the time that a guest which has the GPU for itself leaves unused
// at least if it hardly uses it.
const hardly = 2. / 3

// spareFor is how much of a phase, as far as it was watched, the GPU was idle for each unit
// of weight of the guests that were let run while others with work were suspended. It is 0
// where time slices hold the shares.
func spareFor(st *State) float64 {
	var weight float64
	for i := range st.Guests {
		if g := &st.Guests[i]; g.Active && !g.Suspended {
			weight += g.Weight
		}
	}
	if weight == 0 || st.Slices.Max > 0 || !heldBack(st) {
		return 0
	}
	return idle(st) / weight
}

// forgive implements forgiver.
func (q *fairQueue) forgive(id GuestID) {
	if acc := q.of[id]; acc != nil {
		acc.virtual = min(acc.virtual, q.system)
	}
}

// idle is how much of a phase, as far as it was watched, nobody used the GPU.
func idle(st *State) float64 {
	if len(st.Guests) == 0 {
		return 0
	}
	return float64(st.Guests[0].Idle)
}

// Where slices hold the shares, a guest is suspended when it is ahead by what a GPU
// gives out in rotations times around, and let run again at half of that: so far ahead
// are also guests that had their turns just now, or whose slices are being corrected.
// Where somebody waits for each of its launches turns are short, no slice is filled,
// and the GPU goes around within two milliseconds; then the least, half a round, is
// soon reached. The most, sliceDebt, is little beside some seconds.
const (
	rotations = 5
	sliceDebt = 100 * time.Millisecond
	slicePaid = sliceDebt / 2
)

// thresholds are the leads above which a guest is suspended, and one that is stays so.
func (q *fairQueue) thresholds(st *State) (hold, keep float64) {
	if st.Slices.Max > 0 && q.options.Threshold == 0 {
		hold = min(max(rotations*q.rotation.mean(), float64(st.Round)/2), float64(sliceDebt))
		return hold, hold / 2
	}
	t := q.options.threshold(st)
	return t, t
}

// leeway is how many times as far ahead a modest guest may be, where kernels run to their
// end. It takes nothing of the others' parts, and is ahead since some was measured wrongly,
// or since it is no longer what it was: then it is suspended in the end.
const leeway = 4

// decide suspends whoever is ahead by more than the threshold. Nobody is where nobody has
// work, though what they are ahead is not forgotten: who comes first would wait for a whole
// phase else, which is a long one then.
func (q *fairQueue) decide(now time.Duration, st *State) {
	hold, keep := q.thresholds(st)
	_, active := activeWeight(st)
	for i := range st.Guests {
		g := &st.Guests[i]
		lead := q.lead(g)
		times := 1.0
		if st.Slices.Max == 0 && q.of[g.ID].modest {
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

// quietEnded charges what was measured of a quiet phase and keeps the rest for the
// polling phase to come.
func (q *fairQueue) quietEnded(ev *Event, st *State) {
	q.scale(st)
	q.rest(ev)
	q.chargeAll(ev, st, ev.Watched, 1)
	if ev.Watched < ev.Length || ev.Spread {
		return
	}
	q.classify(st)
	q.advanceSystem(st, true)
	_, keep := q.thresholds(st)
	for i := range st.Guests {
		g := &st.Guests[i]
		if g.Suspended && q.lead(g) <= keep {
			q.verdicts = append(q.verdicts, Verdict{Guest: g.ID, Action: Resume})
		}
	}
}
