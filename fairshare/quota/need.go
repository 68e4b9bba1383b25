package quota

import (
	"math"
	"time"
)

// Need estimates which part of the GPU a guest could use, for its guarantee. It forgets nothing
// when the guest pauses, and learns nothing while the guest is suspended: a guest that is kept from
// the GPU needs what it needed before. The zero value is a guest of which nothing is known, which
// is taken to need all of it.
type Need struct {
	// used is GPU time, pauses time without work, and left time in which the guest had work and
	// left the GPU idle, in nanoseconds. Newer phases count more than older ones.
	used, pauses, left float64
	// long are used and left over longer than that.
	long struct{ used, left float64 }
}

// Seen is what was seen of a guest with work in a phase, in nanoseconds.
type Seen struct {
	// Used is GPU time, and Pauses time without work.
	Used, Pauses float64
	// Left is time in which the guest had work and left the GPU idle, while others had a use for
	// it.
	Left float64
	// Suspended reports whether the guest was suspended.
	Suspended bool
}

// presumed is how much use a guest is assumed to have had of the GPU beside its pauses: little may
// be known of it yet.
const presumed = time.Millisecond

// Fading is how much a phase leaves of what was before it. It is the same for all guests.
type Fading struct{ keep, long float64 }

// NewFading returns the fading after a phase that leaves keep of what was before it.
func NewFading(keep float64) Fading { return Fading{keep, math.Pow(keep, 1./longer)} }

// Observe adds a phase.
func (n *Need) Observe(s Seen, f Fading) {
	if s.Suspended {
		return
	}
	n.used = f.keep*n.used + s.Used
	n.pauses = f.keep*n.pauses + s.Pauses
	n.left = f.keep*n.left + s.Left
	n.long.used = f.long*n.long.used + s.Used
	n.long.left = f.long*n.long.left + s.Left
}

// Demand returns the part of the GPU, 0 to 1, that the guest would use if it had the GPU for
// itself. Time in which it waits for others does not count.
func (n *Need) Demand() float64 {
	some := n.used + float64(presumed)
	demand := some / (some + n.pauses)
	if n.left > 0 {
		// A guest that never used what was left to it only shows work.
		demand = min(demand, n.used/(n.used+n.left))
	}
	return demand
}

const (
	// nearlyAll is the part of what a guest has for itself from which on it could use all of it.
	nearlyAll = 0.75
	// longer is for how many times as long as its demand that is measured.
	longer = 8
)

// Saturates reports whether the guest uses nearly all that it has for itself. The time that it leaves
// then is time in which its launches are late: a busy host has no processor for an executor for ten
// milliseconds, say, though the guest's kernels wait there. In the phases in which that happens it looks
// like a guest that does not want the GPU.
func (n *Need) Saturates() bool {
	some := n.long.used + float64(presumed)
	return some >= nearlyAll*(some+n.long.left)
}
