package fairshare

import "time"

// launchTable keeps a record for each launch, in the order of the newest state's launches.
type launchTable[T any] struct {
	of       []T // of st.Launches[i]; the zero value for a new launch
	ids      []LaunchID
	spare    []T
	spareIDs []LaunchID
}

// sync follows the launches of the newest state. Records of launches that are not in it are
// dropped.
func (b *launchTable[T]) sync(launches []Launch) {
	b.spare, b.spareIDs = b.spare[:0], b.spareIDs[:0]
	next := 0 // where the last one was found, plus one
	for i := range launches {
		id := launches[i].ID
		var rec T
		if at := b.find(id, next); at >= 0 {
			rec, next = b.of[at], at+1
		}
		b.spare, b.spareIDs = append(b.spare, rec), append(b.spareIDs, id)
	}
	b.of, b.spare = b.spare, b.of
	b.ids, b.spareIDs = b.spareIDs, b.ids
}

// find returns the index of a launch's record, or -1. It searches from the index where the launch
// is likely to be.
func (b *launchTable[T]) find(id LaunchID, from int) int {
	for i := from; i < len(b.ids); i++ {
		if b.ids[i] == id {
			return i
		}
	}
	for i := range min(from, len(b.ids)) {
		if b.ids[i] == id {
			return i
		}
	}
	return -1
}

// launchPolicy is common to all policies about launches: the evictions that guests may cause, and
// the verdicts.
type launchPolicy struct {
	evictions
	verdicts []Verdict
	held     bool // whether any guest is suspended
}

// begin begins a decision. Guests that an earlier policy left suspended are resumed: these policies
// make launches wait, not guests.
func (d *launchPolicy) begin(now time.Duration, st *State) {
	d.verdicts, d.held = d.verdicts[:0], false
	for i := range st.Guests {
		if st.Guests[i].Suspended {
			d.held = true
			d.verdicts = append(d.verdicts, Verdict{Guest: st.Guests[i].ID, Action: Resume})
		}
	}
	d.evictions.sync(now, st)
}

// suspended reports whether a guest is suspended, for its quota or until the next event. Meanwhile
// none of its launches is let run, and those that were let run are not counted on to keep the GPU
// in use.
func (d *launchPolicy) suspended(st *State, id GuestID) bool {
	if !d.held {
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
