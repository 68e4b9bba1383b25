package fairshare

import "time"

// book keeps something of each launch, in the order of the newest state's
// launches.
type book[T any] struct {
	of       []T // of st.Launches[i]; the zero value for one that is new
	ids      []LaunchID
	spare    []T
	spareIDs []LaunchID
}

// sync takes in the launches of the newest state. One that is not among them is
// forgotten.
func (b *book[T]) sync(launches []Launch) {
	b.spare, b.spareIDs = b.spare[:0], b.spareIDs[:0]
	next := 0 // where the last one was found, and one on
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

// find is where a launch was, looked for from where it is likely to be; -1 is
// nowhere.
func (b *book[T]) find(id LaunchID, from int) int {
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

// desk is what all policies about launches have: whom they may have evicted for
// whom, and the verdicts they write.
type desk struct {
	evictions
	verdicts []Verdict
	held     bool // whether any guest is suspended
}

// begin begins a decision. Whom an earlier policy left suspended is let go: these
// policies hold launches, not guests.
func (d *desk) begin(now time.Duration, st *State) {
	d.verdicts, d.held = d.verdicts[:0], false
	for i := range st.Guests {
		if st.Guests[i].Suspended {
			d.held = true
			d.verdicts = append(d.verdicts, Verdict{Guest: st.Guests[i].ID, Action: Resume})
		}
	}
	d.evictions.sync(now, st)
}

// suspended is whether a guest is, for its quota or until the next event. Its
// launches are not let run meanwhile, and what of them is let run already is not
// counted on to leave the GPU in use.
func (d *desk) suspended(st *State, id GuestID) bool {
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

// waits is whether a launch could be let run.
func (d *desk) waits(st *State, l *Launch) bool { return !l.Running && !d.suspended(st, l.Guest) }

// occupies is whether a launch has the GPU and is to keep it.
func (d *desk) occupies(st *State, l *Launch) bool {
	return l.Running && !l.Evicting && !d.suspended(st, l.Guest)
}

func (d *desk) run(l *Launch) {
	d.verdicts = append(d.verdicts, Verdict{Guest: l.Guest, Launch: l.ID, Action: Run})
}

func (d *desk) evict(l *Launch, below uint32, cause GuestID, use SpatialUse) {
	d.verdicts = append(d.verdicts, Verdict{Guest: l.Guest, Launch: l.ID, Action: Evict, BelowSM: below, For: cause, Spatial: use})
}

// cost is what evicting l is expected to cost.
func (l *Launch) cost() time.Duration {
	if l.EvictionCost > 0 {
		return l.EvictionCost
	}
	return AssumedCost
}
