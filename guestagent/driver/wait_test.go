package driver

import (
	"testing"
	"time"
)

// TestSpinBudget checks how long a wait polls the ring before it sleeps, for the priorities of the
// context and the channel and for the length of recent waits.
func TestSpinBudget(t *testing.T) {
	for name, c := range map[string]struct {
		context int32
		channel ChannelOptions
		waits   time.Duration
		want    time.Duration
	}{
		"usual":                     {0, ChannelOptions{}, polledSpinLimit, polledSpinLimit},
		"usual, longer waits":       {0, ChannelOptions{}, time.Millisecond, minSpin},
		"urgent":                    {-1, ChannelOptions{}, time.Millisecond, urgentSpinLimit},
		"urgent, longer waits":      {-1, ChannelOptions{}, 5 * time.Millisecond, minSpin},
		"an urgent channel":         {0, ChannelOptions{Priority: -1}, time.Millisecond, urgentSpinLimit},
		"a channel that is not":     {-1, ChannelOptions{Priority: 1}, time.Millisecond, minSpin},
		"less urgent than the rest": {1, ChannelOptions{}, time.Millisecond, minSpin},
	} {
		context := &Context{opts: ContextOptions{Priority: c.context}}
		s := newSpinner(polledSpinLimit, context.urgent(c.channel))
		for range maxLongWaits {
			s.waits++
			s.observe(c.waits)
		}
		if got := s.budget(); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		if s.contended = 1; s.budget() > polledSpinLimit {
			t.Errorf("%s, on a busy processor: %v", name, s.budget())
		}
	}
}

// TestOverranSpin checks that, after a completion which came soon after long polling had ended, the
// next waits poll for the normal time only: polling may have kept the completion from coming.
func TestOverranSpin(t *testing.T) {
	for name, c := range map[string]struct {
		inVain bool
		wait   time.Duration
		want   time.Duration
	}{
		"found":                      {false, time.Millisecond, urgentSpinLimit},
		"soon after":                 {true, urgentSpinLimit + wakeLatency, polledSpinLimit},
		"long after, so a long wait": {true, 2 * urgentSpinLimit, urgentSpinLimit},
	} {
		s := newSpinner(polledSpinLimit, true)
		s.overran = c.inVain
		s.observe(c.wait)
		if got := s.budget(); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
