package tune

import (
	"slices"
	"time"
)

// maxSamples is how many measurements of an arm are kept: the latest.
const maxSamples = 16

// samples are the latest measurements of a quantity.
type samples struct {
	at [maxSamples]float64
	n  int // total number
}

func (s *samples) add(v float64) {
	s.at[s.n%maxSamples] = v
	s.n++
}

// count returns how many measurements are kept.
func (s *samples) count() int { return min(s.n, maxSamples) }

// low returns the first octile. Everything else that happens, such as other guests' time on the GPU
// or an eviction, makes a launch longer and never shorter, so short launches are more significant.
// The minimum alone would be whichever launch had the least to do.
func (s *samples) low() float64 {
	sorted := s.at
	k := s.count()
	if k == 0 {
		return 0
	}
	slices.Sort(sorted[:k])
	return sorted[k/8]
}

// perTask returns a launch's time per task, in nanoseconds.
func perTask(d time.Duration, tasks uint64) float64 { return float64(d) / float64(tasks) }
