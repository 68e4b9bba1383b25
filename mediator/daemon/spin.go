package daemon

import (
	"fmt"
	"runtime"
	"time"
)

// Whether the daemon and executors look for launches, and for the word to leave, rather
// than sleep until they are woken: see [GPUConfig.Spin].
const (
	spinAuto   = "auto"
	spinAlways = "true"
	spinNever  = "false"
)

// Those who look keep a processor each. On their own they do so on a host that has this many
// processors, and while kernels are told to leave: until this long after the last one was.
const (
	spinProcessors = 4
	spinFor        = time.Second
)

// DefaultUrgentPoll is for how long in a wait an urgent guest's executor may poll unless
// the configuration says otherwise.
const DefaultUrgentPoll = 5 * time.Millisecond

// urgentPoll returns the configured limit, 0 for none.
func (c *GPUConfig) urgentPoll() time.Duration {
	if c.UrgentPoll == 0 {
		return DefaultUrgentPoll
	}
	return max(time.Duration(c.UrgentPoll), 0)
}

// checkSpin says what is wrong with a configured value.
func checkSpin(how string) error {
	switch how {
	case "", spinAuto, spinAlways, spinNever:
		return nil
	}
	return fmt.Errorf("spin %q: want %s, %s or %s", how, spinAuto, spinAlways, spinNever)
}

// spinner decides whether those who wait for a GPU's launches spin. It is pure.
type spinner struct {
	how        string        // as configured; empty is auto
	processors int           // of the host
	polls      time.Duration // as of [GPUConfig.UrgentPoll], 0 for none
	told       bool          // a kernel was told to leave,
	last       time.Duration // and when the last one was
}

func newSpinner(c *GPUConfig) spinner {
	return spinner{how: c.Spin, processors: runtime.NumCPU(), polls: c.urgentPoll()}
}

// leaves takes in that a kernel is told to leave the GPU now.
func (s *spinner) leaves(now time.Duration) { s.told, s.last = true, now }

// spins reports whether to spin now.
func (s *spinner) spins(now time.Duration) bool {
	switch s.how {
	case spinAlways:
		return true
	case spinNever:
		return false
	}
	return s.processors >= spinProcessors && s.told && now-s.last < spinFor
}

// pollLimit returns for how long in a wait an urgent guest's executors may poll. It needs
// no eviction to have been asked for: an urgent launch comes after a pause, and executors
// poll only while their pauses are short.
func (s *spinner) pollLimit() time.Duration {
	if s.how == spinNever || s.how != spinAlways && s.processors < spinProcessors {
		return 0
	}
	return s.polls
}
