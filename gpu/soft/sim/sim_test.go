package sim

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"vgpud/accounting"
	"vgpud/accounting/accountingtest"
	"vgpud/gpu/soft/machine"
)

const (
	us = time.Microsecond
	ms = time.Millisecond
)

func newSim(t testing.TB, cfg machine.Config, loads ...Load) *Sim {
	t.Helper()
	s, err := New(cfg, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range loads {
		if _, err := s.Add(l); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// fully polls all the time, in phases of 20 ms.
var fully = accounting.Config{Full: true, Poll: 4 * ms, Quiet: 16 * ms, Round: 20 * ms, Jitter: -1}

// mix returns n guests with loads from 10 % on.
func mix(n int) []Load {
	var loads []Load
	for i := range n {
		loads = append(loads, Duty(fmt.Sprint("guest", i), time.Duration(i+1)*70*us, float64(i%10+1)/10))
	}
	return loads
}

// Polling all the time finds the exact usage of every guest, in every mode.
func TestFullPollingIsExact(t *testing.T) {
	for _, mode := range []machine.Mode{machine.Exclusive, machine.Slices} {
		for _, n := range []int{1, 4, 16} {
			t.Run(fmt.Sprint(mode, n), func(t *testing.T) {
				s := newSim(t, machine.Config{Mode: mode}, mix(n)...)
				const length = 2 * time.Second
				sums, err := accountingtest.Sample(s, fully, length)
				if err != nil {
					t.Fatal(err)
				}
				phase := &sums.Total
				for _, g := range s.Guests() {
					got, want := phase.Of(g.Group()).Busy, g.Usage().Busy
					if d := float64(got-want) / float64(length); math.Abs(d) > 0.001 {
						t.Errorf("%s: accounted %v, used %v", g.Name(), got, want)
					}
				}
				if d := phase.Idle - s.Totals().Idle; d > 2*ms || d < -2*ms {
					t.Errorf("idle: accounted %v, was %v", phase.Idle, s.Totals().Idle)
				}
			})
		}
	}
}

// If registers switch at different times, LoGA's way of detecting idle time underestimates usage
// (§5.4); the busy bit does not.
func TestSkewUnderestimatesByEntry(t *testing.T) {
	measure := func(mode accounting.IdleMode, lag time.Duration) float64 {
		s := newSim(t, machine.Config{EngineLag: lag}, Throttle("a", 500*us, 300*us), Throttle("b", 500*us, 700*us))
		config := fully
		config.Idle = mode
		sums, err := accountingtest.Sample(s, config, 2*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		return float64(sums.Total.Busy()) / float64(s.Totals().Busy)
	}
	if r := measure(accounting.IdleByEntry, 0); r < 0.99 || r > 1.01 {
		t.Errorf("without skew, by entry: %.3f of the truth", r)
	}
	if r := measure(accounting.IdleByBusy, 20*us); r < 0.99 || r > 1.01 {
		t.Errorf("with skew, by busy bit: %.3f of the truth", r)
	}
	if r := measure(accounting.IdleByEntry, 20*us); r > 0.98 || r < 0.9 {
		t.Errorf("with 20µs of skew on 500µs kernels, by entry: %.3f of the truth, want some per cent less", r)
	}
}

func TestHeldGuestRunsOutAndComesBack(t *testing.T) {
	s := newSim(t, machine.Config{}, Throttle("a", ms, 0), Throttle("b", ms, 0))
	a, b := s.Guests()[0], s.Guests()[1]
	s.AdvanceTo(100 * ms)
	a.SetSuspended(true)
	before := a.Usage().Busy
	s.AdvanceTo(200 * ms)
	if d := a.Usage().Busy - before; d > 3*ms {
		t.Errorf("suspended, it ran for %v more: want at most what was fetched", d)
	}
	if a.InFlight() || !a.Backlogged() {
		t.Errorf("suspended: in flight %v, backlogged %v", a.InFlight(), a.Backlogged())
	}
	a.SetSuspended(false)
	was := b.Usage().Busy
	s.AdvanceTo(300 * ms)
	if d := b.Usage().Busy - was; d < 45*ms || d > 55*ms {
		t.Errorf("the other ran %v of 100ms beside it", d)
	}
	s.Remove(a)
	was = b.Usage().Busy
	s.AdvanceTo(400 * ms)
	if d := b.Usage().Busy - was; d < 98*ms {
		t.Errorf("the other ran %v of 100ms alone", d)
	}
}

func TestDutyLoadsTheGPU(t *testing.T) {
	for load := 0.1; load <= 1; load += 0.1 {
		s := newSim(t, machine.Config{Overhead: -1, ExclusiveSwitch: -1}, Duty("a", 200*us, load))
		s.AdvanceTo(time.Second)
		if got := s.Totals().Busy.Seconds(); math.Abs(got-load) > 0.01 {
			t.Errorf("load %.1f: busy %.3f of the time", load, got)
		}
		g := s.Guests()[0]
		if dry := g.Idle().Seconds(); math.Abs(dry-(1-load)) > 0.01 {
			t.Errorf("load %.1f: dry %.3f of the time", load, dry)
		}
	}
}

// Runs are equal, whatever the steps in which the clock advances.
func TestRunsAreRepeatable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := machine.Config{Mode: machine.Mode(rapid.IntRange(0, 2).Draw(t, "mode")),
			EngineLag: time.Duration(rapid.IntRange(0, 5).Draw(t, "lag")) * us}
		n := rapid.IntRange(1, 6).Draw(t, "guests")
		make := func() *Sim {
			s, err := New(cfg, 7)
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range mix(n) {
				if _, err := s.Add(l); err != nil {
					t.Fatal(err)
				}
			}
			return s
		}
		a, b := make(), make()
		end := 20 * ms
		a.AdvanceTo(end)
		for b.Now() < end {
			before := b.SteadyUntil()
			st, _ := b.Sample()
			to := min(b.Now()+time.Duration(rapid.IntRange(1, 3000).Draw(t, "step"))*us, end)
			if before > b.Now()+1 {
				b.AdvanceTo(min(to, before-1))
				if now, _ := b.Sample(); now.Group != st.Group || now.Busy != st.Busy || now.Switch != st.Switch || now.Entry != st.Entry {
					t.Fatalf("%+v became %+v before %v", st, now, before)
				}
			}
			b.AdvanceTo(to)
		}
		if diff := cmp.Diff(a.Totals(), b.Totals()); diff != "" {
			t.Fatalf("totals differ (-in one step +in many):\n%s", diff)
		}
		for i := range n {
			if ua, ub := a.Guests()[i].Usage(), b.Guests()[i].Usage(); ua != ub {
				t.Fatalf("guest %d: %+v in one step, %+v in many", i, ua, ub)
			}
		}
	})
}

// BenchmarkTenSeconds simulates ten seconds of sixteen guests, polled a sixth of the time.
func BenchmarkTenSeconds(b *testing.B) {
	for _, mode := range []machine.Mode{machine.Exclusive, machine.Slices, machine.CoRun} {
		b.Run(mode.String(), func(b *testing.B) {
			for b.Loop() {
				s := newSim(b, machine.Config{Mode: mode}, mix(16)...)
				if _, err := accountingtest.Sample(s, accounting.Config{Poll: 4 * ms, Quiet: 20 * ms, Piece: -1}, 10*time.Second); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// everyTick hides that the simulation is a SteadySource.
type everyTick struct{ *Sim }

func (everyTick) SteadyUntil() time.Duration { return 0 }

// If reads take time and engines show changes at different times, skipping ahead gives the same
// result as polling every tick. The cost of polling to a program that waits for each of its kernels
// grows with the cost of a read.
func TestReadsCostTime(t *testing.T) {
	const kernels, gap = 20 * us, 10 * us
	done := func(read time.Duration, poll, naive bool) (uint64, accounting.Phase) {
		s := newSim(t, machine.Config{HostLag: 3 * us}, Throttle("program", kernels, gap), Throttle("other", 30*us, 50*us))
		s.ReadCost(read)
		var phase accounting.Phase
		const length = 200 * ms
		if poll {
			var watched accounting.Simulation = s
			if naive {
				watched = everyTick{s}
			}
			config := fully
			config.Tick, config.Idle = max(2*read, us), accounting.IdleByEntry
			sums, err := accountingtest.Sample(watched, config, length)
			if err != nil {
				t.Fatal(err)
			}
			phase = sums.Total
		}
		s.AdvanceTo(length)
		return s.Guests()[0].Progress().Completed, phase
	}
	unwatched, _ := done(0, false, false)
	for _, test := range []struct {
		read        time.Duration
		least, most float64 // of what it does less
	}{{0, 0, 0}, {us / 2, 0.002, 0.02}, {10 * us, 0.02, 0.2}} {
		watched, phase := done(test.read, true, false)
		if less := 1 - float64(watched)/float64(unwatched); less < test.least || less > test.most {
			t.Errorf("reads of %v: %.4f less is done during polling, want %v to %v", test.read, less, test.least, test.most)
		}
		if _, naive := done(test.read, true, true); !cmp.Equal(naive, phase) {
			t.Errorf("reads of %v: polling every tick gives another phase (-every +skipping):\n%s", test.read, cmp.Diff(naive, phase))
		}
	}
}
