// Package figure is the arithmetic of the measurements on a real GPU: pure functions from counts to
// reported values, each with its definition and the definition's source.
//
// Shares, loads and errors are fractions of 1 (0.01 is a percentage point). Times are
// [time.Duration]. A value that does not exist, such as the median of nothing, is NaN.
package figure

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Median returns the middle value, or the mean of the two middle ones. It returns NaN if any value
// is NaN, because NaN has no place in the order.
func Median(values []float64) float64 {
	n := len(values)
	if n == 0 || slices.ContainsFunc(values, math.IsNaN) {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// Mean returns the arithmetic mean of the values.
func Mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// Spread returns the largest value minus the smallest. It is 0 for a single value.
func Spread(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	return slices.Max(values) - slices.Min(values)
}

// Quantile returns the smallest value that at least the given part of the values, from 0 to 1, do
// not exceed.
func Quantile[T cmp.Ordered](values []T, part float64) (q T) {
	if len(values) == 0 {
		return q
	}
	sorted := slices.Sorted(slices.Values(values))
	i := int(math.Ceil(part*float64(len(sorted)))) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}

// Micros returns the durations in microseconds.
func Micros(all []time.Duration) []float64 {
	us := make([]float64, len(all))
	for i, d := range all {
		us[i] = float64(d) / float64(time.Microsecond)
	}
	return us
}

// GeoMean returns the geometric mean of ratios, which must be above 0.
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

// Shares returns each time's part of the sum.
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

// ShareError returns the largest difference between a saturating guest's share and its entitlement,
// which is its weight's part of all weights.
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

// AccountingError returns |accounted − truth| / window.
func AccountingError(accounted, truth, window time.Duration) float64 {
	return math.Abs(float64(accounted-truth)) / float64(window)
}

// RelativeError returns |accounted − truth| / truth.
func RelativeError(accounted, truth time.Duration) float64 {
	return math.Abs(float64(accounted-truth)) / float64(truth)
}

// Fair returns the turnaround that a program would have if GPU time were fairly distributed (LoGA
// §5.5). Without scheduling, the program took unscheduled; in that time it used the GPU for own,
// and the programs beside it for others. With a fair distribution it would get an equal part of all
// that GPU time.
//
// The result is never less than alone, the program's turnaround alone. LoGA does not say so, but a
// program that is not on the GPU all the time can be entitled to more of the GPU than it can use,
// and no scheduler makes it faster than alone.
func Fair(alone, unscheduled, own time.Duration, others []time.Duration) time.Duration {
	total := own
	for _, o := range others {
		total += o
	}
	equal := float64(total) / float64(1+len(others))
	return max(time.Duration(float64(unscheduled)*float64(own)/equal), alone)
}

// Distance returns how far turnarounds are from the fair ones, as a factor: the geometric mean over
// the programs of the larger of the two divided by the smaller. 1 is fair.
func Distance[T time.Duration | float64](turnarounds, fair []T) float64 {
	factors := make([]float64, len(turnarounds))
	for i := range turnarounds {
		r := float64(turnarounds[i]) / float64(fair[i])
		factors[i] = math.Max(r, 1/r)
	}
	return GeoMean(factors)
}

// Overheads returns how much more each time is than its base, as fractions. A fraction is negative
// if the time is less.
func Overheads(times, bases []float64) []float64 {
	over := make([]float64, len(times))
	for i := range times {
		over[i] = times[i]/bases[i] - 1
	}
	return over
}

// GeoMeanLoss is GeoMeanOverhead with negative overheads counted as 0: one kernel's gain does not
// make up for another's loss.
func GeoMeanLoss(overheads []float64) float64 {
	losses := make([]float64, len(overheads))
	for i, o := range overheads {
		losses[i] = max(o, 0)
	}
	return GeoMeanOverhead(losses)
}

// GeoMeanOverhead returns the geometric mean of 1 + overhead, minus 1.
func GeoMeanOverhead(overheads []float64) float64 {
	ratios := make([]float64, len(overheads))
	for i, o := range overheads {
		ratios[i] = 1 + o
	}
	return GeoMean(ratios) - 1
}

// Pair holds a program's times by run, and the times to compare them with.
type Pair struct{ Took, With []float64 }

// Together applies number to all programs: once with the median of each program's runs, and once
// with each run that all of them have, which includes that run's noise. It leaves out programs that
// were not measured.
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

// Gap is a time in which a kernel did not run, by its own readings of the GPU's clock.
type Gap struct{ Start, End time.Duration }

// Still describes when a kernel stood still. No block ran from Stop, when the last block stopped,
// to First, when the first one went on. The last one went on at Last.
type Still struct{ Stop, First, Last time.Duration }

// Standstill computes when a kernel stood still from the longest gap of each of its blocks. A block
// was not stopped if its longest gap does not overlap those of the others, by the middle of the
// majority's; ok is then false.
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
