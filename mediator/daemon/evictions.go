package daemon

import (
	"slices"
	"time"

	"vgpud/fairshare"
	"vgpud/mediator/api"
)

// evictionBounds are the upper bounds of the histogram's buckets.
var evictionBounds = [...]time.Duration{
	10 * time.Microsecond, 25 * time.Microsecond, 50 * time.Microsecond, 100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond,
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 250 * time.Millisecond, time.Second,
}

// newestKept is of how many evictions the quantiles are.
const newestKept = 1024

// evictions are what taking kernels off one GPU took. It is pure: the share tells
// it what was measured, from the word that a kernel is to leave until its last
// block had left.
type evictions struct {
	count   uint64
	sum     time.Duration
	buckets [len(evictionBounds)]uint64 // not cumulative; the rest is beyond the last

	newest []time.Duration // a ring once it is full
	at     int

	asked api.Asked
}

// ask takes in a word to leave, with what the policy said of a part of the SMs.
func (e *evictions) ask(use fairshare.SpatialUse) {
	switch use {
	case fairshare.SpatialUseful:
		e.asked.SomeSMs++
	case fairshare.SpatialTakesTurns:
		e.asked.TakesTurns++
	case fairshare.SpatialNeedsAll:
		e.asked.NeedsAll++
	case fairshare.SpatialUnknown:
		e.asked.Unknown++
	default:
		e.asked.Whole++
	}
}

// add takes in an eviction.
func (e *evictions) add(took time.Duration) {
	e.count++
	e.sum += took
	if i, _ := slices.BinarySearch(evictionBounds[:], took); i < len(e.buckets) {
		e.buckets[i]++
	}
	if len(e.newest) < newestKept {
		e.newest = append(e.newest, took)
	} else {
		e.newest[e.at] = took
		e.at = (e.at + 1) % newestKept
	}
}

// anew has the quantiles be of what is added from now on.
func (e *evictions) anew() { e.newest, e.at = e.newest[:0], 0 }

// show is what the API shows of it.
func (e *evictions) show() api.Evictions {
	s := api.Evictions{Count: e.count, Seconds: e.sum.Seconds(), Asked: e.asked, Buckets: make([]api.Bucket, len(evictionBounds))}
	n := uint64(0)
	for i, bound := range evictionBounds {
		n += e.buckets[i]
		s.Buckets[i] = api.Bucket{UpTo: bound.Seconds(), Count: n}
	}
	if len(e.newest) > 0 {
		sorted := slices.Clone(e.newest)
		slices.Sort(sorted)
		s.P50, s.P99 = quantile(sorted, 50).Seconds(), quantile(sorted, 99).Seconds()
	}
	return s
}

// quantile is the least value that at least percent of the sorted values don't
// exceed.
func quantile(sorted []time.Duration, percent int) time.Duration {
	return sorted[(len(sorted)*percent+99)/100-1]
}
