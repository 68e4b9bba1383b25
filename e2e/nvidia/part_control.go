package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"vgpud/e2e/nvidia/figure"
	"vgpud/e2e/nvidia/report"
	"vgpud/e2e/nvidia/tenant"
	"vgpud/mediator/api"
	"vgpud/mediator/vgpu/abi"
)

// What an H100 took of suspensions by the notes' measurements, medians and slowest of
// 50 (docs/results/preemption-on-h100.md).
const (
	notedSuspend = 0.359
	notedResume  = 0.353
)

// hardwareSuspension is what the hardware's own suspension takes (the same), and
// evictOverhead what an eviction may take beside the kernel's longest chunk.
const (
	hardwareSuspension = 360.0 // µs
	evictOverhead      = 25.0  // µs
)

// control measures how soon a kernel is off the GPU: by the hardware, and by its own
// form.
func control(ctx context.Context, b *bench) error {
	err := b.suspensions(ctx)
	if err != nil {
		err = fmt.Errorf("suspension: %w", err)
	}
	return errors.Join(err, b.evictions(ctx))
}

func (b *bench) suspensions(ctx context.Context) error {
	if b.kind == "soft" {
		return nil // it suspends between kernels
	}
	blocks := 2 * b.sms
	var off, on, offCalls, onCalls []float64
	var stopped, all int
	m, err := b.controlled(ctx, "controlled")
	if err != nil {
		return err
	}
	for range b.runs() {
		a, err := m.ask(ctx, tenant.Request{Suspend: &tenant.Suspend{Times: pick(b, 3, 15, 50), Blocks: max(blocks, 2)}})
		if err != nil {
			return err
		}
		var o, n, oc, nc []float64
		for _, s := range a.Standstills {
			all++
			if !s.Stopped {
				continue
			}
			stopped++
			o, n = append(o, millis(s.Suspend)), append(n, millis(s.Resume))
			oc, nc = append(oc, millis(s.Off)), append(nc, millis(s.On))
		}
		if len(o) == 0 {
			return fmt.Errorf("in none of %d suspensions did the kernel stand still", len(a.Standstills))
		}
		off, on = append(off, figure.Median(o)), append(on, figure.Median(n))
		offCalls, onCalls = append(offCalls, figure.Median(oc)), append(onCalls, figure.Median(nc))
	}
	if err := b.leave(ctx, m); err != nil {
		return err
	}
	how := fmt.Sprintf("a kernel on all SMs reads the GPU's clock; from before the call until the last block stands still, or goes on: %d of %d stood still", stopped, all)
	suspend, resume := b.row("suspend_ms", off, how), b.row("resume_ms", on, how)
	suspend.Baseline["notes_ms"], resume.Baseline["notes_ms"] = notedSuspend, notedResume
	suspend.Baseline["call_ms"], resume.Baseline["call_ms"] = figure.Median(offCalls), figure.Median(onCalls)
	if stopped < all {
		suspend.Met = false
		suspend.Why = "not every suspension stopped the kernel"
	}
	b.add(suspend, resume)
	return nil
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// longKernels are the kernels whose evictions are measured.
func (b *bench) longKernels() []tenant.Job {
	if b.kind == "soft" {
		return []tenant.Job{{Spin: &tenant.Spin{Blocks: 512, Threads: 32, Iterations: 100}}}
	}
	names := pick(b, []string{"vecadd"}, []string{"vecadd", "stencil", "matmul", "nbody"},
		[]string{"vecadd", "stencil", "matmul", "nbody", "blackscholes", "kmeans", "transpose", "md5"})
	var jobs []tenant.Job
	for _, n := range names {
		jobs = append(jobs, tenant.Job{Scaled: n})
	}
	return jobs
}

// eviction is what was measured of one kernel.
type eviction struct {
	name     string
	form     tenant.Form
	p50, p99 []float64 // µs, of each run
	count    uint64
}

// bound is what an eviction may take, in µs.
func (e *eviction) bound() float64 {
	if e.form.Form == 0 {
		return hardwareSuspension
	}
	chunk := float64(e.form.Task) / float64(time.Microsecond) * float64(max(e.form.Group, 1))
	return min(evictOverhead+chunk, hardwareSuspension)
}

// endless is rounds of a batch program that always has its next kernel queued.
const endless = 1 << 20

// evictions measures how soon kernels in their chosen forms leave for an urgent
// guest's.
func (b *bench) evictions(ctx context.Context) error {
	iterations, _, err := b.scale(ctx, 100*time.Microsecond)
	if err != nil {
		return err
	}
	all, err := b.open(ctx, seat{setup: tenant.Setup{Name: "batch", Preempt: true}},
		seat{api.VMSpec{PriorityCeiling: api.MaxPriority}, tenant.Setup{Name: "urgent", Priority: -10}})
	if err != nil {
		return err
	}
	batch, rush := all[0], all[1]
	spin := b.full(iterations[0])
	short, err := rush.load(ctx, tenant.Job{Spin: &spin})
	if err != nil {
		return err
	}
	var found []eviction
	for _, j := range b.longKernels() {
		e, err := b.evict(ctx, batch, rush, j, short)
		if err != nil {
			return fmt.Errorf("eviction of %s: %w", j.Name(), err)
		}
		if e.count > 0 {
			found = append(found, e)
		}
	}
	if len(found) == 0 {
		return errors.New("nothing was evicted")
	}
	b.add(b.evictionRow("evict_us_p50", found, func(e *eviction) []float64 { return e.p50 }),
		b.evictionRow("evict_us_p99", found, func(e *eviction) []float64 { return e.p99 }))
	return nil
}

func (b *bench) evict(ctx context.Context, batch, rush *member, j tenant.Job, short int) (eviction, error) {
	e := eviction{name: j.Name()}
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
		as = &tenant.Form{Form: uint8(abi.PreemptSingle), Group: 1, Every: 1}
		e.form.Form = as.Form
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
		window := pick(b, 300*time.Millisecond, time.Second, 3*time.Second)
		_, err = together(ctx, task{batch, tenant.Run{Job: long, For: window, Depth: 2, Rounds: endless, As: as}},
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
	b.say("%s in form %d, group %d, task %v: %d evictions, median %.0f µs, bound %.0f µs", e.name, e.form.Form, e.form.Group, e.form.Task, e.count, figure.Median(e.p50), e.bound())
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
	const some = 8
	var form *tenant.Form
	for range tuneLaunches / some {
		if _, err := m.run(ctx, tenant.Run{Job: id, Count: some, Depth: 1}); err != nil {
			return 0, nil, err
		}
		a, err := m.ask(ctx, tenant.Request{Forms: &id})
		if err != nil {
			return 0, nil, err
		}
		if form = a.Form; form == nil {
			return 0, nil, errors.New("it has no forms")
		}
		if form.Why != "measuring" && form.Why != "" {
			break
		}
	}
	return id, form, nil
}

// evictionRow is of the kernel that is nearest its bound, or the farthest above it.
func (b *bench) evictionRow(id string, found []eviction, of func(*eviction) []float64) report.Row {
	nearest := 0
	over := func(e *eviction) float64 { return figure.Median(of(e)) / e.bound() }
	table := detail("form", "group", "task, µs", "evictions", "p50, µs", "p99, µs", "bound, µs")
	for i := range found {
		e := &found[i]
		if over(e) > over(&found[nearest]) {
			nearest = i
		}
		table.Add(e.name, float64(e.form.Form), float64(e.form.Group), float64(e.form.Task)/1e3, float64(e.count),
			figure.Median(e.p50), figure.Median(e.p99), e.bound())
	}
	n := &found[nearest]
	r := b.row(id, of(n), "from the word that the kernel is to leave until the daemon knows that it has; goal: 25 µs and the longest chunk, or the hardware's suspension, if that is less. Shown is "+n.name)
	r.Hold(n.bound())
	r.Detail = table
	r.Baseline["hardware_suspension_us_by_notes"] = hardwareSuspension
	if s := b.found.Row("suspend_ms"); s != nil {
		r.Baseline["hardware_suspension_us"] = 1e3 * s.Value
	}
	r.Baseline["effisha_mean_us_published"], r.Baseline["xsched_v100_us_published"] = 80, 32
	return r
}
