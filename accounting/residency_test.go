package accounting

import (
	"testing"
	"time"
)

// TestResidencyForgets tests that past residences are dropped, but never the newest one, however
// far ahead the given time is.
func TestResidencyForgets(t *testing.T) {
	for _, c := range []struct {
		before time.Duration
		want   int
	}{{-1 << 63, 4}, {0, 4}, {10, 3}, {15, 3}, {30, 1}, {noEnd - 1, 1}, {noEnd, 1}} {
		r := newResidency(0)
		for i := range 3 {
			r.begin(residence{from: time.Duration(10 * (i + 1)), kind: vacant}, false)
		}
		r.dropBefore(c.before)
		if len(r.residences) != c.want || r.last().to != noEnd {
			t.Errorf("%d residences after %v, want %d: %+v", len(r.residences), c.before, c.want, r.residences)
		}
	}
}
