package fairshare

import (
	"math"
	"time"
)

// released is disengaged fair queueing as LoGA's authors published it
// (github.com/jkehne/loga, neon_module/neon_event.c: update_vtimes and
// update_now), kept as a baseline beside printed, from which it differs in
// three things:
//
//   - A guest that is suspended stays so through the next polling phase, to whose
//     end the next verdict is put off. So it is charged nothing for the round that it
//     sat out, and is let run again when the others have caught up.
//   - A guest that was not seen to execute in the polling phase, suspended or
//     without work, is neither charged nor counts in the least virtual time.
//   - Where nobody was seen to execute, nothing is charged and no time is taken to
//     have passed, so that whoever is ahead at all is suspended, for as long as
//     nobody executes.
//
// Its phases are 1 and 5 ms for each allocated channel (event_event). That is for
// whoever has the GPU watched: accounting.ByAllocated, without a cap on the round,
// in one piece. Weights are as in printed.
type released struct {
	accounts
	options  Options
	measure  func(*Guest) float64
	quiet    time.Duration
	verdicts []Verdict
}

// newReleased makes the policy by a measure of a guest's use: GPU time, as the
// paper has it (§3.4) and the code in a line that is switched off, or the mean time
// between switches, which is the line in its place.
func newReleased(o Options, measure func(*Guest) float64) *released {
	return &released{options: o, measure: measure}
}

// gpuTime is what a guest was seen to use.
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
			p.charge(g, p.measure(g)/total*round)
		}
		p.advance(st, func(g *Guest) bool { return g.Runs > 0 || g.Used > 0 })
		if threshold = round; p.options.Threshold > 0 {
			threshold = float64(p.options.Threshold)
		}
	}
	p.verdicts = p.holdAhead(st, threshold, p.verdicts)
}

// advance sets the system's time to the least virtual time of those that count, and
// brings who is behind up to it. Where nobody counts it stays.
func (a *accounts) advance(st *State, counts func(*Guest) bool) {
	least := math.Inf(1)
	for i := range st.Guests {
		if g := &st.Guests[i]; counts(g) {
			least = min(least, a.of[g.ID].virtual)
		}
	}
	if math.IsInf(least, 1) {
		return
	}
	a.system = least
	for i := range st.Guests {
		acc := a.of[st.Guests[i].ID]
		acc.virtual = max(acc.virtual, a.system)
	}
}

// holdAhead suspends who is ahead by more than a threshold and lets the others run.
func (a *accounts) holdAhead(st *State, threshold float64, verdicts []Verdict) []Verdict {
	for i := range st.Guests {
		switch g := &st.Guests[i]; {
		case a.lead(g) > threshold:
			verdicts = append(verdicts, Verdict{Guest: g.ID, Action: Suspend})
		case g.Suspended:
			verdicts = append(verdicts, Verdict{Guest: g.ID, Action: Resume})
		}
	}
	return verdicts
}
