package rm

import (
	"testing"
	"time"
)

// TestBriefCalls checks that calls after a slow one are made the normal way, and later ones briefly
// again.
func TestBriefCalls(t *testing.T) {
	var b briefCalls
	for range 10 {
		if !b.trusted() {
			t.Fatal("not trusted from the start")
		}
		b.took(10 * time.Microsecond)
	}
	for range 2 {
		b.took(briefly)
		for i := range distrustCalls {
			if b.trusted() {
				t.Fatalf("trusted after %d calls", i)
			}
			b.took(10 * time.Microsecond)
		}
		if !b.trusted() {
			t.Fatal("never trusted again")
		}
	}
}
