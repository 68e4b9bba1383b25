package tune

import (
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"vgpud/mediator/vgpu/abi"
)

// world is a simulated kernel on a simulated GPU: the true cost of each choice, and noise, which
// only makes launches longer, and on average every other one of each choice.
type world struct {
	shape Shape
	slots int
	task  time.Duration // of the original, in its slot
	cost  func(abi.Preempt) float64
	rng   *rand.Rand
	noise float64
	noisy map[abi.Preempt][]bool // the next launches
}

// original returns how long the original takes.
func (w *world) original() time.Duration {
	return time.Duration(float64(w.task) * float64(w.shape.Tasks) / float64(min(w.shape.Tasks, uint64(w.slots))))
}

func (w *world) run(c abi.Preempt) time.Duration {
	d := float64(w.original()) * (1 + w.cost(c))
	// Two of each four: with independent noise there would be worlds with so much of it in the
	// latest launches of a choice that its cost could not be known.
	next := w.noisy[c]
	if len(next) == 0 {
		next = []bool{true, true, false, false}
		w.rng.Shuffle(len(next), func(i, j int) { next[i], next[j] = next[j], next[i] })
	}
	if w.noisy == nil {
		w.noisy = make(map[abi.Preempt][]bool)
	}
	w.noisy[c] = next[1:]
	if next[0] {
		d *= 1 + w.noise*w.rng.Float64()
	}
	return time.Duration(d)
}

// overheads returns true costs of choices that depend on a seed.
func overheads(seed uint64) func(abi.Preempt) float64 {
	return func(c abi.Preempt) float64 {
		if c.Form == 0 {
			return 0
		}
		rng := rand.New(rand.NewPCG(seed, uint64(c.Form)<<40|uint64(c.Group)<<20|uint64(c.Every)))
		return -0.1 + 0.4*rng.Float64()
	}
}

// TestConverges checks that in a noisy world the tuner finds a choice whose true cost is within the
// bound, which leaves in time if a candidate does, and leaves as soon as any free one; if none is
// free, that it is as cheap as the best, up to what noise hides.
func TestConverges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		w := &world{
			shape: Shape{Tasks: rapid.Uint64Range(1, 2<<20).Draw(t, "tasks"), Threads: 256},
			slots: rapid.IntRange(1, 1056).Draw(t, "slots"),
			task:  time.Duration(rapid.IntRange(1000, 2_000_000).Draw(t, "task")),
			cost:  overheads(seed), rng: rand.New(rand.NewPCG(seed, 1)), noise: 0.3,
		}
		forms := abi.PreemptForm(rapid.IntRange(1, 7).Draw(t, "forms"))
		tuner := New(Parameters{}, forms)
		p := &tuner.params
		var last abi.Preempt
		for range 12_000 {
			c, k := tuner.Pick(w.shape, w.slots)
			if !k.measure {
				last = c
			}
			observe(tuner, k, w.run(c))
		}
		if w.original() <= p.Latency {
			if last.Form != 0 && w.original() < p.Latency/2 { // noise may lift it over the bound
				t.Fatalf("a kernel of %v is launched as %+v", w.original(), last)
			}
			return
		}
		// The part that noise may hide; half of the launches have none.
		const slack = 0.02
		got, leaves := w.cost(last), p.leaves(last, w.task, w.shape.Tasks, w.slots)
		if got > p.Overhead+slack {
			t.Fatalf("%+v costs %+.3f", last, got)
		}
		for _, a := range tuner.classes[0].arms[1:] {
			cost, gone := w.cost(a.choice), p.leaves(a.choice, w.task, w.shape.Tasks, w.slots)
			switch timely := gone <= p.Latency*9/10; {
			case timely && cost <= p.Overhead-slack && (last.Form == 0 || leaves > p.Latency*12/10):
				t.Fatalf("%+v leaves within %v, %+v costs %+.3f and leaves in time", last, leaves, a.choice, cost)
			case timely && cost <= p.Free-slack && (got > p.Free+slack || gone < leaves*8/10):
				t.Fatalf("%+v costs %+.3f and leaves within %v, %+v costs %+.3f and leaves within %v", last, got, leaves, a.choice, cost, gone)
			case timely && got > p.Free+slack && cost < got-slack && cost <= p.Overhead-slack:
				t.Fatalf("%+v costs %+.3f, %+v %+.3f", last, got, a.choice, cost)
			}
		}
	})
}

// TestNeverWhatIsNotOffered uses a tuner at random: it never chooses what is not offered for the
// grid, never keeps more than its bound, and spends on measuring what Again allows.
func TestNeverWhatIsNotOffered(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		forms := abi.PreemptForm(rapid.IntRange(0, 7).Draw(t, "forms"))
		tuner := New(Parameters{}, forms)
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 2))
		var under []Ticket
		for range 4000 {
			s := Shape{Tasks: 1 << rng.IntN(33), Threads: 1 << rng.IntN(3)}
			s.Tasks += rng.Uint64N(s.Tasks)
			slots := rng.IntN(2000)
			c, k := tuner.Pick(s, slots)
			if !Offered(c, forms, s.Tasks, max(slots, 1)) {
				t.Fatalf("%+v for %+v with %d slots and the forms %v", c, s, slots, forms)
			}
			under = append(under, k)
			for len(under) > rng.IntN(20) { // they end in any order, some not at all
				i := rng.IntN(len(under))
				switch rng.IntN(8) {
				case 0:
					tuner.Discard(under[i])
				case 2:
					tuner.Postpone(under[i])
				case 1:
					observe(tuner, under[i], 0)
				default:
					observe(tuner, under[i], time.Duration(rng.IntN(int(10*time.Millisecond))))
				}
				under[i] = under[len(under)-1]
				under = under[:len(under)-1]
			}
			if len(tuner.classes) > MaxClasses {
				t.Fatalf("%d classes", len(tuner.classes))
			}
		}
		for _, c := range tuner.classes {
			most := 3 * tuner.params.Measure * (1 + maxCandidates) * (2 + int(c.launches)/tuner.params.Again)
			if len(c.arms) > 1+maxCandidates || c.measured > most {
				t.Fatalf("%d arms, %d of %d launches measure", len(c.arms), c.measured, c.launches)
			}
		}
	})
}

// TestMeasuringIsRare checks that in the long run one launch in 64 measures.
func TestMeasuringIsRare(t *testing.T) {
	w := &world{shape: Shape{Tasks: 1 << 16, Threads: 256}, slots: 1000, task: 100 * time.Microsecond, cost: overheads(3), rng: rand.New(rand.NewPCG(1, 1))}
	tuner := New(Parameters{}, 7)
	measured := 0
	const launches = 100_000
	for range launches {
		c, k := tuner.Pick(w.shape, w.slots)
		if k.measure {
			measured++
		}
		observe(tuner, k, w.run(c))
	}
	if measured > launches/64+100 || measured < 100 {
		t.Errorf("%d of %d launches measure", measured, launches)
	}
}

// TestKeepsWhatIsAsGood checks that a choice is not replaced by another that only noise makes look
// better.
func TestKeepsWhatIsAsGood(t *testing.T) {
	w := table(1<<20, 1160*us, nil)
	w.noise = 0.1
	w.cost = func(c abi.Preempt) float64 {
		if c.Form == abi.PreemptCoarse {
			return -0.02
		}
		return 0
	}
	tuner := New(Parameters{}, abi.PreemptSingle|abi.PreemptCoarse)
	var last abi.Preempt
	changes := 0
	for range 200_000 {
		c, k := tuner.Pick(w.shape, w.slots)
		if !k.measure && c != last {
			last = c
			changes++
		}
		observe(tuner, k, w.run(c))
	}
	if changes > 5 || last.Form != abi.PreemptCoarse || tuner.Rounds() < 10 {
		t.Errorf("%d changes in %d rounds, at last to %+v", changes, tuner.Rounds(), last)
	}
}

// observe records a launch that cost only its time on the GPU.
func observe(t *Tuner, k Ticket, took time.Duration) { t.Observe(k, took, took) }
