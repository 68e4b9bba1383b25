package tokenbucket

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestBucket(t *testing.T) {
	p := Bucket{Every: 100, Burst: 3}
	// Three at once, then one in every 100.
	for i, want := range []time.Duration{1000, 1000, 1000, 1100, 1200} {
		at := p.Next(1000)
		if at != want {
			t.Errorf("start %d: at %d, want %d", i, at, want)
		}
		p.Take(at)
	}
	if at := p.Next(1250); at != 1300 {
		t.Errorf("then at %d, want 1300", at)
	}
	if at := p.Next(5000); at != 5000 {
		t.Errorf("after a rest at %d, want 5000", at)
	}
}

// TestBucketBounds checks that no period has more actions than burst and one in every.
func TestBucketBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Bucket{Every: time.Duration(rapid.IntRange(1, 50).Draw(t, "every")), Burst: rapid.IntRange(1, 5).Draw(t, "burst")}
		var now time.Duration
		var at []time.Duration
		for range 40 {
			now += time.Duration(rapid.IntRange(0, 60).Draw(t, "rest"))
			now = p.Next(now)
			p.Take(now)
			at = append(at, now)
		}
		for i := range at {
			for j := i; j < len(at); j++ {
				if most := p.Burst + int((at[j]-at[i])/p.Every); j-i+1 > most {
					t.Fatalf("%d times from %d to %d, want at most %d", j-i+1, at[i], at[j], most)
				}
			}
		}
	})
}
