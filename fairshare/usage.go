package fairshare

import (
	"math"
	"time"
)

// usage is what a guest made of the GPU lately, from which follows how much of it
// the guest could use.
type usage struct {
	// used and dry are GPU time used and time without work, in newer phases more
	// than in older ones. demand follows from them.
	used, dry float64
	// time is likewise all time, and unused that in which the guest had work, was not
	// suspended, and the GPU was idle all the same.
	time, unused float64
	// steady is for how long it has had work without a break, and away for how long it
	// has had none.
	steady, away time.Duration
}

// memory is for how long what a guest did counts in its demand: what is older
// weighs less than 1/e.
const memory = 250 * time.Millisecond

// settled is how many rounds a guest must have work without a break for the time
// before it, in which it had none, to be forgotten.
const settled = 2

// lull is for how long a guest must be away for what it was like before to be forgotten.
const lull = memory / 5

// observe takes in what the guest did in a phase, of which part was watched.
// left is the time in which it had the GPU for itself and did not use it. round
// is a round's mean length.
//
// What was left is not forgotten when the guest settles: it is as steady as can
// be when it always has work that needs no GPU, and the others would be
// suspended for it anew every few rounds. It fades while the GPU is never idle.
//
// Nor does it count what a guest was like before it was away for long: the pause says
// nothing about what it is like now.
func (u *usage) observe(g *Guest, used, left float64, length, round time.Duration) {
	switch {
	case !g.Active:
		u.away += length
	case u.away >= lull:
		*u = usage{}
	default:
		u.away = 0
	}
	dry := float64(g.Dry)
	switch {
	case !g.Active, g.Dry == 0 && !g.Backlogged:
		// Without work all along; or at the one instant that was looked at,
		// which is right on average.
		dry = float64(length)
	}
	if dry > 0 {
		u.steady = 0
	} else if u.steady += length; u.steady >= settled*round {
		u.dry = 0
	}
	keep := math.Exp(-float64(length) / float64(memory))
	u.time = keep*u.time + float64(length)
	u.used = keep*u.used + used
	u.dry = keep*u.dry + dry
	u.unused = keep*u.unused + max(left-dry, 0) // some of it is in there
}

// demand is the part of the GPU that the guest would use if it had the GPU for
// itself: what it waits for its turn doesn't count. A guest that is never
// without work demands all of it.
func (u *usage) demand() float64 {
	idle := u.dry + u.unused
	if idle == 0 {
		return 1
	}
	return u.used / (u.used + idle)
}

// left is how much of a phase, of which part was watched, the GPU was the
// guest's for the taking. Where that is little it is the gaps between the
// kernels of one that saturates the GPU.
func left(g *Guest, watched time.Duration) float64 {
	if g.Suspended || float64(g.Idle) <= saturating*float64(watched) {
		return 0
	}
	return float64(g.Idle)
}

// reckoning says what guests used in phases of which not all was watched: quiet
// time that nobody measured is taken to have been like the polling phase after
// it, for those guests that were not suspended.
type reckoning struct {
	quiet time.Duration // unwatched, not yet charged to anybody
}

// factor is what a polling phase stands for, in polling phases; it ends the quiet
// time before. held is how much of the phase was used by guests that were
// suspended all through the quiet time, about which it says nothing.
func (r *reckoning) factor(ev *Event, held time.Duration) float64 {
	f := 1.0
	if sample := ev.Length - held; sample > 0 {
		f += float64(r.quiet) / float64(sample)
	}
	r.quiet = 0
	return f
}

// polled is what a guest used in a polling phase that stands for factor of its
// kind, and in the quiet time before it, and what was left to it.
func (r *reckoning) polled(ev *Event, g *Guest, factor float64) (used, unused float64) {
	if g.Suspended && !ev.Spread {
		factor = 1
	}
	return factor*float64(g.Used) + float64(g.Late), factor * left(g, ev.Length)
}

// quieted is what a guest is known to have used in a quiet phase; it must have
// been announced by rest.
func (r *reckoning) quieted(ev *Event, g *Guest) (used, unused float64) {
	r.quiet = max(r.quiet-g.Late, 0)
	return float64(g.Used) + float64(g.Late), left(g, ev.Watched)
}

// rest keeps the part of a quiet phase that was not watched for the polling phase
// to come.
func (r *reckoning) rest(ev *Event) { r.quiet += max(ev.Length-ev.Watched, 0) }
