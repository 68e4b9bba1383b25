package duration

import (
	"container/list"
	"math"
	"time"
)

// Options bound what is remembered. The zero value is the default.
type Options struct {
	// Kernels is how many kernels are remembered, the most recently used ones. Zero: 256. One takes
	// about 4 KiB.
	Kernels int
	// Penalty is the weight of the L2 penalty against the mean squared error, with all features
	// scaled to variance 1; zero: 0.001.
	Penalty float64
}

const (
	defaultKernels = 256
	defaultPenalty = 1e-3
)

// Models predicts as FLEP does, with a model for each kernel.
//
// There should be one Models for each guest: the number of kernels is bounded, so a guest that
// launches ever new ones makes only its own forgotten, and what it makes a kernel do says nothing
// about another guest's.
type Models struct {
	options Options
	of      map[Kernel]*list.Element // of *model
	recent  *list.List               // newest first
	fit     fit
	failed  float64 // sum of relative errors
	judged  uint64
}

var _ Predictor = (*Models)(nil)

// model is the record of a kernel.
type model struct {
	kernel  Kernel
	runs    []run // the newest, as a ring when full
	next    int   // where the next one goes
	unread  int   // runs since the line was fitted
	line    line
	cost    Mean
	failed  float64
	judged  uint64
	trained bool
}

// run is one measured launch.
type run struct {
	features Features
	took     time.Duration
}

const (
	// trainingRuns is the number of runs that a model is trained on: "For each kernel, we use 100
	// randomly generated data inputs" (FLEP §4.2). Here it is the newest 100, so that a model
	// follows changes in the kernel's data.
	trainingRuns = 100
	// leastRuns is the number of runs that a line over four features needs to be meaningful. With
	// fewer, a launch with the features of earlier ones is expected to take as long as these did,
	// and nothing is predicted of others.
	leastRuns = 8
)

// New returns an empty Models.
func New(o Options) *Models {
	if o.Kernels <= 0 {
		o.Kernels = defaultKernels
	}
	if o.Penalty <= 0 {
		o.Penalty = defaultPenalty
	}
	return &Models{options: o, of: make(map[Kernel]*list.Element), recent: list.New()}
}

// Len returns the number of remembered kernels.
func (m *Models) Len() int { return m.recent.Len() }

// Predict implements [Predictor].
func (m *Models) Predict(k Kernel, f Features) time.Duration {
	e := m.of[k]
	if e == nil {
		return 0
	}
	m.recent.MoveToFront(e)
	return m.predict(e.Value.(*model), f)
}

// Observe implements [Predictor].
func (m *Models) Observe(k Kernel, f Features, took time.Duration) {
	if took <= 0 {
		return
	}
	took = min(took, maxMeasure)
	o := m.model(k)
	if p := m.predict(o, f); p > 0 {
		off := math.Abs(float64(p-took)) / float64(took)
		m.failed, m.judged = m.failed+off, m.judged+1
		o.failed, o.judged = o.failed+off, o.judged+1
	}
	if len(o.runs) < trainingRuns {
		o.runs = append(o.runs, run{f, took})
	} else {
		o.runs[o.next] = run{f, took}
		o.next = (o.next + 1) % trainingRuns
	}
	o.unread++
}

// EvictionCost implements [Predictor].
func (m *Models) EvictionCost(k Kernel) time.Duration {
	if e := m.of[k]; e != nil {
		return e.Value.(*model).cost.Mean()
	}
	return 0
}

// ObserveEviction implements [Predictor].
func (m *Models) ObserveEviction(k Kernel, cost time.Duration) { m.model(k).cost.Add(cost) }

// Error implements [Predictor].
func (m *Models) Error() (ratio float64, launches uint64) { return mean(m.failed, m.judged) }

// ErrorOf is Error for one kernel.
func (m *Models) ErrorOf(k Kernel) (ratio float64, launches uint64) {
	if e := m.of[k]; e != nil {
		return mean(e.Value.(*model).failed, e.Value.(*model).judged)
	}
	return 0, 0
}

func mean(sum float64, n uint64) (float64, uint64) {
	if n == 0 {
		return 0, 0
	}
	return sum / float64(n), n
}

// model returns the model of a kernel, which it makes if there is none.
func (m *Models) model(k Kernel) *model {
	if e := m.of[k]; e != nil {
		m.recent.MoveToFront(e)
		return e.Value.(*model)
	}
	if m.recent.Len() >= m.options.Kernels {
		oldest := m.recent.Back()
		delete(m.of, m.recent.Remove(oldest).(*model).kernel)
	}
	o := &model{kernel: k}
	m.of[k] = m.recent.PushFront(o)
	return o
}

// predict predicts a launch from the measurements so far.
func (m *Models) predict(o *model, f Features) time.Duration {
	if len(o.runs) < leastRuns {
		return o.alike(f)
	}
	// Fitting again for each run would be a hundred times the work for a line that hardly changes.
	if !o.trained || o.unread*10 >= len(o.runs) {
		o.line = m.fit.line(o.runs, m.options.Penalty)
		o.trained, o.unread = true, 0
	}
	return o.line.at(f)
}

// alike returns the mean of the runs with the same features, or zero if there is none.
func (o *model) alike(f Features) time.Duration {
	var sum time.Duration
	n := 0
	for i := range o.runs {
		if o.runs[i].features == f {
			sum += o.runs[i].took
			n++
		}
	}
	if n == 0 {
		return 0
	}
	return sum / time.Duration(n)
}
