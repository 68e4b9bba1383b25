package tune

import (
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"vgpud/mediator/vgpu/abi"
)

// trembling returns the run of a world in which each launch takes up to a percent more or less than
// its true cost.
func trembling(w *world, seed uint64) func(abi.Preempt) time.Duration {
	rng := rand.New(rand.NewPCG(seed, 7))
	return func(c abi.Preempt) time.Duration {
		return time.Duration(float64(w.original()) * (1 + w.cost(c)) * (0.99 + 0.02*rng.Float64()))
	}
}

// near returns true costs near the bounds, from -2 to +3 percent, that depend on a seed.
func near(seed uint64) func(abi.Preempt) float64 {
	costs := overheads(seed)
	return func(c abi.Preempt) float64 { return costs(c) / 8 }
}

// TestBoundsByWhatWasMeasured checks after each round that no arm is chosen that was measured to
// cost more than the bound, that none of those proven free leaves much sooner, and that an arm
// called free is proven. In the long run the choice does not alternate.
func TestBoundsByWhatWasMeasured(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		w := &world{
			shape: Shape{Tasks: 1 << rapid.IntRange(14, 20).Draw(t, "log2 of tasks"), Threads: 256}, slots: 1056, cost: near(seed),
		}
		total := time.Duration(rapid.IntRange(700, 20_000).Draw(t, "total")) * us
		w.task = time.Duration(float64(total) * float64(w.slots) / float64(w.shape.Tasks))
		run := trembling(w, seed)
		tuner := New(Parameters{Again: 1}, abi.PreemptForm(rapid.IntRange(1, 7).Draw(t, "forms")))
		p := &tuner.params
		rounds, changes := 0, 0
		var last abi.Preempt
		for range 30_000 {
			choice, k := tuner.Pick(w.shape, w.slots)
			observe(tuner, k, run(choice))
			if tuner.Rounds() == rounds || len(tuner.classes[0].arms) == 1 {
				continue
			}
			rounds = tuner.Rounds()
			c := tuner.classes[0]
			chosen := &c.arms[c.chosen]
			if chosen.choice != last {
				changes++
				last = chosen.choice
			}
			base := c.arms[0].cost.low()
			leaves := p.leaves(chosen.choice, c.taskTime(), c.tasks, c.slots)
			over := chosen.cost.low() / base
			if c.chosen > 0 && over > 1+p.Overhead {
				t.Fatalf("%+v was measured to cost %.4f", chosen.choice, over)
			}
			if c.why == WhySoonest && (over > 1+p.Free || chosen.cost.n < maxSamples && over > 1+p.Free-2*p.Tie) {
				t.Fatalf("%+v is called free at %.4f after %d", chosen.choice, over, chosen.cost.n)
			}
			for i := range c.arms[1:] {
				a := &c.arms[1+i]
				gone := p.leaves(a.choice, c.taskTime(), c.tasks, c.slots)
				known := a.dropped == [bounds]uint8{} && a.cost.n >= maxSamples && a.cost.low()/base <= 1+p.Free
				if known && gone <= time.Duration(soonerRatio*float64(p.Latency)) && (c.why != WhySoonest || float64(gone) < soonerRatio*float64(leaves)) {
					t.Fatalf("%+v (%v) leaves within %v, and %+v at %.4f within %v", chosen.choice, c.why, leaves, a.choice, a.cost.low()/base, gone)
				}
			}
		}
		if changes > 12 {
			t.Fatalf("%d changes in %d rounds", changes, rounds)
		}
	})
}

// TestDoesNotComeAndGo has a form whose true cost is a little less than a bound, so that
// measurements alternate between both sides of it.
func TestDoesNotComeAndGo(t *testing.T) {
	for name, percent := range map[string]float64{"overhead": 1.75, "free": 0.35} {
		t.Run(name, func(t *testing.T) {
			w := table(1<<16, 700*us, map[abi.Preempt]float64{coarse(2): 0, persistent(1, 1): percent, persistent(2, 1): 9, persistent(4, 1): 9})
			forms := abi.PreemptCoarse | abi.PreemptPersistent
			if name == "overhead" {
				forms = abi.PreemptPersistent
			}
			run := trembling(w, 3)
			tuner := New(Parameters{Again: 1}, forms)
			var last abi.Preempt
			rounds, changes := 0, 0
			for range 100_000 {
				choice, k := tuner.Pick(w.shape, w.slots)
				observe(tuner, k, run(choice))
				if tuner.Rounds() == rounds {
					continue
				}
				rounds = tuner.Rounds()
				if now := tuner.Reports()[0].Choice; now != last {
					changes++
					last = now
				}
			}
			if changes > 2*maxDropped+1 || rounds < 50 {
				t.Errorf("%d changes in %d rounds", changes, rounds)
			}
		})
	}
}

// TestFreeIsProven has a form that leaves the soonest and costs a percent more than it may. A few
// measurements sometimes make it look free; it counts as free only after as many as are kept.
func TestFreeIsProven(t *testing.T) {
	wrong := 0
	for seed := range uint64(200) {
		w := table(1<<16, 4000*us, map[abi.Preempt]float64{single(): 0, coarse(2): 0, coarse(4): 0, persistent(1, 1): 1.2, persistent(2, 1): 9, persistent(4, 1): 9})
		run := trembling(w, seed)
		tuner := New(Parameters{}, abi.PreemptSingle|abi.PreemptCoarse|abi.PreemptPersistent)
		r, err := tuner.Offline(w.shape, w.slots, 300, func(c abi.Preempt) (time.Duration, error) { return run(c), nil })
		if err != nil || r.Why == WhyMeasuring {
			t.Fatalf("%v %+v", err, r)
		}
		if r.Choice == persistent(1, 1) {
			wrong++
		}
	}
	if wrong > 4 {
		t.Errorf("called free %d times in 200", wrong)
	}
}
