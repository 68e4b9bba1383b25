package fairshare

import (
	"math"
	"time"
)

// released is disengaged fair queueing as LoGA's authors published it (github.com/jkehne/loga,
// neon_module/neon_event.c: update_vtimes and update_now), kept as a baseline beside printed. It
// differs from printed in three ways:
//
//   - A suspended guest stays suspended through the next polling phase, and the next verdict comes at the end of that phase. So it is charged nothing for the round that it sat out, and runs again when the others have caught up.
//   - A guest that was not seen to execute in the polling phase, because it was suspended or had no work, is neither charged nor counted in the least virtual time.
//   - If no guest was seen to execute, nothing is charged and no time passes, so that a guest with any lead at all is suspended, for as long as no guest executes.
//
// Its phases are 1 and 5 ms for each allocated channel (event_event). The caller of the sampler
// configures that: accounting.ByAllocated, no cap on the round, one piece. Weights are as in
// printed.
type released struct {
	accounts
	options  Options
	measure  func(*Guest) float64
	quiet    time.Duration
	verdicts []Verdict
}

// newReleased returns the policy by a measure of a guest's use: GPU time, as in the paper (§3.4)
// and in a line of the published code that is switched off; or the mean time between switches, as
// in the line that replaces it.
func newReleased(o Options, measure func(*Guest) float64) *released {
	return &released{options: o, measure: measure}
}

// gpuTime returns what a guest was seen to use.
func gpuTime(g *Guest) float64 { return float64(g.Used) }

// Decide implements [Policy].
func (p *released) Decide(_ time.Duration, ev Event, st State) ([]Verdict, time.Duration) {
	p.verdicts = p.verdicts[:0]
	p.sync(&st)
	if ev.Kind != Tick {
		return nil, 0
	}
	switch ev.Phase {
	case QuietPhase:
		p.quiet = ev.Length
	case PollPhase:
		p.polled(&ev, &st)
	}
	return p.verdicts, 0
}

// polled charges the round that a polling phase ends, and suspends guests.
func (p *released) polled(ev *Event, st *State) {
	p.scale(st)
	var total float64
	for i := range st.Guests {
		total += p.measure(&st.Guests[i])
	}
	var threshold float64
	if total > 0 {
		round := float64(ev.Length + p.quiet)
		for i := range st.Guests {
			g := &st.Guests[i]
			p.charge(i, g, p.measure(g)/total*round)
		}
		p.advance(st, func(g *Guest) bool { return g.Runs > 0 || g.Used > 0 })
		if threshold = round; p.options.Threshold > 0 {
			threshold = float64(p.options.Threshold)
		}
	}
	p.verdicts = p.suspendAhead(st, threshold, p.verdicts)
}

// advance sets the system's time to the least virtual time of the guests that count, and brings
// guests that are behind up to it. If none counts the system's time stays.
func (a *accounts) advance(st *State, counts func(*Guest) bool) {
	least := math.Inf(1)
	for i := range st.Guests {
		if g := &st.Guests[i]; counts(g) {
			least = min(least, a.of[i].virtual)
		}
	}
	if math.IsInf(least, 1) {
		return
	}
	a.system = least
	for i := range st.Guests {
		acc := &a.of[i]
		acc.virtual = max(acc.virtual, a.system)
	}
}

// suspendAhead suspends guests that are ahead by more than a threshold and resumes the others.
func (a *accounts) suspendAhead(st *State, threshold float64, verdicts []Verdict) []Verdict {
	for i := range st.Guests {
		switch g := &st.Guests[i]; {
		case a.lead(i) > threshold:
			verdicts = append(verdicts, Verdict{Guest: g.ID, Action: Suspend})
		case g.Suspended:
			verdicts = append(verdicts, Verdict{Guest: g.ID, Action: Resume})
		}
	}
	return verdicts
}
