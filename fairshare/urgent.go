package fairshare

import "time"

// urgentSlices sets time slices beside a policy about launches. A launch that such a policy evicts
// leaves the GPU within tens of microseconds, unless its kernel can't be told to leave or takes
// long to. The hardware takes the GPU from such a kernel when its slice ends, and that is the slice
// of the guest that has the GPU while a more urgent launch waits. Setting another slice at that
// time, or disabling the guest's channels, would take longer (0.3 to 0.5 ms on an H100). So slices
// are set ahead of time. If some guests may be more urgent than others, the most urgent ones have
// the longest slices, so that no other guest runs between their launches, and others that lately
// had kernels which stay have short ones.
//
// All others keep the driver's slice. If a kernel leaves soon, telling it to is better: the
// hardware saves a context that has run out of work in less time than one in mid-kernel, and a
// context that was switched out can't leave until it is back. Even with a kernel that took 150 µs
// to leave, a short slice gained an H100 no more than 27 µs of 450, and it took twice as long until
// the kernel had left.
//
// A short slice costs next to nothing: a group is not switched out if no other group waits, and
// these policies give the GPU to few guests at a time.
type urgentSlices struct {
	policy Policy
	stayed map[GuestID]time.Duration // when each guest last had a kernel that stays
	set    map[GuestID]time.Duration
	all    []Verdict
}

const (
	// shortSlice is the slice of a guest beside a more urgent one. A shorter one would leave it
	// next to nothing of an H100 while the other has work: each switch takes 84 µs, and with slices
	// of 100 µs two contexts had a tenth of the GPU each.
	shortSlice = 250 * time.Microsecond
	// leavesSoon is the highest eviction cost of a kernel that is told to leave rather than
	// switched out: the length of the driver's slice. It is not lower because the cost of kernels
	// that were switched out on their way is measured, too.
	leavesSoon = DefaultSlice
	// lately is how long a kernel that stays is remembered.
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
		// Some guests left: all slices are set again.
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

// keepsIdle implements idleKeeper.
func (u *urgentSlices) keepsIdle() bool {
	k, ok := u.policy.(idleKeeper)
	return ok && k.keepsIdle()
}

// takeKeptIdle implements idleKeeper.
func (u *urgentSlices) takeKeptIdle(id GuestID) time.Duration {
	if k, ok := u.policy.(idleKeeper); ok {
		return k.takeKeptIdle(id)
	}
	return 0
}

// topUrgency returns the urgency of the most urgent guests, and reports whether others are less
// urgent.
func topUrgency(guests []Guest) (top int, differ bool) {
	for i := range guests {
		differ = differ || guests[i].Urgency != guests[0].Urgency
		top = max(top, guests[i].Urgency)
	}
	return top, differ
}

// sliceByUrgency returns a guest's time slice, 0 for the driver's own. top reports whether the
// guest is among the most urgent, and stays whether its kernels stay when told to leave.
func sliceByUrgency(top, stays bool, l *SliceLimits) time.Duration {
	switch {
	case top:
		return l.Max
	case stays:
		return min(shortSlice, l.Max)
	}
	return 0
}
