package scheduler

import (
	"testing"
	"time"

	"vgpud/fairshare"
)

// TestMaxOverhead: another bound of policy ffs takes effect at once. A turn of ffs is as long as
// its bound says: T = ΣO / (max_overhead · ΣW).
func TestMaxOverhead(t *testing.T) {
	s := newScene(t).sched
	if err := s.SetPolicy("ffs"); err != nil {
		t.Fatal(err)
	}
	turn := func() time.Duration {
		st := fairshare.State{SMs: 16}
		for id := range fairshare.GuestID(2) {
			st.Guests = append(st.Guests, fairshare.Guest{ID: id + 1, Weight: 1, Active: true, Backlogged: true})
			st.Launches = append(st.Launches, fairshare.Launch{ID: fairshare.LaunchID(id + 1), Guest: id + 1, Evictable: true, EvictionCost: 100 * time.Microsecond})
		}
		_, next := s.policy.Decide(0, fairshare.Event{Kind: fairshare.Arrived, Guest: 1, Launch: 1}, st)
		return next
	}
	for _, test := range []struct {
		bound float64
		want  time.Duration
	}{{0.05, 2 * ms}, {0, ms}, {0.02, 5 * ms}} {
		if err := s.SetMaxOverhead(test.bound); err != nil {
			t.Fatal(err)
		}
		if got := turn(); got != test.want {
			t.Errorf("max_overhead %v: a turn of %v, want %v", test.bound, got, test.want)
		}
	}
}
