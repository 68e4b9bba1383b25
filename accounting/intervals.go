package accounting

import (
	"slices"
	"time"
)

// Interval is a piece of time on the GPU's clock.
type Interval struct{ Start, End time.Duration }

// intervals is a set of instants: intervals in order that neither overlap nor touch.
type intervals []Interval

// maxIntervals is how many intervals a set keeps apart. It is more than launches with gaps between
// them come to in the time for which they are kept.
const maxIntervals = 4096

// noEnd is the end of an interval that has not ended.
const noEnd = time.Duration(1<<63 - 1)

// add puts an interval into the set.
func (s *intervals) add(v Interval) {
	if v.End <= v.Start {
		return
	}
	// New ones come at the end, or overlap what is there.
	i := len(*s)
	for i > 0 && (*s)[i-1].End >= v.Start {
		i--
	}
	j := i
	for j < len(*s) && (*s)[j].Start <= v.End {
		v.Start, v.End = min(v.Start, (*s)[j].Start), max(v.End, (*s)[j].End)
		j++
	}
	*s = slices.Replace(*s, i, j, v)
}

// merge adds intervals that are in order of their starts and not empty. If the set is full, its
// last interval absorbs what comes after it, gaps included. merge passes once over the part of the
// set from the first new interval on, in whatever order they lie. It uses scratch as memory for
// that part and returns it.
func (s *intervals) merge(added, scratch []Interval) []Interval {
	if len(added) == 0 {
		return scratch
	}
	i := s.after(added[0].Start - 1) // also one that it touches
	scratch = append(scratch[:0], (*s)[i:]...)
	*s = (*s)[:i]
	for rest := scratch; len(rest)+len(added) > 0; {
		if len(added) == 0 || len(rest) > 0 && rest[0].Start <= added[0].Start {
			s.push(rest[0])
			rest = rest[1:]
		} else {
			s.push(added[0])
			added = added[1:]
		}
	}
	return scratch
}

// push puts an interval into the set that starts no earlier than the last one in it.
func (s *intervals) push(v Interval) {
	if n := len(*s); n > 0 && (v.Start <= (*s)[n-1].End || n >= maxIntervals) {
		(*s)[n-1].End = max((*s)[n-1].End, v.End)
		return
	}
	*s = append(*s, v)
}

// dropBefore removes the instants before t.
func (s *intervals) dropBefore(t time.Duration) {
	*s = slices.Delete(*s, 0, s.after(t))
	if len(*s) > 0 {
		(*s)[0].Start = max((*s)[0].Start, t)
	}
}

// dropFrom removes the instants from t on.
func (s *intervals) dropFrom(t time.Duration) {
	for n := len(*s); n > 0 && (*s)[n-1].End > t; n-- {
		if (*s)[n-1].Start < t {
			(*s)[n-1].End = t
			return
		}
		*s = (*s)[:n-1]
	}
}

// after returns the index of the first interval that ends after t.
func (s intervals) after(t time.Duration) int {
	i, _ := slices.BinarySearchFunc(s, t, func(v Interval, t time.Duration) int {
		if v.End <= t {
			return -1
		}
		return 1
	})
	return i
}

// overlap returns how much of the set lies in v.
func (s intervals) overlap(v Interval) (sum time.Duration) {
	for i := s.after(v.Start); i < len(s) && s[i].Start < v.End; i++ {
		sum += min(s[i].End, v.End) - max(s[i].Start, v.Start)
	}
	return sum
}

// contains reports whether t is in the set.
func (s intervals) contains(t time.Duration) bool {
	i := s.after(t)
	return i < len(s) && s[i].Start <= t
}
