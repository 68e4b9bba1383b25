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

// Median is the middle of the values, or the mean of the two in the middle.
func Median(values []float64) float64 {
	n := len(values)
	if n == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
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
func Fair(unscheduled, own time.Duration, others []time.Duration) time.Duration {
	total := own
	for _, o := range others {
		total += o
	}
	equal := float64(total) / float64(1+len(others))
	return time.Duration(float64(unscheduled) * float64(own) / equal)
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

// GeoMeanOverhead is the geometric mean of 1 + overhead, less 1.
func GeoMeanOverhead(overheads []float64) float64 {
	ratios := make([]float64, len(overheads))
	for i, o := range overheads {
		ratios[i] = 1 + o
	}
	return GeoMean(ratios) - 1
}

// Gap is a time in which a kernel did not run, by its own readings of the GPU's
// clock.
type Gap struct{ Start, End time.Duration }

// Standstill is when the last of a kernel's blocks stopped and the last went on, by
// the longest gap of each. Blocks whose longest gap does not overlap the others',
// by the majority's middle, were not stopped: ok is false.
func Standstill(blocks []Gap) (g Gap, ok bool) {
	if len(blocks) == 0 {
		return g, false
	}
	middles := make([]float64, len(blocks))
	for i, b := range blocks {
		middles[i] = float64(b.Start+b.End) / 2
	}
	middle := time.Duration(Median(middles))
	for _, b := range blocks {
		if b.Start > middle || b.End < middle {
			return g, false
		}
		g.Start, g.End = max(g.Start, b.Start), max(g.End, b.End)
	}
	return g, true
}
