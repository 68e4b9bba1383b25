package fairshare

import (
	"math"
)

// account is what a fair queue keeps of a guest.
type account struct {
	usage
	// virtual is the guest's virtual time in nanoseconds: GPU time over weight,
	// weights scaled to mean 1 over the active guests.
	virtual float64
	weight  float64 // that what it is ahead is in units of, 0 before it has had any
	// waitedFor is whether others are to wait for the guest: it could use more than it is
	// entitled to, or it lacks much of that. modest is whether it could hardly use more,
	// so that it takes nothing of the others' parts.
	waitedFor, modest bool
	seen              uint64 // generation of the newest state that had the guest
}

// accounts are all guests' virtual times and the system's.
type accounts struct {
	of         map[GuestID]*account
	system     float64
	generation uint64
	weightMean float64 // over the guests that were active in the newest round
	// offered is GPU time that was used or could have been, of the time elapsed; in
	// newer phases more than in older ones.
	offered, elapsed float64

	weights, demands, parts []float64 // scratch
}

// sync takes in the guests of st: one that is new starts at the system's time,
// so that it neither owes nor has saved anything, and one that left is
// forgotten. One that has another weight is ahead by as much GPU time as before.
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
		if w := st.Guests[i].Weight; w > 0 && w != acc.weight {
			if acc.weight > 0 {
				a.stretch(acc, acc.weight/w)
			}
			acc.weight = w
		}
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
// active. With nobody active it stays. What each guest is ahead, active or not, is
// converted, so that it stays the same GPU time over the same weight: half a
// millisecond beside a weight of a million would be minutes else when that is gone.
func (a *accounts) scale(st *State) {
	sum, n := activeWeight(st)
	if n == 0 || sum <= 0 {
		return
	}
	mean := sum / float64(n)
	if a.weightMean > 0 && mean != a.weightMean {
		for _, acc := range a.of {
			a.stretch(acc, mean/a.weightMean)
		}
	}
	a.weightMean = mean
}

// stretch has a guest be ahead by so many times as much as it is. Nobody is ever
// behind the system's time, so that the guests' order can only change where their own
// weights do.
func (a *accounts) stretch(acc *account, times float64) {
	acc.virtual = a.system + times*(acc.virtual-a.system)
}

// activeWeight is the sum of the active guests' weights, and how many they are.
func activeWeight(st *State) (sum float64, n int) {
	for i := range st.Guests {
		if st.Guests[i].Active {
			sum += st.Guests[i].Weight
			n++
		}
	}
	return sum, n
}

// charge advances a guest's virtual time by GPU time that it used.
func (a *accounts) charge(g *Guest, used float64) {
	if used <= 0 || g.Weight <= 0 {
		return
	}
	if a.weightMean == 0 {
		a.weightMean = g.Weight // it counts from here on, so that scale converts it
	}
	a.of[g.ID].virtual += used / (g.Weight / a.weightMean)
}

// threshold is the lead above which a guest is suspended. LoGA's is a round. A
// quarter of one holds shares over a second about twice as well in simulation
// (2.4 points at worst against 4.3, quiet time measured), since the lead that a
// guest may build up at first is time that the others lack; and the least
// advanced guest is never suspended, so that the GPU is not left idle for it.
func (o *Options) threshold(st *State) float64 {
	if o.Threshold > 0 {
		return float64(o.Threshold)
	}
	return float64(st.Round) / 4
}

// offer takes in how much GPU time there was in some time, if that says anything: nobody
// is in another's way where no two have work.
func (a *accounts) offer(st *State, there, elapsed float64) {
	if _, active := activeWeight(st); active < 2 {
		return
	}
	keep := math.Exp(-elapsed / float64(memory))
	a.offered, a.elapsed = keep*a.offered+there, keep*a.elapsed+elapsed
}

// capacity is the part of the time in which there is any GPU time to be had: what
// switches between guests take is nobody's. With short turns that is half of it.
func (a *accounts) capacity() float64 {
	if a.elapsed == 0 {
		return 1
	}
	return min(a.offered/a.elapsed, 1)
}

// A guest that could use less than its part by weight is entitled to what it could use.
// It lacks much where it gets less than enough of that. Others wait for it only if that
// is the part of its part that is worthwhile: else they would leave the GPU idle for the
// sake of one that hardly uses it.
//
// Where kernels run to their end, others wait also for a guest that could use nearly its part
// by weight of a GPU that all fill, and leaves next to nothing unused of what it
// has: LoGA's four throttles beside a program (§5.5) could use just a fifth each, and would
// have an eighth if nobody waited for them.
const (
	nearly     = 0.75
	enough     = 2. / 3
	worthwhile = 1. / 2
)

// classify finds out which guests others are to wait for.
func (a *accounts) classify(st *State) {
	a.weights, a.demands, a.parts = a.weights[:0], a.demands[:0], a.parts[:0]
	for i := range st.Guests {
		weight, demand := st.Guests[i].Weight, a.of[st.Guests[i].ID].demand()
		if !st.Guests[i].Active {
			demand = 0
		}
		a.weights, a.demands, a.parts = append(a.weights, weight), append(a.demands, demand), append(a.parts, 0)
	}
	level := water(a.parts, a.weights, nil, a.demands, a.capacity())
	equal := level // were all to fill the GPU
	if active, _ := activeWeight(st); active > 0 {
		equal = a.capacity() / active
		// Where there is enough for all, no part is at the level; each has its own still.
		level = max(level, a.capacity()/active)
	}
	for i, entitled := range a.parts {
		acc := a.of[st.Guests[i].ID]
		lacks := acc.used < enough*entitled*acc.time && entitled > worthwhile*level*a.weights[i]
		// Where kernels run to their end, who waits does so for one of each other guest;
		// time slices and switches may be many times as long as what it waits with.
		acc.modest = acc.known() && entitled >= (1-saturating)*a.demands[i]
		near := st.Slices.Max == 0 && acc.unused <= saturating*acc.dry && entitled > nearly*equal*a.weights[i]
		acc.waitedFor = acc.known() && (entitled < a.demands[i] || near || lacks && st.Slices.Max > 0 && st.Guests[i].Active)
	}
}

// advanceSystem sets the system's time to the least virtual time of the active
// guests, or of those alone that others are to wait for, and brings the others up to
// it: time that a guest had no work for is not saved up. The system's time never goes
// back.
//
// Where only these count and there is none, the GPU has room for all guests, and nobody
// is ahead. Where nobody is active, those are not that used the GPU all the same, being
// taken for idle since they are at their caps: one that was alone for an hour would be
// ahead of who comes then by all that it used.
func (a *accounts) advanceSystem(st *State, waitedForOnly bool) {
	least, most := math.Inf(1), math.Inf(-1)
	_, active := activeWeight(st)
	for i := range st.Guests {
		g := &st.Guests[i]
		if !g.Active && (active > 0 || g.Used == 0 && g.Late == 0) {
			continue
		}
		acc := a.of[g.ID]
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
		acc := a.of[st.Guests[i].ID]
		acc.virtual = max(acc.virtual, a.system)
	}
}

// lead is how far the guest's virtual time is ahead of the system's.
func (a *accounts) lead(g *Guest) float64 { return a.of[g.ID].virtual - a.system }
