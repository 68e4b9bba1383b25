package main

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"vgpud/e2e/nvidia/figure"
	"vgpud/e2e/nvidia/report"
	"vgpud/e2e/nvidia/tenant"
)

// part is some of the measurements, which share guests.
type part struct {
	name string
	ids  []string
	// takes is how long it may take, for which it measures less often than it would (see
	// [bench.repeat]).
	takes time.Duration
	// apart reports whether it runs only if it is named: soak for the time that was asked for, case
	// where there are several GPUs, and those of event kernels for a file of their own.
	apart bool
	run   func(ctx context.Context, b *bench) error
}

// parts are all parts, in the order in which they run.
var parts = []part{
	{"launch", []string{"launch_added_us", "copy_up_ratio", "copy_down_ratio"}, 20 * time.Second, false, launches},
	{"control", []string{"suspend_ms", "resume_ms", "evict_us_p50", "evict_us_p99", "evict_own_us_p50", "evict_own_us_p99"}, 95 * time.Second, false, control},
	{"urgent", []string{"urgent_added_us", "urgent_speedup_default", "urgent_speedup_mps", "urgent_batch_kept", "urgent_back_to_back_added_us", "urgent_back_to_back_speedup_default", "urgent_back_to_back_speedup_mps", "urgent_back_to_back_batch_kept"}, 100 * time.Second, false, urgent},
	{"accounting", []string{"accounting_error", "host_cpu"}, 150 * time.Second, false, account},
	{"shares", []string{"share_error", "throughput_kept"}, 155 * time.Second, false, shares},
	{"cost", []string{"accounting_cost_10us", "accounting_cost_median_10us", "accounting_cost_100us", "accounting_cost_median_100us"}, 150 * time.Second, false, cost},
	{"fair", []string{"fair_distance"}, 215 * time.Second, false, fair},
	{"transform", []string{"transform_overhead_geomean", "transform_overhead_worst"}, 110 * time.Second, false, transform},
	{"cuda", []string{"cuda_programs_failed", "cuda_launch_call_us", "cuda_begin_ratio", "cuda_whole_ratio"}, 180 * time.Second, false, cudaPrograms},
	{faultsPart, nil, 70 * time.Second, false, faults},
	{casePart, []string{"gpu_sa", "gpu_oom", "gpu_begin_us", "gpu_launch_added"}, 140 * time.Second, true, tasksOverGPUs},
	{edgePart, []string{"launch_p50_us", "launch_p99_us", "launch32_p50_us", "launch32_p99_us", "speedup_native", "speedup_guest", "block_us", "grid_us", "idle_other", "idle_same", "shared_p50_us"}, 75 * time.Second, true, eventKernels},
	{edgeIdlePart, []string{"idle_core", "idle_watts"}, 70 * time.Second, true, eventIdle},
	{edgeSharesPart, []string{"event_share_error", "event_charge_error"}, 45 * time.Second, true, eventShares},
	{edgeHostPart, []string{"cpu_slow", "ping_rate"}, 50 * time.Second, true, eventsBesideHost},
	{edgeStreamsPart, []string{"small_faster", "large_slower"}, 45 * time.Second, true, eventStreams},
	{edgeUrgentPart, []string{"shared_urgent_p50_us"}, 60 * time.Second, true, urgentEvents},
	{pythonPart, []string{"python_operations_failed"}, 120 * time.Second, true, pythonPrograms},
	{soakPart, []string{"soak_lost", "soak_accounting_error", "soak_memory_kept", "soak_kept", "soak_not_recovered", "soak_standstill_ms"}, usualSoak + soakCalibrates, true, soak},
}

// soakPart is the part that takes as long as it is told to.
const soakPart = "soak"

// faultsPart is the part that makes no rows but tries faults.
const faultsPart = "faults"

// pythonPart is the part that takes Python packages, which few machines have.
const pythonPart = "python"

// done reports whether a file has everything that the part makes.
func (p *part) done(f *report.File) bool {
	if p.name == faultsPart {
		return !slices.ContainsFunc(trials, func(t trial) bool {
			return !slices.ContainsFunc(f.Faults, func(x report.Fault) bool { return x.What == t.what })
		})
	}
	return f.Has(p.ids)
}

func partNames() (names []string) {
	for _, p := range parts {
		names = append(names, p.name)
	}
	return names
}

// choose returns the parts of these names, or without names all that do not run apart.
func choose(names string) ([]part, error) {
	if names == "" {
		return slices.DeleteFunc(slices.Clone(parts), func(p part) bool { return p.apart }), nil
	}
	var chosen []part
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(parts, func(p part) bool { return p.name == name })
		if i < 0 {
			return nil, fmt.Errorf("no part %q: want some of %s", name, strings.Join(partNames(), ", "))
		}
		chosen = append(chosen, parts[i])
	}
	return chosen, nil
}

// bench is a part that is running.
type bench struct {
	*options
	*testbed
	found   *report.File
	command string
	begin   time.Time
	takes   time.Duration // of the part, from then on
}

// pick returns the value for the amount of time there is.
func pick[T any](b *bench, tiny, quick, full T) T {
	switch {
	case b.tiny:
		return tiny
	case b.quick:
		return quick
	}
	return full
}

// leastRuns is the least number of runs, however long they take.
const leastRuns = 3

// runs is the number of runs if they fit into the part's time.
func (b *bench) runs() int {
	if b.most > 0 {
		return min(b.most, pick(b, 1, leastRuns, 5))
	}
	return pick(b, 1, leastRuns, 5)
}

// repeat runs run [bench.runs] times. After [leastRuns] it stops if another run like the last one
// would end after the given fraction of the part's time.
func (b *bench) repeat(part float64, run func(i int) error) error {
	end := b.begin.Add(time.Duration(part * float64(b.takes)))
	var last time.Duration
	for i := range b.runs() {
		begin := time.Now()
		if i >= leastRuns && begin.Add(last).After(end) {
			b.say("%d runs of %d: another would outgrow the part's time", i, b.runs())
			break
		}
		if err := run(i); err != nil {
			return err
		}
		last = time.Since(begin)
		b.say("run %d: %.1f s", i+1, last.Seconds())
	}
	return nil
}

// row makes a row of the runs. [bench.add] puts it into the file.
func (b *bench) row(id string, runs []float64, how string) report.Row {
	return b.rowOf(id, figure.Median(runs), runs, how)
}

// rowOf makes a row with a value that follows from all runs together.
func (b *bench) rowOf(id string, value float64, runs []float64, how string) report.Row {
	r := report.NewRowOf(id, value, runs)
	r.Command, r.How = b.command, how
	return r
}

// add adds rows. It leaves out baselines that could not be measured, and rows without a value, a
// goal or a spread, which JSON can't hold.
func (b *bench) add(rows ...report.Row) {
	none := func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) }
	for _, r := range rows {
		maps.DeleteFunc(r.Baseline, func(_ string, v float64) bool { return none(v) })
		if slices.ContainsFunc([]float64{r.Value, r.Goal, r.Spread}, none) {
			b.say("%s: not measured", r.ID)
			continue
		}
		b.found.Rows = append(b.found.Rows, r)
	}
}

func (b *bench) say(format string, args ...any) { say(b.options, "  "+format, args...) }

// ask returns a file that names the GPU and its driver.
func ask(ctx context.Context, o *options) (report.File, error) {
	f := report.File{Date: time.Now().UTC().Format(time.DateOnly)}
	if o.kind == "soft" {
		f.GPU, f.Driver = "a GPU in software: these results are of no use", "none"
		return f, nil
	}
	g, err := probe(ctx, o)
	if err != nil {
		return f, err
	}
	f.GPU, f.Driver, o.sms = g.name, g.driver, g.sms
	return f, nil
}

// full returns a kernel that fills the GPU, two blocks an SM, for so many iterations.
func (b *bench) full(iterations int) tenant.Spin {
	if b.kind == "soft" {
		return tenant.Spin{Blocks: 2, Threads: 32, Iterations: iterations}
	}
	return tenant.Spin{Blocks: 2 * b.sms, Threads: 1024, Iterations: iterations}
}

// lengths are kernels of fixed work that last for given times, and how long they last.
type lengths struct {
	iterations []int
	// alone is how long each is alone on the GPU, back to back with others of its kind, and block
	// how long its blocks then take by %globaltimer.
	alone, block []time.Duration
}

// scale makes spins that fill the GPU and last for one of the times each.
func (b *bench) scale(ctx context.Context, times ...time.Duration) (l lengths, err error) {
	err = b.solo(ctx, func(m *member) error {
		l, err = b.scaleBy(ctx, m, times)
		return err
	})
	return l, err
}

// scaleTries is how often lengths are measured until they [tells].
const scaleTries = 5

// tells reports whether the lengths of few iterations and of eleven times as many tell what one
// takes. Where others had the processors they may be the other way round, and a kernel made by them
// would run for hours.
func tells(took [2]time.Duration) bool { return took[0] > 0 && took[1] > took[0]+took[0]/4 }

// scaleBy is scale by a program of the host, which then has the spins as its jobs, behind those
// that it has, the last len(times).
func (b *bench) scaleBy(ctx context.Context, m *member, times []time.Duration) (l lengths, err error) {
	// Twice: what a launch costs beside its iterations falls out. And a GPU that was idle is slow
	// for a while.
	few, many := 2_000, 22_000
	if b.kind == "soft" {
		few, many = few/100, many/100
	}
	var took [2]time.Duration
	measure := func() error {
		for i, n := range []int{few, many} {
			if took[i], _, err = b.length(ctx, m, b.full(n)); err != nil {
				return err
			}
		}
		return nil
	}
	if err := measure(); err != nil {
		return l, err
	}
	if err := b.warm(ctx, m, b.full(many)); err != nil {
		return l, err
	}
	for try := 1; ; try++ {
		if err := measure(); err != nil {
			return l, err
		}
		if tells(took) {
			break
		}
		if try == scaleTries {
			return l, fmt.Errorf("%d iterations took %v and %d %v: the host is too busy to tell what one takes", few, took[0], many, took[1])
		}
		few, many = 2*few, 2*many // what others take of the processors then weighs less
	}
	per := float64(took[1]-took[0]) / float64(many-few)
	fixed := float64(took[0]) - float64(few)*per
	for _, t := range times {
		n := max(int((float64(t)-fixed)/per), 1)
		alone, block, err := b.length(ctx, m, b.full(n))
		if err != nil {
			return l, err
		}
		l.iterations, l.alone, l.block = append(l.iterations, n), append(l.alone, alone), append(l.block, block)
	}
	return l, nil
}

// warm keeps the GPU busy until its clocks are up.
func (b *bench) warm(ctx context.Context, m *member, s tenant.Spin) error {
	j, err := m.load(ctx, tenant.Job{Spin: &s})
	if err != nil {
		return err
	}
	_, err = m.run(ctx, tenant.Run{Job: j, For: pick(b, 10*time.Millisecond, 500*time.Millisecond, time.Second), Rounds: 16, Depth: 8})
	return err
}

// lengthRuns is how often a kernel's length is measured.
const lengthRuns = 5

// length is how long a spin is alone, back to back with others of its kind, all of which are
// launched before the first is waited for; and how long its blocks take. It leaves the member a job
// more.
func (b *bench) length(ctx context.Context, m *member, s tenant.Spin) (alone, block time.Duration, err error) {
	j, err := m.load(ctx, tenant.Job{Spin: &s})
	if err != nil {
		return 0, 0, err
	}
	return b.lengthOf(ctx, m, j, nil)
}

// lengthOf is [bench.length] of a loaded job, in a form of its kernel.
func (b *bench) lengthOf(ctx context.Context, m *member, j int, as *tenant.Form) (alone, block time.Duration, err error) {
	one, err := m.run(ctx, tenant.Run{Job: j, Count: 2, As: as}) // the first loads its code
	if err != nil {
		return 0, 0, err
	}
	const enough = 20 * time.Millisecond
	rounds := int(min(max(enough/max(one.Turnarounds[1], 1), 4), 512))
	depth := rounds
	if b.kind == "soft" {
		depth = min(8, rounds) // it does not remember as many
	}
	ran, err := m.run(ctx, tenant.Run{Job: j, Count: lengthRuns, Rounds: rounds, Depth: depth, As: as})
	if err != nil {
		return 0, 0, err
	}
	// The host's part of each iteration, its first launch and the last one's end, is left out by a
	// second length.
	half, err := m.run(ctx, tenant.Run{Job: j, Count: lengthRuns, Rounds: rounds / 2, Depth: min(depth, rounds/2), As: as})
	if err != nil {
		return 0, 0, err
	}
	long, short := figure.Quantile(ran.Turnarounds, 0.5), figure.Quantile(half.Turnarounds, 0.5)
	return (long - short) / time.Duration(rounds-rounds/2), ran.Block, nil
}
