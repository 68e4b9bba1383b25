package main

import (
	"context"
	"errors"
	"fmt"
	"math"

	"vgpud/e2e/nvidia/figure"
	"vgpud/e2e/nvidia/tenant"
	"vgpud/mediator/api"
)

// edgeUrgentPart is the part about event kernels with a priority.
const edgeUrgentPart = "edge-urgent"

// urgentEvents measures events of an urgent guest beside another guest's preemptible kernels of 20 ms,
// under a policy that goes by priority: they take the GPU from those as urgent launches do.
func urgentEvents(ctx context.Context, b *bench) error {
	e := &edge{bench: b, found: make(map[string][]float64)}
	guests, err := b.open(ctx, seat{setup: tenant.Setup{Name: "batch", Preempt: true}},
		seat{api.VMSpec{PriorityCeiling: api.MaxPriority}, tenant.Setup{Name: "urgent", Priority: -10}})
	if err != nil {
		return err
	}
	e.other, e.guest = guests[0], guests[1]
	// The batch guest's driver chooses the form by what the urgent guest wants.
	if err := b.setPolicy(ctx, "hpf"); err != nil {
		return err
	}
	scaled, err := b.scale(ctx, batchTask)
	if err != nil {
		return err
	}
	batch := b.manyBlocks(scaled.iterations[0])
	long, form, err := b.tuned(ctx, e.other, tenant.Job{Spin: &batch})
	if err != nil {
		return err
	}
	window := pick(b, edgeShared/20, edgeShared, edgeShared)
	alone, err := e.other.run(ctx, tenant.Run{Job: long, Warm: urgentWarm, For: window / 2, Depth: batchDepth, Rounds: endless})
	if err != nil {
		return err
	}
	err = b.repeat(0.9, func(int) error { return e.urgentBout(ctx, long, alone) })
	if err == nil {
		e.reportUrgent(form)
	}
	return errors.Join(err, b.leave(ctx, guests...))
}

// urgentBout launches events alone, without pauses and with, and beside the batch guest.
func (e *edge) urgentBout(ctx context.Context, long int, alone *tenant.Ran) error {
	n := pick(e.bench, 40, 2000, 4000)
	p50, err := e.events(ctx, e.guest, "alone", tenant.Events{Kernels: 1, Blocks: 1, Threads: edgeWarp, Rounds: n, Jitter: edgeJitter})
	if err != nil {
		return err
	}
	window := pick(e.bench, edgeShared/20, edgeShared, edgeShared)
	paused := tenant.Events{Kernels: 1, Blocks: 1, Threads: edgeWarp, Rounds: 1 << 20, For: window, Jitter: mostPause}
	if _, err := e.events(ctx, e.guest, "alone with pauses", paused); err != nil {
		return err
	}
	ran := make(chan *tenant.Ran, 1)
	failed := make(chan error, 1)
	go func() {
		r, err := e.other.run(ctx, tenant.Run{Job: long, Warm: urgentWarm, For: window, After: urgentWarm, Depth: batchDepth, Rounds: endless})
		ran <- r
		failed <- err
	}()
	beside, err := e.events(ctx, e.guest, "beside", paused)
	r := <-ran
	if err := errors.Join(err, <-failed); err != nil {
		return err
	}
	e.keep("over alone", beside-p50)
	e.keep("kept", kept(r, turnaround(alone, 1)))
	return nil
}

// reportUrgent makes the row.
func (e *edge) reportUrgent(form *tenant.Form) {
	how := fmt.Sprintf("events of a guest with the highest priority beside another guest's kernels of %v in form %d, with pauses of up to %v, less events alone without pauses: medians. Policy hpf",
		batchLength, form.Form, mostPause)
	row := e.row("shared_urgent_p50_us", e.found["over alone"], how)
	for name, what := range map[string]string{
		"alone_us": "alone", "alone_with_pauses_us": "alone with pauses", "alone_with_pauses_us_p99": "alone with pauses p99",
		"beside_us": "beside", "beside_us_p99": "beside p99", "batch_kept": "kept",
	} {
		row.Baseline[name] = math.NaN()
		if len(e.found[what]) > 0 {
			row.Baseline[name] = figure.Median(e.found[what])
		}
	}
	e.add(row)
}
