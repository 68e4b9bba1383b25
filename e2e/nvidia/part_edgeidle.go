package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"vgpud/clock"
	"vgpud/e2e/nvidia/figure"
	"vgpud/e2e/nvidia/tenant"
	"vgpud/e2e/proc"
	"vgpud/gpu/nvidia/inventory"
)

// edgeIdlePart is the part about what an event kernel without events costs.
const edgeIdlePart = "edge-idle"

// idleSettle is how long a state lasts before it is measured: the driver's reading of the power is of
// up to a second. residentPause is the longest pause between events that keep a dispatcher resident.
const (
	idleSettle    = 1200 * time.Millisecond
	residentPause = 2 * time.Millisecond
	wattsEvery    = 100 * time.Millisecond
)

// The states that are compared.
const (
	noKernel = iota // the guest has no event kernel
	isParked        // it has one without events, which has parked
	isResident
	persistentThreads
	idleStates
)

// idling is a guest that does nothing.
type idling struct {
	*bench
	guest, native *member
	polls         int // the native program's job
	cores, watts  [idleStates][]float64
}

// eventIdle measures what a parked event kernel takes of the host's processors and of power.
func eventIdle(ctx context.Context, b *bench) (err error) {
	d := &idling{bench: b}
	if d.guest, err = b.guest(ctx, tenant.Setup{Name: "guest"}); err != nil {
		return err
	}
	if d.native, err = b.native(ctx, "native"); err != nil {
		return err
	}
	grid := b.full(0)
	d.polls, err = d.native.load(ctx, tenant.Job{Polls: &tenant.Polls{Blocks: grid.Blocks, Threads: grid.Threads, For: d.settle() + d.window()}})
	if err != nil {
		return err
	}
	err = b.repeat(1, func(run int) error {
		for i := range idleStates {
			if err := d.measure(ctx, (run+i)%idleStates); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		d.report()
	}
	return err
}

func (d *idling) settle() time.Duration {
	return pick(d.bench, 20*time.Millisecond, idleSettle, idleSettle)
}

func (d *idling) window() time.Duration {
	return pick(d.bench, 100*time.Millisecond, 2*time.Second, 2*time.Second)
}

// measure measures one state.
func (d *idling) measure(ctx context.Context, state int) error {
	kernels := tenant.Events{}
	if state == isParked || state == isResident {
		kernels = tenant.Events{Kernels: 1, Blocks: 1, Threads: edgeWarp, Rounds: 1}
	}
	if _, err := d.guest.ask(ctx, tenant.Request{Events: &kernels}); err != nil {
		return err
	}
	works := make(chan error, 1)
	switch state {
	case isResident:
		kernels.Rounds, kernels.For, kernels.Jitter = endless, d.settle()+d.window(), residentPause
		go func() {
			_, err := d.guest.ask(ctx, tenant.Request{Events: &kernels})
			works <- err
		}()
	case persistentThreads:
		go func() {
			_, err := d.native.run(ctx, tenant.Run{Job: d.polls, Count: 1})
			works <- err
		}()
	default:
		works <- nil
	}
	err := rest(ctx, d.settle())
	if err == nil {
		err = d.sample(ctx, state)
	}
	return errors.Join(err, <-works)
}

// sample measures the processors and the power for a window.
func (d *idling) sample(ctx context.Context, state int) error {
	before, err := d.hosts()
	if err != nil {
		return err
	}
	begin := time.Now()
	watts, err := d.power(ctx, d.window())
	if err != nil {
		return err
	}
	took := time.Since(begin)
	after, err := d.hosts()
	if err != nil {
		return err
	}
	d.cores[state] = append(d.cores[state], float64(after-before)/float64(took))
	if !math.IsNaN(watts) {
		d.watts[state] = append(d.watts[state], watts)
	}
	return nil
}

// hosts is the processor time of the daemon, its executors and the guest's program.
func (d *idling) hosts() (sum time.Duration, err error) {
	pids, err := proc.OfProgram(d.vgpud())
	if err != nil {
		return 0, err
	}
	for _, pid := range append(pids, d.guest.process.Cmd.Process.Pid) {
		used, err := proc.CPUTimeOfThreads(pid)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, err
		}
		sum += used
	}
	return sum, nil
}

// power returns the GPU's mean power over a time, or NaN if nobody tells it.
func (d *idling) power(ctx context.Context, window time.Duration) (float64, error) {
	if d.kind == "soft" {
		return math.NaN(), rest(ctx, window)
	}
	uuid := ""
	if gpus, err := d.client.GPUs(ctx); err != nil {
		return 0, err
	} else if h := gpus[0].Hardware; h != nil {
		uuid = h.UUID
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var mu sync.Mutex
	var watts []float64
	watching := make(chan error, 1)
	go func() {
		watching <- inventory.Watch(ctx, inventory.Options{
			Clock: clock.Real{}, Log: slog.New(slog.DiscardHandler), Program: d.program(inventory.ProgramName), Every: wattsEvery,
		}, func(m inventory.Message) {
			mu.Lock()
			defer mu.Unlock()
			for _, s := range m.Samples {
				if s.PowerWatts != nil && (uuid == "" || s.UUID == uuid) {
					watts = append(watts, *s.PowerWatts)
				}
			}
		})
	}()
	err := rest(ctx, window)
	stop()
	if err := errors.Join(err, <-watching); err != nil {
		d.say("power: %v", err)
		return math.NaN(), nil
	}
	return figure.Mean(watts), nil
}

// report makes the rows.
func (d *idling) report() {
	cores := differences(d.cores[isParked], d.cores[noKernel])
	c := d.rowOf("idle_core", beyondNoise(cores), cores, fmt.Sprintf("processor time of the daemon, its executors and the guest's program over %v with a registered event kernel that has parked, less that without one, in cores: the median of the runs, or 0 if some runs have more and others less", d.window()))
	c.Baseline["median_difference"] = figure.Median(cores)
	for i, name := range [...]string{"without", "parked", "resident_with_events_polled_for", "persistent_threads_of_a_native_program"} {
		c.Baseline["cores_"+name] = figure.Median(d.cores[i])
	}
	over := func(state int) (percent []float64) {
		for i, w := range d.watts[state] {
			if i < len(d.watts[noKernel]) {
				percent = append(percent, 100*(w/d.watts[noKernel][i]-1))
			}
		}
		return percent
	}
	w := d.row("idle_watts", over(isParked), "the GPU's power, as NVML reads it, with a registered event kernel that has parked over that without one. Baselines: the same while the dispatcher is resident, with an event every 1 ms, and beside it a native program's persistent threads, two blocks of 1,024 an SM, of which one thread a block polls a word of the GPU's memory")
	w.Baseline["watts_without"] = figure.Median(d.watts[noKernel])
	w.Baseline["resident_percent"], w.Baseline["persistent_threads_percent"] = figure.Median(over(isResident)), figure.Median(over(persistentThreads))
	d.add(c, w)
}

// differences returns what the first values are more than the second ones.
func differences(a, b []float64) (all []float64) {
	for i := range min(len(a), len(b)) {
		all = append(all, a[i]-b[i])
	}
	return all
}

// beyondNoise returns the median of runs' differences, or 0 where they are not all on one side of 0.
func beyondNoise(runs []float64) float64 {
	if len(runs) > 0 && slices.Min(runs) <= 0 && slices.Max(runs) >= 0 {
		return 0
	}
	return figure.Median(runs)
}
