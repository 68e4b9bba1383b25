package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"vgpud/e2e/nvidia/figure"
	"vgpud/e2e/nvidia/report"
	"vgpud/e2e/nvidia/tenant"
	"vgpud/mediator/api"
	"vgpud/mediator/vgpu/abi"
)

// hardwareSuspension is the duration of the hardware's own suspension, as measured before on an
// H100 (docs/nvidia.md). evictOverhead is how much longer than the kernel's longest chunk an
// eviction may take.
const (
	hardwareSuspension = 360.0 // µs
	evictOverhead      = 25.0  // µs
)

// suspensionsEach is the number of suspensions in a run. It is large enough for a percentile over
// all runs.
const suspensionsEach = 60

// control measures how soon a kernel is off the GPU, both suspended by the hardware and evicted in
// its own form.
func control(ctx context.Context, b *bench) error {
	stops, err := b.suspensions(ctx)
	if err != nil {
		err = fmt.Errorf("suspension: %w", err)
	}
	return errors.Join(err, b.evictions(ctx, stops))
}

// suspensions measures suspension by the hardware. It returns, by run, how long each suspension
// took until the kernel stood still, in µs.
func (b *bench) suspensions(ctx context.Context) (stops [][]float64, err error) {
	if b.kind == "soft" {
		return nil, nil // a GPU in software suspends between kernels only
	}
	blocks := 2 * b.sms
	var off, on, whole, offCalls, onCalls []float64
	var stopped, all int
	m, err := b.controlled(ctx, "controlled")
	if err != nil {
		return nil, err
	}
	for range b.runs() {
		a, err := m.ask(ctx, tenant.Request{Suspend: &tenant.Suspend{Times: pick(b, 3, 15, suspensionsEach), Blocks: max(blocks, 2)}})
		if err != nil {
			return nil, err
		}
		var o, n, w, oc, nc []float64
		for _, s := range a.Standstills {
			all++
			if !s.Stopped {
				continue
			}
			stopped++
			o, n, w = append(o, millis(s.Suspend)), append(n, millis(s.Resume)), append(w, millis(s.Whole))
			oc, nc = append(oc, millis(s.Off)), append(nc, millis(s.On))
		}
		if len(o) == 0 {
			return nil, fmt.Errorf("in none of %d suspensions did the kernel stand still", len(a.Standstills))
		}
		var us []float64
		for _, ms := range o {
			us = append(us, 1e3*ms)
		}
		stops = append(stops, us)
		off, on, whole = append(off, figure.Median(o)), append(on, figure.Median(n)), append(whole, figure.Median(w))
		offCalls, onCalls = append(offCalls, figure.Median(oc)), append(onCalls, figure.Median(nc))
	}
	if err := b.leave(ctx, m); err != nil {
		return nil, err
	}
	how := func(until string) string {
		return fmt.Sprintf("a kernel on all SMs reads the GPU's clock; from before the call until %s: %d of %d stood still", until, stopped, all)
	}
	const before = ". Goal: as when it was measured before, on the same kind of GPU, median of 50 (docs/nvidia.md)"
	suspend := b.row("suspend_ms", off, how("its last block stands still")+before)
	resume := b.row("resume_ms", on, how("its first block goes on, by the kernel's progress, as where the goal is from; last_block: until the last one does too")+before)
	resume.Baseline["last_block_ms"] = figure.Median(whole)
	suspend.Baseline["measured_before_ms"], resume.Baseline["measured_before_ms"] = report.MeasuredSuspend, report.MeasuredResume
	suspend.Baseline["call_ms"], resume.Baseline["call_ms"] = figure.Median(offCalls), figure.Median(onCalls)
	if stopped < all {
		suspend.Met = false
		suspend.Why = "not every suspension stopped the kernel"
	}
	b.add(suspend, resume)
	return stops, nil
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// longKernels returns the kernels whose evictions are measured.
func (b *bench) longKernels() []tenant.Job {
	if b.kind == "soft" {
		return []tenant.Job{{Scaled: "spin"}}
	}
	names := pick(b, []string{"vecadd"}, []string{"vecadd", "stencil", "matmul", "nbody"},
		[]string{"vecadd", "stencil", "matmul", "nbody", "blackscholes", "kmeans", "transpose", "md5"})
	var jobs []tenant.Job
	for _, n := range names {
		jobs = append(jobs, tenant.Job{Scaled: n})
	}
	return jobs
}

// eviction holds the measurements of one kernel, in the form that a guest's tuner chose: how the
// daemon evicts it for another guest's kernel, and how a program evicts its own.
type eviction struct {
	name     string
	form     tenant.Form
	p50, p99 []float64   // µs, of the daemon's evictions of each run
	count    uint64      // of the daemon's evictions
	own      [][]float64 // the program's evictions: µs, by run
	longest  float64     // µs, of the chunks with which the form fills the GPU
	overhead float64     // of the form
}

// leaves reports whether the kernel can be evicted: the tuner did not choose the original.
func (e *eviction) leaves() bool { return e.form.Form != 0 }

// chunk returns the longest time between two reads of the evict word, in µs.
func (e *eviction) chunk() float64 {
	return max(float64(e.form.Task)/float64(time.Microsecond)*float64(max(e.form.Group, 1)), e.longest)
}

// all returns the program's evictions of all runs.
func (e *eviction) all() []float64 { return slices.Concat(e.own...) }

// leastForPercentile is the least number of evictions for which the 99th percentile is not merely
// the slowest one.
const leastForPercentile = 100

// slow returns the 99th percentile of the daemon's evictions, or NaN for fewer than least.
func (e *eviction) slow(least uint64) float64 {
	if e.count < least {
		return math.NaN()
	}
	return figure.Median(e.p99)
}

// percentile99 returns the 99th percentile.
func percentile99(us []float64) float64 { return figure.Quantile(us, 0.99) }

// endless is a number of rounds that a run never completes, so that a batch program always has its
// next kernel queued.
const endless = 1 << 20

// evictions measures how soon kernels can be evicted in the forms that a guest's tuner chooses.
// stops are the hardware's suspensions, for comparison.
func (b *bench) evictions(ctx context.Context, stops [][]float64) error {
	scaled, err := b.scale(ctx, 100*time.Microsecond)
	if err != nil {
		return err
	}
	all, err := b.open(ctx, seat{setup: tenant.Setup{Name: "batch", Preempt: true}},
		seat{api.VMSpec{PriorityCeiling: api.MaxPriority}, tenant.Setup{Name: "urgent", Priority: -10}})
	if err != nil {
		return err
	}
	batch, rush := all[0], all[1]
	spin := b.full(scaled.iterations[0])
	short, err := rush.load(ctx, tenant.Job{Spin: &spin})
	if err != nil {
		return err
	}
	var found []eviction
	var errs []error
	for _, j := range b.longKernels() {
		e, err := b.evictGuests(ctx, batch, rush, j, short)
		if err != nil {
			errs = append(errs, fmt.Errorf("eviction of a guest's %s: %w", e.name, err))
			break
		}
		found = append(found, e)
	}
	if err := b.leave(ctx, batch, rush); err != nil {
		return errors.Join(append(errs, err)...)
	}
	for i := range found {
		e := &found[i]
		if e.leaves() {
			if err := b.evictOwn(ctx, e); err != nil { // a failure does not keep the other kernels from being measured
				errs = append(errs, fmt.Errorf("eviction of %s: %w", e.name, err))
			}
		}
		b.say("%s in form %d, group %d, task %v (%s): %d evictions by the daemon, median %.0f µs, 99 in 100 %.0f µs, chunk %.0f µs; of its own, median %.0f µs; overhead %.2f %%", e.name, e.form.Form, e.form.Group, e.form.Task, e.form.Why,
			e.count, figure.Median(e.p50), e.slow(1), e.chunk(), figure.Median(e.all()), 100*e.overhead)
	}
	if !slices.ContainsFunc(found, func(e eviction) bool { return e.leaves() && e.count > 0 }) {
		return errors.Join(append(errs, errors.New("nothing was evicted"))...)
	}
	for _, r := range evictionRows {
		b.add(b.evictionRow(&r, found, stops))
	}
	return errors.Join(errs...)
}

// A run has several hundred evictions, which a 99th percentile needs, unless these take too long.
const (
	evictionsEach = 200
	evictionsFor  = 2000 * time.Millisecond // of one kernel, in all runs
)

// softForm is the form for a GPU in software.
var softForm = &tenant.Form{Form: uint8(abi.PreemptSingle), Group: 1, Every: 1}

// evictOwn lets a program evict its own kernel, in the form that the guest's tuner chose.
func (b *bench) evictOwn(ctx context.Context, e *eviction) error {
	m, err := b.controlled(ctx, "evicting")
	if err != nil {
		return err
	}
	asked := tenant.Evict{Scaled: e.name, Times: b.runs() * pick(b, 5, evictionsEach, evictionsEach), For: evictionsFor, As: e.form}
	a, err := m.ask(ctx, tenant.Request{Evict: &asked})
	if err = errors.Join(err, b.leave(ctx, m)); err != nil {
		return err
	}
	found := a.Evicted
	if !found.Same {
		return errors.New("its results are not the original's")
	}
	e.overhead = float64(found.Chosen)/float64(found.Original) - 1
	e.longest = float64(found.Longest) / float64(time.Microsecond)
	took := figure.Micros(found.Took)
	e.own = slices.Collect(slices.Chunk(took, max((len(took)+b.runs()-1)/b.runs(), 1)))
	return nil
}

// evictGuests lets the daemon evict a batch guest's kernel for an urgent guest's.
func (b *bench) evictGuests(ctx context.Context, batch, rush *member, j tenant.Job, short int) (e eviction, err error) {
	e.name = j.Scaled
	// The batch guest's driver chooses forms by what the urgent guest wants.
	if err := b.setPolicy(ctx, "hpf"); err != nil {
		return e, err
	}
	long, form, err := b.tuned(ctx, batch, j)
	if err != nil {
		return e, err
	}
	e.form = *form
	var as *tenant.Form
	if b.kind == "soft" { // forms cost too much there to be chosen
		as, e.form = softForm, *softForm
	}
	for range b.runs() {
		// The daemon's quantiles count from the last change of the policy.
		if err := errors.Join(b.setPolicy(ctx, "none"), b.setPolicy(ctx, "hpf")); err != nil {
			return e, err
		}
		before, err := b.evictionsNow(ctx)
		if err != nil {
			return e, err
		}
		const pause = 2 * time.Millisecond
		window := pick(b, 300*time.Millisecond, 600*time.Millisecond, 600*time.Millisecond)
		_, err = together(ctx, task{batch, tenant.Run{Job: long, For: window, Depth: 4, Rounds: endless, As: as}},
			task{rush, tenant.Run{Job: short, For: window, Pause: pause, Jitter: 2 * pause}})
		if err != nil {
			return e, err
		}
		after, err := b.evictionsNow(ctx)
		if err != nil {
			return e, err
		}
		if n := after.Count - before.Count; n > 0 {
			e.count += n
			e.p50, e.p99 = append(e.p50, 1e6*after.P50), append(e.p99, 1e6*after.P99)
		}
	}
	_, err = batch.ask(ctx, tenant.Request{Reset: true}) // frees the memory for the next kernel
	return e, err
}

func (b *bench) evictionsNow(ctx context.Context) (api.Evictions, error) {
	gpus, err := b.client.GPUs(ctx)
	if err != nil {
		return api.Evictions{}, err
	}
	return gpus[0].Evictions, nil
}

// tuneLaunches limits the launches until a kernel's form is settled.
const tuneLaunches = 160

// tuned loads a job and launches it until the form of its kernel is settled.
func (b *bench) tuned(ctx context.Context, m *member, j tenant.Job) (int, *tenant.Form, error) {
	id, err := m.load(ctx, j)
	if err != nil {
		return 0, nil, err
	}
	const some = 16
	var form *tenant.Form
	for range tuneLaunches / some {
		// Several launches are queued at a time, as in a program written for speed. Otherwise the
		// measured cost of a form would be the time until the host notices that the launch has
		// ended.
		if _, err := m.run(ctx, tenant.Run{Job: id, Count: 1, Rounds: some, Depth: 4}); err != nil {
			return 0, nil, err
		}
		a, err := m.ask(ctx, tenant.Request{Forms: &id})
		if err != nil {
			return 0, nil, err
		}
		if form = a.Form; form == nil {
			return 0, nil, errors.New("it has no forms")
		}
		if form.Settled() {
			break
		}
	}
	return id, form, nil
}

// kindOfEviction describes a row: its evictions, quantile and bound.
type kindOfEviction struct {
	id, quantile string
	own          bool // a program's evictions of its own kernel, not the daemon's
	of           func(e *eviction, least uint64) (value float64, runs []float64)
	bound        func(e *eviction) float64
}

// These are the bounds: a chunk plus evictOverhead for medians, the hardware's suspension for 99th
// percentiles.
var (
	chunkBound      = func(e *eviction) float64 { return evictOverhead + e.chunk() }
	suspensionBound = func(*eviction) float64 { return hardwareSuspension }
)

var evictionRows = []kindOfEviction{
	{"evict_us_p50", "median", false, func(e *eviction, _ uint64) (float64, []float64) { return figure.Median(e.p50), e.p50 }, chunkBound},
	{"evict_us_p99", "99th percentile", false, func(e *eviction, least uint64) (float64, []float64) { return e.slow(least), e.p99 }, suspensionBound},
	{"evict_own_us_p50", "median", true, func(e *eviction, _ uint64) (float64, []float64) { return ofRuns(e, figure.Median) }, chunkBound},
	{"evict_own_us_p99", "99th percentile", true, func(e *eviction, _ uint64) (float64, []float64) { return ofRuns(e, percentile99) }, suspensionBound},
}

// ofRuns returns a quantile of a program's evictions, over all runs and of each run.
func ofRuns(e *eviction, of func([]float64) float64) (value float64, runs []float64) {
	if len(e.all()) == 0 {
		return math.NaN(), nil
	}
	for _, us := range e.own {
		runs = append(runs, of(us))
	}
	return of(e.all()), runs
}

// evictionRow makes the row of the kernel that is closest to its bound, or exceeds it most, among
// the kernels that can be evicted.
func (b *bench) evictionRow(k *kindOfEviction, found []eviction, stops [][]float64) report.Row {
	var nearest *eviction
	least := pick[uint64](b, 1, leastForPercentile, leastForPercentile)
	over := func(e *eviction) float64 {
		value, _ := k.of(e, least)
		return value / k.bound(e)
	}
	table := detail("form", "group", "task, µs", "chunk, µs", "the form's overhead", "evictions by the daemon", "p50, µs", "p99, µs", "a program's of its own", "p50, µs", "p99, µs")
	above, known := 0, 0
	for i := range found {
		e := &found[i]
		table.Add(e.name, float64(e.form.Form), float64(e.form.Group), float64(e.form.Task)/1e3, e.chunk(), e.overhead,
			float64(e.count), figure.Median(e.p50), e.slow(least), float64(len(e.all())), figure.Median(e.all()), percentile99(e.all()))
		if !e.leaves() || math.IsNaN(over(e)) {
			continue
		}
		if known++; over(e) > 1 {
			above++
		}
		if nearest == nil || over(e) > over(nearest) {
			nearest = e
		}
	}
	if nearest == nil {
		return report.NewRow(k.id, nil) // the value is NaN, and the row is left out
	}
	value, runs := k.of(nearest, least)
	who := "by the daemon, a guest's kernel for another guest's under hpf, from the daemon's word until the executor sees that its last block has left"
	if k.own {
		who = "by a program of the host, of its own kernel, from writing the word until it sees that the last block has left"
	}
	r := b.rowOf(k.id, value, runs, fmt.Sprintf("%s, in the form that the guest's tuner chooses where nothing is configured; %s, of the kernel that is nearest its bound or the farthest above it, of those that leave by themselves: %s. Above the bound: %d of %d kernels. Goal of a median: %g µs and the longest chunk, which is group times as long as a task is on the average, or if that is more as a launch of just as many chunks as the GPU holds at once; of a 99th percentile: the hardware's suspension, a median of %g µs when it was measured before on the same kind of GPU (docs/nvidia.md). Of fewer than %d evictions there is no 99th percentile. Form 0 is the original, which the tuner leaves as it is and nothing takes off the GPU but time slices",
		who, k.quantile, nearest.name, above, known, evictOverhead, hardwareSuspension, leastForPercentile))
	r.Hold(k.bound(nearest))
	r.Detail = table
	r.Baseline["hardware_suspension_us_measured_before"] = hardwareSuspension
	if len(stops) > 0 {
		us := slices.Concat(stops...)
		r.Baseline["hardware_suspension_us_p50"], r.Baseline["hardware_suspension_us_p99"] = figure.Median(us), percentile99(us)
	}
	r.Baseline["chunk_us"] = nearest.chunk()
	r.Baseline["effisha_mean_us_published"], r.Baseline["xsched_v100_us_published"] = 80, 32
	return r
}
