package fairshare

import (
	"math"
	"time"
)

// account is what a fair queue keeps of a guest.
type account struct {
	// virtual is the guest's virtual time in nanoseconds: GPU time over weight,
	// weights scaled to mean 1 over the active guests.
	virtual float64
	// busyness is the part of the time that the guest has had work, averaged
	// over some rounds.
	busyness float64
	seen     uint64 // generation of the newest state that had the guest
}

// accounts are all guests' virtual times and the system's.
type accounts struct {
	of         map[GuestID]*account
	system     float64
	generation uint64
	weightMean float64 // over the guests that were active in the newest round
}

// sync takes in the guests of st: one that is new starts at the system's time,
// so that it neither owes nor has saved anything, and one that left is
// forgotten.
func (a *accounts) sync(st *State) {
	if a.of == nil {
		a.of = make(map[GuestID]*account)
	}
	a.generation++
	for i := range st.Guests {
		acc := a.of[st.Guests[i].ID]
		if acc == nil {
			acc = &account{virtual: a.system}
			a.of[st.Guests[i].ID] = acc
		}
		acc.seen = a.generation
	}
	if len(a.of) == len(st.Guests) {
		return
	}
	for id, acc := range a.of {
		if acc.seen != a.generation {
			delete(a.of, id)
		}
	}
}

// scale sets what weights are divided by: their mean over the guests that were
// active. With nobody active it stays.
func (a *accounts) scale(st *State) {
	var sum float64
	var n int
	for i := range st.Guests {
		if st.Guests[i].Active {
			sum += st.Guests[i].Weight
			n++
		}
	}
	if n > 0 && sum > 0 {
		a.weightMean = sum / float64(n)
	}
}

// charge advances a guest's virtual time by GPU time that it used.
func (a *accounts) charge(g *Guest, used float64) {
	if used <= 0 || g.Weight <= 0 {
		return
	}
	mean := a.weightMean
	if mean == 0 {
		mean = g.Weight
	}
	a.of[g.ID].virtual += used / (g.Weight / mean)
}

// threshold is the lead above which a guest is suspended.
func (o *Options) threshold(st *State) float64 {
	if o.Threshold > 0 {
		return float64(o.Threshold)
	}
	return float64(st.Round)
}

// busynessMemory is how much of a guest's averaged busyness is kept at each
// phase.
const busynessMemory = 0.75

// observe takes in whether the guest had work during a phase.
func (acc *account) observe(g *Guest, length time.Duration) {
	now := 0.0
	switch {
	case !g.Active:
		acc.busyness = 0
		return
	case g.Dry > 0 && length > 0:
		now = max(0, 1-float64(g.Dry)/float64(length))
	case g.Backlogged:
		now = 1
	}
	if acc.busyness == 0 {
		acc.busyness = now
		return
	}
	acc.busyness = busynessMemory*acc.busyness + (1-busynessMemory)*now
}

// advanceSystem sets the system's time to the least virtual time of the guests
// that saturate the GPU, or else of those that were active, and brings the
// others up to it: time that a guest had no work for is not saved up. The
// system's time never goes back.
func (a *accounts) advanceSystem(st *State, saturated float64) {
	least, leastActive := math.Inf(1), math.Inf(1)
	for i := range st.Guests {
		if !st.Guests[i].Active {
			continue
		}
		acc := a.of[st.Guests[i].ID]
		leastActive = min(leastActive, acc.virtual)
		if acc.busyness >= saturated {
			least = min(least, acc.virtual)
		}
	}
	if math.IsInf(least, 1) {
		least = leastActive
	}
	if !math.IsInf(least, 1) {
		a.system = max(a.system, least)
	}
	for i := range st.Guests {
		acc := a.of[st.Guests[i].ID]
		acc.virtual = max(acc.virtual, a.system)
	}
}

// lead is how far the guest's virtual time is ahead of the system's.
func (a *accounts) lead(g *Guest) float64 { return a.of[g.ID].virtual - a.system }
