// Package figure is the arithmetic of the measurements on a real GPU: pure
// functions from what was counted to what is reported, each with its definition
// and where that is from.
//
// Shares, loads and errors are fractions of 1 (0.01 is a point), times are
// [time.Duration]. What can't be said, such as the median of nothing, is NaN.
package figure

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Median is the middle of the values, or the mean of the two in the middle. Where one of
// them can't be said, neither can it: it is not less than the others.
func Median(values []float64) float64 {
	n := len(values)
	if n == 0 || slices.ContainsFunc(values, math.IsNaN) {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// Mean is the sum of the values by their number.
func Mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// Spread is how far the values are apart, the largest less the smallest; 0 for one.
func Spread(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	return slices.Max(values) - slices.Min(values)
}

// Quantile is the least of the values that at least part of them, from 0 to 1,
// don't exceed.
func Quantile[T cmp.Ordered](values []T, part float64) (q T) {
	if len(values) == 0 {
		return q
	}
	sorted := slices.Sorted(slices.Values(values))
	i := int(math.Ceil(part*float64(len(sorted)))) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}

// Micros are the durations in microseconds.
func Micros(all []time.Duration) []float64 {
	us := make([]float64, len(all))
	for i, d := range all {
		us[i] = float64(d) / float64(time.Microsecond)
	}
	return us
}

// GeoMean is the geometric mean of ratios, which must be above 0.
func GeoMean(ratios []float64) float64 {
	if len(ratios) == 0 {
		return math.NaN()
	}
	sum := 0.0
	for _, r := range ratios {
		sum += math.Log(r)
	}
	return math.Exp(sum / float64(len(ratios)))
}

// Shares are each one's part of the sum of the times.
func Shares(used []time.Duration) []float64 {
	var sum time.Duration
	for _, u := range used {
		sum += u
	}
	shares := make([]float64, len(used))
	for i, u := range used {
		if shares[i] = math.NaN(); sum > 0 {
			shares[i] = float64(u) / float64(sum)
		}
	}
	return shares
}

// ShareError is how far the worst off, or the best, of saturating guests is from
// its entitlement, its weight's part of all weights.
func ShareError(used []time.Duration, weights []float64) float64 {
	total := 0.0
	for _, w := range weights {
		total += w
	}
	worst := 0.0
	for i, share := range Shares(used) {
		worst = math.Max(worst, math.Abs(share-weights[i]/total))
	}
	return worst
}

// AccountingError is |accounted − truth| / window.
func AccountingError(accounted, truth, window time.Duration) float64 {
	return math.Abs(float64(accounted-truth)) / float64(window)
}

// RelativeError is |accounted − truth| / truth.
func RelativeError(accounted, truth time.Duration) float64 {
	return math.Abs(float64(accounted-truth)) / float64(truth)
}

// Fair is the turnaround that a program would have if GPU time was fairly
// distributed (LoGA §5.5): without scheduling it took unscheduled, in which it used
// the GPU for own, and each of the others that it ran beside for the times given.
// Fairly it would get as much as each of them, of what all got.
//
// It is never less than alone, what the program takes alone, which LoGA does not say: a
// program that is not on the GPU for all of its time can be due more of the GPU than it
// can use, and no scheduler makes it faster than alone.
func Fair(alone, unscheduled, own time.Duration, others []time.Duration) time.Duration {
	total := own
	for _, o := range others {
		total += o
	}
	equal := float64(total) / float64(1+len(others))
	return max(time.Duration(float64(unscheduled)*float64(own)/equal), alone)
}

// Distance is how far turnarounds are from the fair ones, as a factor: the geometric
// mean over the programs of the larger of the two over the smaller. 1 is fair.
func Distance[T time.Duration | float64](turnarounds, fair []T) float64 {
	factors := make([]float64, len(turnarounds))
	for i := range turnarounds {
		r := float64(turnarounds[i]) / float64(fair[i])
		factors[i] = math.Max(r, 1/r)
	}
	return GeoMean(factors)
}

// Overheads are what each time costs more than its base, as fractions, which can be
// below 0.
func Overheads(times, bases []float64) []float64 {
	over := make([]float64, len(times))
	for i := range times {
		over[i] = times[i]/bases[i] - 1
	}
	return over
}

// GeoMeanLoss is GeoMeanOverhead with speed-ups, which are below 0, counted as 0: that one
// kernel gains does not make up for what another loses.
func GeoMeanLoss(overheads []float64) float64 {
	losses := make([]float64, len(overheads))
	for i, o := range overheads {
		losses[i] = max(o, 0)
	}
	return GeoMeanOverhead(losses)
}

// GeoMeanOverhead is the geometric mean of 1 + overhead, less 1.
func GeoMeanOverhead(overheads []float64) float64 {
	ratios := make([]float64, len(overheads))
	for i, o := range overheads {
		ratios[i] = 1 + o
	}
	return GeoMean(ratios) - 1
}

// Pair is what a program took, by run, and what that is compared with.
type Pair struct{ Took, With []float64 }

// Together is what a number of all programs comes to: with the median of each one's runs,
// and with each run alone that all have, which has that run's noise in it. A program that
// was not measured is left out.
func Together(programs []Pair, number func(took, with []float64) float64) (all float64, runs []float64) {
	programs = slices.DeleteFunc(slices.Clone(programs), func(p Pair) bool { return len(p.Took) == 0 || len(p.With) == 0 })
	of := func(value func([]float64) float64) float64 {
		took, with := make([]float64, len(programs)), make([]float64, len(programs))
		for i, p := range programs {
			took[i], with[i] = value(p.Took), value(p.With)
		}
		return number(took, with)
	}
	lacks := func(run int) bool {
		return slices.ContainsFunc(programs, func(p Pair) bool { return run >= len(p.Took) || run >= len(p.With) })
	}
	for run := 0; len(programs) > 0 && !lacks(run); run++ {
		runs = append(runs, of(func(v []float64) float64 { return v[run] }))
	}
	return of(Median), runs
}

// Gap is a time in which a kernel did not run, by its own readings of the GPU's
// clock.
type Gap struct{ Start, End time.Duration }

// Still is when a kernel stood still: no block ran from Stop, when the last of them
// stopped, to First, when the first went on. The last did so at Last.
type Still struct{ Stop, First, Last time.Duration }

// Standstill is when a kernel stood still by the longest gap of each of its blocks.
// Blocks whose longest gap does not overlap the others', by the majority's middle, were
// not stopped: ok is false.
func Standstill(blocks []Gap) (s Still, ok bool) {
	if len(blocks) == 0 {
		return s, false
	}
	s = Still{Stop: blocks[0].Start, First: blocks[0].End, Last: blocks[0].End}
	middles := make([]float64, len(blocks))
	for i, b := range blocks {
		middles[i] = float64(b.Start+b.End) / 2
	}
	middle := time.Duration(Median(middles))
	for _, b := range blocks {
		if b.Start > middle || b.End < middle {
			return s, false
		}
		s.Stop, s.First, s.Last = max(s.Stop, b.Start), min(s.First, b.End), max(s.Last, b.End)
	}
	return s, true
}
