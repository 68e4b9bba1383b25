package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"vgpud/cmd/vgpud/workload"
	"vgpud/e2e/nvidia/figure"
	"vgpud/e2e/nvidia/report"
	"vgpud/e2e/nvidia/tenant"
	"vgpud/mediator/api"
)

// launches measures the latency that a guest's launch path adds, and the bandwidth of a guest's
// copies. Guest and native program take turns in each run.
func launches(ctx context.Context, b *bench) error {
	native, err := b.native(ctx, "native")
	if err != nil {
		return err
	}
	guest, err := b.guest(ctx, tenant.Setup{Name: "guest"})
	if err != nil {
		return err
	}
	if err := b.launchAdded(ctx, native, guest); err != nil {
		return err
	}
	for _, d := range []struct {
		id, name string
		up       bool
	}{{"copy_up_ratio", "up", true}, {"copy_down_ratio", "down", false}} {
		if err := b.copyRatio(ctx, native, guest, d.id, d.up); err != nil {
			return fmt.Errorf("copies %s: %w", d.name, err)
		}
	}
	return nil
}

func (b *bench) launchAdded(ctx context.Context, native, guest *member) (err error) {
	both := []*member{native, guest}
	jobs := make([]int, len(both))
	for i, m := range both {
		if jobs[i], err = m.load(ctx, tenant.Job{Fixed: "empty"}); err != nil {
			return err
		}
	}
	n := pick(b, 20, 1000, 4000)
	var added []float64
	medians, tails := make([][]float64, 2), make([][]float64, 2)
	for range b.runs() {
		for i, m := range both {
			ran, err := m.run(ctx, tenant.Run{Job: jobs[i], Count: n})
			if err != nil {
				return err
			}
			us := figure.Micros(ran.Turnarounds[n/10:]) // in the first launches all threads still sleep
			medians[i] = append(medians[i], figure.Median(us))
			tails[i] = append(tails[i], figure.Quantile(us, 0.99))
		}
		last := len(added)
		added = append(added, medians[1][last]-medians[0][last])
	}
	r := b.row("launch_added_us", added, fmt.Sprintf("%d launches of an empty kernel, each waited for, by a guest's process and by a native one; difference of the medians", n))
	r.Baseline["native_us_p50"], r.Baseline["guest_us_p50"] = figure.Median(medians[0]), figure.Median(medians[1])
	r.Baseline["native_us_p99"], r.Baseline["guest_us_p99"] = figure.Median(tails[0]), figure.Median(tails[1])
	if r.Detail, err = b.takenApart(ctx, pick(b, 20, 300, 1000)); err != nil {
		return fmt.Errorf("launches taken apart: %w", err)
	}
	b.add(r)
	return nil
}

// takenApart returns a table of the stages of a guest's launch, by the clocks of both sides.
func (b *bench) takenApart(ctx context.Context, launches int) (*report.Table, error) {
	v, err := b.client.CreateVM(ctx, api.VMSpec{Name: "apart", BAR2Bytes: 64 << 20})
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = workload.Run(ctx, workload.Plan{Name: v.Name, Socket: v.Socket, Measure: launches}, &out)
	if err = errors.Join(err, b.client.ForceDeleteVM(ctx, v.Name)); err != nil {
		return nil, err
	}
	var found workload.LatencyReport
	if err := json.Unmarshal(out.Bytes(), &found); err != nil {
		return nil, err
	}
	t := detail("p50, µs", "p99", "store", "doorbell", "fetch", "execute", "interrupt", "return")
	for _, w := range found.Ways {
		t.Add(w.Way, 1e6*w.Total, 1e6*w.Total99, 1e6*w.Store, 1e6*w.Doorbell, 1e6*w.Fetch, 1e6*w.Execute, 1e6*w.Interrupt, 1e6*w.Return)
	}
	return t, nil
}

// copyRatio compares copies of ordinary memory, which most programs use. For comparison, both sides
// also copy memory that is registered with the GPU.
func (b *bench) copyRatio(ctx context.Context, native, guest *member, id string, up bool) error {
	c := tenant.Copy{Bytes: pick(b, 1<<20, 256<<20, 256<<20), Times: pick(b, 1, 4, 4), Up: up}
	rate := func(m *member, c tenant.Copy) (float64, error) {
		a, err := m.ask(ctx, tenant.Request{Copy: &c})
		if err != nil {
			return 0, err
		}
		return float64(c.Bytes) / a.Seconds / 1e9, nil
	}
	var ratios, ofNative, ofGuest, ofPinned, guestsPinned []float64
	// Copies have more runs than the rest: the placement of the host's memory, which is new in each
	// run, has a large effect.
	for range pick(b, 1, 5, 9) {
		n, err := rate(native, c)
		if err != nil {
			return err
		}
		g, err := rate(guest, c)
		if err != nil {
			return err
		}
		ratios, ofNative, ofGuest = append(ratios, g/n), append(ofNative, n), append(ofGuest, g)
		pinned := c
		pinned.Pinned = true
		if p, err := rate(native, pinned); err == nil {
			ofPinned = append(ofPinned, p)
		}
		if p, err := rate(guest, pinned); err == nil {
			guestsPinned = append(guestsPinned, p)
		}
	}
	r := b.row(id, ratios, fmt.Sprintf("copies of %d MiB of ordinary memory, a guest's bandwidth over a native program's", c.Bytes>>20))
	r.Baseline["native_gb_per_s"], r.Baseline["guest_gb_per_s"] = figure.Median(ofNative), figure.Median(ofGuest)
	if len(ofPinned) > 0 {
		r.Baseline["native_pinned_gb_per_s"] = figure.Median(ofPinned)
		r.Baseline["guest_pinned_gb_per_s"] = figure.Median(guestsPinned)
		r.Baseline["guest_pinned_over_native_pinned"] = figure.Median(guestsPinned) / figure.Median(ofPinned)
	}
	b.add(r)
	return nil
}

// detail returns an empty table for a row.
func detail(columns ...string) *report.Table { return &report.Table{Columns: columns} }
