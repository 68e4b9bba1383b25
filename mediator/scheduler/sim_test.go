package scheduler

import (
	"context"
	"log/slog"
	"math"
	"testing"
	"time"

	"vgpud/accounting"
	"vgpud/gpu/soft/machine"
	"vgpud/gpu/soft/sim"
	"vgpud/mediator/ipc"
)

// model is a guest of a simulated GPU.
type model struct{ *sim.Guest }

func (m model) Activity(now time.Duration) Activity {
	a := Activity{Contexts: 1, Grouped: 1, Backlog: m.Backlogged(), Worked: now - m.Idle()}
	a.Counters.Kernels = m.Progress().Completed
	return a
}

func (m model) Outstanding(int) uint64               { return 0 }
func (m model) Groups(f func(id accounting.GroupID)) { f(m.Group()) }
func (m model) Generation() uint64                   { return 0 }
func (m model) Publish(o Orders)                     { m.SetSuspended(o.Suspend) }

// simClock is a simulated GPU's time. Nothing waits for it: the sampler calls the scheduler.
type simClock struct{ *sim.Sim }

func (simClock) WaitUntil(ctx context.Context, _ time.Duration) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestSimulation drives a scheduler over a model of a GPU, as the package comment says: guests with
// kernels of different lengths have the shares that their weights give them.
func TestSimulation(t *testing.T) {
	watch := accounting.Config{Seed: 1}.WithDefaults()
	gpu, err := sim.New(machine.Config{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Options{Name: "gpu0", Clock: simClock{gpu}, Log: slog.New(slog.DiscardHandler), Policy: "dfq", GPU: GPU{Watch: watch}})
	if err != nil {
		t.Fatal(err)
	}
	guests := make([]*Guest, 3)
	for i, weight := range []float64{1, 2, 1} {
		length := []time.Duration{100 * time.Microsecond, ms, 5 * ms}[i]
		g, err := gpu.Add(sim.Throttle("", length, 0))
		if err != nil {
			t.Fatal(err)
		}
		guests[i] = NewGuest(GuestOptions{Name: string(rune('a' + i)), Terms: ipc.Terms{Weight: weight}, Executors: model{g}})
		s.Add(guests[i])
		s.Changed(guests[i].ID())
	}

	sampler, err := accounting.NewSimulatedSampler(gpu, s, watch)
	if err == nil {
		err = sampler.RunUntil(20 * time.Second)
	}
	if err != nil {
		t.Fatal(err)
	}

	total := s.Status().Busy
	for i, want := range []float64{0.25, 0.5, 0.25} {
		used, truth := guests[i].Bill().Used, gpu.Guests()[i].Usage().Busy
		if off := float64(used-truth) / float64(truth); math.Abs(off) > 0.03 {
			t.Errorf("guest %d is billed %v of %v", i, used, truth)
		}
		if share := float64(truth) / float64(total); math.Abs(share-want) > 0.02 {
			t.Errorf("guest %d has %.1f %% of the GPU, want %.1f %%", i, 100*share, 100*want)
		}
	}
}
