package fairshare_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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

// entitledTo returns each guest's entitlement to the time that all used together: what it used if
// it had no work for more than a tenth of the time, and otherwise its part of the rest by weight.
func entitledTo(weights, used, noWork []float64) []float64 {
	demands := make([]float64, len(weights))
	var all float64
	for _, u := range used {
		all += u
	}
	for i := range demands {
		demands[i] = 1
		if noWork[i] > 0.1 && all > 0 {
			demands[i] = used[i] / all
		}
	}
	parts := fairshare.Entitlement(weights, demands, nil)
	for i := range parts {
		parts[i] *= all
	}
	return parts
}

// off returns the largest distance of a guest's share from its entitlement.
func off(s *simGPU, used, noWork []float64) float64 {
	var worst float64
	for i, e := range entitledTo(s.weights(), used, noWork) {
		worst = max(worst, math.Abs(used[i]-e))
	}
	return worst
}

// TestDFQHoldsWeights tests that saturating guests get shares by weight over any second, whatever
// the lengths of their kernels, and that the GPU is never idle.
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
				used, noWork := s.use(func() {
					for range 4 {
						used, noWork := s.use(s.rounds(time.Second))
						if o := off(s, used, noWork); o > test.second {
							t.Errorf("a second with shares %.3f, weights %v: off by %.1f points", used, s.weights(), 100*o)
						}
					}
				})
				if o := off(s, used, noWork); o > test.whole {
					t.Errorf("shares %.3f, weights %v: off by %.1f points over all", used, s.weights(), 100*o)
				}
				if s.idle > 0 {
					t.Errorf("idle for %v while all had work", s.idle)
				}
			})
		})
	}
}

// TestDFQSavesNothing tests that a guest that was inactive has saved nothing: when it returns it
// gets its share, not more.
func TestDFQSavesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		guests := backlogged(t, 5)
		s := newSim("dfq", rapid.Bool().Draw(t, "measured"), rapid.Uint64().Draw(t, "seed"), guests...)
		guests[0].attached = false
		s.rounds(time.Duration(rapid.IntRange(0, 2000).Draw(t, "away ms")) * ms)()
		guests[0].attached = true
		s.rounds(100 * ms)()
		used, noWork := s.use(s.rounds(2 * time.Second))
		if o := off(s, used, noWork); o > 0.05 {
			t.Errorf("back after being away: shares %.3f, weights %v", used, s.weights())
		}
	})
}

// TestDFQLeavesTheGPUNoIdler tests that a guest that can't use its share doesn't hold the others
// back.
func TestDFQLeavesTheGPUNoIdler(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		guests := append(backlogged(t, 4), &simGuest{
			weight: float64(rapid.IntRange(4, 8).Draw(t, "its weight")),
			length: time.Duration(rapid.IntRange(20, 100).Draw(t, "its kernel µs")) * us,
			think:  time.Duration(rapid.IntRange(5, 40).Draw(t, "its sleep ms")) * ms,
		})
		s := newSim("dfq", rapid.Bool().Draw(t, "measured"), rapid.Uint64().Draw(t, "seed"), guests...)
		s.rounds(500 * ms)()
		used, noWork := s.use(s.rounds(2 * time.Second))
		if s.idle > 0 {
			t.Errorf("idle for %v", s.idle)
		}
		if o := off(s, used, noWork); o > 0.08 {
			t.Errorf("shares %.3f, without work %.2f, weights %v", used, noWork, s.weights())
		}
		if s.guests[len(s.guests)-1].suspended {
			t.Error("the guest that uses next to nothing is suspended")
		}
	})
}

// TestDFQIsNotFooledByABacklog tests that hardly any guest is suspended for the sake of a guest
// that always shows work but gives the GPU little or none.
func TestDFQIsNotFooledByABacklog(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		guests := append(backlogged(t, 4), &simGuest{
			weight:  float64(rapid.IntRange(1, 8).Draw(t, "its weight")),
			length:  time.Duration(rapid.IntRange(20, 100).Draw(t, "its kernel µs")) * us,
			think:   rapid.SampledFrom([]time.Duration{ms, 2 * ms, 5 * ms, 10 * ms, 40 * ms, time.Hour}).Draw(t, "its sleep"),
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

// TestDFQWaitsOutGaps tests that a guest that has work, but whose next kernel is always a moment
// away, is not taken for such a guest. It gets most of its part even if others are suspended for it
// and the GPU is idle then.
func TestDFQWaitsOutGaps(t *testing.T) {
	for gap, least := range map[time.Duration]float64{50 * us: 0.46, 100 * us: 0.43, 200 * us: 0.39, 400 * us: 0.31} {
		g := &simGuest{weight: 4, length: 300 * us, think: gap, pretend: true}
		s := newSim("dfq", true, 1, &simGuest{weight: 1, length: 700 * us}, &simGuest{weight: 1, length: ms}, &simGuest{weight: 2, length: 900 * us}, g)
		s.rounds(500 * ms)()
		if used, _ := s.use(s.rounds(3 * time.Second)); used[3] < least {
			t.Errorf("with gaps of %v after each 300µs it gets %.3f of the half of the GPU that is its part, want %v", gap, used[3], least)
		}
	}
}

// pretender draws a guest that always shows work but gives the GPU little, and other guests that
// always have work.
func pretender(seed uint64, sleep time.Duration) (g *simGuest, others []*simGuest) {
	r := rand.New(rand.NewPCG(seed, 77))
	g = &simGuest{weight: float64(1 + r.IntN(8)), length: time.Duration(20+r.IntN(80)) * us, think: sleep, pretend: true}
	for range 2 + r.IntN(3) {
		others = append(others, &simGuest{weight: float64(1 + r.IntN(8)), length: time.Duration(200+r.IntN(2800)) * us})
	}
	return g, others
}

// TestDFQIsNotFooledByPauses tests that such a guest does not leave more of the GPU idle by pausing
// from time to time, either briefly or for so long that its estimate is forgotten.
func TestDFQIsNotFooledByPauses(t *testing.T) {
	idle := func(sleep, work, pause time.Duration) (mean float64) {
		const seeds = 8
		for seed := range uint64(seeds) {
			g, others := pretender(seed, sleep)
			s := newSim("dfq", true, seed, append(others, g)...)
			s.rounds(500 * ms)()
			start, before := s.now, s.idle
			for s.now < start+2*time.Second {
				s.rounds(work)()
				if pause > 0 {
					g.attached, g.pretend = false, false
					s.rounds(pause)()
					g.attached, g.pretend = true, true
				}
			}
			mean += float64(s.idle-before) / float64(s.now-start) / seeds
		}
		return mean
	}
	for _, sleep := range []time.Duration{2 * ms, 5 * ms, 10 * ms, 40 * ms} {
		without := idle(sleep, 100*ms, 0)
		for _, work := range []time.Duration{20 * ms, 60 * ms, 100 * ms, 400 * ms} {
			for _, pause := range []time.Duration{5 * ms, 30 * ms, 52 * ms, 80 * ms, 250 * ms} {
				if got, most := idle(sleep, work, pause), 1.05*without+0.002; got > most {
					t.Errorf("one that sleeps for %v and pauses for %v each %v leaves %.3f of the GPU idle, want at most %.3f", sleep, pause, work, got, most)
				}
			}
		}
	}
}

// TestDFQIsNotFooledByOthersPauses tests that the estimate of such a guest, which can only be
// measured beside others, is kept while the others have no work. The guest leaves no more of the
// GPU idle than beside guests that always have work.
func TestDFQIsNotFooledByOthersPauses(t *testing.T) {
	for _, c := range []struct{ work, pause time.Duration }{{50 * ms, 30 * ms}, {50 * ms, 300 * ms}, {100 * ms, 100 * ms}, {500 * ms, 300 * ms}} {
		var idle, worked time.Duration
		for seed := range uint64(20) {
			g, others := pretender(seed, time.Duration(5+seed*7%35)*ms)
			s := newSim("dfq", seed%2 == 0, seed, append(others, g)...)
			s.rounds(500 * ms)()
			for end := worked + 2*time.Second; worked < end; {
				start, before := s.now, s.idle
				s.rounds(c.work)()
				idle, worked = idle+s.idle-before, worked+s.now-start
				for _, o := range others {
					o.attached = false
				}
				s.rounds(c.pause)()
				for _, o := range others {
					o.attached = true
				}
			}
		}
		t.Logf("others work for %v, pause for %v: %.4f idle", c.work, c.pause, idle.Seconds()/worked.Seconds())
		if most := worked / 20; idle > most {
			t.Errorf("where others work for %v and pause for %v the GPU is idle for %v of the %v in which they work, want at most %v", c.work, c.pause, idle, worked, most)
		}
	}
}

// TestDFQHoldsNobodyWhereNobodyWorks tests that no guest stays suspended while no guest has work:
// the first one to return has the GPU at once.
func TestDFQHoldsNobodyWhereNobodyWorks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		guests := backlogged(t, 5)
		s := newSim("dfq", rapid.Bool().Draw(t, "measured"), rapid.Uint64().Draw(t, "seed"), guests...)
		s.rounds(time.Duration(rapid.IntRange(20, 500).Draw(t, "work ms")) * ms)()
		for _, g := range guests {
			g.attached = false
		}
		s.rounds(2 * (simPoll + simQuiet))()
		for i, g := range guests {
			if g.suspended {
				t.Errorf("guest %d is suspended", i)
			}
		}
	})
}

// TestDFQFollowsWeights tests that weights may change at any time, and apply from then on.
func TestDFQFollowsWeights(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSim("dfq", true, rapid.Uint64().Draw(t, "seed"), backlogged(t, 6)...)
		for range 3 {
			for _, g := range s.guests {
				g.weight = float64(rapid.IntRange(1, 8).Draw(t, "weight"))
				s.changed(g)
			}
			s.rounds(500 * ms)()
			used, noWork := s.use(s.rounds(time.Second))
			if o := off(s, used, noWork); o > 0.03 {
				t.Errorf("shares %.3f, weights %v: off by %.1f points", used, s.weights(), 100*o)
			}
		}
	})
}

// TestDFQUnderChange tests guests that join, leave, pause and change weight in any order. Shares
// follow, a guest left alone does not stay suspended, and no guest gets far ahead.
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
				g := &simGuest{id: next, attached: true, weight: float64(rapid.IntRange(1, 8).Draw(t, "weight")),
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
			"pause or go on": func(t *rapid.T) { g := pick(t); g.attached = !g.attached },
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
				// Two rounds settle which guests are suspended. Then the work of the other guests
				// must make progress, by weight.
				s.rounds(250 * ms)()
				idle := s.idle
				var wanting int
				for _, g := range s.guests {
					if s.wants(g) {
						wanting++
					}
				}
				used, noWork := s.use(s.rounds(500 * ms))
				if wanting > 0 && s.idle > idle {
					t.Fatalf("idle for %v while %d guests wanted the GPU", s.idle-idle, wanting)
				}
				if o := off(s, used, noWork); o > 0.12 {
					t.Fatalf("shares %.3f, without work %.2f, weights %v: off by %.1f points", used, noWork, s.weights(), 100*o)
				}
			},
		})
	})
}

// TestDFQBesideThrottles repeats LoGA's figure 11 with kernels that run to their end: a program
// that always has work runs beside four guests that pause 800 µs after each 200 µs, and so could
// only just use their parts if they never waited. The policy waits for them all the same. The GPU
// time that they leave idle meanwhile is charged to them. So the program gets somewhat more than each
// of them and is about as slow as is fair (§5.5). None of them is suspended, since it takes nothing
// of the others' parts.
func TestDFQBesideThrottles(t *testing.T) {
	for _, kernel := range []time.Duration{200 * us, ms, 4 * ms} {
		beside := func(policy string) (s *simGPU, used []float64) {
			guests := []*simGuest{{weight: 1, length: kernel}}
			for i := range 4 {
				guests = append(guests, &simGuest{weight: 1, length: 200 * us, think: 800 * us, ready: time.Duration(i) * 300 * us})
			}
			s = newSim(policy, false, 1, guests...)
			s.rounds(time.Second)()
			used, _ = s.use(s.rounds(10 * time.Second))
			return s, used
		}
		_, free := beside("none")
		fair := 0.0
		for _, u := range free {
			fair += u / float64(len(free))
		}
		s, used := beside("dfq")
		var throttles float64
		for _, u := range used[1:] {
			throttles += u / 4
		}
		if turn := fair / used[0]; turn > 1.01 || turn < 0.9 {
			t.Errorf("kernels of %v have %.3f beside %.3f for each throttle: its turnaround is %.3f of what is fair", kernel, used[0], throttles, turn)
		}
		if n := s.suspensionsFrom(1); n > 5 {
			t.Errorf("kernels of %v: the throttles are suspended %d times", kernel, n)
		}
	}
}

// TestDFQLevelsThrottles tests that errors in estimating what guests that pause use do not add up to
// leads among them. None of them could use what another one has left.
func TestDFQLevelsThrottles(t *testing.T) {
	throttles, all := 0, 0
	for seed := range uint64(8) {
		for _, kernel := range []time.Duration{400 * us, 800 * us} {
			guests := []*simGuest{{weight: 1, length: kernel, think: kernel / 2}}
			for i := range 4 {
				guests = append(guests, &simGuest{weight: 1, length: 200 * us, think: 800 * us, ready: time.Duration(i) * 300 * us})
			}
			s := newSim("dfq", false, seed, guests...)
			s.rounds(time.Second)()
			before := s.suspensionsFrom(1)
			s.rounds(30 * time.Second)()
			throttles += s.suspensionsFrom(1) - before
			all += s.suspensionsFrom(0)
		}
	}
	if throttles > all/1000 {
		t.Errorf("the throttles are suspended %d times, all guests %d times", throttles, all)
	}
}

// TestDFQLetsPausesPass tests that a guest that pauses, but could use much more than its part by
// weight, gets its part beside guests with long kernels that always have work. The others are
// suspended for it most of the time, and the GPU is idle while it pauses.
func TestDFQLetsPausesPass(t *testing.T) {
	for _, measured := range []bool{false, true} {
		long := func(weight float64, length time.Duration) *simGuest { return &simGuest{weight: weight, length: length} }
		s := newSim("dfq", measured, 1, long(4, 4*ms), long(2, 2*ms), long(4, 6*ms), long(2, ms), long(4, 3*ms),
			&simGuest{weight: 2, length: 300 * us, think: 300 * us})
		s.rounds(time.Second)()
		used, noWork := s.use(s.rounds(10 * time.Second))
		var all float64
		for _, u := range used {
			all += u
		}
		// Without work for more than a tenth of the time, it is entitled to no more than it uses.
		if part := used[5] / all * 18 / 2; part < 0.85 && noWork[5] < 0.1 {
			t.Errorf("measured %v: it has %.3f of its part, of %.3f, without work for %.3f of the time", measured, part, used, noWork[5])
		}
	}
}

// suspensionsFrom returns how often the guests from index first on were suspended.
func (s *simGPU) suspensionsFrom(first int) (n int) {
	for _, g := range s.guests[first:] {
		n += g.suspensions
	}
	return n
}

// TestDFQLooksAgainAfterQuiet tests that, if all of the quiet time is measured, a guest with which
// the others have caught up in that time is resumed at its end.
func TestDFQLooksAgainAfterQuiet(t *testing.T) {
	p, err := fairshare.New("dfq", fairshare.Options{})
	if err != nil {
		t.Fatal(err)
	}
	suspended := false
	decide := func(kind fairshare.PhaseKind, length time.Duration, used ...time.Duration) []fairshare.Verdict {
		st := fairshare.State{Round: 6 * ms}
		for i, u := range used {
			st.Guests = append(st.Guests, fairshare.Guest{
				ID: fairshare.GuestID(i + 1), Weight: 1, Active: true, Backlogged: true, Used: u, Runs: 1, Suspended: i == 0 && suspended,
			})
		}
		verdicts, _ := p.Decide(0, fairshare.Event{Phase: kind, Length: length, Watched: length}, st)
		return slices.Clone(verdicts)
	}
	decide(fairshare.QuietPhase, 5*ms, 5*ms, 0)
	got := decide(fairshare.PollPhase, ms, ms, 0)
	if diff := cmp.Diff([]fairshare.Verdict{{Guest: 1, Action: fairshare.Suspend}}, got); diff != "" {
		t.Fatalf("verdicts (-want +got):\n%s", diff)
	}
	suspended = true
	got = decide(fairshare.QuietPhase, 5*ms, 0, 5*ms)
	if diff := cmp.Diff([]fairshare.Verdict{{Guest: 1, Action: fairshare.Resume}}, got); diff != "" {
		t.Errorf("verdicts (-want +got):\n%s", diff)
	}
}
