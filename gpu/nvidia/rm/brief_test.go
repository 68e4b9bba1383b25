package rm

import (
	"testing"
	"time"
)

// TestBrevity: after a call that was not brief the next ones are made like any other, and
// then brief ones again.
func TestBrevity(t *testing.T) {
	var b brevity
	for range 10 {
		if !b.trusted() {
			t.Fatal("not trusted from the start")
		}
		b.took(10 * time.Microsecond)
	}
	for range 2 {
		b.took(briefly)
		for i := range wariness {
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
