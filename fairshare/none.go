package fairshare

import "time"

// none lets all guests run.
type none struct{ verdicts []Verdict }

// Decide implements [Policy]. It resumes guests that an earlier policy left suspended.
func (p *none) Decide(_ time.Duration, _ Event, st State) ([]Verdict, time.Duration) {
	p.verdicts = p.verdicts[:0]
	for i := range st.Guests {
		if st.Guests[i].Suspended {
			p.verdicts = append(p.verdicts, Verdict{Guest: st.Guests[i].ID, Action: Resume})
		}
	}
	return p.verdicts, 0
}
