package quota

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// round is a round's length in these tests.
const round = 24 * time.Millisecond

// phases splits a round into a watched and a quiet phase.
func phases(t *rapid.T) []time.Duration {
	poll := time.Duration(rapid.Int64Range(int64(time.Millisecond), int64(round)-1).Draw(t, "poll"))
	return []time.Duration{poll, round - poll}
}

// TestNeverAboveTheCap runs a guest that takes as much as it may in each round, with pauses and
// other guests that keep it from the GPU. Over any time since it began it has used its cap and what
// the bucket holds, and at most one round more.
func TestNeverAboveTheCap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := Quota{Cap: float64(rapid.IntRange(1, 99).Draw(t, "cap")) / 100}
		var m Meter
		var now time.Duration
		used := []float64{0} // at the end of each round
		for range rapid.IntRange(1, 400).Draw(t, "rounds") {
			took := 0.0
			works := float64(rapid.IntRange(0, 2).Draw(t, "works")) / 2
			for _, length := range phases(t) {
				u := Use{Works: works, Demand: 1}
				if m.Standing() != Capped {
					u.Used = rapid.Float64Range(0, 1).Draw(t, "part") * float64(length)
				}
				took += u.Used
				m.Charge(q, u, u.Used, length, round)
				now += length
			}
			m.Judge(q, works > 0, round/2, now)
			used = append(used, used[len(used)-1]+took)
		}
		saved := max(creditRounds*float64(round), float64(maxCredit))
		for i := range used {
			for j := i + 1; j < len(used); j++ {
				length := float64(j-i) * float64(round)
				if got, most := used[j]-used[i], q.Cap*(length+saved)+float64(round); got > most+1 {
					t.Fatalf("used %v in %d rounds with a cap of %v: want at most %v", time.Duration(got), j-i, q.Cap, time.Duration(most))
				}
			}
		}
	})
}

// TestGuaranteeHoldsUnderAnyLoad runs a guest that always has work beside a load that takes any
// part of the GPU that it may. Over any time the guest lacks of its guarantee at most what is
// tolerated and two rounds: one until that is noticed, one until the others are off the GPU.
func TestGuaranteeHoldsUnderAnyLoad(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := Quota{Guarantee: float64(rapid.IntRange(1, 100).Draw(t, "guarantee")) / 100}
		var m Meter
		var now time.Duration
		lacked, most := 0.0, 0.0 // since the time when it had most
		for range rapid.IntRange(1, 400).Draw(t, "rounds") {
			for _, length := range phases(t) {
				mine := 1.0 // while the others are suspended
				if m.Standing() != Behind {
					mine = rapid.Float64Range(0, 1).Draw(t, "left by the others")
				}
				u := Use{Used: mine * float64(length), Works: 1, Demand: 1}
				m.Charge(q, u, float64(length), length, round)
				now += length
				lacked = max(lacked+q.Guarantee*float64(length)-u.Used, 0)
				most = max(most, lacked)
			}
			m.Judge(q, true, round/2, now)
		}
		// Time above its guarantee before counts for surplusRounds.
		if bound := (0.5 + 2 + surplusRounds) * float64(round); most > bound {
			t.Fatalf("lacks %v at worst, want at most %v", time.Duration(most), time.Duration(bound))
		}
	})
}

// TestUnusedGuaranteeLapses tests that a guest without work is owed nothing, however long it has
// none.
func TestUnusedGuaranteeLapses(t *testing.T) {
	var m Meter
	q := Quota{Guarantee: 0.5}
	for i := range 1000 {
		m.Charge(q, Use{Demand: 1}, float64(round), round, round)
		if m.Judge(q, true, round/2, time.Duration(i)*round); m.Standing() != Free {
			t.Fatalf("standing %v after %d rounds without work", m.Standing(), i)
		}
	}
}

// TestLift tests that a bound that is taken back leaves nothing behind.
func TestLift(t *testing.T) {
	capped, behind := Quota{Cap: 0.1}, Quota{Guarantee: 0.9}
	var m Meter
	m.Charge(capped, Use{Used: 1e9, Works: 1, Demand: 1}, 1e9, time.Second, round)
	if m.Judge(capped, true, round/2, time.Second); m.Standing() != Capped || !m.Barred() {
		t.Fatalf("standing %v", m.Standing())
	}
	if m.Lift(Quota{}); m.Standing() != Free || m.Barred() {
		t.Errorf("without the cap: standing %v, barred %v", m.Standing(), m.Barred())
	}
	m = Meter{}
	m.Charge(behind, Use{Works: 1, Demand: 1}, 1e9, time.Second, round)
	if m.Judge(behind, true, round/2, time.Second); m.Standing() != Behind {
		t.Fatalf("standing %v", m.Standing())
	}
	if m.Lift(Quota{}); m.Standing() != Free {
		t.Errorf("without the guarantee: standing %v", m.Standing())
	}
}

// TestOverdraftEnds tests that use that can't be, such as of years, keeps a guest off the GPU for
// as long as a cap may, and no longer.
func TestOverdraftEnds(t *testing.T) {
	var m Meter
	q := Quota{Cap: 0.1}
	m.Charge(q, Use{Used: 1e18, Works: 1, Demand: 1}, 1e18, time.Second, round)
	now, capped := time.Second, time.Duration(0)
	for range 200 {
		now += 10 * time.Second
		if m.Judge(q, true, round/2, now); m.Standing() == Capped {
			capped += 10 * time.Second
		}
		m.Charge(q, Use{Works: 1, Demand: 1}, 0, 10*time.Second, round)
	}
	if capped < maxOverdraft-time.Minute || capped > maxOverdraft+time.Minute {
		t.Errorf("capped for %v, want about %v", capped, maxOverdraft)
	}
}

// TestSavesWhatOthersKeep tests that a guest that pauses after each kernel, and that others keep from
// the GPU meanwhile, may take later what its cap left, for a quarter of a second. Without others it
// saves no more than two rounds of it, and what it saved lapses while it has no work.
func TestSavesWhatOthersKeep(t *testing.T) {
	q := Quota{Cap: 0.3}
	credit := func(second, last Use) time.Duration {
		var m Meter
		for range int(time.Second / round) {
			m.Charge(q, second, float64(round), round, round)
		}
		for range int(maxCredit / round) {
			m.Charge(q, last, 0, round, round)
		}
		return time.Duration(m.Credit())
	}
	part := func(works, used float64) Use {
		return Use{Works: works, Used: used * float64(round), Demand: 0.4}
	}
	kept, rounds := time.Duration(q.Cap*float64(maxCredit)), time.Duration(q.Cap*creditRounds*float64(round))
	for name, c := range map[string]struct {
		second, last Use
		want         time.Duration
	}{
		"others keep it":                     {part(0.8, 0.1), part(0.8, 0.1), kept},
		"it has work all the time":           {part(1, 0.1), part(1, 0.1), kept},
		"it is alone, and uses little":       {part(0.1, 0.1), part(0.1, 0.1), rounds},
		"others kept it, and it has no work": {part(0.8, 0.1), part(0, 0), rounds},
	} {
		if got := credit(c.second, c.last); got < c.want-time.Millisecond || got > c.want+time.Millisecond+time.Duration(q.Cap*float64(round)) {
			t.Errorf("%s: %v saved, want %v", name, got, c.want)
		}
	}
}
