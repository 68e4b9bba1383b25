package quota

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestNeedIsWhatAGuestUsesAlone runs a guest whose kernels and pauses have a fixed proportion. In
// some phases it gets through many of them, in others it waits for most of the time, or is
// suspended while a kernel runs on. Its demand is what it would use alone all the while, and a
// suspension changes nothing.
func TestNeedIsWhatAGuestUsesAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		alone := float64(rapid.IntRange(5, 100).Draw(t, "uses alone")) / 100
		var n Need
		var seen float64
		for range rapid.IntRange(20, 200).Draw(t, "phases") {
			length := float64(rapid.IntRange(1, 24).Draw(t, "phase, ms")) * float64(time.Millisecond)
			served := rapid.Float64Range(0.05, 1).Draw(t, "part in which it does not wait") * length
			s := Seen{Used: alone * served, Pauses: (1 - alone) * served, Suspended: rapid.Bool().Draw(t, "suspended")}
			before := n.Demand()
			if s.Suspended {
				s.Used, s.Pauses = rapid.Float64Range(0, length).Draw(t, "runs on"), 0
			} else {
				seen += s.Used
			}
			n.Observe(s, NewFading(math.Exp(-length/float64(250*time.Millisecond))))
			if got := n.Demand(); s.Suspended && got != before {
				t.Fatalf("a suspension changed the demand from %v to %v", before, got)
			}
			// Some use is presumed.
			most := 0.01 + float64(presumed)/max(n.used, 1)
			if got := n.Demand(); seen > 0 && math.Abs(got-alone) > most {
				t.Fatalf("demand %.3f of a guest that uses %.3f alone", got, alone)
			}
		}
	})
}

// TestNeedOfPretence tests that a guest that leaves the GPU idle though it shows work needs
// nothing, for however long it is suspended, until it uses the GPU.
func TestNeedOfPretence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var n Need
		if got := n.Demand(); got != 1 {
			t.Fatalf("demand %v of a new guest, want 1", got)
		}
		keep := NewFading(0.9)
		n.Observe(Seen{Left: float64(time.Millisecond)}, keep)
		for range rapid.IntRange(0, 100).Draw(t, "phases") {
			n.Observe(Seen{
				Left:      float64(rapid.IntRange(0, 20).Draw(t, "leaves, ms")) * float64(time.Millisecond),
				Suspended: rapid.Bool().Draw(t, "suspended"),
			}, keep)
			if got := n.Demand(); got != 0 {
				t.Fatalf("demand %v of a guest that never used the GPU", got)
			}
		}
		for range 100 {
			n.Observe(Seen{Used: float64(10 * time.Millisecond)}, keep)
		}
		if got := n.Demand(); got < 0.99 {
			t.Fatalf("demand %v of a guest that uses the GPU by now", got)
		}
	})
}
