package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"vgpud/cmd/vgpud/batch"
	"vgpud/e2e/papers/case/live"
	"vgpud/gpu/corpus"
)

// casePart is the part that takes several GPUs.
const casePart = "case"

// several reports whether all parts that were asked for take several GPUs.
func (o *options) several() bool { return o.part == casePart }

// The scale of CASE's W1 on real GPUs, whose memory is filled as far as the modelled GPUs' is, but for
// the contexts' own: a batch takes about 20 s where a GPU belongs to one job at a time. Copies take as
// long a part of that as they would, which they do at fewer bytes.
const (
	caseTime    = 16
	caseCopies  = 16
	casePortion = 0.9 // of a GPU's memory
	caseOther   = 64 << 20
	caseBegins  = 8
	casePairs   = 4
	caseRounds  = 100
	caseTurn    = 20
)

// caseLongest is the longest kernel, well below the time limit.
const caseLongest = 100 * time.Millisecond

// tasksOverGPUs runs CASE's W1 on all GPUs, with a GPU for each job and floating, and measures what it
// costs that a context floats.
func tasksOverGPUs(ctx context.Context, b *bench) error {
	o := &batch.Options{Client: b.client, GPUs: b.names(), Dir: b.dir, Program: func(args ...string) (*exec.Cmd, error) {
		return exec.Command(b.vgpud(), args...), nil
	}}
	if len(o.GPUs) < 2 {
		return errors.New("this part takes two GPUs or more")
	}
	memory, err := b.leastMemory(ctx)
	if err != nil {
		return err
	}
	shape, few, many := corpus.ThrottleConfig{Blocks: 8 * b.sms, Threads: 256}, 20_000, 220_000
	if b.kind == "soft" {
		shape, few, many = corpus.ThrottleConfig{Blocks: 8, Threads: 32}, 20, 120
	}
	kernel, err := live.Calibrate(ctx, o, shape, few, many)
	if err != nil {
		return fmt.Errorf("calibrate: %w", err)
	}
	if err := b.caseCosts(ctx, o); err != nil {
		return err
	}
	model, err := live.W1()
	if err != nil {
		return err
	}
	scale := live.Scale{
		Memory: live.ModelGPUMemory / (casePortion * float64(memory)), Kernel: kernel, Longest: caseLongest, Other: caseOther,
		Time: pick[float64](b, 400, caseTime, caseTime), Copies: pick[float64](b, 4096, caseCopies, caseCopies),
	}
	if b.kind == "soft" {
		scale.Other = 4 << 20
	}
	jobs := scale.Jobs(model)
	var found []live.Compared
	err = b.repeat(1, func(int) error {
		c, err := live.Compare(ctx, o, jobs)
		if err != nil {
			return err
		}
		b.say("%.2f s with a GPU for each job, %.2f s floating; %d out of memory", c.Single.Seconds, c.Floating.Seconds, c.OutOfMemory())
		found = append(found, c)
		return nil
	})
	if err == nil {
		b.caseRows(found, fmt.Sprintf("CASE's W1, %d jobs at 1:%g of their time, on %d GPUs with %.3g times the memory that each was modelled for; host work is waited for",
			len(jobs), scale.Time, len(o.GPUs), 1/scale.Memory))
	}
	return err
}

// caseRows makes the rows of the batches.
func (b *bench) caseRows(found []live.Compared, how string) {
	var gains, oom []float64
	table := detail("s, a GPU for each job", "s, floating", "turnaround, s", "turnaround floating, s", "waited for a GPU, s", "waited floating, s")
	for i, c := range found {
		gains, oom = append(gains, c.Gain()), append(oom, float64(c.OutOfMemory()))
		table.Add(fmt.Sprintf("run %d", i+1), c.Single.Seconds, c.Floating.Seconds, c.Single.TurnaroundSeconds, c.Floating.TurnaroundSeconds,
			c.Single.WaitedSeconds, c.Floating.WaitedSeconds)
	}
	last := found[len(found)-1]
	r := b.row("gpu_sa", gains, how+". Throughput of guests that float over that with a GPU for each job's process")
	r.Baseline["single_assignment_s"], r.Baseline["floating_s"] = last.Single.Seconds, last.Floating.Seconds
	r.Detail = table
	lost := 0.0
	for _, n := range oom {
		lost += n
	}
	m := b.rowOf("gpu_oom", lost, oom, "the same: jobs that ended since they got no memory, in all runs")
	m.Baseline["jobs"] = float64(2 * len(found) * len(last.Single.Jobs))
	b.add(r, m)
}

// caseCosts makes the rows of what floating costs.
func (b *bench) caseCosts(ctx context.Context, o *batch.Options) error {
	const micros = 1e6
	begins, err := live.Begin(ctx, o, pick(b, 1, caseBegins, caseBegins), 64<<20)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	r := b.rowOf("gpu_begin_us", micros*live.Median(begins.Floating), []float64{micros * live.Median(begins.Floating)},
		fmt.Sprintf("p50 of %d contexts of 64 MiB, one after the other with a pause of 1.5 s, from the request until the context could be used", len(begins.Floating)))
	r.Baseline["until_a_gpu_was_found_us"], r.Baseline["a_context_that_does_not_float_us"] = micros*live.Median(begins.Waited), micros*live.Median(begins.Plain)
	launches, err := live.Launch(ctx, o, pick(b, 1, casePairs, casePairs), pick(b, 2, caseRounds, caseRounds), caseTurn)
	if err != nil {
		return fmt.Errorf("launch: %w", err)
	}
	l := b.rowOf("gpu_launch_added", launches.Added(), launches.Pairs,
		fmt.Sprintf("an empty kernel from the call to its end, median of %d, in contexts that float over that in contexts that don't, by turns on one GPU", len(launches.Floating)))
	l.Baseline["floating_us"], l.Baseline["plain_us"] = micros*live.Median(launches.Floating), micros*live.Median(launches.Plain)
	b.add(r, l)
	return nil
}

// names returns the names of the testbed's GPUs.
func (h *testbed) names() []string {
	all := []string{h.gpu.Name}
	for _, g := range h.others {
		all = append(all, g.Name)
	}
	return all
}

// leastMemory returns the memory of the smallest GPU, in bytes.
func (h *testbed) leastMemory(ctx context.Context) (least uint64, err error) {
	gpus, err := h.client.GPUs(ctx)
	if err != nil {
		return 0, err
	}
	for i, g := range gpus {
		if i == 0 || g.MemoryBytes < least {
			least = g.MemoryBytes
		}
	}
	if least == 0 {
		return 0, errors.New("a GPU without memory")
	}
	return least, nil
}

// describeSeveral returns a description of GPUs by their names.
func describeSeveral(names []string) string {
	for _, n := range names[1:] {
		if n != names[0] {
			return strings.Join(names, ", ")
		}
	}
	return fmt.Sprintf("%d × %s", len(names), names[0])
}
