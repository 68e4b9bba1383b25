package fairshare

import (
	"math"
)

// account is a fair queue's record of a guest.
type account struct {
	usage
	// virtual is the guest's virtual time in nanoseconds: GPU time divided by weight, with weights
	// scaled to mean 1 over the active guests.
	virtual float64
	// weight is the weight in whose units its lead is, 0 before it has had any.
	weight float64
	// waitedFor reports whether others are to wait for the guest: it could use more than it is
	// entitled to, or it lacks much of its entitlement. modest reports whether it could hardly use
	// more, so that it takes nothing of the others' parts.
	waitedFor, modest bool
	// pays reports whether the guest is charged for time that the GPU is idle for its sake.
	pays bool
	// joined reports whether virtual is set.
	joined bool
}

// accounts are all guests' virtual times and the system's.
type accounts struct {
	guestTable[account]
	system     float64
	weightMean float64 // over the guests that were active in the newest round
	// offered is GPU time that was used or could have been used, and elapsed the time in which it
	// was. Newer phases count more than older ones.
	offered, elapsed float64

	weights, demands, parts []float64 // scratch
}

// sync follows the guests of st. A new one starts at the system's time, so that it neither owes nor
// has saved anything, and one that left is dropped. A guest whose weight changed keeps its lead in
// GPU time.
func (a *accounts) sync(st *State) {
	a.guestTable.sync(st.Guests)
	for i := range st.Guests {
		acc := &a.of[i]
		if !acc.joined {
			acc.joined, acc.virtual = true, a.system
		}
		if w := st.Guests[i].Weight; w > 0 && w != acc.weight {
			if acc.weight > 0 {
				a.scaleLead(acc, acc.weight/w)
			}
			acc.weight = w
		}
	}
}

// scale sets the divisor of weights: their mean over the active guests. If none is active it stays.
// Each guest's lead, active or not, is converted, so that it remains the same GPU time over the
// same weight: otherwise half a millisecond beside a weight of a million would become minutes when
// that guest is gone.
func (a *accounts) scale(st *State) {
	sum, n := activeWeight(st), activeGuests(st)
	if n == 0 || sum <= 0 {
		return
	}
	mean := sum / float64(n)
	if a.weightMean > 0 && mean != a.weightMean {
		for i := range a.of {
			a.scaleLead(&a.of[i], mean/a.weightMean)
		}
	}
	a.weightMean = mean
}

// scaleLead multiplies a guest's lead by factor. No guest is ever behind the system's time, so the
// guests' order can only change if their own weights do.
func (a *accounts) scaleLead(acc *account, factor float64) {
	acc.virtual = a.system + factor*(acc.virtual-a.system)
}

// activeWeight returns the sum of the active guests' weights.
func activeWeight(st *State) (sum float64) {
	for i := range st.Guests {
		if st.Guests[i].Active {
			sum += st.Guests[i].Weight
		}
	}
	return sum
}

// activeGuests returns the number of active guests.
func activeGuests(st *State) (n int) {
	for i := range st.Guests {
		if st.Guests[i].Active {
			n++
		}
	}
	return n
}

// charge advances the virtual time of the guest at index i by GPU time that it used.
func (a *accounts) charge(i int, g *Guest, used float64) {
	if used <= 0 || g.Weight <= 0 {
		return
	}
	if a.weightMean == 0 {
		a.weightMean = g.Weight // it counts from here on, so that scale converts it
	}
	a.of[i].virtual += used / (g.Weight / a.weightMean)
}

// threshold returns the lead above which a guest is suspended. LoGA's is a round. A quarter of one
// holds shares over a second about twice as well in simulation (2.4 points at worst against 4.3,
// quiet time measured), since the lead that a guest may build up at first is time that the others
// lack. The guest with the least virtual time is never suspended, so the GPU is not left idle.
func (o *Options) threshold(st *State) float64 {
	if o.Threshold > 0 {
		return float64(o.Threshold)
	}
	return float64(st.Round) / 4
}

// offer adds how much GPU time there was in some time. It counts only if at least two guests have
// work: otherwise none is in another's way.
func (a *accounts) offer(st *State, there, elapsed float64) {
	if activeGuests(st) < 2 {
		return
	}
	keep := math.Exp(-elapsed / float64(memory))
	a.offered, a.elapsed = keep*a.offered+there, keep*a.elapsed+elapsed
}

// capacity returns the part of the time in which GPU time is available: the time that switches
// between guests take is not. With short turns that is half of it.
func (a *accounts) capacity() float64 {
	if a.elapsed == 0 {
		return 1
	}
	return min(a.offered/a.elapsed, 1)
}

// A guest that could use less than its part by weight is entitled to what it could use. It lacks
// much if it gets less than enough of that. Others wait for it only if its entitlement is at least
// the part worthwhile of its part: otherwise they would leave the GPU idle for a guest that hardly
// uses it.
//
// Where kernels run to their end, others also wait for a guest that could use nearly its part by
// weight of a GPU that all guests fill, and that leaves next to nothing unused of what it has:
// LoGA's four throttles beside a program (§5.5) could use just a fifth each, and would get an
// eighth if others did not wait for them.
//
// Guests for which others are suspended are charged for time that the GPU is idle meanwhile, but only
// those that are entitled to at least the part payers of what they could use. One that could use
// much more, and pauses, needs the GPU for itself to get its part. If it paid for its pauses, it
// would get 6 % of the GPU in place of 10 beside five guests that always have work.
const (
	nearly     = 0.75
	enough     = 2. / 3
	worthwhile = 1. / 2
	payers     = 2. / 3
)

// classify finds out which guests others are to wait for.
func (a *accounts) classify(st *State) {
	a.weights, a.demands, a.parts = a.weights[:0], a.demands[:0], a.parts[:0]
	for i := range st.Guests {
		weight, demand := st.Guests[i].Weight, a.of[i].demand()
		if !st.Guests[i].Active {
			demand = 0
		}
		a.weights, a.demands, a.parts = append(a.weights, weight), append(a.demands, demand), append(a.parts, 0)
	}
	level := waterFill(a.parts, a.weights, nil, a.demands, a.capacity())
	equal := level // if all filled the GPU
	if active := activeWeight(st); active > 0 {
		equal = a.capacity() / active
		// If there is enough for all, no part is at the level. Each still has its own.
		level = max(level, a.capacity()/active)
	}
	for i, entitled := range a.parts {
		acc := &a.of[i]
		lacks := acc.used < enough*entitled*acc.time && entitled > worthwhile*level*a.weights[i]
		acc.pays = acc.known() && entitled >= payers*a.demands[i]
		// Where kernels run to their end, a waiting guest waits for one kernel of each other guest.
		// Time slices and switches may be many times as long as the kernel that it waits with.
		acc.modest = acc.known() && entitled >= (1-saturating)*a.demands[i]
		near := st.Slices.Max == 0 && acc.unused <= saturating*acc.noWork && entitled > nearly*equal*a.weights[i]
		acc.waitedFor = acc.known() && (entitled < a.demands[i] || near || lacks && st.Slices.Max > 0 && st.Guests[i].Active)
	}
}

// level gives the modest guests that others wait for one virtual time, where kernels run to their
// end. None of them can use what another one has left, so suspending one that is ahead only leaves
// the GPU idle. If use is estimated, leads among them are mostly errors, which add up: one of LoGA's
// four throttles was often suspended for being ahead of another one, and the program beside them for
// being ahead of the one that seemed to have the least.
func (a *accounts) level(st *State) {
	if st.Slices.Max > 0 {
		return
	}
	levelled := func(i int) bool { return st.Guests[i].Active && a.of[i].modest && a.of[i].waitedFor }
	var sum, weight float64
	for i := range st.Guests {
		if g := &st.Guests[i]; levelled(i) {
			sum += g.Weight * a.of[i].virtual
			weight += g.Weight
		}
	}
	for i := range st.Guests {
		if levelled(i) {
			a.of[i].virtual = sum / weight
		}
	}
}

// advanceSystem sets the system's time to the least virtual time of the active guests, or of only
// those that others are to wait for, and brings the others up to it: time for which a guest had no
// work is not saved. The system's time never decreases.
//
// If only guests that others wait for count and there is none, the GPU has room for all guests, and
// none is ahead. If no guest is active, guests that used the GPU all the same don't count; they are
// considered idle since they are at their caps. Otherwise a guest that was alone for an hour would
// be ahead of the next one by all that it used.
func (a *accounts) advanceSystem(st *State, waitedForOnly bool) {
	least, most := math.Inf(1), math.Inf(-1)
	active := activeGuests(st)
	for i := range st.Guests {
		g := &st.Guests[i]
		if !g.Active && (active > 0 || g.Used == 0 && g.Late == 0) {
			continue
		}
		acc := &a.of[i]
		most = max(most, acc.virtual)
		if g.Active && (acc.waitedFor || !waitedForOnly) {
			least = min(least, acc.virtual)
		}
	}
	if math.IsInf(least, 1) {
		least = most
	}
	if !math.IsInf(least, -1) {
		a.system = max(a.system, least)
	}
	for i := range st.Guests {
		acc := &a.of[i]
		acc.virtual = max(acc.virtual, a.system)
	}
}

// lead returns how far the virtual time of the guest at index i is ahead of the system's.
func (a *accounts) lead(i int) float64 { return a.of[i].virtual - a.system }
