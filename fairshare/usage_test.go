package fairshare

import (
	"math"
	"testing"
	"time"
)

// TestPauses tests that a pause counts as time without work for no longer than the guest had worked
// before, less what earlier pauses counted for, and for at most a lull.
func TestPauses(t *testing.T) {
	const ms = time.Millisecond
	type step struct{ work, pause, counts time.Duration }
	for _, test := range []struct {
		name  string
		steps []step
	}{
		{"shorter than what was before", []step{{5 * ms, 3 * ms, 3 * ms}}},
		{"longer", []step{{2 * ms, 9 * ms, 2 * ms}}},
		{"one and another", []step{{5 * ms, 3 * ms, 3 * ms}, {5 * ms, 4 * ms, 4 * ms}}},
		{"the second is longer than what the first left", []step{{5 * ms, 4 * ms, 4 * ms}, {ms, 9 * ms, 2 * ms}}},
		{"after long work", []step{{900 * ms, lull - ms, lull - ms}}},
		{"long work is for one pause", []step{{900 * ms, lull - ms, lull - ms}, {ms, lull - ms, 2 * ms}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var u usage
			var want float64
			pass := func(active bool, d, counts time.Duration) {
				for ; d > 0; d -= ms {
					u.observe(&Guest{Active: active, Backlogged: active}, phaseUse{contended: true, factor: 1, length: ms, round: time.Hour, keep: fade(ms)})
					want = want*math.Exp(-float64(ms)/float64(memory)) + float64(min(counts, ms))
					counts -= min(counts, ms)
				}
			}
			for _, s := range test.steps {
				pass(true, s.work, 0)
				pass(false, s.pause, s.counts)
			}
			if math.Abs(u.noWork-want) > 1 {
				t.Errorf("pauses count for %v, want %v", time.Duration(u.noWork), time.Duration(want))
			}
		})
	}
}

// TestDemandBesideOthers tests that the part of an unmeasured quiet phase in which a guest had no
// work does not also count as left unused by it, through the polling phase that stands for the
// quiet phase.
func TestDemandBesideOthers(t *testing.T) {
	const ms = time.Millisecond
	var u usage
	for range 100 {
		// It executes for a fifth of all time, and no guest executes while it has no work.
		u.observe(&Guest{Active: true, Backlogged: true, NoWork: 16 * ms}, phaseUse{contended: true, factor: 1, length: 20 * ms, round: 24 * ms, keep: fade(20 * ms)})
		const poll, factor = 5 * ms, 5
		used, idle := float64(poll)/5, 4*float64(poll)/5
		u.observe(&Guest{Active: true, Backlogged: true, NoWork: 4 * ms}, phaseUse{used: factor * used, unused: factor * idle, contended: true, factor: factor, length: poll, round: 24 * ms, keep: fade(poll)})
	}
	if got, want := u.demand(), 0.2; math.Abs(got-want) > 0.02 {
		t.Errorf("demands %.3f of the GPU, want %v", got, want)
	}
}
