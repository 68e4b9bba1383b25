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
// nothing of it but what it had fetched before, which is charged as Late.
//
// Two things are beyond what LoGA prints. A guest that often runs dry, so that
// it couldn't use its share if it had it, doesn't hold the others back: only
// guests that have work nearly all the time define the system's time, and the
// rest is brought up to it. And where quiet time is measured, the verdict is
// looked at again at the end of a quiet phase, to let guests in earlier.
type fairQueue struct {
	accounts
	options  Options
	quiet    time.Duration // unwatched, not yet charged to anybody
	verdicts []Verdict
}

func newFairQueue(o Options) *fairQueue {
	if o.Saturated == 0 {
		o.Saturated = 0.9
	}
	return &fairQueue{options: o}
}

// Decide implements [Policy].
func (q *fairQueue) Decide(_ time.Duration, ev Event, st State) ([]Verdict, time.Duration) {
	q.verdicts = q.verdicts[:0]
	q.sync(&st)
	if ev.Kind != Tick {
		return nil, 0
	}
	switch ev.Phase {
	case PollPhase:
		q.charged(&ev, &st)
		q.decide(&st)
	case QuietPhase:
		q.quieted(&ev, &st)
	}
	return q.verdicts, 0
}

// charged charges a polling phase, and the quiet time before it.
func (q *fairQueue) charged(ev *Event, st *State) {
	q.scale(st)
	for i := range st.Guests {
		g := &st.Guests[i]
		used := float64(g.Used) + float64(g.Late)
		if !g.Suspended && ev.Length > 0 {
			used += float64(g.Used) / float64(ev.Length) * float64(q.quiet)
		}
		q.charge(g, used)
		q.of[g.ID].observe(g, ev.Length)
	}
	q.quiet = 0
	q.advanceSystem(st, q.options.Saturated)
}

// decide suspends whoever is ahead by more than the threshold.
func (q *fairQueue) decide(st *State) {
	threshold := q.options.threshold(st)
	for i := range st.Guests {
		g := &st.Guests[i]
		ahead := q.lead(g) > threshold
		switch {
		case ahead && !g.Suspended:
			q.verdicts = append(q.verdicts, Verdict{Guest: g.ID, Action: Suspend})
		case !ahead && g.Suspended:
			q.verdicts = append(q.verdicts, Verdict{Guest: g.ID, Action: Resume})
		}
	}
}

// quieted charges what was measured of a quiet phase and keeps the rest for the
// polling phase to come.
func (q *fairQueue) quieted(ev *Event, st *State) {
	q.scale(st)
	q.quiet += max(ev.Length-ev.Watched, 0)
	for i := range st.Guests {
		g := &st.Guests[i]
		q.charge(g, float64(g.Used)+float64(g.Late))
		q.quiet = max(q.quiet-g.Late, 0)
		q.of[g.ID].observe(g, ev.Length)
	}
	if ev.Watched < ev.Length {
		return
	}
	q.advanceSystem(st, q.options.Saturated)
	threshold := q.options.threshold(st)
	for i := range st.Guests {
		g := &st.Guests[i]
		if g.Suspended && q.lead(g) <= threshold {
			q.verdicts = append(q.verdicts, Verdict{Guest: g.ID, Action: Resume})
		}
	}
}
