package duration

import "time"

// costRuns is the number of runs of the mean: "Instead of building a model to predict the
// preemption overhead, we profile the overhead of 50 runs with different inputs and use the average
// as an estimate of the online preemption overhead" (FLEP §4.2). Here it is the newest 50.
const costRuns = 50

// Mean is the mean of the newest 50 values. The zero value has none.
type Mean struct {
	runs [costRuns]time.Duration
	n    int // number of values added, as far as it matters
	sum  time.Duration
}

// maxMeasure bounds a measurement, so that no sum of them overflows. No kernel runs longer.
const maxMeasure = 24 * time.Hour

// Add adds one value. A value of zero or less was not measured, and is ignored.
func (m *Mean) Add(d time.Duration) {
	if d <= 0 {
		return
	}
	d = min(d, maxMeasure)
	at := m.n % costRuns
	m.sum += d - m.runs[at]
	m.runs[at] = d
	if m.n++; m.n == 2*costRuns {
		m.n = costRuns
	}
}

// Mean returns the mean, or zero if there is none.
func (m *Mean) Mean() time.Duration {
	if m.n == 0 {
		return 0
	}
	return m.sum / time.Duration(min(m.n, costRuns))
}

// Runs returns the number of values in the mean.
func (m *Mean) Runs() int { return min(m.n, costRuns) }
