package driver

import (
	"testing"
	"time"
)

// TestPatience: by the context's priority and the channel's, for how long a wait looks at
// the ring before it sleeps, while waits take so long.
func TestPatience(t *testing.T) {
	for name, c := range map[string]struct {
		context int32
		channel ChannelOptions
		waits   time.Duration
		want    time.Duration
	}{
		"usual":                     {0, ChannelOptions{}, awakePatience, awakePatience},
		"usual, longer waits":       {0, ChannelOptions{}, time.Millisecond, minPatience},
		"urgent":                    {-1, ChannelOptions{}, time.Millisecond, urgentPatience},
		"urgent, longer waits":      {-1, ChannelOptions{}, 5 * time.Millisecond, minPatience},
		"an urgent channel":         {0, ChannelOptions{Priority: -1}, time.Millisecond, urgentPatience},
		"a channel that is not":     {-1, ChannelOptions{Priority: 1}, time.Millisecond, minPatience},
		"less urgent than the rest": {1, ChannelOptions{}, time.Millisecond, minPatience},
	} {
		context := &Context{opts: ContextOptions{Priority: c.context}}
		s := newSpinner(awakePatience, context.urgent(c.channel))
		for range missedLimit {
			s.waits++
			s.took(c.waits)
		}
		if got := s.patience(); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		if s.busy = 1; s.patience() > awakePatience {
			t.Errorf("%s, on a busy processor: %v", name, s.patience())
		}
	}
}

// TestLongLooksInVain: where what a long look waited for came soon after it gave up, looking
// may have been what kept it from coming, so the next waits look for as long as usual.
func TestLongLooksInVain(t *testing.T) {
	for name, c := range map[string]struct {
		inVain bool
		wait   time.Duration
		want   time.Duration
	}{
		"found":                      {false, time.Millisecond, urgentPatience},
		"soon after":                 {true, urgentPatience + wakeup, awakePatience},
		"long after, so a long wait": {true, 2 * urgentPatience, urgentPatience},
	} {
		s := newSpinner(awakePatience, true)
		s.inVain = c.inVain
		s.took(c.wait)
		if got := s.patience(); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
