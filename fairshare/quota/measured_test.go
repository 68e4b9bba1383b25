package quota

import (
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestMost lists what may have been used for what was measured.
func TestMost(t *testing.T) {
	const s = time.Second
	for name, c := range map[string]struct {
		m    Measured
		want time.Duration
	}{
		"nobody timed kernels":                           {Measured{Charged: 10 * s, Variance: 1e18}, 10 * s},
		"more was executed, which the error explains":    {Measured{Charged: 10 * s, Executed: 11 * s, Variance: 1e18}, 11 * s},
		"more than that: others had turns in between":    {Measured{Charged: 10 * s, Executed: 20 * s, Variance: 1e18}, 13 * s},
		"a charge without an error":                      {Measured{Charged: 10 * s, Executed: 20 * s}, 10 * s},
		"less was executed, as kernels are not all that": {Measured{Charged: 10 * s, Executed: 9 * s, Variance: 1e18}, 10 * s},
		"a file says nonsense":                           {Measured{Charged: s, Executed: 5 * s, Variance: -1e18}, s},
		"a sum at its bound":                             {Measured{Charged: maxUsed, Executed: maxUsed, Variance: maxVariance}, maxUsed},
	} {
		if got := c.m.Most(); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestSampledBudget runs guests whose use is seen at one instant of each interval until their budgets
// are spent, alone on the GPU or not. Where kernels' times are exact none has used more than its
// budget and a round; where the GPU took turns within kernels, the bound on the charge's error keeps
// nearly all of them within that. None is held earlier than its error explains.
func TestSampledBudget(t *testing.T) {
	const interval, perRound = 600 * time.Microsecond, 20
	for _, turns := range []int{1, 3} {
		r := rand.New(rand.NewPCG(1, uint64(turns)))
		b, starts := Budget{Hard: time.Second}, new(Calendar).Starts(time.Unix(0, 0))
		beyond, worst, least := 0, time.Duration(0), b.Hard
		const guests = 300
		for range guests {
			var a Account
			part := 0.1 + 0.9*r.Float64()
			used := time.Duration(0)
			for {
				if l, _ := a.Judge(b, starts, 0); l == OverHard {
					break
				}
				charged, did := time.Duration(0), time.Duration(0)
				for range perRound {
					did += time.Duration(part * float64(interval))
					if r.Float64() < part {
						charged += interval
					}
				}
				used += did
				m := Sampled(charged, interval, part)
				m.Executed = time.Duration(turns) * did
				a.Charge(starts, m)
			}
			if over := used - b.Hard; over > perRound*interval {
				beyond++
				worst = max(worst, over)
			}
			least = min(least, used)
		}
		if allowed := (turns - 1) * guests / 20; beyond > allowed {
			t.Errorf("%d turns a kernel: %d of %d guests are beyond their budgets by more than a round, %v at worst; want %d", turns, beyond, guests, worst, allowed)
		}
		if bound := b.Hard - 150*time.Millisecond; least < bound {
			t.Errorf("%d turns a kernel: a guest was held after %v, want %v", turns, least, bound)
		}
	}
}

// TestTotals tests that what was used since a total, added to that, is the new total, and that a
// total that went back has used nothing.
func TestTotals(t *testing.T) {
	draw := rapid.Custom(func(t *rapid.T) Measured {
		return Measured{
			Charged: time.Duration(rapid.Int64Range(0, 1<<40).Draw(t, "charged")), Executed: time.Duration(rapid.Int64Range(0, 1<<40).Draw(t, "executed")),
			Variance: float64(rapid.IntRange(0, 1<<40).Draw(t, "variance")),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := draw.Draw(t, "a"), draw.Draw(t, "b")
		if got := a.Add(b.Since(a)); got != a.Max(b) {
			t.Fatalf("from %+v to %+v is %+v", a, b, got)
		}
		if got := b.Add(a).Since(a); got != b {
			t.Fatalf("%+v added is %+v", b, got)
		}
	})
}

// TestReached tests that what commands on the GPU will use counts for a hard limit, that a limit that
// was reached by it stays reached though they used less, and that a higher limit, and the next
// period, end that.
func TestReached(t *testing.T) {
	const s = time.Second
	var a Account
	var c Calendar
	day := c.Starts(instant(t, "2026-11-24T12:00:00Z"))
	b := Budget{Soft: 5 * s, Hard: 10 * s}
	judge := func(b Budget, at Starts, coming time.Duration, want Level, wantNews bool) {
		t.Helper()
		if l, news := a.Judge(b, at, coming); l != want || news != wantNews || a.Level(b, at) != want {
			t.Errorf("%v with %v coming: %v, news %v; want %v, %v", b, coming, l, news, want, wantNews)
		}
	}
	judge(b, day, 20*s, Within, false) // nothing was used
	a.Charge(day, Measured{Charged: 4 * s})
	judge(b, day, 5*s, Within, false)
	judge(b, day, 6*s, OverHard, true)
	judge(b, day, 0, OverHard, false)
	judge(Budget{Hard: 9 * s}, day, 0, OverHard, false)
	judge(Budget{Hard: 11 * s}, day, 0, Within, false)
	judge(b, c.Starts(instant(t, "2026-11-25T12:00:00Z")), 20*s, Within, false)
	judge(b, day, 0, OverHard, true) // the clock came back
}
