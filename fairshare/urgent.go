package fairshare

import "time"

// urgentSlices sets time slices beside a policy about kernels. What such a policy
// takes off the GPU leaves within tens of microseconds, but for kernels that can't be
// told to. From those the hardware takes the GPU when their slice ends: it is the
// slice of the guest that has the GPU which a more urgent launch waits for. To set
// another then, or to disable the guest's channels, would take longer (on an H100 0.3
// to 0.5 ms). So slices are set ahead of time: where some guests may be more urgent
// than others, the most urgent have the longest slices, that nobody comes between
// their launches, and all others short ones.
//
// That costs next to nothing. A group that nobody waits behind is not switched out,
// however short its slice, and these policies let few guests at a time to the GPU.
type urgentSlices struct {
	policy Policy
	set    map[GuestID]time.Duration
	all    []Verdict
}

// shortSlice is that of a guest beside a more urgent one. Less leaves it next to
// nothing of an H100 while the other has work: each switch takes 84 µs, and with slices
// of 100 µs two contexts had a tenth of the GPU each.
const shortSlice = 250 * time.Microsecond

// Decide implements [Policy].
func (u *urgentSlices) Decide(now time.Duration, ev Event, st State) ([]Verdict, time.Duration) {
	verdicts, next := u.policy.Decide(now, ev, st)
	if st.Slices.Max <= 0 {
		u.set = nil
		return verdicts, next
	}
	if u.set == nil || len(u.set) > len(st.Guests) {
		u.set = make(map[GuestID]time.Duration) // some left: all is said again
	}
	u.all = append(u.all[:0], verdicts...)
	top, differ := topUrgency(st.Guests)
	for i := range st.Guests {
		g := &st.Guests[i]
		want := sliceByUrgency(g.Urgency, top, differ, &st.Slices)
		if set, ok := u.set[g.ID]; !ok || set != want {
			u.set[g.ID] = want
			u.all = append(u.all, Verdict{Guest: g.ID, Action: Slice, Slice: want})
		}
	}
	return u.all, next
}

// topUrgency is the urgency of the most urgent guests, and whether others are less
// urgent.
func topUrgency(guests []Guest) (top int, differ bool) {
	for i := range guests {
		differ = differ || guests[i].Urgency != guests[0].Urgency
		top = max(top, guests[i].Urgency)
	}
	return top, differ
}

// sliceByUrgency is a guest's time slice, 0 for the driver's own.
func sliceByUrgency(urgency, top int, differ bool, l *SliceLimits) time.Duration {
	switch {
	case !differ:
		return 0
	case urgency == top:
		return l.Max
	}
	return min(shortSlice, l.Max)
}
