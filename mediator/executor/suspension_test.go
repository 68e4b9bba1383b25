package executor

import (
	"testing"
	"time"
)

func TestSuspensionWithin(t *testing.T) {
	var s suspension
	length := func(start, end time.Duration) time.Duration {
		from, to := s.within(start, end)
		return to - from
	}
	if got := length(10, 20); got != 0 {
		t.Errorf("never suspended: within %d, want 0", got)
	}
	s.set(true, 100)
	for _, c := range []struct{ start, end, want time.Duration }{
		{10, 90, 0}, {90, 110, 10}, {100, 130, 30}, {120, 150, 30},
	} {
		if got := length(c.start, c.end); got != c.want {
			t.Errorf("held since 100: within(%d, %d) = %d, want %d", c.start, c.end, got, c.want)
		}
	}
	s.set(false, 140)
	for _, c := range []struct{ start, end, want time.Duration }{
		{90, 150, 40}, {130, 170, 10}, {140, 170, 0}, {150, 170, 0}, {10, 90, 0},
	} {
		if got := length(c.start, c.end); got != c.want {
			t.Errorf("held from 100 to 140: within(%d, %d) = %d, want %d", c.start, c.end, got, c.want)
		}
	}
}
