package fairshare_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"vgpud/fairshare"
)

// entitled returns each guest's entitlement to the GPU, if every attached guest always has work.
func entitled(s *simGPU) []float64 {
	demands, quotas := make([]float64, len(s.guests)), make([]fairshare.Quota, len(s.guests))
	for i, g := range s.guests {
		if quotas[i] = g.quota; g.attached {
			demands[i] = 1
		}
	}
	return fairshare.Entitlement(s.weights(), demands, quotas)
}

// short returns the largest amount by which a guest got less than it is entitled to.
func short(used, entitled []float64) (worst float64) {
	for i, e := range entitled {
		worst = max(worst, e-used[i])
	}
	return worst
}

// TestDFQForgetsFormerTerms tests that a guest's lead under former weights and quotas is worth no
// more than a moment's GPU time once they have changed, although one weight can be a million times
// another.
func TestDFQForgetsFormerTerms(t *testing.T) {
	guarantee := func(part float64) fairshare.Quota { return fairshare.Quota{Guarantee: part} }
	lift := func(guests []*simGuest) {
		for _, g := range guests {
			g.weight, g.quota = 1, fairshare.Quota{}
		}
	}
	first := func(goes, comes int) func(guests []*simGuest) {
		return func(guests []*simGuest) {
			guests[goes].attached = false
			if comes > 0 {
				guests[comes].attached = true
			}
		}
	}
	for _, c := range []struct {
		name   string
		guests []simGuest
		away   int // the guest that joins only with the change; 0: none
		change func(guests []*simGuest)
	}{
		{"guarantees that leave a rounding error", []simGuest{{quota: guarantee(0.7)}, {quota: guarantee(0.3)}, {}}, 0, lift},
		{"guarantees that leave nothing", []simGuest{{quota: guarantee(0.3)}, {quota: guarantee(0.7)}, {}}, 0, lift},
		{"guarantees that leave little", []simGuest{{quota: guarantee(0.7)}, {quota: guarantee(0.2999)}, {}}, 0, lift},
		{"one of the guaranteed goes", []simGuest{{quota: guarantee(0.7)}, {quota: guarantee(0.3)}, {}}, 0, first(0, 0)},
		{"weights", []simGuest{{}, {weight: 1e6}}, 0, lift},
		{"a weight that is raised", []simGuest{{weight: 0.001}, {weight: 1e6}}, 0, func(guests []*simGuest) { guests[0].weight = 1e6 }},
		{"a heavy one goes and a light one comes", []simGuest{{}, {weight: 1e6}, {}}, 2, first(1, 2)},
		{"a cap", []simGuest{{quota: fairshare.Quota{Cap: 0.001}, length: 200 * ms}, {}}, 0, lift},
		{"a cap, and short kernels", []simGuest{{quota: fairshare.Quota{Cap: 0.001}, length: ms}, {}}, 0, lift},
	} {
		for _, measured := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, measured %v", c.name, measured), func(t *testing.T) {
				var guests []*simGuest
				for _, g := range c.guests {
					if g.weight == 0 {
						g.weight = 1
					}
					if g.length == 0 {
						g.length = 500 * us
					}
					guests = append(guests, &g)
				}
				s := newSim("dfq", measured, 7, guests...)
				if c.away > 0 {
					guests[c.away].attached = false
				}
				s.rounds(5 * time.Second)()
				c.change(guests)
				s.changed(guests[0])
				s.rounds(time.Second)()
				used, _ := s.use(s.rounds(4 * time.Second))
				if want := entitled(s); short(used, want) > 0.07 {
					t.Errorf("shares %.3f from a second after the change on, want %.3f", used, want)
				}
			})
		}
	}
}

// TestDFQFollowsTerms tests that, whatever weights and quotas guests had before and whichever
// guests come and go, each guest that has work gets what it is entitled to within seconds.
func TestDFQFollowsTerms(t *testing.T) {
	weights := rapid.Custom(func(t *rapid.T) float64 {
		return math.Pow(10, float64(rapid.IntRange(-3, 6).Draw(t, "magnitude")))
	})
	rapid.Check(t, func(t *rapid.T) {
		var guests []*simGuest
		for range rapid.IntRange(2, 5).Draw(t, "guests") {
			guests = append(guests, &simGuest{weight: 1, length: time.Duration(rapid.IntRange(200, 5000).Draw(t, "kernel µs")) * us})
		}
		s := newSim("dfq", rapid.Bool().Draw(t, "measured"), rapid.Uint64().Draw(t, "seed"), guests...)
		for range rapid.IntRange(1, 4).Draw(t, "changes") {
			left := 1.0
			for _, g := range guests {
				g.quota = fairshare.Quota{}
				g.attached = rapid.IntRange(0, 3).Draw(t, "attends") > 0
				if rapid.Bool().Draw(t, "weighs") {
					g.weight = weights.Draw(t, "weight")
				}
				switch rapid.IntRange(0, 3).Draw(t, "quota") {
				case 1:
					g.quota.Cap = rapid.SampledFrom([]float64{0.001, 0.01, 0.1, 0.5, 1}).Draw(t, "cap")
				case 2:
					g.quota.Guarantee = left * rapid.SampledFrom([]float64{0.1, 0.3, 0.7, 0.999, 1}).Draw(t, "guarantee")
					left = max(left-g.quota.Guarantee, 0)
				}
				s.changed(g)
			}
			s.rounds(2 * time.Second)()
			used, _ := s.use(s.rounds(2 * time.Second))
			if want := entitled(s); short(used, want) > 0.07 {
				t.Errorf("shares %.4f, want %.4f", used, want)
				for i, g := range guests {
					t.Logf("guest %d: weight %v, %+v, kernels %v, attends %v", i, g.weight, g.quota, g.length, g.attached)
				}
			}
		}
	})
}

// TestDFQHoldsNothingAgainstOneAtItsCap tests that a guest's use while it was alone is not held
// against it when others arrive, however long that was. The policy considers a guest at its cap
// idle.
func TestDFQHoldsNothingAgainstOneAtItsCap(t *testing.T) {
	for _, part := range []float64{0.01, 0.05, 0.3} {
		for _, measured := range []bool{true, false} {
			a := &simGuest{weight: 1, quota: fairshare.Quota{Cap: part}, length: 200 * us}
			b := &simGuest{weight: 1, length: 200 * us}
			s := newSim("dfq", measured, 1, a, b)
			b.attached = false
			s.rounds(60 * time.Second)()
			b.attached = true
			used, _ := s.use(s.rounds(4 * time.Second))
			if least := 0.9*part - 0.005; used[0] < least {
				t.Errorf("cap %v, measured %v: it got %.4f since the other came, want %.4f", part, measured, used[0], least)
			}
		}
	}
}
