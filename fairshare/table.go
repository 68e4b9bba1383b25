package fairshare

import "slices"

// table keeps a record for each launch or guest of the newest state, in its order.
type table[K comparable, T any] struct {
	of       []T // the zero value for one that is new
	ids      []K
	spare    []T
	spareIDs []K
}

// sync follows the newest state, which has n launches or guests with the given IDs. Records of
// others are dropped.
func (t *table[K, T]) sync(n int, id func(i int) K) {
	if t.has(n, id) {
		return
	}
	t.spare, t.spareIDs = t.spare[:0], t.spareIDs[:0]
	next := 0 // where the last one was found, plus one
	for i := range n {
		var rec T
		if at := t.find(id(i), next); at >= 0 {
			rec, next = t.of[at], at+1
		}
		t.spare, t.spareIDs = append(t.spare, rec), append(t.spareIDs, id(i))
	}
	t.of, t.spare = t.spare, t.of
	t.ids, t.spareIDs = t.spareIDs, t.ids
}

// has reports whether the table has the records of just these launches or guests, in their order.
func (t *table[K, T]) has(n int, id func(i int) K) bool {
	if n != len(t.ids) {
		return false
	}
	for i := range n {
		if t.ids[i] != id(i) {
			return false
		}
	}
	return true
}

// find returns the index of a record, or -1. It searches from the index where the record is likely
// to be.
func (t *table[K, T]) find(id K, from int) int {
	for i := from; i < len(t.ids); i++ {
		if t.ids[i] == id {
			return i
		}
	}
	for i := range min(from, len(t.ids)) {
		if t.ids[i] == id {
			return i
		}
	}
	return -1
}

// launchTable is a table of launches.
type launchTable[T any] struct{ table[LaunchID, T] }

func (t *launchTable[T]) sync(launches []Launch) {
	t.table.sync(len(launches), func(i int) LaunchID { return launches[i].ID })
}

// guestTable is a table of guests. Its record of a guest has the guest's index in the newest state.
type guestTable[T any] struct{ table[GuestID, T] }

func (t *guestTable[T]) sync(guests []Guest) {
	t.table.sync(len(guests), func(i int) GuestID { return guests[i].ID })
}

// get returns the record of a guest, nil if there is none. Guests are in order of ID.
func (t *guestTable[T]) get(id GuestID) *T {
	if at, ok := slices.BinarySearch(t.ids, id); ok {
		return &t.of[at]
	}
	return nil
}
