package accounting

import (
	"testing"
	"time"
)

// TestResidencyForgets: what was over is dropped, and never the newest stay, however far
// ahead the instant is.
func TestResidencyForgets(t *testing.T) {
	for _, c := range []struct {
		before time.Duration
		want   int
	}{{-1 << 63, 4}, {0, 4}, {10, 3}, {15, 3}, {30, 1}, {open - 1, 1}, {open, 1}} {
		r := newResidency(0)
		for i := range 3 {
			r.turn(stay{from: time.Duration(10 * (i + 1)), kind: vacant}, false)
		}
		r.forget(c.before)
		if len(r.stays) != c.want || r.last().to != open {
			t.Errorf("%d stays after %v, want %d: %+v", len(r.stays), c.before, c.want, r.stays)
		}
	}
}
