package workload

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestPartsAddUp splits launches as they may happen.
func TestPartsAddUp(t *testing.T) {
	const µ = time.Microsecond
	for name, c := range map[string]struct {
		s    sample
		want parts
	}{
		"both look": {
			sample{submitted: 2 * µ, began: 20 * µ, end: 30 * µ, total: 45 * µ},
			parts{store: 2 * µ, fetch: 18 * µ, execute: 10 * µ, back: 15 * µ},
		},
		"both sleep": {
			sample{submitted: 52 * µ, ringing: 50 * µ, began: 120 * µ, end: 130 * µ, woken: 190 * µ, total: 200 * µ},
			parts{store: 2 * µ, doorbell: 50 * µ, fetch: 68 * µ, execute: 10 * µ, interrupt: 60 * µ, back: 10 * µ},
		},
		"the GPU begins before the doorbell's write returns": {
			sample{submitted: 102 * µ, ringing: 100 * µ, began: 60 * µ, end: 70 * µ, woken: 80 * µ, total: 105 * µ},
			parts{store: 2 * µ, doorbell: 58 * µ, execute: 10 * µ, interrupt: 10 * µ, back: 25 * µ},
		},
	} {
		p := c.s.parts()
		if diff := cmp.Diff(c.want, p, cmp.AllowUnexported(parts{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if sum := p.store + p.doorbell + p.fetch + p.execute + p.interrupt + p.back; sum != c.s.total {
			t.Errorf("%s: parts add up to %v, the launch took %v", name, sum, c.s.total)
		}
	}
}

func TestSummaryLeavesOutliersOut(t *testing.T) {
	var all []sample
	for i := range 100 {
		s := sample{submitted: time.Microsecond, began: 5 * time.Microsecond, end: 6 * time.Microsecond, total: 10 * time.Microsecond}
		if i%10 == 0 {
			s.ringing, s.submitted, s.total = time.Second, time.Second, time.Minute
		}
		all = append(all, s)
	}
	got := summarize("way", all)
	want := Latency{
		Way: "way", Launches: 100, Doorbells: 0.1, Total: 10e-6, Total99: 60,
		Store: 1e-6, Fetch: 4e-6, Execute: 1e-6, Return: 4e-6,
	}
	near := cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-9 })
	if diff := cmp.Diff(want, got, near); diff != "" {
		t.Errorf("summary (-want +got):\n%s", diff)
	}
}
