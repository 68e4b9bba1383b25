package duration

import (
	"math"
	"time"

	"gonum.org/v1/gonum/mat"
)

// features is the number of features.
const features = 4

// vector returns a launch's features as numbers.
func (f *Features) vector() [features]float64 {
	return [features]float64{float64(f.Blocks), float64(f.Threads), float64(f.Input), float64(f.Shared)}
}

// line is a linear function of features.
type line struct {
	center [features]float64
	slope  [features]float64
	base   float64 // at the center, in nanoseconds
	// least is the shortest run that it was fitted to. No prediction is below a tenth of that,
	// whatever the line gives far from what it was fitted to.
	least float64
}

// at returns the line's value for a launch.
func (l *line) at(f Features) time.Duration {
	y := l.base
	for j, x := range f.vector() {
		y += l.slope[j] * (x - l.center[j])
	}
	y = max(y, l.least/10, 1)
	if !(y < float64(maxMeasure)) { // or not a number
		return maxMeasure
	}
	return time.Duration(y)
}

// fit fits lines to runs, and reuses its memory.
type fit struct {
	chol   mat.Cholesky
	normal *mat.SymDense // XᵀX + penalty
	right  *mat.VecDense // Xᵀy
	slope  *mat.VecDense
}

// line is ridge regression: the slopes that minimise the mean squared error plus the penalty times
// the squared slopes, for features scaled to mean 0 and variance 1. So neither the line's offset
// nor the features' units affect the penalty.
//
// The error is relative to the run's length, since predictions are judged by that (FLEP figure 7):
// a run counts by 1/took². Otherwise the noise of a kernel's long runs would exceed its short ones.
func (f *fit) line(runs []run, penalty float64) line {
	var l line
	var total float64
	l.least = math.Inf(1)
	for i := range runs {
		y := float64(runs[i].took)
		w := 1 / (y * y)
		total += w
		l.least = min(l.least, y)
		l.base += w * y
		for j, x := range runs[i].features.vector() {
			l.center[j] += w * x
		}
	}
	l.base /= total
	for j := range l.center {
		l.center[j] /= total
	}
	var scale [features]float64
	for i := range runs {
		y := float64(runs[i].took)
		for j, x := range runs[i].features.vector() {
			d := x - l.center[j]
			scale[j] += d * d / (y * y) / total
		}
	}
	for j := range scale {
		scale[j] = math.Sqrt(scale[j])
		if scale[j] <= 1e-9*math.Abs(l.center[j]) {
			scale[j] = 0 // the same in all runs but for rounding: it has no effect
		}
	}
	if f.normal == nil {
		f.normal = mat.NewSymDense(features, nil)
		f.right, f.slope = mat.NewVecDense(features, nil), mat.NewVecDense(features, nil)
	}
	var normal [features][features]float64
	var right [features]float64
	for i := range runs {
		y := float64(runs[i].took)
		w := 1 / (y * y) / total
		v := runs[i].features.vector()
		for j := range v {
			if v[j] -= l.center[j]; scale[j] > 0 {
				v[j] /= scale[j]
			} else {
				v[j] = 0
			}
		}
		for j := range v {
			right[j] += w * v[j] * (y - l.base)
			for k := range v[:j+1] {
				normal[j][k] += w * v[j] * v[k]
			}
		}
	}
	for j := range normal {
		f.right.SetVec(j, right[j])
		for k := range normal[:j+1] {
			f.normal.SetSym(j, k, normal[j][k])
		}
		f.normal.SetSym(j, j, normal[j][j]+penalty)
	}
	if !f.chol.Factorize(f.normal) {
		return l // the mean instead of a line
	}
	if err := f.chol.SolveVecTo(f.slope, f.right); err != nil {
		// Too ill conditioned for the penalty: the mean.
		return l
	}
	for j := range scale {
		if scale[j] > 0 {
			l.slope[j] = f.slope.AtVec(j) / scale[j]
		}
	}
	return l
}
