package main

import (
	"context"
	"fmt"
	"time"

	"vgpud/e2e/nvidia/figure"
	"vgpud/e2e/nvidia/tenant"
)

// The grid of loads on which accounting is measured: each number of guests with each
// length of kernels, at loads a guest that go through all four along the diagonals.
var (
	gridGuests  = []int{1, 2, 4, 8}
	gridKernels = []time.Duration{50 * time.Microsecond, 250 * time.Microsecond, time.Millisecond, 5 * time.Millisecond}
	gridLoads   = []float64{0.1, 0.25, 0.5, 1}
)

// point is one load.
type point struct {
	guests int
	kernel int // of gridKernels
	load   float64
}

func grid() (points []point) {
	for i, g := range gridGuests {
		for k := range gridKernels {
			points = append(points, point{g, k, gridLoads[(i+k)%len(gridLoads)]})
		}
	}
	return points
}

func (p point) String() string {
	return fmt.Sprintf("%d guests, kernels of %v, load %g %% each", p.guests, gridKernels[p.kernel], 100*p.load)
}

// pause is between a guest's kernels, that its load is as it is to be.
func (p point) pause() time.Duration {
	return time.Duration(float64(gridKernels[p.kernel]) * (1 - p.load) / p.load)
}

// account measures accounting's error against the number of fixed kernels times their
// length alone, and what the daemon needs of the host meanwhile. Each window begins
// and ends with idle guests, so that no kernel is counted in part.
func account(ctx context.Context, b *bench) error {
	iterations, solo, err := b.scale(ctx, gridKernels...)
	if err != nil {
		return err
	}
	points := grid()
	stamped, cold, err := b.stamped(ctx, iterations, points)
	if err != nil {
		return err
	}
	var seats []seat
	for i := range pick(b, 2, 8, 8) {
		seats = append(seats, seat{setup: tenant.Setup{Name: fmt.Sprintf("guest%d", i)}})
	}
	guests, err := b.open(ctx, seats...)
	if err != nil {
		return err
	}
	for _, m := range guests { // job numbers are those of gridKernels
		for _, n := range iterations {
			s := b.full(n)
			j, err := m.load(ctx, tenant.Job{Spin: &s})
			if err != nil {
				return err
			}
			if _, err := m.run(ctx, tenant.Run{Job: j, Count: 2}); err != nil {
				return err
			}
		}
	}
	through, err := b.lengthsOf(ctx, guests[0])
	if err != nil {
		return err
	}
	var worst, relative, cpus, executors []float64
	errorsOf := make([][]float64, len(points))
	relativeOf := make([][]float64, len(points))
	for range b.runs() {
		begin, err := b.cpu()
		if err != nil {
			return err
		}
		var most, mostRelative float64
		for i, p := range points {
			if p.guests > len(guests) {
				continue
			}
			length := time.Duration(float64(solo[p.kernel]) * cold[i])
			e, rel, err := b.account(ctx, p, guests[:p.guests], length)
			if err != nil {
				return fmt.Errorf("%v: %w", p, err)
			}
			errorsOf[i], relativeOf[i] = append(errorsOf[i], e), append(relativeOf[i], rel)
			most, mostRelative = max(most, e), max(mostRelative, rel)
		}
		end, err := b.cpu()
		if err != nil {
			return err
		}
		worst, relative = append(worst, most), append(relative, mostRelative)
		cpus = append(cpus, float64(end.daemon-begin.daemon)/float64(end.at-begin.at))
		executors = append(executors, float64(end.guests-begin.guests)/float64(end.at-begin.at))
	}
	r := b.row("accounting_error", worst, "|accounted − truth| / window of the worst guest, of 16 points of 1 to 8 guests, kernels of 50 µs to 5 ms and loads of 10 to 100 % a guest; truth: kernels × their length alone with the same pauses, calibrated in the same run. The page's table has each point's median")
	r.Detail = detail("error", "relative, above 20 % load", "length with its pauses over that without")
	for i, p := range points {
		if len(errorsOf[i]) > 0 {
			r.Detail.Add(p.String(), figure.Median(errorsOf[i]), figure.Median(relativeOf[i]), cold[i])
		}
	}
	r.Baseline["relative_above_20_percent_load"] = figure.Median(relative)
	r.Baseline["loga_length_error_published"], r.Baseline["loga_load_error_published"] = 0.06, 0.025
	for i, k := range gridKernels {
		r.Baseline["solo_us_"+k.String()] = float64(solo[i]) / 1e3
		r.Baseline["globaltimer_us_"+k.String()] = float64(stamped[i]) / 1e3
		r.Baseline["through_a_guest_us_"+k.String()] = float64(through[i]) / 1e3
	}
	c := b.row("host_cpu", cpus, "processor time of the daemon over the same 16 points, of the time that they took")
	c.Baseline["loga_published"] = 0.17
	c.Baseline["guests_processes"] = figure.Median(executors)
	b.add(r, c)
	return nil
}

// lengthsOf is how long the kernels are alone, back to back, by way of a guest: what
// its way to the GPU puts between them comes to that.
func (b *bench) lengthsOf(ctx context.Context, guest *member) (lengths []time.Duration, err error) {
	for j, k := range gridKernels {
		rounds := int(max(20*time.Millisecond/k, 8))
		ran, err := guest.run(ctx, tenant.Run{Job: j, Count: lengthRuns, Rounds: rounds, Depth: 16})
		if err != nil {
			return nil, err
		}
		lengths = append(lengths, figure.Quantile(ran.Turnarounds, 0.5)/time.Duration(rounds))
	}
	return lengths, nil
}

// stamped is how long the kernels are alone by their own readings of the GPU's clock,
// from the first block's start to the last one's end: a check of the lengths by the
// host's clock. And it is by how much the kernels of each point are longer since the
// GPU rests between them: up to a hundredth.
func (b *bench) stamped(ctx context.Context, iterations []int, points []point) (lengths []time.Duration, cold []float64, err error) {
	err = b.solo(ctx, func(m *member) error {
		var busy []time.Duration
		for j, n := range iterations {
			s := b.full(n)
			if _, err := m.load(ctx, tenant.Job{Spin: &s}); err != nil {
				return err
			}
			var all []time.Duration
			for range lengthRuns {
				ran, err := m.run(ctx, tenant.Run{Job: j, Count: 1})
				if err != nil {
					return err
				}
				all = append(all, ran.Stamped)
			}
			lengths = append(lengths, figure.Quantile(all, 0.5))
			ran, err := m.run(ctx, tenant.Run{Job: j, Count: 1, Rounds: 32, Depth: 32})
			if err != nil {
				return err
			}
			busy = append(busy, ran.Block)
		}
		for _, p := range points {
			if p.load == 1 {
				cold = append(cold, 1)
				continue
			}
			const enough = 60 * time.Millisecond
			count := int(max(enough/(gridKernels[p.kernel]+p.pause()), 3))
			ran, err := m.run(ctx, tenant.Run{Job: p.kernel, Count: count, Pause: p.pause(), Jitter: p.pause() / 10})
			if err != nil {
				return err
			}
			cold = append(cold, float64(ran.Block)/float64(max(busy[p.kernel], 1)))
		}
		return nil
	})
	return lengths, cold, err
}

// account measures one point: the worst guest's error, and the relative error of the
// worst of those with a load above 20 %.
func (b *bench) account(ctx context.Context, p point, guests []*member, solo time.Duration) (worst, relative float64, err error) {
	if err := rest(ctx, accountingLag); err != nil {
		return 0, 0, err
	}
	before, err := b.used(ctx, guests)
	if err != nil {
		return 0, 0, err
	}
	window := pick(b, 50*time.Millisecond, time.Second, 4*time.Second)
	var tasks []task
	for _, m := range guests {
		run := tenant.Run{Job: p.kernel, For: window, Pause: p.pause(), Jitter: p.pause() / 10}
		if p.load == 1 {
			run.Depth, run.Rounds, run.Jitter = 4, max(int(10*time.Millisecond/gridKernels[p.kernel]), 2), 0
		}
		tasks = append(tasks, task{m, run})
	}
	begin := time.Now()
	rans, err := together(ctx, tasks...)
	if err != nil {
		return 0, 0, err
	}
	took := time.Since(begin) - lead
	if err := rest(ctx, accountingLag); err != nil {
		return 0, 0, err
	}
	after, err := b.used(ctx, guests)
	if err != nil {
		return 0, 0, err
	}
	for i, ran := range rans {
		truth := time.Duration(ran.All) * solo
		accounted := after[i] - before[i]
		worst = max(worst, figure.AccountingError(accounted, truth, took))
		if float64(truth) > 0.2*float64(took) {
			relative = max(relative, figure.RelativeError(accounted, truth))
		}
	}
	return worst, relative, nil
}

// cpuTimes is processor time so far.
type cpuTimes struct {
	at             time.Duration
	daemon, guests time.Duration
}

// cpu asks what the daemon and the guests' processes have used.
func (b *bench) cpu() (c cpuTimes, err error) {
	c.at = tenant.Monotonic()
	if c.daemon, err = cpuTime(b.daemon.cmd.Process.Pid); err != nil {
		return c, err
	}
	c.guests, err = cpuOfProgram(b.vgpud())
	c.guests -= c.daemon
	return c, err
}
