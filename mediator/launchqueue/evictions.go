package launchqueue

import (
	"slices"
	"time"

	"vgpud/fairshare"
)

// EvictionBounds are the upper bounds of the buckets of the histogram of evictions.
var EvictionBounds = [...]time.Duration{
	10 * time.Microsecond, 25 * time.Microsecond, 50 * time.Microsecond, 100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond,
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 250 * time.Millisecond, time.Second,
}

// newestKept is the number of evictions that the quantiles are computed from.
const newestKept = 1024

// Histogram sums up how long kernels took to leave a GPU: from when each was told to until its last
// block had left. The zero value is ready to use.
type Histogram struct {
	Count   uint64
	Sum     time.Duration
	buckets [len(EvictionBounds)]uint64 // not cumulative; the rest is beyond the last
}

// Add counts an eviction that took so long.
func (h *Histogram) Add(took time.Duration) {
	h.Count++
	h.Sum += took
	if i, _ := slices.BinarySearch(EvictionBounds[:], took); i < len(h.buckets) {
		h.buckets[i]++
	}
}

// Merge adds the evictions of another histogram.
func (h *Histogram) Merge(o *Histogram) {
	h.Count += o.Count
	h.Sum += o.Sum
	for i, n := range o.buckets {
		h.buckets[i] += n
	}
}

// UpTo returns how many took at most as long as each of [EvictionBounds].
func (h *Histogram) UpTo() (n [len(EvictionBounds)]uint64) {
	sum := uint64(0)
	for i := range h.buckets {
		sum += h.buckets[i]
		n[i] = sum
	}
	return n
}

// Evictions is the histogram of a GPU's evictions, and what else there is to say of them. The zero
// value is ready to use.
type Evictions struct {
	Histogram
	newest []time.Duration // a ring once it is full
	next   int             // in the ring
	asked  EvictionsAsked
}

// EvictionsAsked counts evictions as they are asked for, by what the policy said about evicting
// from a part of the SMs: see [fairshare.SpatialUse].
type EvictionsAsked struct {
	SomeSMs, TakesTurns, NeedsAll, Unknown, Whole uint64
}

// Ask counts an eviction that is asked for.
func (e *Evictions) Ask(use fairshare.SpatialUse) {
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

// Add counts an eviction that took so long.
func (e *Evictions) Add(took time.Duration) {
	e.Histogram.Add(took)
	if len(e.newest) < newestKept {
		e.newest = append(e.newest, took)
	} else {
		e.newest[e.next] = took
		e.next = (e.next + 1) % newestKept
	}
}

// Restart computes the quantiles from what is added from now on.
func (e *Evictions) Restart() { e.newest, e.next = e.newest[:0], 0 }

// EvictionSummary is what a GPU's evictions came to.
type EvictionSummary struct {
	Count    uint64
	Sum      time.Duration
	P50, P99 time.Duration // of the newest thousand; 0 if there was none
	// UpTo is how many took at most as long as each of [EvictionBounds].
	UpTo  [len(EvictionBounds)]uint64
	Asked EvictionsAsked
}

// Summary returns what the evictions came to.
func (e *Evictions) Summary() EvictionSummary {
	s := EvictionSummary{Count: e.Count, Sum: e.Sum, UpTo: e.UpTo(), Asked: e.asked}
	if len(e.newest) > 0 {
		sorted := slices.Sorted(slices.Values(e.newest))
		s.P50, s.P99 = quantile(sorted, 50), quantile(sorted, 99)
	}
	return s
}

// quantile returns the least of the sorted values that at least percent of them don't exceed.
func quantile(sorted []time.Duration, percent int) time.Duration {
	return sorted[(len(sorted)*percent+99)/100-1]
}
