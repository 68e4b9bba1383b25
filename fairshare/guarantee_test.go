package fairshare_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"vgpud/fairshare"
)

// guaranteed draws guests that pause after each kernel, or don't. Their guarantees together take at
// most 0.9 of the time in which they have the GPU for themselves.
func guaranteed(t *rapid.T, most int) (guests []*simGuest) {
	left := 0.9
	for range rapid.IntRange(1, most).Draw(t, "guaranteed") {
		g := &simGuest{weight: 0.5, length: time.Duration(rapid.IntRange(50, 4000).Draw(t, "its kernel µs")) * us}
		g.think = time.Duration(float64(g.length) * float64(rapid.IntRange(0, 20).Draw(t, "its pause, in tenths")) / 10)
		part := left * part(t, 20, 100, "part of what is left")
		left -= part
		g.quota.Guarantee = part * float64(g.length) / float64(g.length+g.think)
		guests = append(guests, g)
	}
	return guests
}

// lacks checks that guests with guarantees have had them, of the time in which they had work.
func lacks(t *rapid.T, guests []*simGuest, used, noWork []float64, tolerated float64) {
	for i, g := range guests {
		if want := g.quota.Guarantee * (1 - noWork[i]); used[i] < want-tolerated {
			t.Errorf("guest %d, kernels of %v and pauses of %v: used %.3f with a guarantee of %.3f in the %.3f of the time in which it had work",
				i, g.length, g.think, used[i], g.quota.Guarantee, 1-noWork[i])
		}
	}
}

// TestGuaranteesOfGuestsThatPause tests that guests that launch one kernel at a time, with pauses,
// have their guarantees beside each other's long kernels and beside guests that always have work.
// Each waits for most of the time, in which it seems to need little.
func TestGuaranteesOfGuestsThatPause(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		policy := rapid.SampledFrom([]string{"none", "dfq"}).Draw(t, "policy")
		guests := guaranteed(t, 4)
		all := append(guests[:len(guests):len(guests)], backlogged(t, 4)...)
		s := newSim(policy, rapid.Bool().Draw(t, "measured"), rapid.Uint64().Draw(t, "seed"), all...)
		s.rounds(500 * ms)()
		used, noWork := s.use(s.rounds(5 * time.Second))
		lacks(t, guests, used, noWork, 0.02)
	})
}

// TestGuaranteeAfterEachPause tests that a guest which computes for a while, and then does not, has
// its guarantee from the beginning of each such while, whatever its pause and its last kernels
// before it looked like.
func TestGuaranteeAfterEachPause(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		policy := rapid.SampledFrom([]string{"none", "dfq"}).Draw(t, "policy")
		g := &simGuest{weight: 0.5, length: time.Duration(rapid.IntRange(50, 2000).Draw(t, "its kernel µs")) * us, quota: fairshare.Quota{Guarantee: part(t, 10, 80, "guarantee")}}
		others := backlogged(t, 8)
		s := newSim(policy, rapid.Bool().Draw(t, "measured"), rapid.Uint64().Draw(t, "seed"), append([]*simGuest{g}, others...)...)
		on := time.Duration(rapid.IntRange(200, 1000).Draw(t, "computes for ms")) * ms
		off := time.Duration(rapid.IntRange(20, 1000).Draw(t, "pauses for ms")) * ms
		used, noWork := s.use(func() {
			for range 6 {
				g.attached = true
				s.rounds(on)()
				g.attached = false
				// Some others pause as well, so that the GPU is idle at times.
				for i, o := range others {
					o.attached = i%2 == 0 || rapid.Bool().Draw(t, "goes on")
				}
				s.rounds(off)()
			}
		})
		// At the beginning of each time it lacks what is tolerated, and what passes until that is
		// noticed.
		lacks(t, []*simGuest{g}, used, noWork, 0.02+6*0.05/(6*(on+off).Seconds()))
	})
}

// lateGuest draws a guest with kernels that wait, of which some are late by several times the length of
// a phase: the host has no processor for its executor. That is at most a part of the time that the
// guest has for itself, and the GPU is idle then.
func lateGuest(t *rapid.T, least, most int) *simGuest {
	g := &simGuest{weight: 0.5, length: time.Duration(rapid.IntRange(100, 500).Draw(t, "its kernel µs")) * us, stall: time.Duration(rapid.IntRange(5, 15).Draw(t, "late by ms")) * ms}
	late := part(t, least, most, "late of its time")
	g.stalls = late / (1 - late) * float64(g.length) / float64(g.stall)
	return g
}

// TestGuaranteeOnABusyHost tests that a guest whose kernels wait all the time has its guarantee over any
// five seconds although some are late. All time is measured here: an estimate from a sixth of it misses
// some of these times and counts others six times.
func TestGuaranteeOnABusyHost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		policy := rapid.SampledFrom([]string{"none", "dfq"}).Draw(t, "policy")
		g := lateGuest(t, 2, 15)
		g.quota.Guarantee = part(t, 20, 60, "guarantee")
		s := newSim(policy, true, rapid.Uint64().Draw(t, "seed"), append([]*simGuest{g}, backlogged(t, 4)...)...)
		s.rounds(500 * ms)()
		used, _ := s.use(s.rounds(5 * time.Second))
		lacks(t, []*simGuest{g}, used, []float64{0}, 0.02)
	})
}

// TestGuaranteeOfOneThatLeavesMuch tests that a guest whose kernels are late for a good part of its time
// lacks that of its guarantee, and not its pauses besides, of which it is owed nothing anyway.
func TestGuaranteeOfOneThatLeavesMuch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		policy := rapid.SampledFrom([]string{"none", "dfq"}).Draw(t, "policy")
		g := lateGuest(t, 40, 50)
		g.think = g.length * time.Duration(rapid.IntRange(20, 50).Draw(t, "its pause, in hundredths")) / 100
		g.quota.Guarantee = part(t, 20, 30, "guarantee")
		s := newSim(policy, true, rapid.Uint64().Draw(t, "seed"), append([]*simGuest{g}, backlogged(t, 4)...)...)
		s.rounds(500 * ms)()
		idled, begun := g.idled, s.now
		used, noWork := s.use(s.rounds(5 * time.Second))
		used[0] += float64(g.idled-idled) / float64(s.now-begun)
		lacks(t, []*simGuest{g}, used, noWork, 0.02)
	})
}
