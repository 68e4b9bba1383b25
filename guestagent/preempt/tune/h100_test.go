package tune

import (
	"math/rand/v2"
	"testing"
	"time"

	"vgpud/mediator/vgpu/abi"
)

// onAnH100 are kernels as measured on an H100 (docs/results, with 500 µs wanted and earlier with
// 60): the cost of forms in percent. Costs between two measured groups are interpolated; others are
// left out.
var onAnH100 = []struct {
	name    string
	tasks   uint64
	total   time.Duration
	percent map[abi.Preempt]float64
	latency time.Duration
	want    abi.Preempt
	why     Why
	suspend bool
}{
	{
		name: "vecadd", tasks: 1 << 20, total: 1160 * us,
		percent: map[abi.Preempt]float64{single(): 7.8, coarse(4): 0, coarse(32): -2.8, coarse(64): -2.8, persistent(4, 1): 2, persistent(8, 1): 0.6, persistent(16, 1): -0.8},
		want:    persistent(16, 1), why: WhySoonest,
	},
	{
		name: "stencil", tasks: 1 << 20, total: 1704 * us,
		percent: map[abi.Preempt]float64{single(): 17, coarse(4): -11.1, coarse(32): -10.2, coarse(64): -10.2, persistent(4, 1): -10.6, persistent(8, 1): -10.6, persistent(16, 1): -10.7},
		want:    persistent(4, 1), why: WhySoonest,
	},
	{
		name: "matmul", tasks: 1 << 16, total: 16790 * us,
		percent: map[abi.Preempt]float64{single(): 0.01, persistent(1, 1): -0.5},
		want:    persistent(1, 1), why: WhySoonest,
	},
	{
		name: "matmul, as CUDA's compiler made its loop", tasks: 1 << 16, total: 16816 * us,
		percent: map[abi.Preempt]float64{single(): 0.01, persistent(1, 1): 24},
		want:    single(), why: WhyCheapest,
	},
	{
		name: "blackscholes", tasks: 1 << 19, total: 1021 * us,
		percent: map[abi.Preempt]float64{coarse(2): 0, coarse(16): -5.5, coarse(64): -5, persistent(2, 1): -0.4, persistent(8, 1): -3.7, persistent(16, 1): -3.8},
		want:    persistent(2, 1), why: WhySoonest,
	},
	{
		name: "kmeans", tasks: 1 << 16, total: 1398 * us, // none is free: the cheapest, and of two equal ones the sooner
		percent: map[abi.Preempt]float64{single(): 1.6, coarse(2): 1.2, coarse(4): 3, persistent(1, 1): 1.06, persistent(2, 1): 1.2, persistent(4, 1): 3},
		want:    persistent(1, 1), why: WhyCheapest,
	},
	{
		name: "transpose", tasks: 1 << 18, total: 763 * us, // likewise
		percent: map[abi.Preempt]float64{single(): 1.9, coarse(2): 1.8, coarse(8): 2.3, coarse(16): 2.3, persistent(2, 1): 4, persistent(8, 1): 2.5, persistent(16, 1): 2.4},
		want:    coarse(2), why: WhyCheapest,
	},
	{
		name: "md5", tasks: 1 << 17, total: 1959 * us,
		percent: map[abi.Preempt]float64{single(): 2, coarse(2): 1, coarse(4): 0.6, coarse(8): -0.3, persistent(1, 1): 3, persistent(4, 1): 1.2, persistent(8, 1): 1},
		want:    coarse(8), why: WhyCheapest,
	},
	{
		name: "nbody", tasks: 4096, total: 5223 * us, // none leaves in time: the one that leaves the soonest
		percent: map[abi.Preempt]float64{single(): 1.06, persistent(1, 1): -0.57},
		want:    persistent(1, 1), why: WhySlow, suspend: true,
	},
	{
		name: "nbody in smaller blocks", tasks: 8192, total: 2850 * us,
		percent: map[abi.Preempt]float64{single(): 0.03, coarse(8): 7.6},
		want:    single(), why: WhyCheapest, suspend: true,
	},
	{
		name: "vecadd within 20 µs", tasks: 1 << 20, total: 1160 * us, latency: 20 * us,
		percent: map[abi.Preempt]float64{persistent(1, 1): 28, persistent(4, 1): 1.9, persistent(8, 1): 0.6, coarse(64): -2.8, single(): 7.8},
		want:    persistent(8, 1), why: WhyCheapest,
	},
	{
		name: "transpose within 60 µs", tasks: 1 << 18, total: 763 * us, latency: 60 * us, // those that leave in time cost more than 2 %
		percent: map[abi.Preempt]float64{single(): 1.9, coarse(2): 1.8, coarse(8): 2.3, persistent(2, 1): 4, persistent(8, 1): 2.5, persistent(16, 1): 2.4},
		want:    single(), why: WhySlow,
	},
	{
		name: "a form that costs too much", tasks: 8192, total: 2850 * us,
		percent: map[abi.Preempt]float64{single(): 3},
		why:     WhyTooCostly, suspend: true,
	},
}

// TestAsMeasuredOnAnH100 checks that among free forms the one that leaves the soonest is chosen,
// otherwise the cheapest, and none above the bound.
func TestAsMeasuredOnAnH100(t *testing.T) {
	for _, c := range onAnH100 {
		t.Run(c.name, func(t *testing.T) {
			tuner := New(Parameters{Latency: c.latency}, 7)
			w := table(c.tasks, c.total, c.percent)
			r, err := tuner.Offline(w.shape, w.slots, 300, func(p abi.Preempt) (time.Duration, error) { return w.run(p), nil })
			if err != nil || r.Choice != c.want || r.Why != c.why || r.Suspend != c.suspend {
				t.Errorf("%v %+v, want %+v", err, r, c.want)
			}
			t.Logf("%v group %d (%v), leaves within %v, after %d launches", r.Choice.Form, r.Choice.Group, r.Why, r.Leaves, r.Launches)
		})
	}
}

// BenchmarkMeasuring measures the cost of finding a kernel's form: launches until the choice is
// made, and how much longer the first thousand and ten thousand launches take than in the form that
// is found.
func BenchmarkMeasuring(b *testing.B) {
	for _, c := range onAnH100 {
		if c.latency > 0 {
			continue
		}
		b.Run(c.name, func(b *testing.B) {
			var settled int
			var over [2]float64
			for b.Loop() {
				w := table(c.tasks, c.total, c.percent)
				w.rng, w.noise = rand.New(rand.NewPCG(1, 1)), 0.01
				tuner := New(Parameters{}, 7)
				settled = 0
				var took time.Duration
				for i := range 10_000 {
					choice, k := tuner.Pick(w.shape, w.slots)
					took += time.Duration(float64(w.original()) * (1 + w.cost(choice)))
					observe(tuner, k, w.run(choice))
					if settled == 0 && tuner.Reports()[0].Why != WhyMeasuring {
						settled = i + 1
					}
					if i == 999 || i == 9999 {
						best := float64(w.original()) * (1 + w.cost(tuner.Reports()[0].Choice))
						over[i/9000] = float64(took)/(best*float64(i+1)) - 1
					}
				}
			}
			b.ReportMetric(float64(settled), "launches")
			b.ReportMetric(100*over[0], "%/1000")
			b.ReportMetric(100*over[1], "%/10000")
		})
	}
}

// TestLargeBlocksDrainSlowly has a kernel of 20 ms in blocks of 1024 threads and 16 µs, as an H100
// ran it. Blocks that have not begun when it is told to leave cost 4 ns each, so that groups of 8
// leave sooner than groups of 4: those took 165 µs in the median and 345 in a tenth of all cases,
// of which the running ones had at most 64.
func TestLargeBlocksDrainSlowly(t *testing.T) {
	w := table(264_000, 16_000*us, map[abi.Preempt]float64{
		single(): 2.84, coarse(2): 2.23, coarse(4): 1.48, coarse(8): 1.15, coarse(16): 0.9,
		persistent(1, 1): 6.9, persistent(4, 1): 5.5, persistent(16, 1): 6.9,
	})
	w.shape.Threads, w.slots, w.task = 1024, 264, 16*us
	tuner := New(Parameters{}, abi.PreemptSingle|abi.PreemptCoarse|abi.PreemptPersistent)
	r, err := tuner.Offline(w.shape, w.slots, 300, func(p abi.Preempt) (time.Duration, error) { return w.run(p), nil })
	if err != nil || r.Choice != coarse(8) || r.Leaves < 250*us || r.Leaves > 300*us {
		t.Errorf("%v %+v, want %+v", err, r, coarse(8))
	}
}

// TestSetLatency: when another latency is wanted, the form is chosen that had been chosen for it in
// the first place, and what ends by itself in time is left alone.
func TestSetLatency(t *testing.T) {
	for _, c := range onAnH100 {
		for _, before := range []time.Duration{20 * us, DefaultLatency, 50 * time.Millisecond} {
			w := table(c.tasks, c.total, c.percent)
			tuner := New(Parameters{Latency: before}, 7)
			settle := func() Report {
				for range 600 {
					choice, k := tuner.Pick(w.shape, w.slots)
					observe(tuner, k, w.run(choice))
				}
				return tuner.Reports()[0]
			}
			settle()
			tuner.SetWanted(Parameters{Latency: c.latency})
			if r := settle(); r.Choice != c.want || r.Why != c.why {
				t.Errorf("%s, wanted within %v before: %v %+v, want %v %+v", c.name, before, r.Why, r.Choice, c.why, c.want)
			}
		}
	}
}

// TestShortForAnother: what is on record as short, or as leaving in time, is measured anew by who
// wants a shorter latency.
func TestShortForAnother(t *testing.T) {
	w := table(1<<20, 1160*us, map[abi.Preempt]float64{persistent(8, 1): 0.6, coarse(64): -2.8, single(): 7.8})
	for _, before := range []time.Duration{2 * time.Millisecond, DefaultLatency} {
		earlier := New(Parameters{Latency: before}, 7)
		for range 600 {
			choice, k := earlier.Pick(w.shape, w.slots)
			observe(earlier, k, w.run(choice))
		}
		record := earlier.Record()
		if len(record.Classes) != 1 {
			t.Fatalf("recorded %+v", record)
		}
		tuner := New(Parameters{Latency: 20 * us}, 7)
		tuner.Recall(record)
		for range 600 {
			choice, k := tuner.Pick(w.shape, w.slots)
			observe(tuner, k, w.run(choice))
		}
		if r := tuner.Reports()[0]; r.Choice != persistent(8, 1) {
			t.Errorf("after a record for %v: %v %+v", before, r.Why, r.Choice)
		}
	}
}

// TestWantedByTurns: what was measured once for two wishes is not measured again when they take
// turns.
func TestWantedByTurns(t *testing.T) {
	for _, c := range onAnH100 {
		w := table(c.tasks, c.total, c.percent)
		tuner := New(Parameters{}, 7)
		turn := func(latency time.Duration, launches int) Report {
			tuner.SetWanted(Parameters{Latency: latency})
			for range launches {
				choice, k := tuner.Pick(w.shape, w.slots)
				observe(tuner, k, w.run(choice))
			}
			return tuner.Reports()[0]
		}
		wishes := []time.Duration{50 * us, DefaultLatency}
		first := []Report{turn(wishes[0], 600), turn(wishes[1], 600)}
		measured := first[1].Measured
		for range 3 {
			for i, d := range wishes {
				if r := turn(d, 2); r.Choice != first[i].Choice || r.Why != first[i].Why {
					t.Errorf("%s within %v: %v %+v, first %v %+v", c.name, d, r.Why, r.Choice, first[i].Why, first[i].Choice)
				}
			}
		}
		if again := tuner.Reports()[0].Measured - measured; again > 0 {
			t.Errorf("%s: %d launches measured again", c.name, again)
		}
	}
}

// TestLongTasksAreSuspended: a kernel whose tasks take longer than the hardware's suspension has no
// form where the hardware suspends by itself, and the best of its forms elsewhere.
func TestLongTasksAreSuspended(t *testing.T) {
	for _, c := range onAnH100 {
		w := table(c.tasks, c.total, c.percent)
		tuner := New(Parameters{Latency: c.latency, Suspends: 360 * us}, 7)
		settle := func() Report {
			for range 600 {
				choice, k := tuner.Pick(w.shape, w.slots)
				observe(tuner, k, w.run(choice))
			}
			return tuner.Reports()[0]
		}
		r := settle()
		if c.suspend != (r.Why == WhySuspended) || c.suspend && r.Choice != (abi.Preempt{}) || !c.suspend && r.Choice != c.want {
			t.Errorf("%s, where the hardware suspends: %v %+v", c.name, r.Why, r.Choice)
		}
		if measured := r.Measured; c.suspend && settle().Measured > measured {
			t.Errorf("%s is measured again", c.name)
		}
		tuner.SetWanted(Parameters{Latency: c.latency})
		if r := settle(); r.Choice != c.want || r.Why != c.why {
			t.Errorf("%s, where it does not: %v %+v, want %v %+v", c.name, r.Why, r.Choice, c.why, c.want)
		}
	}
}
