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

// hardwareSuspension is what the hardware's own suspension takes, as measured before on an
// H100 (docs/nvidia.md), and evictOverhead what an eviction may take beside the kernel's
// longest chunk.
const (
	hardwareSuspension = 360.0 // µs
	evictOverhead      = 25.0  // µs
)

// suspensionsEach is how often a run suspends: a percentile of all runs is to be one.
const suspensionsEach = 60

// control measures how soon a kernel is off the GPU: by the hardware, and by its own
// form.
func control(ctx context.Context, b *bench) error {
	stops, err := b.suspensions(ctx)
	if err != nil {
		err = fmt.Errorf("suspension: %w", err)
	}
	return errors.Join(err, b.evictions(ctx, stops))
}

// suspensions measures the hardware's way, and returns how long each took until the
// kernel stood still, in µs, by run.
func (b *bench) suspensions(ctx context.Context) (stops [][]float64, err error) {
	if b.kind == "soft" {
		return nil, nil // it suspends between kernels
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

// longKernels are the kernels whose evictions are measured.
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

// eviction is what was measured of one kernel: by a program that evicts its own
// kernel, and by the daemon, which has a guest's leave for another's.
type eviction struct {
	name     string
	form     tenant.Form
	longest  float64     // µs, of the chunks with which the form fills the GPU
	took     [][]float64 // µs, by run
	overhead float64     // of the form
	whole    daemonEvictions
}

// leaves is whether the kernel leaves by itself, and is not suspended by the hardware.
func (e *eviction) leaves() bool { return e.form.Form != 0 }

// bound is what an eviction may take, in µs, where the hardware's own suspension takes
// so long.
func (e *eviction) bound(suspension float64) float64 {
	if !e.leaves() {
		return suspension
	}
	chunk := float64(e.form.Task) / float64(time.Microsecond) * float64(max(e.form.Group, 1))
	return min(evictOverhead+max(chunk, e.longest), suspension)
}

// all are the evictions of all runs.
func (e *eviction) all() []float64 { return slices.Concat(e.took...) }

// daemonEvictions are the daemon's: from its word until it knows that the kernel has
// left and what it has left to do.
type daemonEvictions struct {
	form     tenant.Form // which the guest's tuner chose
	p50, p99 []float64   // µs, of each run
	count    uint64
}

// leastForPercentile is of how many evictions there is a 99th percentile that is not
// just the slowest.
const leastForPercentile = 100

// slow is the 99th percentile, NaN where there is none.
func (d *daemonEvictions) slow() float64 {
	if d.count < leastForPercentile {
		return math.NaN()
	}
	return figure.Median(d.p99)
}

// percentile99 is the 99th percentile.
func percentile99(us []float64) float64 { return figure.Quantile(us, 0.99) }

// slowSuspension is what the hardware's suspension takes at the 99th percentile, in µs:
// by the same part's suspensions, of all runs together, where that is more than the
// median of before.
func slowSuspension(stops [][]float64) float64 {
	return max(hardwareSuspension, percentile99(slices.Concat(stops...)))
}

// endless is rounds of a batch program that always has its next kernel queued.
const endless = 1 << 20

// evictions measures how soon kernels in their chosen forms leave. stops are the
// hardware's suspensions, which stand in where they are the better way.
func (b *bench) evictions(ctx context.Context, stops [][]float64) error {
	scaled, err := b.scale(ctx, 100*time.Microsecond)
	if err != nil {
		return err
	}
	var found []eviction
	var errs []error
	for _, j := range b.longKernels() {
		e, err := b.evictAlone(ctx, j.Scaled, stops)
		if err != nil { // the others are measured all the same
			errs = append(errs, fmt.Errorf("eviction of %s: %w", e.name, err))
		}
		found = append(found, e)
	}
	all, err := b.open(ctx, seat{setup: tenant.Setup{Name: "batch", Preempt: true, Leaves: batchLeaves}},
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
	for i, j := range b.longKernels() {
		e := &found[i]
		if e.whole, err = b.evictGuests(ctx, batch, rush, j, short); err != nil {
			errs = append(errs, fmt.Errorf("eviction of a guest's %s: %w", e.name, err))
			break
		}
		b.say("%s in form %d, group %d, task %v: median %.0f µs, bound %.0f µs; the daemon's: form %d, group %d, %d, median %.0f µs", e.name, e.form.Form, e.form.Group, e.form.Task,
			figure.Median(e.all()), e.bound(hardwareSuspension), e.whole.form.Form, e.whole.form.Group, e.whole.count, figure.Median(e.whole.p50))
	}
	found = slices.DeleteFunc(found, func(e eviction) bool { return len(e.all()) == 0 })
	if len(found) == 0 {
		return errors.Join(append(errs, errors.New("nothing was evicted"))...)
	}
	b.add(b.evictionRow("evict_us_p50", found, stops), b.evictionRow("evict_us_p99", found, stops))
	return errors.Join(errs...)
}

// For a 99th percentile to be one, a run has some hundreds of evictions, where they
// don't take too long.
const (
	evictionsEach = 200
	evictionsFor  = 2000 * time.Millisecond // of one kernel, in all runs
)

// softForm is for a GPU in software.
var softForm = &tenant.Form{Form: uint8(abi.PreemptSingle), Group: 1, Every: 1}

// evictAlone has a program evict its own kernel, in the form that its cost chooses.
func (b *bench) evictAlone(ctx context.Context, kernel string, stops [][]float64) (eviction, error) {
	e := eviction{name: kernel}
	m, err := b.controlled(ctx, "evicting")
	if err != nil {
		return e, err
	}
	asked := tenant.Evict{Scaled: kernel, Times: b.runs() * pick(b, 5, evictionsEach, evictionsEach), For: evictionsFor, Wanted: batchLeaves}
	if b.kind == "soft" { // where forms are too dear to be chosen
		asked.As = softForm
	}
	a, err := m.ask(ctx, tenant.Request{Evict: &asked})
	if err = errors.Join(err, b.leave(ctx, m)); err != nil {
		return e, err
	}
	found := a.Evicted
	if !found.Same {
		return e, errors.New("its results are not the original's")
	}
	e.form = found.Form
	e.overhead = float64(found.Chosen)/float64(found.Original) - 1
	e.longest = float64(found.Longest) / float64(time.Microsecond)
	took := figure.Micros(found.Took)
	e.took = slices.Collect(slices.Chunk(took, max((len(took)+b.runs()-1)/b.runs(), 1)))
	if (found.Suspend || found.Form.Form == 0) && len(stops) > 0 {
		e.form.Form, e.took = 0, stops
	}
	return e, nil
}

// evictGuests has a batch guest's kernel leave for an urgent guest's.
func (b *bench) evictGuests(ctx context.Context, batch, rush *member, j tenant.Job, short int) (e daemonEvictions, err error) {
	if err := b.setPolicy(ctx, "none"); err != nil {
		return e, err
	}
	long, form, err := b.tuned(ctx, batch, j)
	if err != nil {
		return e, err
	}
	e.form = *form
	var as *tenant.Form
	if b.kind == "soft" { // where forms are too dear to be chosen
		as, e.form.Form = softForm, softForm.Form
	}
	for range b.runs() {
		// Quantiles are of the time since the policy was set.
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
	_, err = batch.ask(ctx, tenant.Request{Reset: true}) // room for the next
	return e, err
}

func (b *bench) evictionsNow(ctx context.Context) (api.Evictions, error) {
	gpus, err := b.client.GPUs(ctx)
	if err != nil {
		return api.Evictions{}, err
	}
	return gpus[0].Evictions, nil
}

// tuneLaunches bounds the launches by which a kernel's form is found.
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
		// Several deep, as programs that care have them: else what a form costs is the
		// time that it takes to find it done.
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

// evictionRow is of the kernel that is nearest its bound, or the farthest above it, of
// those that leave by themselves: one that the hardware suspends is at its bound, which
// is that. The bound goes by the suspension's median for the median, and by its
// percentile for the percentile.
func (b *bench) evictionRow(id string, found []eviction, stops [][]float64) report.Row {
	name, of, suspension := "p50", figure.Median, hardwareSuspension
	ofDaemon := func(e *eviction) float64 { return figure.Median(e.whole.p50) }
	if id == "evict_us_p99" {
		name, of, suspension = "p99", percentile99, slowSuspension(stops)
		ofDaemon = func(e *eviction) float64 { return e.whole.slow() }
	}
	var nearest *eviction
	over := func(e *eviction) float64 { return of(e.all()) / e.bound(suspension) }
	table := detail("form", "group", "task, µs", "longest chunk, µs", "the form's overhead", "evictions", "p50, µs", "p99, µs", "bound of "+name+", µs",
		"by the daemon: form", "its evictions", "its p50, µs", "its p99, µs")
	for i := range found {
		e := &found[i]
		if nearest == nil || e.leaves() && !nearest.leaves() || e.leaves() == nearest.leaves() && over(e) > over(nearest) {
			nearest = e
		}
		table.Add(e.name, float64(e.form.Form), float64(e.form.Group), float64(e.form.Task)/1e3, e.longest, e.overhead,
			float64(len(e.all())), figure.Median(e.all()), percentile99(e.all()), e.bound(suspension),
			float64(e.whole.form.Form), float64(e.whole.count), figure.Median(e.whole.p50), e.whole.slow())
	}
	var runs []float64
	for _, took := range nearest.took {
		runs = append(runs, of(took))
	}
	r := b.rowOf(id, of(nearest.all()), runs, fmt.Sprintf("from writing the word, by a program of the host into its own kernel in the form that its cost chooses where it is wanted to leave within 60 µs, until the GPU is free; of the evictions of all runs together, and the spread of what each run's come to; goal: 25 µs and the longest chunk, or the hardware's suspension, if that is less. A chunk is group times as long as a task is on the average, or if that is more as a launch of just as many chunks as the GPU holds at once. "+
		"For the median that is what was measured before on the same kind of GPU, a median of 360 µs (docs/nvidia.md), and for the 99th percentile that of the suspensions measured in the same part, %d, if that is more: %.0f µs. Kernels that are better suspended by the hardware (form 0) have its suspensions for evictions, and its suspension for a bound. Shown is %s, the kernel nearest its bound of those that leave by themselves. "+
		"By the daemon: a guest's kernel for another guest's under hpf, until the daemon also knows what it has left to do; of fewer than %d there is no 99th percentile",
		len(slices.Concat(stops...)), slowSuspension(stops), nearest.name, leastForPercentile))
	r.Hold(nearest.bound(suspension))
	r.Detail = table
	r.Caveat = daemonCaveat(name, found, suspension, ofDaemon)
	r.Baseline["hardware_suspension_us_measured_before"] = hardwareSuspension
	if len(stops) > 0 {
		r.Baseline["hardware_suspension_us"] = of(slices.Concat(stops...))
	}
	r.Baseline["by_the_daemon_us"] = ofDaemon(nearest)
	r.Baseline["effisha_mean_us_published"], r.Baseline["xsched_v100_us_published"] = 80, 32
	return r
}

// daemonCaveat says what a row of evictions is not about.
func daemonCaveat(name string, found []eviction, suspension float64, ofDaemon func(e *eviction) float64) string {
	above, of := 0, 0
	for i := range found {
		if took := ofDaemon(&found[i]); !math.IsNaN(took) {
			of++
			if took > found[i].bound(suspension) {
				above++
			}
		}
	}
	return fmt.Sprintf("it is what a program of the host takes to evict its own kernel. What the daemon takes to evict a guest's, with its way there and the reading of what is left to do in it, is only a baseline of the row: "+
		"its %s exceeds the bound for %d of the %d kernels that it is known of", name, above, of)
}
