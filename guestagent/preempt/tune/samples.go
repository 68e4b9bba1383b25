package tune

import (
	"slices"
	"time"
)

// maxSamples is how many measurements of an arm are kept: the latest.
const maxSamples = 16

// samples are the latest measurements of something.
type samples struct {
	at [maxSamples]float64
	n  int // ever
}

func (s *samples) add(v float64) {
	s.at[s.n%maxSamples] = v
	s.n++
}

// kept is how many there are.
func (s *samples) kept() int { return min(s.n, maxSamples) }

// low is what one in eight is below. Whatever else goes on, other guests' time on the GPU, an eviction, makes a launch
// longer and never shorter, so the shorter ones tell more; the least alone would be whichever launch had the least to
// do.
func (s *samples) low() float64 {
	sorted := s.at
	k := s.kept()
	if k == 0 {
		return 0
	}
	slices.Sort(sorted[:k])
	return sorted[k/8]
}

// perTask is a launch's time for each of its tasks, in nanoseconds.
func perTask(d time.Duration, tasks uint64) float64 { return float64(d) / float64(tasks) }
