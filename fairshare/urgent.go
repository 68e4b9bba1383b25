package fairshare

import "time"

// urgentSlices sets time slices beside a policy about kernels. What such a policy
// takes off the GPU leaves within tens of microseconds, but for kernels that can't be
// told to, or take long to leave. From those the hardware takes the GPU when their
// slice ends: it is the slice of the guest that has the GPU which a more urgent launch
// waits for. To set another then, or to disable the guest's channels, would take longer
// (on an H100 0.3 to 0.5 ms). So slices are set ahead of time: where some guests may be
// more urgent than others, the most urgent have the longest slices, that nobody comes
// between their launches, and those others that lately had kernels which stay have
// short ones.
//
// The rest keep the driver's slice. A kernel that leaves soon is better told to: the
// hardware saves a context that has run dry in less time than one in mid-kernel, and
// one that was switched out can't leave until it is back. Even of one that took 150 µs
// to leave an H100 made no more than 27 µs of 450 by a short slice, at twice the time
// until it had left.
//
// A short slice costs next to nothing: a group that nobody waits behind is not switched
// out, and these policies let few guests at a time to the GPU.
type urgentSlices struct {
	policy Policy
	stayed map[GuestID]time.Duration // when each guest last had a kernel that stays
	set    map[GuestID]time.Duration
	all    []Verdict
}

const (
	// shortSlice is that of a guest beside a more urgent one. Less leaves it next to
	// nothing of an H100 while the other has work: each switch takes 84 µs, and with
	// slices of 100 µs two contexts had a tenth of the GPU each.
	shortSlice = 250 * time.Microsecond
	// leavesSoon is what an eviction may cost of a kernel that is told to leave rather
	// than switched out: as long as the driver's slice lasts. It is no less since what
	// was measured of one that was switched out on its way counts, too.
	leavesSoon = DefaultSlice
	// lately is for how long a kernel that stays is remembered.
	lately = time.Second
)

// Decide implements [Policy].
func (u *urgentSlices) Decide(now time.Duration, ev Event, st State) ([]Verdict, time.Duration) {
	verdicts, next := u.policy.Decide(now, ev, st)
	if st.Slices.Max <= 0 {
		u.set = nil
		return verdicts, next
	}
	if u.set == nil || len(u.set) > len(st.Guests) {
		// Some left: all is said again.
		u.set, u.stayed = make(map[GuestID]time.Duration), make(map[GuestID]time.Duration)
	}
	for i := range st.Launches {
		if l := &st.Launches[i]; !l.Evictable || l.EvictionCost > leavesSoon {
			u.stayed[l.Guest] = now
		}
	}
	u.all = append(u.all[:0], verdicts...)
	top, differ := topUrgency(st.Guests)
	for i := range st.Guests {
		g := &st.Guests[i]
		want := time.Duration(0)
		if at, ever := u.stayed[g.ID]; differ {
			want = sliceByUrgency(g.Urgency == top, ever && now-at < lately, &st.Slices)
		}
		if set, ok := u.set[g.ID]; !ok || set != want {
			u.set[g.ID] = want
			u.all = append(u.all, Verdict{Guest: g.ID, Action: Slice, Slice: want})
		}
	}
	return u.all, next
}

// keeps implements keeper.
func (u *urgentSlices) keeps() bool {
	k, ok := u.policy.(keeper)
	return ok && k.keeps()
}

// kept implements keeper.
func (u *urgentSlices) kept(id GuestID) time.Duration {
	if k, ok := u.policy.(keeper); ok {
		return k.kept(id)
	}
	return 0
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

// sliceByUrgency is the time slice, 0 for the driver's own, of a guest that is among the
// most urgent or not, and whose kernels stay or leave when told.
func sliceByUrgency(top, stays bool, l *SliceLimits) time.Duration {
	switch {
	case top:
		return l.Max
	case stays:
		return min(shortSlice, l.Max)
	}
	return 0
}
