package main

import (
	"context"
	"fmt"
	"time"

	"vgpud/e2e/nvidia/figure"
	"vgpud/e2e/nvidia/tenant"
	"vgpud/e2e/proc"
	"vgpud/gpu/nvidia/inventory"
)

// These are the loads on which accounting is measured: each number of guests with each length of
// kernels. The load of a guest takes all four values along the diagonals of this grid.
var (
	gridGuests  = []int{1, 2, 4, 8}
	gridKernels = []time.Duration{50 * time.Microsecond, 250 * time.Microsecond, time.Millisecond, 5 * time.Millisecond}
	gridLoads   = []float64{0.1, 0.25, 0.5, 1}
)

// point is one load.
type point struct {
	guests int
	kernel int // an index of gridKernels
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

// pause returns the pause between a guest's kernels that makes its load what the point asks for.
func (p point) pause() time.Duration {
	return time.Duration(float64(gridKernels[p.kernel]) * (1 - p.load) / p.load)
}

// account measures the accounted GPU time against the number of fixed kernels times their length
// alone, and the processor time that the daemon takes meanwhile. Guests are idle at the start and
// end of each window, so that no kernel is counted in part.
func account(ctx context.Context, b *bench) error {
	solo, err := b.native(ctx, "solo")
	if err != nil {
		return err
	}
	g := &gridRun{bench: b, solo: solo}
	if g.lengths, err = b.scaleBy(ctx, solo, gridKernels); err != nil {
		return err
	}
	if err := g.loadSpins(ctx, solo); err != nil {
		return err
	}
	stamped, err := g.stamped(ctx)
	if err != nil {
		return err
	}
	points := grid()
	var seats []seat
	for i := range pick(b, 2, 8, 8) {
		seats = append(seats, seat{setup: tenant.Setup{Name: fmt.Sprintf("guest%d", i)}})
	}
	guests, err := b.open(ctx, seats...)
	if err != nil {
		return err
	}
	for _, m := range guests {
		if err := g.loadSpins(ctx, m); err != nil {
			return err
		}
	}
	through, err := g.throughGuest(ctx, guests[0])
	if err != nil {
		return err
	}
	var worst, relative, daemons, drivers, executors []float64
	var health, all time.Duration // too little to be measured in one run
	errorsOf := make([][]float64, len(points))
	signedOf, relativeOf := make([][]float64, len(points)), make([][]float64, len(points))
	longer := make([][]float64, len(points))
	err = b.repeat(1, func(int) error {
		begin, err := b.cpu()
		if err != nil {
			return err
		}
		var most, mostRelative float64
		for i, p := range points {
			if p.guests > len(guests) {
				continue
			}
			f, err := g.account(ctx, p, guests[:p.guests])
			if err != nil {
				return fmt.Errorf("%v: %w", p, err)
			}
			errorsOf[i], signedOf[i] = append(errorsOf[i], f.worst), append(signedOf[i], f.signed)
			relativeOf[i], longer[i] = append(relativeOf[i], f.relative), append(longer[i], f.longer)
			most, mostRelative = max(most, f.worst), max(mostRelative, f.relative)
		}
		end, err := b.cpu()
		if err != nil {
			return err
		}
		worst, relative = append(worst, most), append(relative, mostRelative)
		took := float64(end.at - begin.at)
		daemons = append(daemons, float64(end.daemon-begin.daemon)/took)
		drivers = append(drivers, float64(end.driver-begin.driver)/took)
		executors = append(executors, float64(end.guests-begin.guests)/took)
		health, all = health+end.health-begin.health, all+end.at-begin.at
		return nil
	})
	if err != nil {
		return err
	}
	r := b.row("accounting_error", worst, "|accounted − truth| / window of the worst guest, of 16 points of 1 to 8 guests, kernels of 50 µs to 5 ms and loads of 10 to 100 % a guest; truth: kernels × their length alone, calibrated in the same run, times by how much a program alone at the same load of the GPU has its blocks take longer right before the window. The page's table has each point's median. Lengths alone (solo) are what one more kernel adds to a row of kernels back to back, launched before the first is waited for, by the host's clock: with what the GPU needs between two of them, and without the host's part. By the kernels' own readings (globaltimer) they are from the first block's start to the last one's end of one kernel that is launched by itself: without what is between two, which is some 2 µs, and on a GPU that was idle before")
	r.Detail = detail("error", "with its sign", "relative, above 20 % load", "blocks' length under this load over that back to back")
	for i, p := range points {
		if len(errorsOf[i]) > 0 {
			r.Detail.Add(p.String(), figure.Median(errorsOf[i]), figure.Median(signedOf[i]), figure.Median(relativeOf[i]), figure.Median(longer[i]))
		}
	}
	r.Baseline["relative_above_20_percent_load"] = figure.Median(relative)
	r.Baseline["loga_length_error_published"], r.Baseline["loga_load_error_published"] = 0.06, 0.025
	for i, k := range gridKernels {
		r.Baseline["solo_us_"+k.String()] = float64(g.alone[i]) / 1e3
		r.Baseline["globaltimer_us_"+k.String()] = float64(stamped[i]) / 1e3
		r.Baseline["through_a_guest_us_"+k.String()] = float64(through[i]) / 1e3
	}
	c := b.row("host_cpu", daemons, "processor time of the daemon over the same 16 points, of the time that they took; by themselves: the driver's threads in the kernel, which move what of the record of context switches the daemon has not read within 33 ms and do other work besides, and vgpu-nvml, the process that watches the GPU's health")
	c.Baseline["loga_published"] = 0.17
	c.Baseline["driver_threads"] = figure.Median(drivers)
	c.Baseline["guests_processes"] = figure.Median(executors)
	c.Baseline["vgpu_nvml_cpu"] = float64(health) / float64(all)
	b.add(r, c)
	return nil
}

// gridRun is a measurement of the grid.
type gridRun struct {
	*bench
	lengths
	solo *member // the only program that uses the GPU between windows
}

// loadSpins loads the grid's kernels into a tenant, in order.
func (g *gridRun) loadSpins(ctx context.Context, m *member) error {
	for _, n := range g.iterations {
		s := g.full(n)
		j, err := m.load(ctx, tenant.Job{Spin: &s})
		if err != nil {
			return err
		}
		if _, err := m.run(ctx, tenant.Run{Job: j, Count: 2}); err != nil {
			return err
		}
		m.spins = append(m.spins, j)
	}
	return nil
}

// throughGuest returns how long the kernels take alone, back to back, when a guest launches them.
// The difference from the native lengths is what the guest's launch path adds between kernels.
func (g *gridRun) throughGuest(ctx context.Context, guest *member) (all []time.Duration, err error) {
	for i, k := range gridKernels {
		rounds := int(max(20*time.Millisecond/k, 8))
		ran, err := guest.run(ctx, tenant.Run{Job: guest.spins[i], Count: lengthRuns, Rounds: rounds, Depth: 16})
		if err != nil {
			return nil, err
		}
		all = append(all, figure.Quantile(ran.Turnarounds, 0.5)/time.Duration(rounds))
	}
	return all, nil
}

// stamped returns how long the kernels take alone by the GPU's clock as they read it, from the
// first block's start to the last one's end. It checks the lengths that the host's clock gives.
func (g *gridRun) stamped(ctx context.Context) (all []time.Duration, err error) {
	for i := range gridKernels {
		var some []time.Duration
		for range lengthRuns {
			ran, err := g.solo.run(ctx, tenant.Run{Job: g.solo.spins[i], Count: 1})
			if err != nil {
				return nil, err
			}
			some = append(some, ran.Stamped)
		}
		all = append(all, figure.Quantile(some, 0.5))
	}
	return all, nil
}

// pointFound is the result of one point: the worst guest's error; the same with its sign, positive
// if the guest was charged too much; the worst relative error of the guests with a load above 20 %;
// and how much longer kernels take under this load.
type pointFound struct{ worst, signed, relative, longer float64 }

// slowdown returns how much longer the kernels' blocks take at the point's load than back to back,
// when one program runs alone: clocks are lower and caches colder.
func (g *gridRun) slowdown(ctx context.Context, p point) (float64, error) {
	load := min(p.load*float64(p.guests), 1)
	k := gridKernels[p.kernel]
	run := tenant.Run{Job: g.solo.spins[p.kernel], For: pick(g.bench, 10*time.Millisecond, 150*time.Millisecond, 200*time.Millisecond),
		Pause: time.Duration(float64(k) * (1 - load) / load)}
	if load == 1 {
		run.Depth, run.Rounds = 4, max(int(10*time.Millisecond/k), 2)
	}
	ran, err := g.solo.run(ctx, run)
	if err != nil {
		return 0, err
	}
	return float64(ran.Block) / float64(max(g.block[p.kernel], 1)), nil
}

// account measures one point.
func (g *gridRun) account(ctx context.Context, p point, guests []*member) (f pointFound, err error) {
	if f.longer, err = g.slowdown(ctx, p); err != nil {
		return f, err
	}
	before, err := g.used(ctx, guests)
	if err != nil {
		return f, err
	}
	window := pick(g.bench, 50*time.Millisecond, 800*time.Millisecond, 1300*time.Millisecond)
	var tasks []task
	for _, m := range guests {
		run := tenant.Run{Job: m.spins[p.kernel], For: window, Pause: p.pause(), Jitter: p.pause() / 10}
		if p.load == 1 {
			run.Depth, run.Rounds, run.Jitter = 4, max(int(10*time.Millisecond/gridKernels[p.kernel]), 2), 0
		}
		tasks = append(tasks, task{m, run})
	}
	begin := time.Now()
	rans, err := together(ctx, tasks...)
	if err != nil {
		return f, err
	}
	took := time.Since(begin) - lead
	if err := rest(ctx, accountingLag); err != nil {
		return f, err
	}
	after, err := g.used(ctx, guests)
	if err != nil {
		return f, err
	}
	length := time.Duration(float64(g.alone[p.kernel]) * f.longer)
	for i, ran := range rans {
		truth := time.Duration(ran.All) * length
		accounted := after[i] - before[i]
		if e := figure.AccountingError(accounted, truth, took); e > f.worst {
			f.worst, f.signed = e, float64(accounted-truth)/float64(took)
		}
		if float64(truth) > 0.2*float64(took) {
			f.relative = max(f.relative, figure.RelativeError(accounted, truth))
		}
	}
	return f, nil
}

// cpuTimes holds the processor time used so far.
type cpuTimes struct {
	at                             time.Duration
	daemon, driver, guests, health time.Duration
}

// driverThreads is the name of the driver's own kernel threads. They move the records of context
// switches when the daemon has not done so in time.
const driverThreads = "nv_queue"

// cpu returns the processor time of the daemon, the driver's threads, the guests' processes and the
// process that monitors the GPU's health.
func (b *bench) cpu() (c cpuTimes, err error) {
	c.at = tenant.Monotonic()
	if c.daemon, err = proc.CPUTime(b.daemon.Cmd.Process.Pid); err != nil {
		return c, err
	}
	if c.guests, err = proc.CPUTimeOfProgram(b.vgpud()); err != nil {
		return c, err
	}
	c.guests -= c.daemon
	if c.driver, err = proc.CPUTimeOfKernel(driverThreads); err != nil {
		return c, err
	}
	c.health, err = proc.CPUTimeOfProgram(b.program(inventory.ProgramName))
	return c, err
}
