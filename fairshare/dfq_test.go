package fairshare_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"vgpud/fairshare"
)

const (
	us = time.Microsecond
	ms = time.Millisecond
)

// backlogged draws guests that always have work.
func backlogged(t *rapid.T, most int) []*simGuest {
	guests := make([]*simGuest, rapid.IntRange(2, most).Draw(t, "guests"))
	for i := range guests {
		guests[i] = &simGuest{
			weight: float64(rapid.IntRange(1, 8).Draw(t, "weight")),
			length: time.Duration(rapid.IntRange(200, 3000).Draw(t, "kernel µs")) * us,
		}
	}
	return guests
}

// off is the largest distance of a guest's share from its entitlement.
func off(s *simGPU, used, dry []float64) float64 {
	var worst float64
	for i, e := range fairshare.Entitled(s.weights(), used, dry) {
		worst = max(worst, math.Abs(used[i]-e))
	}
	return worst
}

// Saturating guests get shares by weight over any second, whatever the lengths
// of their kernels, and the GPU is never idle.
func TestDFQHoldsWeights(t *testing.T) {
	for _, test := range []struct {
		name          string
		measured      bool
		second, whole float64
	}{
		{name: "quiet time measured", measured: true, second: 0.03, whole: 0.01},
		{name: "quiet time estimated", second: 0.08, whole: 0.03},
	} {
		t.Run(test.name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				s := newSim("dfq", test.measured, rapid.Uint64().Draw(t, "seed"), backlogged(t, 8)...)
				used, dry := s.use(func() {
					for range 4 {
						used, dry := s.use(s.rounds(time.Second))
						if o := off(s, used, dry); o > test.second {
							t.Errorf("a second with shares %.3f, weights %v: off by %.1f points", used, s.weights(), 100*o)
						}
					}
				})
				if o := off(s, used, dry); o > test.whole {
					t.Errorf("shares %.3f, weights %v: off by %.1f points over all", used, s.weights(), 100*o)
				}
				if s.idle > 0 {
					t.Errorf("idle for %v while all had work", s.idle)
				}
			})
		})
	}
}

// A guest that was away has saved nothing: once back it gets its share, not
// more.
func TestDFQSavesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		guests := backlogged(t, 5)
		s := newSim("dfq", rapid.Bool().Draw(t, "measured"), rapid.Uint64().Draw(t, "seed"), guests...)
		guests[0].attend = false
		s.rounds(time.Duration(rapid.IntRange(0, 2000).Draw(t, "away ms")) * ms)()
		guests[0].attend = true
		s.rounds(100 * ms)()
		used, dry := s.use(s.rounds(2 * time.Second))
		if o := off(s, used, dry); o > 0.05 {
			t.Errorf("back after being away: shares %.3f, weights %v", used, s.weights())
		}
	})
}

// A guest that can't use its share doesn't hold the others back.
func TestDFQLeavesTheGPUNoIdler(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		guests := append(backlogged(t, 4), &simGuest{
			weight: float64(rapid.IntRange(4, 8).Draw(t, "its weight")),
			length: time.Duration(rapid.IntRange(20, 100).Draw(t, "its kernel µs")) * us,
			think:  time.Duration(rapid.IntRange(5, 40).Draw(t, "its sleep ms")) * ms,
		})
		s := newSim("dfq", rapid.Bool().Draw(t, "measured"), rapid.Uint64().Draw(t, "seed"), guests...)
		s.rounds(500 * ms)()
		used, dry := s.use(s.rounds(2 * time.Second))
		if s.idle > 0 {
			t.Errorf("idle for %v", s.idle)
		}
		if o := off(s, used, dry); o > 0.08 {
			t.Errorf("shares %.3f, dry %.2f, weights %v", used, dry, s.weights())
		}
		if s.guests[len(s.guests)-1].held {
			t.Error("the guest that uses next to nothing is suspended")
		}
	})
}

// A guest that always shows work but makes the GPU do little or none of it has
// hardly anybody suspended for its sake.
func TestDFQIsNotFooledByABacklog(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		guests := append(backlogged(t, 4), &simGuest{
			weight:  float64(rapid.IntRange(1, 8).Draw(t, "its weight")),
			length:  time.Duration(rapid.IntRange(20, 100).Draw(t, "its kernel µs")) * us,
			think:   rapid.SampledFrom([]time.Duration{10 * ms, 40 * ms, time.Hour}).Draw(t, "its sleep"),
			pretend: true,
		})
		last := guests[len(guests)-1]
		if last.think == time.Hour {
			last.ready = time.Hour
		}
		s := newSim("dfq", rapid.Bool().Draw(t, "measured"), rapid.Uint64().Draw(t, "seed"), guests...)
		s.rounds(500 * ms)()
		before := s.idle
		s.rounds(2 * time.Second)()
		idle := s.idle - before
		if most := 400 * ms; idle > most {
			t.Errorf("idle for %v of 2s, want at most %v", idle, most)
		}
		if last.ready == time.Hour && idle > 0 {
			t.Errorf("idle for %v for the sake of a guest that never executes", idle)
		}
	})
}

// Weights may change at any time, and count from then on.
func TestDFQFollowsWeights(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSim("dfq", true, rapid.Uint64().Draw(t, "seed"), backlogged(t, 6)...)
		for range 3 {
			for _, g := range s.guests {
				g.weight = float64(rapid.IntRange(1, 8).Draw(t, "weight"))
				s.changed(g)
			}
			s.rounds(500 * ms)()
			used, dry := s.use(s.rounds(time.Second))
			if o := off(s, used, dry); o > 0.03 {
				t.Errorf("shares %.3f, weights %v: off by %.1f points", used, s.weights(), 100*o)
			}
		}
	})
}

// Guests join, leave, pause and change weight in any order: shares follow,
// nobody who is left alone stays suspended, and nobody gets far ahead.
func TestDFQUnderChange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSim("dfq", rapid.Bool().Draw(t, "measured"), rapid.Uint64().Draw(t, "seed"))
		next := fairshare.GuestID(1)
		pick := func(t *rapid.T) *simGuest {
			if len(s.guests) == 0 {
				t.Skip("no guests")
			}
			return rapid.SampledFrom(s.guests).Draw(t, "guest")
		}
		t.Repeat(map[string]func(*rapid.T){
			"join": func(t *rapid.T) {
				if len(s.guests) == 6 {
					t.Skip("enough guests")
				}
				g := &simGuest{id: next, attend: true, weight: float64(rapid.IntRange(1, 8).Draw(t, "weight")),
					length: time.Duration(rapid.IntRange(200, 3000).Draw(t, "kernel µs")) * us}
				next++
				s.guests = append(s.guests, g)
				s.changed(g)
			},
			"leave": func(t *rapid.T) {
				g := pick(t)
				for i := range s.guests {
					if s.guests[i] == g {
						s.guests = append(s.guests[:i], s.guests[i+1:]...)
						break
					}
				}
				if s.running == g {
					s.running = nil
				}
				s.turn = 0
				s.changed(g)
			},
			"pause or go on": func(t *rapid.T) { g := pick(t); g.attend = !g.attend },
			"weigh": func(t *rapid.T) {
				g := pick(t)
				g.weight = float64(rapid.IntRange(1, 8).Draw(t, "weight"))
				s.changed(g)
			},
			"run": func(t *rapid.T) { s.rounds(100 * ms)() },
			"": func(t *rapid.T) {
				if len(s.guests) == 0 {
					return
				}
				// Two rounds settle who is suspended; then the work of those
				// left must flow, and by weight.
				s.rounds(250 * ms)()
				idle := s.idle
				var wanting int
				for _, g := range s.guests {
					if s.wants(g) {
						wanting++
					}
				}
				used, dry := s.use(s.rounds(500 * ms))
				if wanting > 0 && s.idle > idle {
					t.Fatalf("idle for %v while %d guests wanted the GPU", s.idle-idle, wanting)
				}
				if o := off(s, used, dry); o > 0.12 {
					t.Fatalf("shares %.3f, dry %.2f, weights %v: off by %.1f points", used, dry, s.weights(), 100*o)
				}
			},
		})
	})
}
