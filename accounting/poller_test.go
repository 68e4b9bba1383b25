package accounting_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"vgpud/accounting"
	"vgpud/accounting/accountingtest"
)

// everyTick hides that the simulation is steady: the naive sampler.
type everyTick struct{ *accountingtest.GPU }

func (everyTick) SteadyUntil() time.Duration { return 0 }

// load draws a GPU's groups, alike for the same seed.
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

// Skipping ahead to the next change gives what polling every tick gives.
func TestPollerSkipsWithoutADifference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		groups := rapid.IntRange(0, 5).Draw(t, "groups")
		cost := time.Duration(rapid.IntRange(0, 20_000).Draw(t, "switch"))
		config := accounting.Config{
			Tick: time.Duration(rapid.IntRange(1, 3_000).Draw(t, "tick")),
			Idle: rapid.SampledFrom([]accounting.IdleMode{accounting.IdleByBusy, accounting.IdleByEntry, accounting.IdleCompared}).Draw(t, "idle"),
		}
		naive, steady := load(seed, groups, cost), load(seed, groups, cost)
		a := accounting.NewPoller(config, everyTick{naive})
		b := accounting.NewPoller(config, steady)
		for range 3 {
			length := time.Duration(rapid.IntRange(1, 600).Draw(t, "length in ticks")) * config.Tick
			pause := time.Duration(rapid.IntRange(0, 3_000_000).Draw(t, "pause"))
			var want, got accounting.Phase
			how := rapid.SampledFrom([]string{"poll", "until gone", "round"}).Draw(t, "how")
			for p, phase := range map[*accounting.Poller]*accounting.Phase{a: &want, b: &got} {
				var err error
				switch how {
				case "poll":
					err = p.Poll(length, phase)
				case "until gone":
					err = p.PollUntilGone([]accounting.GroupID{1, 2}, length, phase)
				case "round":
					c := accounting.Config{Poll: length / 6, Quiet: length, Piece: config.Tick * 10, Seed: seed}
					_, err = p.Round(accounting.NewPlanner(c), accounting.Load{}, phase)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("phase (-every tick +skipping):\n%s", diff)
			}
			if sum := got.Busy() + got.Idle + got.Switching; sum != got.Length() {
				t.Fatalf("busy, idle and switching come to %v of %v", sum, got.Length())
			}
			naive.AdvanceTo(naive.Now() + pause)
			steady.AdvanceTo(steady.Now() + pause)
		}
	})
}

// A round's polled and quiet time are all of it.
func TestPollerRound(t *testing.T) {
	gpu := load(1, 3, 0)
	config := accounting.Config{}
	p, planner := accounting.NewPoller(config, gpu), accounting.NewPlanner(config)
	for range 20 {
		start := gpu.Now()
		var phase accounting.Phase
		quiet, err := p.Round(planner, accounting.Load{Active: 3}, &phase)
		if err != nil {
			t.Fatal(err)
		}
		if all := gpu.Now() - start; phase.Length()+quiet != all || all < 15*time.Millisecond || all > 21*time.Millisecond {
			t.Errorf("round of %v: %v polled, %v quiet", all, phase.Length(), quiet)
		}
		if ratio := quiet.Seconds() / phase.Length().Seconds(); ratio < 4.5 || ratio > 5.5 {
			t.Errorf("quiet for %.2f times the time polled, want 5", ratio)
		}
	}
}

// Work whose period is that of the polling is seen as it is, since pieces and phases move
// about: at fixed intervals the same part of each period would be seen all along.
func TestJitterSeesPeriodicWork(t *testing.T) {
	for name, c := range map[string]struct {
		config accounting.Config
		half   time.Duration // the work's period: so long busy, so long idle
	}{
		"in pieces": {half: 300 * us},
		"in one":    {config: accounting.Config{Piece: -1}, half: 3 * ms / 2},
	} {
		seen := func(config accounting.Config) float64 {
			gpu := &accountingtest.GPU{}
			gpu.Add(&accountingtest.Group{ID: 1, Kernel: func() (time.Duration, time.Duration) { return c.half, c.half }})
			p, planner := accounting.NewPoller(config, gpu), accounting.NewPlanner(config)
			var busy, polled time.Duration
			for range 400 {
				var phase accounting.Phase
				if _, err := p.Round(planner, accounting.Load{Active: 1}, &phase); err != nil {
					t.Fatal(err)
				}
				busy, polled = busy+phase.Of(1).Busy, polled+phase.Length()
			}
			return busy.Seconds() / polled.Seconds()
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

// A suspended guest's kernel is watched until it has left, and no longer.
func TestPollerUntilGone(t *testing.T) {
	gpu := &accountingtest.GPU{}
	for i := range 2 {
		gpu.Add(&accountingtest.Group{ID: accounting.GroupID(i + 1), Depth: 2, Kernel: func() (time.Duration, time.Duration) { return 3 * ms, 0 }})
	}
	p := accounting.NewPoller(accounting.Config{}, gpu)
	gpu.AdvanceTo(ms)
	var phase accounting.Phase
	if err := p.PollUntilGone([]accounting.GroupID{1}, 20*ms, &phase); err != nil {
		t.Fatal(err)
	}
	if phase.Of(1).Busy != 2*ms || phase.Length() < 2*ms || phase.Length() > 2*ms+2*us {
		t.Errorf("watched for %v, of which it executed %v; want the 2 ms that it had left", phase.Length(), phase.Of(1).Busy)
	}
	if err := p.PollUntilGone([]accounting.GroupID{2}, ms, &phase); err != nil {
		t.Fatal(err)
	}
	if phase.Length() != ms || !phase.Running {
		t.Errorf("watched for %v, want 1 ms at the most", phase.Length())
	}
}

// At 100 % polling the sums are the GPU's own within 0.1 point.
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
		p := accounting.NewPoller(accounting.Config{Full: true}, gpu)
		var phase accounting.Phase
		if err := p.Poll(length, &phase); err != nil {
			t.Fatal(err)
		}
		for _, g := range list {
			if off := (phase.Of(g.ID).Busy - gpu.Busy(g)).Abs(); off > length/1000 {
				t.Errorf("group %d: %v accounted, %v true", g.ID, phase.Of(g.ID).Busy, gpu.Busy(g))
			}
		}
	})
}

// told is a simulation that adds up for how long it is polled, as it is told.
type told struct {
	*accountingtest.GPU
	now, polled time.Duration
	on          bool
}

func (s *told) Polling(on bool) { s.on = on }

func (s *told) AdvanceTo(t time.Duration) {
	if s.on {
		s.polled += t - s.now
	}
	s.now = t
	s.GPU.AdvanceTo(t)
}

// A simulation knows when it is polled, and when it is not.
func TestPollerTellsThatItPolls(t *testing.T) {
	sim := &told{GPU: load(1, 2, 0)}
	p := accounting.NewPoller(accounting.Config{}, sim)
	var phase accounting.Phase
	quiet, err := p.Round(accounting.NewPlanner(accounting.Config{}), accounting.Load{Active: 1}, &phase)
	if err != nil {
		t.Fatal(err)
	}
	if sim.on || sim.polled != phase.Length() || quiet != sim.now-sim.polled {
		t.Errorf("polled for %v of %v as it was told, want %v", sim.polled, sim.now, phase.Length())
	}
}
