package fairshare

import "time"

// launchPolicy is common to all policies about launches: the evictions that guests may cause, and
// the verdicts.
type launchPolicy struct {
	evictions
	verdicts     []Verdict
	anySuspended bool // whether any guest is suspended
}

// begin begins a decision. Guests that an earlier policy left suspended are resumed: these policies
// make launches wait, not guests.
func (d *launchPolicy) begin(now time.Duration, st *State) {
	d.verdicts, d.anySuspended = d.verdicts[:0], false
	for i := range st.Guests {
		if st.Guests[i].Suspended {
			d.anySuspended = true
			d.verdicts = append(d.verdicts, Verdict{Guest: st.Guests[i].ID, Action: Resume})
		}
	}
	d.evictions.buckets.sync(st.Guests)
}

// suspended reports whether a guest is suspended, for its quota or until the next event. Meanwhile
// none of its launches is let run, and those that were let run are not counted on to keep the GPU
// in use.
func (d *launchPolicy) suspended(st *State, id GuestID) bool {
	if !d.anySuspended {
		return false
	}
	for i := range st.Guests {
		if st.Guests[i].ID == id {
			return st.Guests[i].Suspended
		}
	}
	return false
}

// waits reports whether a launch could be let run.
func (d *launchPolicy) waits(st *State, l *Launch) bool {
	return !l.Running && !d.suspended(st, l.Guest)
}

// occupies reports whether a launch has the GPU and is to keep it.
func (d *launchPolicy) occupies(st *State, l *Launch) bool {
	return l.Running && !l.Evicting && !d.suspended(st, l.Guest)
}

func (d *launchPolicy) run(l *Launch) {
	d.verdicts = append(d.verdicts, Verdict{Guest: l.Guest, Launch: l.ID, Action: Run})
}

func (d *launchPolicy) evict(l *Launch, below uint32, cause GuestID, use SpatialUse) {
	d.verdicts = append(d.verdicts, Verdict{Guest: l.Guest, Launch: l.ID, Action: Evict, BelowSM: below, For: cause, Spatial: use})
}

// cost returns what evicting l is expected to cost.
func (l *Launch) cost() time.Duration {
	if l.EvictionCost > 0 {
		return l.EvictionCost
	}
	return AssumedCost
}
