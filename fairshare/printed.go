package fairshare

import "time"

// printed is disengaged fair queueing as LoGA §3.4 prints it, kept as a baseline. At the end of a
// polling phase each guest's virtual time advances by its part of what all guests used in that
// phase, times the length of the polling and the quiet phase. A guest whose virtual time is ahead
// of the system's by more than that length is suspended for the next quiet phase. It runs in every
// polling phase.
//
// So a suspended guest is charged for quiet phases in which it did not run, by what it used in the
// polling phases, and its lead never shrinks: from then on it runs in polling phases only, whatever
// its share was meant to be. The paper has no weights. Here virtual time is divided by them as in
// dfq, which is the printed rule if weights are equal.
type printed struct {
	accounts
	options  Options
	measure  func(*Guest) float64
	quiet    time.Duration
	verdicts []Verdict
}

// newPrinted returns LoGA's policy by a measure of a guest's use: GPU time (§3.4), or the mean time
// between switches (LoGA-CL, §5.5).
func newPrinted(o Options, measure func(*Guest) float64) *printed {
	return &printed{options: o, measure: measure}
}

// meanRun returns a guest's mean time between context switches, an approximation of its command
// length.
func meanRun(g *Guest) float64 {
	if g.Runs == 0 {
		return 0
	}
	return float64(g.Used) / float64(g.Runs)
}

// Decide implements [Policy].
func (p *printed) Decide(_ time.Duration, ev Event, st State) ([]Verdict, time.Duration) {
	p.verdicts = p.verdicts[:0]
	p.sync(&st)
	if ev.Kind != Tick {
		return nil, 0
	}
	switch ev.Phase {
	case QuietPhase:
		p.quiet = ev.Length
		for i := range st.Guests {
			if st.Guests[i].Suspended {
				p.verdicts = append(p.verdicts, Verdict{Guest: st.Guests[i].ID, Action: Resume})
			}
		}
	case PollPhase:
		p.polled(&ev, &st)
	}
	return p.verdicts, 0
}

// polled charges the round that a polling phase ends, and suspends guests.
func (p *printed) polled(ev *Event, st *State) {
	p.scale(st)
	var total float64
	for i := range st.Guests {
		total += p.measure(&st.Guests[i])
	}
	round := float64(ev.Length + p.quiet)
	for i := range st.Guests {
		g := &st.Guests[i]
		if total > 0 {
			p.charge(i, g, p.measure(g)/total*round)
		}
	}
	p.advanceSystem(st, false)
	threshold := round
	if p.options.Threshold > 0 {
		threshold = float64(p.options.Threshold)
	}
	p.verdicts = p.suspendAhead(st, threshold, p.verdicts)
}
