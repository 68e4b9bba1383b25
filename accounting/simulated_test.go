package accounting_test

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"vgpud/accounting"
	"vgpud/accounting/accountingtest"
)

// everyTick hides that the simulation is steady, so that every tick is polled.
type everyTick struct{ *accountingtest.GPU }

func (everyTick) SteadyUntil() time.Duration { return 0 }

// load returns a GPU with random groups, the same ones for the same seed.
func load(seed uint64, groups int, switchCost time.Duration) *accountingtest.GPU {
	r := rand.New(rand.NewPCG(seed, 1))
	gpu := &accountingtest.GPU{SwitchCost: switchCost}
	for i := range groups {
		longest := 1 + r.Int64N(300_000)
		think := r.Int64N(2) * (1 + r.Int64N(500_000))
		kernels := rand.New(rand.NewPCG(seed, uint64(i)))
		gpu.Add(&accountingtest.Group{
			ID:    accounting.GroupID(i + 1),
			Depth: 1 + r.IntN(4),
			Ahead: 1 + r.IntN(2),
			Kernel: func() (time.Duration, time.Duration) {
				return time.Duration(1 + kernels.Int64N(longest)), time.Duration(think)
			},
		})
	}
	return gpu
}

// TestSimulatedSamplerSkips tests that skipping to the next change has the same result as polling
// every tick, whatever the handler plans.
func TestSimulatedSamplerSkips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		groups := rapid.IntRange(0, 5).Draw(t, "groups")
		cost := time.Duration(rapid.IntRange(0, 20_000).Draw(t, "switch"))
		tick := time.Duration(rapid.IntRange(1, 3_000).Draw(t, "tick"))
		poll := tick * time.Duration(rapid.IntRange(1, 200).Draw(t, "poll"))
		config := accounting.Config{
			Tick: tick, Poll: poll, Quiet: time.Duration(rapid.IntRange(1, 2_000_000).Draw(t, "quiet")),
			Piece: rapid.SampledFrom([]time.Duration{-1, 10 * tick, poll}).Draw(t, "piece"),
			Full:  rapid.Bool().Draw(t, "full"), Seed: seed,
			Idle: rapid.SampledFrom([]accounting.IdleMode{accounting.IdleByBusy, accounting.IdleByEntry, accounting.IdleCompared}).Draw(t, "idle"),
		}
		var plans []accounting.Plan
		for range 3 {
			p := accounting.Plan{Load: accounting.Load{Active: 1}}
			switch rapid.IntRange(0, 2).Draw(t, "plan") {
			case 1:
				p.WatchOn = poll
			case 2:
				p.Await = []accounting.GroupID{1, 2}
			}
			plans = append(plans, p)
		}
		skips(t, seed, groups, cost, config, plans)
	})
}

// TestSimulatedSamplerSeesStarts: polling goes on at an instant at which it ended without reading the
// status, which had changed.
func TestSimulatedSamplerSeesStarts(t *testing.T) {
	config := accounting.Config{Tick: 3000, Poll: 3000, Quiet: 821_730, Piece: 30_000, Full: true, Seed: 14}
	plain := accounting.Plan{Load: accounting.Load{Active: 1}}
	longer := plain
	longer.WatchOn = config.Poll
	skips(t, 14, 3, 0, config, []accounting.Plan{longer, plain, plain})
}

// skips compares both ways of polling a GPU for four phases.
func skips(t rapid.TB, seed uint64, groups int, cost time.Duration, config accounting.Config, plans []accounting.Plan) {
	t.Helper()
	watch := func(sim accounting.Simulation) *accountingtest.Sums {
		sums := new(accountingtest.Sums)
		sums.Plan = func(*accounting.Phase) accounting.Plan { return plans[len(sums.Phases)%len(plans)] }
		s, err := accounting.NewSimulatedSampler(sim, sums, config)
		if err != nil {
			t.Fatal(err)
		}
		for end := sim.Now(); len(sums.Phases) < 4; {
			end += config.Poll
			if err := s.RunUntil(end); err != nil {
				t.Fatal(err)
			}
		}
		sums.Plan = nil
		return sums
	}
	want, got := watch(everyTick{load(seed, groups, cost)}), watch(load(seed, groups, cost))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("(-every tick +skipping):\n%s", diff)
	}
	if sum := got.Total.Busy() + got.Total.Idle + got.Total.Switching; sum != got.Total.Length() {
		t.Fatalf("busy, idle and switching come to %v of %v", sum, got.Total.Length())
	}
}

// TestSimulatedSamplerRounds tests that polled and quiet time add up to all of the time, in the
// configured proportion.
func TestSimulatedSamplerRounds(t *testing.T) {
	gpu, sums := load(1, 3, 0), new(accountingtest.Sums)
	sums.Plan = func(*accounting.Phase) accounting.Plan { return accounting.Plan{Load: accounting.Load{Active: 3}} }
	s, err := accounting.NewSimulatedSampler(gpu, sums, accounting.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for len(sums.Phases) < 20 {
		if err := s.RunUntil(gpu.Now() + ms); err != nil {
			t.Fatal(err)
		}
	}
	if all := sums.Total.Length() + sums.Unwatched; all != sums.Phases[19].End {
		t.Errorf("%v polled and quiet of %v", all, sums.Phases[19].End)
	}
	for i := 2; i < len(sums.Quiets); i++ { // the first round is that of a GPU without load
		p, q := &sums.Phases[i], &sums.Quiets[i]
		before := sums.Phases[i-1].End
		if q.Watched.Start != before {
			t.Errorf("round %d: quiet from %v, after a polling phase to %v", i, q.Watched.Start, before)
		}
		all := p.End - before
		if p.Length()+q.Length() != all || all < 15*ms || all > 21*ms {
			t.Errorf("round of %v: %v polled, %v quiet", all, p.Length(), q.Length())
		}
		if ratio := q.Length().Seconds() / p.Length().Seconds(); ratio < 4.5 || ratio > 5.5 {
			t.Errorf("quiet for %.2f times the time polled, want 5", ratio)
		}
	}
}

// TestSimulatedSamplerNotify tests that an added channel ends a round early, but not before a
// quarter of it.
func TestSimulatedSamplerNotify(t *testing.T) {
	gpu, sums := load(1, 1, 0), new(accountingtest.Sums)
	sums.Plan = func(*accounting.Phase) accounting.Plan { return accounting.Plan{Load: accounting.Load{Active: 1}} }
	s, err := accounting.NewSimulatedSampler(gpu, sums, accounting.Config{Quiet: 20 * ms, Piece: -1, Jitter: -1})
	if err != nil {
		t.Fatal(err)
	}
	for len(sums.Phases) < 10 {
		if len(sums.Phases) > 1 {
			s.Notify(0)
		}
		if err := s.RunUntil(gpu.Now() + ms); err != nil {
			t.Fatal(err)
		}
	}
	for i := 2; i < 9; i++ {
		if d := sums.Phases[i].Start - sums.Phases[i-1].End; d < 5*ms || d > 7*ms {
			t.Errorf("a quiet phase of %v, want a quarter of 21 ms", d)
		}
	}
}

// failing is a simulation whose registers can't be read from some time on.
type failing struct{ *accountingtest.GPU }

func (f failing) Sample() (accounting.Status, error) {
	st, err := f.GPU.Sample()
	if f.Now() > 5*ms {
		err = errors.New("fell off the bus")
	}
	return st, err
}

// TestSimulatedSamplerFails tests that an error of the source ends the sampler.
func TestSimulatedSamplerFails(t *testing.T) {
	if _, err := accountingtest.Sample(failing{load(1, 1, 0)}, accounting.Config{}, 50*ms); err == nil {
		t.Error("no error")
	}
	if _, err := accountingtest.Sample(load(1, 1, 0), accounting.Config{Jitter: 2}, 50*ms); err == nil {
		t.Error("no error for a bad configuration")
	}
}

// TestJitterSeesPeriodicWork tests that work with the period of the polling is measured correctly,
// since pieces and phases move. At fixed intervals the same part of each period would be measured
// every time.
func TestJitterSeesPeriodicWork(t *testing.T) {
	for name, c := range map[string]struct {
		config accounting.Config
		half   time.Duration // the work is busy and idle for this long in turn
	}{
		"in pieces": {half: 300 * us},
		"in one":    {config: accounting.Config{Piece: -1}, half: 3 * ms / 2},
	} {
		seen := func(config accounting.Config) float64 {
			gpu := &accountingtest.GPU{}
			gpu.Add(&accountingtest.Group{ID: 1, Kernel: func() (time.Duration, time.Duration) { return c.half, c.half }})
			sums := &accountingtest.Sums{Plan: func(*accounting.Phase) accounting.Plan { return accounting.Plan{Load: accounting.Load{Active: 1}} }}
			s, err := accounting.NewSimulatedSampler(gpu, sums, config)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.RunUntil(2400 * ms); err != nil {
				t.Fatal(err)
			}
			return sums.Total.Of(1).Busy.Seconds() / sums.Total.Length().Seconds()
		}
		still := c.config
		still.Jitter = -1
		if got := seen(still); got > 0.3 && got < 0.7 {
			t.Errorf("%s, without jitter: busy for %.2f of the time: this work tells nothing", name, got)
		}
		if got := seen(c.config); got < 0.48 || got > 0.52 {
			t.Errorf("%s: busy for %.2f of the time, want 0.5", name, got)
		}
	}
}

// TestSimulatedSamplerAwaits tests that the kernel of a suspended guest is polled until it has left
// the GPU, but for no longer than the plan allows.
func TestSimulatedSamplerAwaits(t *testing.T) {
	for _, c := range []struct {
		await  accounting.GroupID
		atMost time.Duration
		least  time.Duration // polled part of the quiet phase
		most   time.Duration
	}{{1, 20 * ms, 2*ms - 1, 2*ms + 2*us}, {1, ms, ms, ms}, {2, 20 * ms, 0, us}} {
		gpu := &accountingtest.GPU{}
		for i := range 2 {
			gpu.Add(&accountingtest.Group{ID: accounting.GroupID(i + 1), Depth: 2, Kernel: func() (time.Duration, time.Duration) { return 3 * ms, 0 }})
		}
		sums := &accountingtest.Sums{Plan: func(*accounting.Phase) accounting.Plan {
			return accounting.Plan{Await: []accounting.GroupID{c.await}, AwaitAtMost: c.atMost}
		}}
		s, err := accounting.NewSimulatedSampler(gpu, sums, accounting.Config{Poll: 5 * ms, Quiet: 30 * ms, Piece: -1, Jitter: -1})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.RunUntil(250 * ms); err != nil { // the first polling phase ends after 1 ms: nothing was active
			t.Fatal(err)
		}
		if end := sums.Phases[0].End; end != ms {
			t.Fatalf("the first polling phase ends at %v", end)
		}
		if got := sums.Quiets[0].Watched.Length(); got < c.least || got > c.most {
			t.Errorf("group %d, at most %v: polled for %v, want %v to %v", c.await, c.atMost, got, c.least, c.most)
		}
	}
}

// TestFullPollingIsExact tests that at 100 % polling the sums agree with the GPU's own within 0.1
// point.
func TestFullPollingIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		groups := rapid.IntRange(1, 16).Draw(t, "groups")
		var list []*accountingtest.Group
		gpu := &accountingtest.GPU{SwitchCost: time.Duration(rapid.IntRange(0, 3).Draw(t, "switch")) * 40 * time.Microsecond}
		for i := range groups {
			kernel := time.Duration(rapid.IntRange(10, 3000).Draw(t, "length")) * time.Microsecond
			loadPercent := rapid.IntRange(1, 10).Draw(t, "load") * 10
			g := accountingtest.Throttle(accounting.GroupID(i), kernel, float64(loadPercent)/100, rapid.Uint64().Draw(t, "seed"))
			gpu.Add(g)
			list = append(list, g)
		}
		const length = 200 * time.Millisecond
		sums, err := accountingtest.Sample(gpu, accounting.Config{Full: true, Poll: length / 6, Quiet: length - length/6, Round: length, Jitter: -1}, length)
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range list {
			if off := (sums.Total.Of(g.ID).Busy - gpu.Busy(g)).Abs(); off > length/1000 {
				t.Errorf("group %d: %v accounted, %v true", g.ID, sums.Total.Of(g.ID).Busy, gpu.Busy(g))
			}
		}
	})
}

// polledGPU is a simulation that adds up the time for which it is polled.
type polledGPU struct {
	*accountingtest.GPU
	now, polled time.Duration
	on          bool
}

func (s *polledGPU) Polling(on bool) { s.on = on }

func (s *polledGPU) AdvanceTo(t time.Duration) {
	if s.on {
		s.polled += t - s.now
	}
	s.now = t
	s.GPU.AdvanceTo(t)
}

// TestSimulationIsToldOfPolling tests that a simulation knows whether it is being polled.
func TestSimulationIsToldOfPolling(t *testing.T) {
	sim := &polledGPU{GPU: load(1, 2, 0)}
	sums, err := accountingtest.Sample(sim, accounting.Config{}, 300*ms)
	if err != nil {
		t.Fatal(err)
	}
	rest := sim.polled - sums.Total.Length() // of a phase that has not ended
	if sim.on || len(sums.Phases) < 1 || rest < 0 || rest > 10*ms || sims(sums) > sim.now {
		t.Errorf("was told of %v of polling, and %v was polled, of %v", sim.polled, sums.Total.Length(), sim.now)
	}
}

func sims(s *accountingtest.Sums) time.Duration { return s.Total.Length() + s.Unwatched }
