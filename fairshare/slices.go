package fairshare

import (
	"math"
	"time"
)

// SliceLimits bounds the time slices of channel groups if the hardware has time slices that can be
// set. The zero value is for hardware that does not.
type SliceLimits struct {
	// Loss is the part of the GPU's time that switches between slices may take, and Switch how long
	// one takes: a mean slice is at least Switch/Loss.
	Loss   float64
	Switch time.Duration
	// Min and Max bound each slice.
	Min, Max time.Duration
}

// The limits of an H100's time slices, as measured: switches take 79 to 84 µs, a group with slices
// below some 100 µs makes little progress, and the driver's own slice is about 2 ms.
const (
	DefaultSliceLoss   = 0.02
	DefaultSliceSwitch = 84 * time.Microsecond
	DefaultMinSlice    = time.Millisecond
	DefaultMaxSlice    = 65 * time.Millisecond
	DefaultSlice       = 2048 * time.Microsecond
)

// mean returns the smallest mean slice.
func (l *SliceLimits) mean() time.Duration {
	if l.Loss <= 0 {
		return l.Min
	}
	return max(time.Duration(float64(l.Switch)/l.Loss), l.Min)
}

// slicing finds the time slices that share a GPU by weight. The slices of each guest's groups sum
// to its weight, so that guests that always have work share by weight whatever happens elsewhere.
// That is not quite exact, and is corrected by what the guests are seen to use: a group's turn ends
// early if the work that it had on the GPU at the beginning of the turn ends, since short kernels
// don't fill a long slice.
//
// The correction has a proportional and an integral part of a guest's lead, of the contended GPU
// time that the guests used together. Guests that lack work or are suspended say nothing about
// slices and are left out.
type slicing struct {
	guestTable[sliced]
	decided  time.Duration // time of the last decision
	urgent   bool          // the guests, their weights or their groups changed
	scale    float64       // nanoseconds for a weight of 1
	verdicts []Verdict
}

// sliced is the record of a guest.
type sliced struct {
	weight float64
	groups float64 // number that have work, fading
	used   float64 // GPU time since the last comparison
	// ahead is the guest's lead in GPU time of all, and mean its mean over the samples since slices
	// were last decided.
	ahead, mean float64
	samples     int
	trim        float64 // the integral part, a logarithm
	competes    bool    // in the newest phase
	pinned      int     // which bound its slice is at: -1, 0 or 1
	joined      bool    // whether weight and groups are set
}

const (
	// sliceEvery is how often slices are decided. In that time a GPU with eight groups has served
	// each about seven times, so that it does not matter where it stands.
	sliceEvery = 250 * time.Millisecond
	// slicePart and sliceWhole are the times in which the proportional part corrects a lead and the
	// integral part takes over. Their ratio of four is critical damping.
	slicePart  = 250 * time.Millisecond
	sliceWhole = 4 * slicePart
	// A lead below sliceNear is corrected in sliceSlow: a slice is only set if it changes by some
	// per cent, so each guest is alternately a bit ahead and behind, and the sooner that is
	// corrected the more often slices are set.
	sliceNear = 40 * time.Millisecond
	sliceSlow = 4 * slicePart
	// maxTrim bounds both parts together, a logarithm: a factor of four.
	maxTrim = 2 * math.Ln2
	// groupsFade is how long a group without work still counts.
	groupsFade = 500 * time.Millisecond
)

// sync follows the guests of st.
func (s *slicing) sync(st *State, length time.Duration) {
	before := len(s.of)
	s.guestTable.sync(st.Guests)
	s.urgent = s.urgent || len(s.of) < before
	for i := range st.Guests {
		g := &st.Guests[i]
		e := &s.of[i]
		if !e.joined {
			e.joined, e.groups = true, 1
		}
		if e.weight != g.Weight {
			*e = sliced{weight: g.Weight, groups: e.groups, joined: true}
			s.urgent = true
		}
		before := e.count()
		if n := float64(g.Groups); n > e.groups {
			e.groups = n
		} else {
			e.groups += (n - e.groups) * (1 - math.Exp(-float64(length)/float64(groupsFade)))
		}
		s.urgent = s.urgent || e.count() != before
	}
}

// count returns the number of groups among which a guest's slices are divided.
func (e *sliced) count() float64 { return max(math.Round(e.groups), 1) }

// charge adds GPU time that a guest used.
func (s *slicing) charge(id GuestID, used float64) {
	if e := s.get(id); e != nil {
		e.used += used
	}
}

// compare updates, at the end of a phase, the leads of guests that compete: waitedFor reports
// whether others are to wait for the guest at an index.
func (s *slicing) compare(st *State, waitedFor func(int) bool) {
	var weights, used, ahead float64
	for i := range st.Guests {
		g := &st.Guests[i]
		e := &s.of[i]
		if e.competes = g.Active && !g.Suspended && waitedFor(i); !e.competes {
			e.ahead, e.mean, e.samples = 0, 0, 0 // nothing is saved up, or owed
			continue
		}
		weights += e.weight
		used += e.used
		ahead += e.ahead * e.weight
	}
	for i := range st.Guests {
		e := &s.of[i]
		if e.competes && e.weight > 0 {
			// The mean lead of those that compete now is 0, whichever guests left.
			e.ahead += e.used*weights/e.weight - used - ahead/weights
			limit := maxTrim * float64(sliceWhole)
			e.ahead = min(max(e.ahead, -limit), limit)
			e.samples++
			e.mean += (e.ahead - e.mean) / float64(e.samples)
		}
		e.used = 0
	}
}

// decide returns each guest's slice if it is time to decide, and otherwise nothing.
func (s *slicing) decide(now time.Duration, st *State) []Verdict {
	elapsed := now - s.decided
	if !s.urgent && elapsed < sliceEvery {
		return nil
	}
	s.decided, s.urgent = now, false
	var effort, groups, least float64
	least = math.Inf(1)
	for i := range st.Guests {
		g := &st.Guests[i]
		e := &s.of[i]
		e.correct(min(elapsed, 2*sliceEvery))
		if g.Active && e.weight > 0 {
			effort += e.effort()
			groups += e.count()
			least = min(least, e.effort()/e.count())
		}
	}
	if effort > 0 {
		s.scale = max(float64(st.Slices.mean())*groups/effort, float64(st.Slices.Min)/least)
	}
	s.verdicts = s.verdicts[:0]
	for i := range st.Guests {
		g := &st.Guests[i]
		e := &s.of[i]
		// However far apart weights are, a slice must not overflow a duration.
		slice := time.Duration(min(s.scale*e.effort()/e.count(), 2*float64(st.Slices.Max)))
		switch e.pinned = 0; {
		case slice <= 0:
			continue // no guest has had work yet
		case slice < st.Slices.Min:
			slice, e.pinned = st.Slices.Min, -1
		case slice > st.Slices.Max:
			slice, e.pinned = st.Slices.Max, 1
		}
		s.verdicts = append(s.verdicts, Verdict{Guest: g.ID, Action: Slice, Slice: slice})
	}
	return s.verdicts
}

// correct updates the integral part after a time. It does not grow if the slice is at a bound
// already.
func (e *sliced) correct(elapsed time.Duration) {
	step := -proportion(e.mean) * float64(elapsed) / float64(sliceWhole)
	if e.competes && float64(e.pinned)*step <= 0 {
		e.trim = min(max(e.trim+step, -maxTrim), maxTrim)
	}
	e.samples = 0 // the mean starts again
}

// effort returns the guest's weight, corrected.
func (e *sliced) effort() float64 {
	return e.weight * math.Exp(min(max(e.trim-proportion(e.mean), -maxTrim), maxTrim))
}

// proportion returns the proportional part of a guest's lead.
func proportion(ahead float64) float64 {
	near := min(max(ahead, -float64(sliceNear)), float64(sliceNear))
	return near/float64(sliceSlow) + (ahead-near)/float64(slicePart)
}
