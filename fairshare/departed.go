package fairshare

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// departures is what is known, by their keys, of guests with a cap that have left.
type departures map[string]departure

// departure is how a guest stood with its cap when it left.
type departure struct {
	credit float64 // see quota.Meter
	cap    float64
	at     time.Duration
}

// keepDeparted is how long a guest that had not overdrawn its cap is kept, for what it used in the
// phase in which it left.
const keepDeparted = time.Second

// creditAt returns the credit at now, to which the cap has added since.
func (d departure) creditAt(now time.Duration) float64 { return d.credit + d.cap*float64(now-d.at) }

// note records the guests in a table that are not among those who are there, in order of ID. It drops
// those that have paid back.
func (d *departures) note(now time.Duration, ids []GuestID, of []allowance, there []Guest) {
	for i, id := range ids {
		if of[i].key == "" || of[i].cap == 0 {
			continue
		}
		if _, stays := slices.BinarySearchFunc(there, id, func(g Guest, id GuestID) int { return cmp.Compare(g.ID, id) }); stays {
			continue
		}
		if *d == nil {
			*d = make(departures)
		}
		(*d)[of[i].key] = departure{of[i].meter.Credit(), of[i].cap, now}
	}
	maps.DeleteFunc(*d, func(_ string, gone departure) bool { return gone.creditAt(now) >= 0 && now-gone.at > keepDeparted })
}

// take returns the credit that a guest that comes back begins with, and forgets that it had left.
func (d departures) take(key string, now time.Duration) float64 {
	gone, known := d[key]
	if !known {
		return 0
	}
	delete(d, key)
	return gone.creditAt(now)
}

// spend takes what a guest that has left had used before. It reports whether the guest is known.
func (d departures) spend(key string, used float64) bool {
	gone, known := d[key]
	if known {
		gone.credit -= used
		d[key] = gone
	}
	return known
}
